//! The two memory files: `MEMORY.md` (the agent's notes) and `USER.md` (about the person).
//!
//! A file is a list of entries separated by a line containing only `§`. Every change takes the lock
//! file, reads the file again, and replaces it atomically; a file that cannot be read, or that was
//! edited into another format, is never overwritten.

mod file;
mod outcome;
mod prompt;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_config::Config;
use hermes_config::home::Home;
use hermes_core::clock::{Clock, SystemClock};
use serde_json::Value;

use file::MemoryFile;
use hermes_core::threat_scan::{self, ScanScope};
pub use outcome::{MemoryError, MemoryStatus};

/// The separator between entries.
pub(crate) const DELIMITER: &str = "\n§\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryTarget {
    Memory,
    User,
}

impl MemoryTarget {
    pub const ALL: [Self; 2] = [Self::Memory, Self::User];

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.as_str() == name)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::User => "user",
        }
    }

    pub fn file_name(self) -> &'static str {
        match self {
            Self::Memory => "MEMORY.md",
            Self::User => "USER.md",
        }
    }
}

/// Maximum length of each file, in Unicode code points of the joined text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    pub memory: usize,
    pub user: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            memory: 2_200,
            user: 1_375,
        }
    }
}

/// One change. `old_text` is any part of the entry to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryOperation {
    Add { content: String },
    Replace { old_text: String, content: String },
    Remove { old_text: String },
}

impl MemoryOperation {
    pub fn action(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add",
            Self::Replace { .. } => "replace",
            Self::Remove { .. } => "remove",
        }
    }
}

/// Both files of one home.
#[derive(Clone)]
pub struct MemoryFiles {
    dir: PathBuf,
    limits: MemoryLimits,
    clock: Arc<dyn Clock>,
}

impl MemoryFiles {
    /// `dir` is `<home>/memories`; it is created by the first write.
    pub fn new(dir: impl Into<PathBuf>, limits: MemoryLimits) -> Self {
        Self::with_clock(dir, limits, Arc::new(SystemClock))
    }

    /// The files of `home`, with the limits of `config`.
    pub fn for_home(home: &Home, config: &Config) -> Self {
        let limits = MemoryLimits {
            memory: config.memory.memory_char_limit as usize,
            user: config.memory.user_char_limit as usize,
        };
        Self::new(home.memories_dir(), limits)
    }

    pub fn with_clock(
        dir: impl Into<PathBuf>,
        limits: MemoryLimits,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            dir: dir.into(),
            limits,
            clock,
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, target: MemoryTarget) -> PathBuf {
        self.dir.join(target.file_name())
    }

    pub fn limit(&self, target: MemoryTarget) -> usize {
        match target {
            MemoryTarget::Memory => self.limits.memory,
            MemoryTarget::User => self.limits.user,
        }
    }

    /// The entries on disk; none when there is no file.
    pub fn entries(&self, target: MemoryTarget) -> Result<Vec<String>, MemoryError> {
        Ok(self.file(target).read()?.entries)
    }

    /// The text of this file for the system prompt; `None` if it has no entries.
    pub fn prompt_block(&self, target: MemoryTarget) -> Result<Option<String>, MemoryError> {
        let entries = self.entries(target)?;
        Ok(prompt::block(target, &entries, self.limit(target)))
    }

    /// How full the file is.
    pub fn usage(&self, target: MemoryTarget) -> Result<MemoryStatus, MemoryError> {
        let entries = self.entries(target)?;
        Ok(self.saved(target, &entries, String::new()))
    }

    pub fn add(&self, target: MemoryTarget, content: &str) -> Result<MemoryStatus, MemoryError> {
        self.apply(
            target,
            &MemoryOperation::Add {
                content: content.to_owned(),
            },
        )
    }

    pub fn replace(
        &self,
        target: MemoryTarget,
        old_text: &str,
        content: &str,
    ) -> Result<MemoryStatus, MemoryError> {
        self.apply(
            target,
            &MemoryOperation::Replace {
                old_text: old_text.to_owned(),
                content: content.to_owned(),
            },
        )
    }

