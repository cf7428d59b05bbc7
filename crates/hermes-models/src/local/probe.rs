//! Whether a model can call tools: tried once per file, then known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use hermes_config::fs::write_atomic;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::Settings;
use super::weights::Weights;

/// What trying found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether tools are offered.
    pub tools: bool,
    /// Calls that were right, of those that were asked for.
    #[serde(default, alias = "right_calls")]
    pub right: u32,
    #[serde(default, alias = "call_due")]
    pub asked: u32,
}

/// It could not be tried.
#[derive(Debug, thiserror::Error)]
#[error("whether {name} can call tools could not be tried: {why}")]
pub struct ProbeError {
    name: String,
    why: String,
}

/// Verdicts that are kept.
const KEPT: usize = 64;
/// What trying may take. A large model is converted first, and writes a few tokens per second.
const LIMIT: Duration = Duration::from_mins(30);
/// More than a verdict ever has.
const ANSWER: u64 = 1 << 20;
/// How many prompts are tried; fewer where it is clear before that.
pub const PROMPTS: u32 = 11;

fn book(settings: &Settings) -> PathBuf {
    settings.cache.join("tools.json")
}

fn read(path: &Path) -> BTreeMap<String, Verdict> {
    std::fs::read(path)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

impl Settings {
    /// Whether tools are offered to this model. `None`: nobody knows yet.
    pub fn offers_tools(&self, weights: &Weights) -> Option<bool> {
        self.tools.or_else(|| {
            let tried = weights
                .print()
                .and_then(|print| read(&book(self)).remove(&print));
            tried
                .map(|verdict| verdict.tools)
                .or_else(|| weights.model?.tools)
        })
    }

    /// Keeps a verdict for this very file.
    pub fn keep_verdict(&self, weights: &Weights, verdict: &Verdict) {
        let Some(print) = weights.print() else {
            return;
        };
        let path = book(self);
        let mut all = read(&path);
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(print, verdict.clone());
        let written = serde_json::to_vec_pretty(&all)
            .map_err(std::io::Error::from)
            .and_then(|bytes| write_atomic(&path, &bytes, 0o600));
        if let Err(error) = written {
            tracing::warn!(%error, "what the model can do was not kept; it is tried again");
        }
    }

    /// Tries the model in a process of its own, which takes a while, and keeps what came of it.
    /// `tell` hears how many prompts were tried.
    pub async fn try_tools(
        &self,
        program: &Path,
        weights: &Weights,
        tell: &(dyn Fn(u32) + Sync),
    ) -> Result<Verdict, ProbeError> {
        let failed = |why: String| ProbeError {
            name: weights.name.clone(),
            why,
        };
        let mut command = Command::new(program);
        command
            .arg("probe")
            .arg("--model")
            .arg(&weights.path)
            .arg("--cache")
            .arg(&self.cache);
        if self.threads > 0 {
            command.arg("--threads").arg(self.threads.to_string());
        }
        let child = command
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let minutes = LIMIT.as_secs() / 60;
        let ended = tokio::time::timeout(LIMIT, finish(child, tell))
            .await
            .map_err(|_| {
                failed(format!(
                    "it took longer than {minutes} minutes (local.tools: off leaves it out)"
                ))
            })?
            .map_err(|error| failed(error.to_string()))?;
        if !ended.status.success() {
            return Err(failed(ended.last_words));
        }
        let verdict: Verdict = serde_json::from_slice(&ended.answer)
            .map_err(|error| failed(format!("its answer cannot be read ({error})")))?;
        self.keep_verdict(weights, &verdict);
        Ok(verdict)
    }
}

struct Ended {
    status: ExitStatus,
    answer: Vec<u8>,
    last_words: String,
}

/// Reads what the program says until it ends.
async fn finish(mut child: Child, tell: &(dyn Fn(u32) + Sync)) -> std::io::Result<Ended> {
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(std::io::Error::other("its answer cannot be read"));
    };
    let mut answer = Vec::new();
    let mut out = out.take(ANSWER);
    let reading = out.read_to_end(&mut answer);
    let (read, last_words) = tokio::join!(reading, listen(BufReader::new(err), tell));
    read?;
    Ok(Ended {
        status: child.wait().await?,
        answer,
        last_words: last_words?,
    })
}

