//! Writes that wait for a person's approval: `<home>/pending/{memory,skills}/<id>.json`.

use std::io;
use std::path::{Path, PathBuf};

use hermes_config::fs;
use hermes_core::clock::{Clock, Rng};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subsystem {
    Memory,
    Skills,
}

impl Subsystem {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Skills => "skills",
        }
    }
}

/// A write that was requested but not applied yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingWrite {
    pub id: String,
    pub subsystem: String,
    #[serde(default)]
    pub action: String,
    #[serde(default)]
    pub summary: String,
    #[serde(default)]
    pub origin: String,
    #[serde(default)]
    pub created_at: f64,
    /// The arguments of the call, to be applied later.
    pub payload: Value,
    #[serde(flatten)]
    pub other: serde_json::Map<String, Value>,
}

/// The pending writes of one home.
#[derive(Clone, Debug)]
pub struct PendingWrites {
    dir: PathBuf,
}

impl PendingWrites {
    pub fn new(home: &Path) -> Self {
        Self {
            dir: home.join("pending"),
        }
    }

    /// Stores a write. `origin` is `foreground` or `background_review`.
    pub fn stage(
        &self,
        subsystem: Subsystem,
        payload: Value,
        summary: &str,
        origin: &str,
        (clock, rng): (&dyn Clock, &dyn Rng),
    ) -> io::Result<PendingWrite> {
        let dir = self.dir.join(subsystem.as_str());
        fs::create_private_dir(&dir)?;
        let write = PendingWrite {
            id: format!("{:08x}", rng.next_u64() as u32),
            subsystem: subsystem.as_str().to_owned(),
            action: payload["action"].as_str().unwrap_or_default().to_owned(),
            summary: summary.trim().to_owned(),
            origin: origin.to_owned(),
            created_at: clock.epoch_seconds(),
            payload,
            other: serde_json::Map::new(),
        };
        let text = serde_json::to_string_pretty(&write)?;
        let path = dir.join(format!("{}.json", write.id));
        fs::write_atomic(&path, text.as_bytes(), 0o600)?;
        Ok(write)
    }

    /// Oldest first. Unreadable records are skipped with a warning.
    pub fn list(&self, subsystem: Subsystem) -> io::Result<Vec<PendingWrite>> {
        let dir = self.dir.join(subsystem.as_str());
        let entries = match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut writes = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match read(&path) {
                Ok(write) => writes.push(write),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "unreadable pending write");
                }
            }
        }
        writes.sort_by(|a, b| a.created_at.total_cmp(&b.created_at));
        Ok(writes)
    }

    /// Removes a record. `false` if there is none with that id.
    pub fn discard(&self, subsystem: Subsystem, id: &str) -> io::Result<bool> {
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Ok(false);
        }
        let path = self.dir.join(subsystem.as_str()).join(format!("{id}.json"));
        match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            done => done.map(|()| true),
        }
    }
}

fn read(path: &Path) -> io::Result<PendingWrite> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

#[cfg(test)]
mod tests {
    use hermes_core::clock::{SystemClock, SystemRng};
    use serde_json::json;

    use super::*;

    #[test]
    fn writes_are_staged_listed_and_discarded() {
        let home = tempfile::tempdir().unwrap();
        let pending = PendingWrites::new(home.path());
        assert_eq!(pending.list(Subsystem::Memory).unwrap(), []);
        let payload = json!({"action": "add", "target": "user", "content": "a"});
        let source: (&dyn Clock, &dyn Rng) = (&SystemClock, &SystemRng);
        let write = pending
            .stage(
                Subsystem::Memory,
                payload,
                "add to user: a",
                "foreground",
                source,
            )
            .unwrap();
        assert_eq!(write.id.len(), 8);
        assert_eq!(write.action, "add");
        assert_eq!(
            pending.list(Subsystem::Memory).unwrap(),
            std::slice::from_ref(&write)
        );
        assert_eq!(pending.list(Subsystem::Skills).unwrap(), []);
        assert!(!pending.discard(Subsystem::Memory, "../x").unwrap());
        assert!(pending.discard(Subsystem::Memory, &write.id).unwrap());
        assert!(!pending.discard(Subsystem::Memory, &write.id).unwrap());
    }

    #[test]
    fn a_broken_record_hides_no_other() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("pending/skills");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("bad.json"), "{").unwrap();
        std::fs::write(
            dir.join("0000000a.json"),
            r#"{"id":"0000000a","subsystem":"skills","payload":{},"extra":1}"#,
        )
        .unwrap();
        let listed = PendingWrites::new(home.path())
            .list(Subsystem::Skills)
            .unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].other["extra"], 1);
    }
}