    pub fn remove(
        &self,
        target: MemoryTarget,
        old_text: &str,
    ) -> Result<MemoryStatus, MemoryError> {
        self.apply(
            target,
            &MemoryOperation::Remove {
                old_text: old_text.to_owned(),
            },
        )
    }

    /// Whether the texts of `operations` could be saved. Reads no file.
    pub fn check(&self, operations: &[MemoryOperation]) -> Result<(), MemoryError> {
        match (plan(operations), operations) {
            (Ok(_), _) => Ok(()),
            (Err((_, error)), [_]) => Err(error),
            (Err((at, error)), _) => Err(error.in_batch(at, &operations[at])),
        }
    }

    /// Applies all `operations` or none; only the final length counts against the limit.
    pub fn batch(
        &self,
        target: MemoryTarget,
        operations: &[MemoryOperation],
    ) -> Result<MemoryStatus, MemoryError> {
        if operations.is_empty() {
            return Err(MemoryError::Missing {
                what: "operations",
                action: "batch",
            });
        }
        let plan = plan(operations).map_err(|(at, error)| error.in_batch(at, &operations[at]))?;
        let file = self.file(target);
        let lock = file.lock()?;
        let before = file.read_unchanged(self.limit(target), &*self.clock)?;
        let mut entries = before.clone();
        let shown = prompt::newest_that_fit(&before, self.limit(target)).1;
        for (at, change) in plan.iter().enumerate() {
            change
                .apply(&mut entries)
                .map_err(|error| error.with_entries(shown).in_batch(at, &operations[at]))?;
        }
        self.check_length(target, &entries, &before)?;
        file.write(&entries)?;
        drop(lock);
        let count = operations.len();
        let plural = if count == 1 { "" } else { "s" };
        Ok(self.saved(target, &entries, format!("{count} change{plural} saved.")))
    }

    /// Empties the file and returns its entries.
    pub fn reset(&self, target: MemoryTarget) -> Result<Vec<String>, MemoryError> {
        let file = self.file(target);
        let _lock = file.lock()?;
        let entries = file.read()?.entries;
        if !entries.is_empty() {
            file.write(&[])?;
        }
        Ok(entries)
    }

    /// Applies a write that was waiting for approval (`payload` of a pending record).
    pub fn apply_pending(&self, payload: &Value) -> Result<MemoryStatus, MemoryError> {
        let (target, operations) = outcome::parse_payload(payload)?;
        match <[MemoryOperation; 1]>::try_from(operations) {
            Ok([single]) if payload["action"] != "batch" => self.apply(target, &single),
            Ok(single) => self.batch(target, &single),
            Err(operations) => self.batch(target, &operations),
        }
    }

    /// Applies a single change.
    pub fn apply(
        &self,
        target: MemoryTarget,
        operation: &MemoryOperation,
    ) -> Result<MemoryStatus, MemoryError> {
        let change = CheckedOperation::plan(operation)?;
        let file = self.file(target);
        let lock = file.lock()?;
        // Adding keeps every entry, so an irregular file is safe; other operations must know what
        // they change.
        let before = if matches!(operation, MemoryOperation::Add { .. }) {
            file.read()?.entries
        } else {
            file.read_unchanged(self.limit(target), &*self.clock)?
        };
        let mut entries = before.clone();
        let shown = prompt::newest_that_fit(&before, self.limit(target)).1;
        change
            .apply(&mut entries)
            .map_err(|error| error.with_entries(shown))?;
        if entries == before {
            let message = "That entry is already there; nothing was changed.".to_owned();
            return Ok(self.saved(target, &entries, message));
        }
        self.check_length(target, &entries, &before)?;
        file.write(&entries)?;
        drop(lock);
        let message = match operation {
            MemoryOperation::Add { .. } => "Entry added.",
            MemoryOperation::Replace { .. } => "Entry replaced.",
            MemoryOperation::Remove { .. } => "Entry removed.",
        };
        Ok(self.saved(target, &entries, message.to_owned()))
    }

    fn check_length(
        &self,
        target: MemoryTarget,
        entries: &[String],
        before: &[String],
    ) -> Result<(), MemoryError> {
        let limit = self.limit(target);
        let (needed, used) = (length(entries), length(before));
        // A file that is too long may be shortened step by step.
        if needed <= limit || needed < used {
            return Ok(());
        }
        Err(MemoryError::Full {
            target,
            needed,
            used,
            limit,
            current_entries: prompt::newest_that_fit(before, limit).1.to_vec(),
        })
    }

