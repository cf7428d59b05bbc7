//! The block of the system prompt that shows a memory file. Its shape is shared with the
//! original, so that a stored prompt is the same whichever program built it.

use super::outcome::{percent, thousands};
use super::{DELIMITER, Target, length};
use crate::scan::{self, Scope};

pub(super) fn block(target: Target, entries: &[String], limit: usize) -> Option<String> {
    if entries.is_empty() {
        return None;
    }
    let shown: Vec<String> = entries.iter().map(|entry| guarded(target, entry)).collect();
    let used = length(&shown);
    let header = match target {
        Target::Memory => "MEMORY (your personal notes)",
        Target::User => "USER PROFILE (who the user is)",
    };
    let rule = "═".repeat(46);
    Some(format!(
        "{rule}\n{header} [{}% — {}/{} chars]\n{rule}\n{}",
        percent(used, limit),
        thousands(used),
        thousands(limit),
        shown.join(DELIMITER)
    ))
}

/// The entry, or a note in its place when it tries to give orders. The file keeps it.
fn guarded(target: Target, entry: &str) -> String {
    if entry.starts_with("[BLOCKED:") {
        return entry.to_owned();
    }
    let found = scan::scan(entry, Scope::Strict);
    if found.is_empty() {
        return entry.to_owned();
    }
    let names: Vec<String> = found.iter().map(ToString::to_string).collect();
    let names = names.join(", ");
    let file = target.file_name();
    tracing::warn!(
        file,
        categories = names,
        "a memory entry is kept out of the prompt"
    );
    format!(
        "[BLOCKED: an entry of {file} was left out because it looks like an attack ({names}). It is still in the file; delete it with the memory tool, action remove.]"
    )
}