/// Counts the prompts that were tried, each a line of its own. Returns the last line.
async fn listen(
    err: BufReader<tokio::process::ChildStderr>,
    tell: &(dyn Fn(u32) + Sync),
) -> std::io::Result<String> {
    let mut lines = err.lines();
    let mut last = "it ended early".to_owned();
    let mut tried = 0;
    while let Some(line) = lines.next_line().await? {
        if line.contains(" → ") && tried < PROMPTS {
            tried += 1;
            tell(tried);
        }
        if !line.trim().is_empty() {
            line.trim().clone_into(&mut last);
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Mutex;

    use hermes_config::Config;
    use hermes_config::home::Home;

    use super::*;

    #[test]
    fn a_verdict_holds_for_the_file_it_was_found_for() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings::new(&Home::at(dir.path()), &Config::default());
        std::fs::create_dir_all(&settings.cache).unwrap();
        let file = dir.path().join("own.gguf");
        std::fs::write(&file, "one").unwrap();
        let weights = settings.weights(&file.to_string_lossy()).unwrap();
        assert_eq!(settings.offers_tools(&weights), None);
        let verdict = Verdict {
            tools: true,
            right: 9,
            asked: 10,
        };
        settings.keep_verdict(&weights, &verdict);
        assert_eq!(settings.offers_tools(&weights), Some(true));
        std::fs::write(&file, "another one").unwrap();
        assert_eq!(settings.offers_tools(&weights), None);
        // The pinned file is known, unless somebody says otherwise.
        let known = settings.weights("smollm2-135m").unwrap();
        assert_eq!(settings.offers_tools(&known), Some(false));
        let forced = Settings {
            tools: Some(true),
            ..settings
        };
        assert_eq!(forced.offers_tools(&known), Some(true));
    }

    /// What `script`, in the place of the program, leads to, and what was told meanwhile.
    async fn tried(script: &str) -> (Result<Verdict, String>, Vec<u32>) {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings::new(&Home::at(dir.path()), &Config::default());
        std::fs::create_dir_all(&settings.cache).unwrap();
        let file = dir.path().join("own.gguf");
        std::fs::write(&file, "one").unwrap();
        let weights = settings.weights(&file.to_string_lossy()).unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let heard = Mutex::new(Vec::new());
        let done = settings
            .try_tools(&program, &weights, &|tried| {
                heard.lock().unwrap().push(tried);
            })
            .await;
        let kept = settings.offers_tools(&weights);
        assert_eq!(kept, done.as_ref().ok().map(|verdict| verdict.tools));
        let done = done.map_err(|error| error.why);
        (done, heard.into_inner().unwrap())
    }

    #[tokio::test]
    async fn trying_tells_how_far_it_is() {
        let (done, heard) = tried(
            "echo ' INFO converting' >&2\n\
             echo ' INFO Right: \"a\" → Call' >&2\n\
             echo ' INFO Missed: \"b\" → Words' >&2\n\
             echo '{\"tools\": true, \"right_calls\": 1, \"call_due\": 2}'",
        )
        .await;
        let verdict = Verdict {
            tools: true,
            right: 1,
            asked: 2,
        };
        assert_eq!((done, heard), (Ok(verdict), vec![1, 2]));
        let (done, _) = tried("echo it is no model >&2; exit 1").await;
        assert_eq!(done, Err("it is no model".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn trying_ends_also_where_the_program_does_not() {
        let (done, _) = tried("exec sleep 3600").await;
        let why = done.unwrap_err();
        assert!(why.contains("longer than 30 minutes"), "{why}");
    }
}
