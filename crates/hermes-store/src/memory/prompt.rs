//! The block of the system prompt that shows a memory file. Its format is shared with the original,
//! so a stored prompt is the same whichever program built it.

use super::outcome::{percent, thousands};
use super::{DELIMITER, MemoryTarget, length};
use hermes_core::threat_scan::{self, ScanScope};

/// A file may exceed its limit after manual edits or by the original. At most this many times the
/// limit is shown, but at least [`MIN_SHOWN_CHARS`] characters, because every request includes
/// them.
const LIMIT_FACTOR: usize = 8;
const MIN_SHOWN_CHARS: usize = 16_000;

/// The newest entries that fit, and how many are omitted.
pub(super) fn newest_that_fit(entries: &[String], limit: usize) -> (usize, &[String]) {
    let mut available = limit.saturating_mul(LIMIT_FACTOR).max(MIN_SHOWN_CHARS);
    let fits = |entry: &&String| {
        let needed = entry.chars().count() + DELIMITER.chars().count();
        let fits = needed <= available;
        available = available.saturating_sub(needed);
        fits
    };
    let shown = entries.iter().rev().take_while(fits).count();
    let left_out = entries.len() - shown;
    (left_out, &entries[left_out..])
}

pub(super) fn block(target: MemoryTarget, entries: &[String], limit: usize) -> Option<String> {
    if entries.is_empty() {
        return None;
    }
    let (left_out, shown) = newest_that_fit(entries, limit);
    let mut shown: Vec<String> = shown
        .iter()
        .map(|entry| scanned_entry(target, entry))
        .collect();
    let mut used = length(&shown);
    if left_out > 0 {
        used = length(entries);
        tracing::warn!(
            file = target.file_name(),
            left_out,
            "the file is far longer than its limit: its oldest entries are kept out of the prompt"
        );
        let note = format!(
            "[{} older entries are in {} and not shown here: the file is far longer than its limit. Shorten it with the memory tool, or tell the user.]",
            thousands(left_out),
            target.file_name()
        );
        shown.insert(0, note);
    }
    let header = match target {
        MemoryTarget::Memory => "MEMORY (your personal notes)",
        MemoryTarget::User => "USER PROFILE (who the user is)",
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

/// The entry, or a note in its place if it tries to instruct the model. The file keeps it.
fn scanned_entry(target: MemoryTarget, entry: &str) -> String {
    if entry.starts_with("[BLOCKED:") {
        return entry.to_owned();
    }
    let found = threat_scan::scan(entry, ScanScope::Strict);
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
