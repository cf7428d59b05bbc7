//! The result of a change, for callers to branch on and for the model to read.

use std::io;
use std::path::PathBuf;

use hermes_config::fs::LockError;
use serde_json::{Value, json};

use super::{MemoryOperation, MemoryTarget};
use hermes_core::threat_scan::ThreatCategory;

/// The state after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryStatus {
    pub target: MemoryTarget,
    pub used: usize,
    pub limit: usize,
    pub entry_count: usize,
    pub message: String,
}

impl MemoryStatus {
    /// `3% — 50/1,375 chars`
    pub fn usage(&self) -> String {
        format!(
            "{}% — {}/{} chars",
            percent(self.used, self.limit),
            thousands(self.used),
            thousands(self.limit)
        )
    }

    pub fn to_json(&self) -> Value {
        json!({
            "success": true,
            "done": true,
            "target": self.target.as_str(),
            "usage": self.usage(),
            "entry_count": self.entry_count,
            "message": self.message,
            "note": "Saved to disk. Nothing is left to do for this change.",
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    #[error("{action} needs {what}")]
    Missing {
        what: &'static str,
        action: &'static str,
    },
    #[error(
        "not saved: the text looks like an attack on later conversations ({category}). Memory is part of every prompt; reword it as a plain fact"
    )]
    Blocked { category: ThreatCategory },
    #[error(
        "not saved: {} would hold {} of {} characters. In one call with operations, remove or shorten entries you can spare (see current_entries) and make this change",
        target.file_name(), thousands(*needed), thousands(*limit)
    )]
    Full {
        target: MemoryTarget,
        needed: usize,
        used: usize,
        limit: usize,
        current_entries: Vec<String>,
    },
    #[error("no entry contains {old_text:?}. Pass a part of one of current_entries, word for word")]
    NoMatch {
        old_text: String,
        current_entries: Vec<String>,
    },
    #[error("{old_text:?} is in several entries. Pass a longer part that only one of them has")]
    Ambiguous {
        old_text: String,
        matches: Vec<String>,
    },
    #[error(
        "{} was edited by hand into a shape that this change would destroy, so nothing was written. A copy is at {}. Put a line with only § between entries, or move long text elsewhere; then try again",
        path.display(), backup.display()
    )]
    Drift { path: PathBuf, backup: PathBuf },
    #[error("{} cannot be read: {why}. Nothing was written; repair or move the file", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("operation {} ({action}): {source}. None of the operations was carried out", at + 1)]
    InBatch {
        at: usize,
        action: &'static str,
        source: Box<MemoryError>,
    },
    #[error("the stored change cannot be carried out: {0}")]
    BadPayload(String),
    #[error("{0}; try again")]
    Locked(#[from] LockError),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

impl MemoryError {
    pub(super) fn in_batch(self, at: usize, operation: &MemoryOperation) -> Self {
        Self::InBatch {
            at,
            action: operation.action(),
            source: Box::new(self),
        }
    }

    /// Reports these entries: those on disk instead of the half-changed list of a batch, and no
    /// more of them than the prompt shows.
    pub(super) fn with_entries(mut self, on_disk: &[String]) -> Self {
        if let Self::NoMatch {
            current_entries, ..
        } = &mut self
        {
            *current_entries = on_disk.to_vec();
        }
        self
    }

    /// Whether the caller may succeed with different arguments.
    pub fn is_correctable(&self) -> bool {
        match self {
            Self::Full { .. } | Self::NoMatch { .. } => true,
            Self::InBatch { source, .. } => source.is_correctable(),
            _ => false,
        }
    }

    pub fn to_json(&self) -> Value {
        let mut value = json!({ "success": false, "error": self.to_string() });
        self.details(&mut value);
        value
    }

    fn details(&self, value: &mut Value) {
        match self {
            Self::Full {
                current_entries,
                used,
                limit,
                ..
            } => {
                value["current_entries"] = json!(current_entries);
                value["usage"] = json!(format!("{}/{}", thousands(*used), thousands(*limit)));
            }
            Self::NoMatch {
                current_entries, ..
            } => value["current_entries"] = json!(current_entries),
            Self::Ambiguous { matches, .. } => value["matches"] = json!(matches),
            Self::Drift { backup, .. } => {
                value["drift_backup"] = json!(backup);
                value["remediation"] = json!(
                    "Read the copy, add what is missing entry by entry with action add, and bring the file into the shape of one entry per § line."
                );
            }
            Self::InBatch { source, .. } => source.details(value),
            _ => {}
        }
    }
}

/// The change described by the payload of a pending record.
pub(super) fn parse_payload(
    payload: &Value,
) -> Result<(MemoryTarget, Vec<MemoryOperation>), MemoryError> {
    let bad = |why: &str| MemoryError::BadPayload(why.to_owned());
    let target = match &payload["target"] {
        Value::Null => MemoryTarget::Memory,
        target => target
            .as_str()
            .and_then(MemoryTarget::parse)
            .ok_or_else(|| bad("its target is neither memory nor user"))?,
    };
    let operations = if payload["action"] == "batch" {
        payload["operations"]
            .as_array()
            .ok_or_else(|| bad("a batch without operations"))?
            .iter()
            .map(parse_operation)
            .collect::<Result<_, _>>()?
    } else {
        vec![parse_operation(payload)?]
    };
    Ok((target, operations))
}

fn parse_operation(value: &Value) -> Result<MemoryOperation, MemoryError> {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    match value["action"].as_str() {
        Some("add") => Ok(MemoryOperation::Add {
            content: text("content"),
        }),
        Some("replace") => Ok(MemoryOperation::Replace {
            old_text: text("old_text"),
            content: text("content"),
        }),
        Some("remove") => Ok(MemoryOperation::Remove {
            old_text: text("old_text"),
        }),
        other => Err(MemoryError::BadPayload(format!(
            "its action is {}",
            other.unwrap_or("missing")
        ))),
    }
}

/// The first 80 characters of an entry.
pub(super) fn preview(entry: &str) -> String {
    hermes_core::text::shorten(entry, 80)
}

/// Rounded down like in the original, in floating point, and at most 100.
pub(super) fn percent(used: usize, limit: usize) -> usize {
    if limit == 0 {
        return 0;
    }
    (((used as f64 / limit as f64) * 100.0) as usize).min(100)
}

/// 1234567 → `1,234,567`
pub(super) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
