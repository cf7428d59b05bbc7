//! Whether a model can call tools: tested once per file, then cached.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use hermes_config::fs::write_atomic;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::LocalModelSettings;
use super::weights::NamedWeights;

/// The result of the test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolProbeResult {
    /// Whether tools are offered.
    pub tools: bool,
    /// Correct calls, of those requested.
    #[serde(default, alias = "right_calls")]
    pub right: u32,
    #[serde(default, alias = "call_due")]
    pub asked: u32,
}

/// The test could not be run.
#[derive(Debug, thiserror::Error)]
#[error("whether {name} can call tools could not be tried: {why}")]
pub struct ToolProbeError {
    name: String,
    why: String,
}

/// Number of cached results.
const MAX_RESULTS: usize = 64;
/// Time limit of the test. A large model is converted first, and writes a few tokens per second.
const PROBE_TIMEOUT: Duration = Duration::from_mins(30);
/// More than a result ever has.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// How many prompts are tested; fewer if the result is clear earlier.
pub const MAX_PROMPTS: u32 = 11;

fn book(settings: &LocalModelSettings) -> PathBuf {
    settings.cache.join("tools.json")
}

fn read(path: &Path) -> BTreeMap<String, ToolProbeResult> {
    std::fs::read(path)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

impl LocalModelSettings {
    /// Whether tools are offered to this model. `None`: not tested yet.
    pub fn offers_tools(&self, weights: &NamedWeights) -> Option<bool> {
        self.tools.or_else(|| {
            let tried = weights
                .print()
                .and_then(|print| read(&book(self)).remove(&print));
            tried
                .map(|verdict| verdict.tools)
                .or_else(|| weights.model?.tools)
        })
    }

    /// Stores the result for this exact file.
    pub fn save_probe_result(&self, weights: &NamedWeights, verdict: &ToolProbeResult) {
        let Some(print) = weights.print() else {
            return;
        };
        let path = book(self);
        let mut all = read(&path);
        if all.len() >= MAX_RESULTS {
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

    /// Tests the model in a separate process, which takes a while, and stores the result. `tell` is
    /// called with the number of prompts tested.
    pub async fn try_tools(
        &self,
        program: &Path,
        weights: &NamedWeights,
        tell: &(dyn Fn(u32) + Sync),
    ) -> Result<ToolProbeResult, ToolProbeError> {
        let failed = |why: String| ToolProbeError {
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
        let minutes = PROBE_TIMEOUT.as_secs() / 60;
        let ended = tokio::time::timeout(PROBE_TIMEOUT, finish(child, tell))
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
        let verdict: ToolProbeResult = serde_json::from_slice(&ended.answer)
            .map_err(|error| failed(format!("its answer cannot be read ({error})")))?;
        self.save_probe_result(weights, &verdict);
        Ok(verdict)
    }
}

struct ProbeExit {
    status: ExitStatus,
    answer: Vec<u8>,
    last_words: String,
}

/// Reads the output of the program until it exits.
async fn finish(mut child: Child, tell: &(dyn Fn(u32) + Sync)) -> std::io::Result<ProbeExit> {
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(std::io::Error::other("its answer cannot be read"));
    };
    let mut answer = Vec::new();
    let mut out = out.take(MAX_OUTPUT_BYTES);
    let reading = out.read_to_end(&mut answer);
    let (read, last_words) = tokio::join!(reading, count_progress(BufReader::new(err), tell));
    read?;
    Ok(ProbeExit {
        status: child.wait().await?,
        answer,
        last_words: last_words?,
    })
}

/// Counts the tested prompts, one per line. Returns the last line.
async fn count_progress(
    err: BufReader<tokio::process::ChildStderr>,
    tell: &(dyn Fn(u32) + Sync),
) -> std::io::Result<String> {
    let mut lines = err.lines();
    let mut last = "it ended early".to_owned();
    let mut tried = 0;
    while let Some(line) = lines.next_line().await? {
        if line.contains(" → ") && tried < MAX_PROMPTS {
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
        let settings = LocalModelSettings::new(&Home::at(dir.path()), &Config::default());
        std::fs::create_dir_all(&settings.cache).unwrap();
        let file = dir.path().join("own.gguf");
        std::fs::write(&file, "one").unwrap();
        let weights = settings.weights(&file.to_string_lossy()).unwrap();
        assert_eq!(settings.offers_tools(&weights), None);
        let verdict = ToolProbeResult {
            tools: true,
            right: 9,
            asked: 10,
        };
        settings.save_probe_result(&weights, &verdict);
        assert_eq!(settings.offers_tools(&weights), Some(true));
        std::fs::write(&file, "another one").unwrap();
        assert_eq!(settings.offers_tools(&weights), None);
        // The pinned file is known, unless somebody says otherwise.
        let known = settings.weights("smollm2-135m").unwrap();
        assert_eq!(settings.offers_tools(&known), Some(false));
        let forced = LocalModelSettings {
            tools: Some(true),
            ..settings
        };
        assert_eq!(forced.offers_tools(&known), Some(true));
    }

    /// What `script`, in the place of the program, leads to, and what was told meanwhile.
    async fn tried(script: &str) -> (Result<ToolProbeResult, String>, Vec<u32>) {
        let dir = tempfile::tempdir().unwrap();
        let settings = LocalModelSettings::new(&Home::at(dir.path()), &Config::default());
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
        let verdict = ToolProbeResult {
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
