//! Usage statistics of skills: `skills/.usage.json`, shared with the original.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_config::fs::{self, FileLock, LockError};
use hermes_core::clock::Clock;
use serde_json::{Map, Value, json};

const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkillUseKind {
    Viewed,
    Used,
    Patched,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    #[error("{} is damaged: {why}. It was left alone; repair or delete it", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error(transparent)]
    Locked(#[from] LockError),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// The statistics file. Unknown fields of records are kept.
#[derive(Clone)]
pub struct SkillUsage {
    path: PathBuf,
    clock: Arc<dyn Clock>,
}

impl SkillUsage {
    pub(super) fn new(skills_dir: &Path, clock: Arc<dyn Clock>) -> Self {
        Self {
            path: skills_dir.join(".usage.json"),
            clock,
        }
    }

    /// Every record by skill name.
    pub fn read(&self) -> Result<BTreeMap<String, Map<String, Value>>, UsageError> {
        let bytes = match std::fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            bytes => bytes.map_err(|source| self.io_error(source))?,
        };
        let records: BTreeMap<String, Value> =
            serde_json::from_slice(&bytes).map_err(|error| UsageError::Damaged {
                path: self.path.clone(),
                why: error.to_string(),
            })?;
        Ok(records
            .into_iter()
            .filter_map(|(name, record)| match record {
                Value::Object(record) => Some((name, record)),
                _ => None,
            })
            .collect())
    }

    /// Whether the person protected the skill from deletion.
    pub fn is_pinned(&self, name: &str) -> Result<bool, UsageError> {
        let records = self.read()?;
        let pinned = |record: &Map<String, Value>| record.get("pinned") == Some(&Value::Bool(true));
        Ok(records.get(name).is_some_and(pinned))
    }

    /// Counts an event.
    pub fn bump(&self, name: &str, event: SkillUseKind) -> Result<(), UsageError> {
        let (count, last) = match event {
            SkillUseKind::Viewed => ("view_count", "last_viewed_at"),
            SkillUseKind::Used => ("use_count", "last_used_at"),
            SkillUseKind::Patched => ("patch_count", "last_patched_at"),
        };
        let now = self.now();
        self.change(name, |record| {
            let seen = record.get(count).and_then(Value::as_u64).unwrap_or(0);
            record.insert(count.to_owned(), json!(seen + 1));
            record.insert(last.to_owned(), json!(now));
        })
    }

    /// Marks a skill that the agent created on its own, in a review.
    pub fn mark_agent_created(&self, name: &str) -> Result<(), UsageError> {
        self.change(name, |record| {
            record.insert("created_by".to_owned(), json!("agent"));
        })
    }

    #[cfg(test)]
    pub(super) fn set_pinned(&self, name: &str, pinned: bool) -> Result<(), UsageError> {
        self.change(name, |record| {
            record.insert("pinned".to_owned(), json!(pinned));
        })
    }

    /// Drops the record of a deleted skill.
    pub fn forget(&self, name: &str) -> Result<(), UsageError> {
        let _lock = self.lock()?;
        let mut records = self.read()?;
        if records.remove(name).is_some() {
            self.write(&records)?;
        }
        Ok(())
    }

    fn change(
        &self,
        name: &str,
        edit: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<(), UsageError> {
        let _lock = self.lock()?;
        let mut records = self.read()?;
        let record = records
            .entry(name.to_owned())
            .or_insert_with(|| new_record(&self.now()));
        edit(record);
        self.write(&records)
    }

    fn lock(&self) -> Result<FileLock, UsageError> {
        if let Some(dir) = self.path.parent() {
            fs::create_private_dir(dir).map_err(|source| self.io_error(source))?;
        }
        Ok(FileLock::acquire(
            &self.path.with_extension("json.lock"),
            LOCK_TIMEOUT,
        )?)
    }

    fn write(&self, records: &BTreeMap<String, Map<String, Value>>) -> Result<(), UsageError> {
        // Sorted at every level, as the original writes it.
        let sorted: BTreeMap<&String, BTreeMap<&String, &Value>> = records
            .iter()
            .map(|(name, record)| (name, record.iter().collect()))
            .collect();
        let text = serde_json::to_string_pretty(&sorted).map_err(io::Error::from);
        text.and_then(|text| fs::write_atomic(&self.path, text.as_bytes(), 0o600))
            .map_err(|source| self.io_error(source))
    }

    fn now(&self) -> String {
        self.clock
            .now()
            .format("%Y-%m-%dT%H:%M:%S%.6f+00:00")
            .to_string()
    }

    fn io_error(&self, source: io::Error) -> UsageError {
        UsageError::Io {
            path: self.path.clone(),
            source,
        }
    }
}

fn new_record(now: &str) -> Map<String, Value> {
    let record = json!({
        "created_by": null, "use_count": 0, "view_count": 0, "last_used_at": null,
        "last_viewed_at": null, "patch_count": 0, "last_patched_at": null, "created_at": now,
        "state": "active", "pinned": false, "archived_at": null,
    });
    match record {
        Value::Object(record) => record,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use hermes_core::clock::SystemClock;

    use super::*;

    fn usage() -> (tempfile::TempDir, SkillUsage) {
        let dir = tempfile::tempdir().unwrap();
        let usage = SkillUsage::new(dir.path(), Arc::new(SystemClock));
        (dir, usage)
    }

    #[test]
    fn events_are_counted_beside_unknown_fields() {
        let (dir, usage) = usage();
        let path = dir.path().join(".usage.json");
        std::fs::write(
            &path,
            r#"{"plan": {"use_count": 2, "mood": "good"}, "odd": 3}"#,
        )
        .unwrap();
        usage.bump("plan", SkillUseKind::Used).unwrap();
        usage.bump("new", SkillUseKind::Viewed).unwrap();
        let records = usage.read().unwrap();
        assert_eq!(records["plan"]["use_count"], 3);
        assert_eq!(records["plan"]["mood"], "good");
        assert_eq!(records["new"]["view_count"], 1);
        assert_eq!(records["new"]["state"], "active");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("{\n  \"new\": {\n    \"archived_at\": null,"),
            "{text}"
        );
        usage.forget("new").unwrap();
        assert!(!usage.read().unwrap().contains_key("new"));
        usage.set_pinned("plan", true).unwrap();
        assert!(usage.is_pinned("plan").unwrap());
        assert!(!usage.is_pinned("other").unwrap());
    }

    #[test]
    fn a_damaged_file_is_left_alone() {
        let (dir, usage) = usage();
        let path = dir.path().join(".usage.json");
        std::fs::write(&path, "{\"plan\": ").unwrap();
        assert!(matches!(
            usage.bump("plan", SkillUseKind::Used).unwrap_err(),
            UsageError::Damaged { .. }
        ));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"plan\": ");
    }
}
