//! Calls through files, for remote environments: the program writes `req_N`, this side polls for them and
//! writes `res_N`.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hermes_exec::{ExecError, Files, WriteOptions};

use super::rpc::ProgramCalls;

const MAX_REQUEST: usize = 16 << 20;
/// Poll interval: short while calls arrive, longer while none do.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Serves the program until this is dropped. Remote failures are retried: the caller knows whether the program
/// still runs.
pub(super) async fn serve(files: &dyn Files, dir: &Path, calls: &ProgramCalls) {
    let mut running = FuturesUnordered::new();
    let mut pause = MIN_POLL_INTERVAL;
    loop {
        tokio::select! {
            Some(()) = running.next() => {}
            () = tokio::time::sleep(pause) => match requests(files, dir).await {
                Ok(found) if found.is_empty() => pause = (pause * 5 / 4).min(MAX_POLL_INTERVAL),
                Ok(found) => {
                    pause = MIN_POLL_INTERVAL;
                    for (name, request) in found {
                        running.push(respond(files, dir, name, request, calls));
                    }
                }
                Err(error) => {
                    pause = MAX_POLL_INTERVAL;
                    tracing::debug!(%error, "looking for calls of a program");
                }
            },
        }
    }
}

/// New requests, removed so that each is processed once.
async fn requests(files: &dyn Files, dir: &Path) -> Result<Vec<(String, Bytes)>, ExecError> {
    let mut found = Vec::new();
    for (name, _) in files.list(dir).await? {
        let is_number = |number: &str| number.bytes().all(|digit| digit.is_ascii_digit());
        if !name.strip_prefix("req_").is_some_and(is_number) {
            continue;
        }
        let path = dir.join(&name);
        let request = files.read(&path, 0, MAX_REQUEST).await?;
        files.remove(&path).await?;
        found.push((name, request));
    }
    Ok(found)
}

async fn respond(
    files: &dyn Files,
    dir: &Path,
    name: String,
    request: Bytes,
    calls: &ProgramCalls,
) {
    let Some(answer) = calls.answer(&request).await else {
        return;
    };
    let file_path = dir.join(name.replacen("req_", "res_", 1));
    let options = WriteOptions {
        mode: Some(0o600),
        ..WriteOptions::default()
    };
    if let Err(error) = files.write(&file_path, answer.into(), options).await {
        tracing::warn!(%error, "an answer to a program could not be written");
    }
}
