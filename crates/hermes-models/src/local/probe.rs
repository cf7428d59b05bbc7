//! Whether a model can call tools: tried once per file, then known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use hermes_config::fs::write_atomic;
use serde::{Deserialize, Serialize};

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
    pub async fn try_tools(
        &self,
        program: &Path,
        weights: &Weights,
    ) -> Result<Verdict, ProbeError> {
        let failed = |why: String| ProbeError {
            name: weights.name.clone(),
            why,
        };
        let mut command = tokio::process::Command::new(program);
        command
            .arg("probe")
            .arg("--model")
            .arg(&weights.path)
            .arg("--cache")
            .arg(&self.cache);
        if self.threads > 0 {
            command.arg("--threads").arg(self.threads.to_string());
        }
        let output = command
            .env_clear()
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            let last = words.lines().rev().find(|line| !line.trim().is_empty());
            return Err(failed(last.unwrap_or("it ended early").trim().to_owned()));
        }
        let verdict: Verdict = serde_json::from_slice(&output.stdout)
            .map_err(|error| failed(format!("its answer cannot be read ({error})")))?;
        self.keep_verdict(weights, &verdict);
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
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
}
