//! Snapshots of projects, as texts for people.

use std::sync::Arc;

use hermes_config::Config;
use hermes_core::clock::SystemClock;
use hermes_core::figures;
use hermes_tools::files::Checkpoints;
use hermes_tools::files::checkpoints::{Checkpoint, CheckpointError, RestoreReport};

use crate::context::AppContext;
use crate::failure::{Exit, Failure};

/// The snapshots of this home.
pub fn open(cx: &AppContext, config: &Config) -> Checkpoints {
    Checkpoints::from_config(&cx.home, config, Arc::new(SystemClock))
}

/// The snapshots of a project, one per line.
pub fn listed(all: &[Checkpoint], enabled: bool) -> String {
    if all.is_empty() {
        return if enabled {
            "no checkpoints of this project yet".to_owned()
        } else {
            "no checkpoints: they are off (hermes config set checkpoints.enabled true)".to_owned()
        };
    }
    let lines: Vec<String> = all
        .iter()
        .map(|entry| {
            let at = entry.timestamp.replacen('T', " ", 1);
            let at = at.get(..19).unwrap_or(&at);
            format!(
                "{:>3}  {at}  {}  {} (+{} -{} in {})",
                entry.number,
                entry.short_hash,
                entry.reason,
                entry.insertions,
                entry.deletions,
                figures::count(
                    usize::try_from(entry.files_changed).unwrap_or(usize::MAX),
                    "file"
                )
            )
        })
        .collect();
    lines.join("\n")
}

/// A diff, or a note that there is none.
pub fn changed(diff: &str) -> String {
    if diff.is_empty() {
        "nothing changed since".to_owned()
    } else {
        diff.to_owned()
    }
}

/// What was restored.
pub fn restore_text(restored: &RestoreReport) -> String {
    let dir = restored.directory.display();
    let to = format!(
        "checkpoint {} ({})",
        restored.checkpoint.short_hash, restored.checkpoint.reason
    );
    let mut text = match &restored.file {
        Some(file) => format!("{file} of {dir} is restored to {to}"),
        None => format!("{dir} is restored to {to}"),
    };
    if !restored.removed.is_empty() {
        let removed = restored.removed.join(", ");
        text = format!("{text}; files created later were deleted: {removed}");
    }
    if !restored.untouched.is_empty() {
        let names = restored.untouched.join(", ");
        text = format!("{text}\nnot in that checkpoint, so left unchanged: {names}");
    }
    if restored.saved {
        text.push_str("\nthe previous state is now checkpoint 1");
    }
    text
}

pub fn failure(error: &CheckpointError) -> Failure {
    let exit = match error {
        CheckpointError::None(_) | CheckpointError::Unknown { .. } => Exit::NotFound,
        CheckpointError::BadPath(_) => Exit::Usage,
        CheckpointError::Busy => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
