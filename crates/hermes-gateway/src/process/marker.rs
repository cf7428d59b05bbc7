//! Marker files for a gateway that is about to be stopped, so that it knows the reason.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use hermes_config::fs::write_atomic;
use serde_json::{Value, json};

use super::machine::{self, GatewayProcess, start_time};

/// Markers older than this are ignored.
const MARKER_LIFETIME_SECONDS: i64 = 60;

/// Why a gateway is going to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Another gateway replaces it.
    Takeover,
    /// A planned stop.
    PlannedStop,
}

impl Marker {
    fn path(self, root: &Path) -> PathBuf {
        root.join(match self {
            Self::Takeover => ".gateway-takeover.json",
            Self::PlannedStop => ".gateway-planned-stop.json",
        })
    }

    /// Writes the marker for `target`.
    pub fn leave(
        self,
        root: &Path,
        target: GatewayProcess,
        now: DateTime<Utc>,
    ) -> std::io::Result<()> {
        let mut word = json!({
            "target_pid": target.pid,
            "target_start_time": target.start_time.or_else(|| start_time(target.pid)),
            "written_at": now.to_rfc3339(),
        });
        match self {
            Self::Takeover => {
                word["replacer_pid"] = std::process::id().into();
                word["replacer_hermes_home"] = root.display().to_string().into();
            }
            Self::PlannedStop => word["stopper_pid"] = std::process::id().into(),
        }
        write_atomic(&self.path(root), word.to_string().as_bytes(), 0o600)
    }

    /// Removes the marker.
    pub fn clear(self, root: &Path) {
        let path = self.path(root);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!("{}: {error}", path.display());
            }
            _ => {}
        }
    }

    /// Whether there is a marker for this process. It is not removed.
    pub fn is_for_us(self, root: &Path, now: DateTime<Utc>) -> bool {
        let Ok(text) = std::fs::read_to_string(self.path(root)) else {
            return false;
        };
        let Ok(word) = serde_json::from_str::<Value>(&text) else {
            self.clear(root);
            return false;
        };
        let written = word["written_at"].as_str();
        let written = written.and_then(|text| DateTime::parse_from_rfc3339(text).ok());
        if written.is_none_or(|at| (now - at.to_utc()).num_seconds() > MARKER_LIFETIME_SECONDS) {
            self.clear(root);
            return false;
        }
        let home = word["replacer_hermes_home"].as_str();
        if home.is_some_and(|home| Path::new(home) != root) {
            return false;
        }
        let pid = std::process::id();
        let ours = match (word["target_start_time"].as_i64(), start_time(pid)) {
            (Some(theirs), Some(ours)) => theirs == ours,
            _ => true,
        };
        word["target_pid"].as_u64() == Some(pid.into()) && ours
    }

    /// Like [`Self::is_for_us`], and removes the marker if there is one.
    pub fn take(self, root: &Path, now: DateTime<Utc>) -> bool {
        let ours = self.is_for_us(root, now);
        if ours {
            self.clear(root);
        }
        ours
    }
}

/// Whether a drain is requested (`.drain_request.json`): no new turns start. A request from before
/// the last boot is ignored.
pub fn drain_requested(root: &Path) -> bool {
    drain_request(root).is_some()
}

/// Whether the request also suppresses messages to home channels (`suppress_notification`).
pub fn quiet_drain(root: &Path) -> bool {
    drain_request(root).is_some_and(|word| word["suppress_notification"] == Value::Bool(true))
}

fn drain_request(root: &Path) -> Option<Value> {
    let path = root.join(".drain_request.json");
    let text = std::fs::read_to_string(path).ok()?;
    let word: Value = serde_json::from_str(&text).unwrap_or_default();
    let theirs = word["epoch"].as_str().unwrap_or_default();
    let ours = machine::epoch();
    let valid = theirs.is_empty() || ours.is_empty() || theirs == ours;
    valid.then_some(word)
}