    fn saved(&self, target: MemoryTarget, entries: &[String], message: String) -> MemoryStatus {
        MemoryStatus {
            target,
            used: length(entries),
            limit: self.limit(target),
            entry_count: entries.len(),
            message,
        }
    }

    fn file(&self, target: MemoryTarget) -> MemoryFile {
        MemoryFile::new(self.path(target))
    }
}

/// An operation whose texts were checked.
enum CheckedOperation {
    Add(Vec<String>),
    Replace(String, Vec<String>),
    Remove(String),
}

fn plan(operations: &[MemoryOperation]) -> Result<Vec<CheckedOperation>, (usize, MemoryError)> {
    let changes = operations.iter().enumerate();
    changes
        .map(|(at, operation)| CheckedOperation::plan(operation).map_err(|error| (at, error)))
        .collect()
}

impl CheckedOperation {
    fn plan(operation: &MemoryOperation) -> Result<Self, MemoryError> {
        let action = operation.action();
        let old = |text: &str| match text.trim() {
            "" => Err(MemoryError::Missing {
                what: "old_text",
                action,
            }),
            text => Ok(text.to_owned()),
        };
        let new = |text: &str| {
            let pieces = split_entries(text);
            if pieces.is_empty() {
                return Err(MemoryError::Missing {
                    what: "content",
                    action,
                });
            }
            match threat_scan::first(text, ScanScope::Strict) {
                Some(category) => Err(MemoryError::Blocked { category }),
                None => Ok(pieces),
            }
        };
        Ok(match operation {
            MemoryOperation::Add { content } => Self::Add(new(content)?),
            MemoryOperation::Replace { old_text, content } => {
                Self::Replace(old(old_text)?, new(content)?)
            }
            MemoryOperation::Remove { old_text } => Self::Remove(old(old_text)?),
        })
    }

    fn apply(&self, entries: &mut Vec<String>) -> Result<(), MemoryError> {
        match self {
            Self::Add(pieces) => {
                for piece in pieces {
                    if !entries.contains(piece) {
                        entries.push(piece.clone());
                    }
                }
            }
            Self::Replace(old_text, pieces) => {
                let at = find(entries, old_text)?;
                entries.splice(at..=at, pieces.iter().cloned());
            }
            Self::Remove(old_text) => {
                let at = find(entries, old_text)?;
                entries.remove(at);
            }
        }
        Ok(())
    }
}

/// Splits new text into entries: a line containing only `§` would be read back as a separator, so
/// it is treated as one.
fn split_entries(text: &str) -> Vec<String> {
    let text = file::unix_newlines(text);
    let mut pieces = vec![String::new()];
    for line in text.split('\n') {
        match pieces.last_mut() {
            Some(piece) if line.trim() != "§" => {
                piece.push_str(line);
                piece.push('\n');
            }
            _ => pieces.push(String::new()),
        }
    }
    pieces
        .iter()
        .map(|piece| piece.trim().to_owned())
        .filter(|piece| !piece.is_empty())
        .collect()
}

/// The one entry that contains `old_text`.
fn find(entries: &[String], old_text: &str) -> Result<usize, MemoryError> {
    let mut hits = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.contains(old_text));
    let Some((at, first)) = hits.next() else {
        return Err(MemoryError::NoMatch {
            old_text: old_text.to_owned(),
            current_entries: entries.to_vec(),
        });
    };
    if hits.any(|(_, entry)| entry != first) {
        let matches = entries.iter().filter(|entry| entry.contains(old_text));
        return Err(MemoryError::Ambiguous {
            old_text: old_text.to_owned(),
            matches: matches.map(|entry| outcome::preview(entry)).collect(),
        });
    }
    Ok(at)
}

/// Code points of the joined text.
fn length(entries: &[String]) -> usize {
    let texts: usize = entries.iter().map(|entry| entry.chars().count()).sum();
    texts + entries.len().saturating_sub(1) * DELIMITER.chars().count()
}

#[cfg(test)]
mod tests;
