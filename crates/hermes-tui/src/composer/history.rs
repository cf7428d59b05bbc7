//! Sent messages, in a file per project: one JSON value per line, appended under a lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_config::fs::{FileLock, create_private_dir, write_atomic};

use super::recall::MAX_ENTRIES;
use super::stored::{NoBodies, StoredText};
use super::text::RichText;

/// A larger file is truncated to its end.
const MAX_FILE: u64 = 4 << 20;
/// How much is kept, and how much is read of another program's file.
const MAX_HISTORY_BYTES: u64 = 2 << 20;
/// Larger pastes are stored as a chip without a body.
const MAX_BODY: usize = 16 << 10;
/// Longer texts are not stored.
const MAX_LINE: usize = 256 << 10;
/// Maximum number of entries imported from another program.
const MAX_SEED_ENTRIES: usize = 200;
/// Another process writes a line much faster.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The history file of a project.
#[derive(Clone, Debug)]
pub(super) struct History {
    path: PathBuf,
}

impl History {
    pub(super) fn new(dir: &Path, project: &str) -> Self {
        Self {
            path: dir.join(format!("{project}.jsonl")),
        }
    }

    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    /// The entries, oldest first. Unreadable lines are skipped.
    pub(super) fn load(&self) -> Vec<RichText> {
        let lines = match tail(&self.path, MAX_FILE) {
            Ok(lines) => lines,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %self.path.display(), %error, "history not read");
                }
                return Vec::new();
            }
        };
        let skip = lines.len().saturating_sub(MAX_ENTRIES);
        lines[skip..]
            .iter()
            .filter_map(|line| serde_json::from_str::<StoredText>(line).ok())
            .map(|stored| stored.into_rich(&NoBodies))
            .filter(|entry| !entry.is_empty())
            .collect()
    }

    /// Adds entries at the end.
    pub(super) fn append(&self, entries: &[RichText]) -> io::Result<()> {
        let mut lines = String::new();
        for entry in entries {
            let stored = StoredText::from_rich(entry, MAX_BODY, &mut NoBodies);
            let line = serde_json::to_string(&stored).map_err(io::Error::other)?;
            if line.len() <= MAX_LINE {
                lines.push_str(&line);
                lines.push('\n');
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        if let Some(dir) = self.path.parent() {
            create_private_dir(dir)?;
        }
        let lock = FileLock::acquire(&self.path.with_extension("lock"), LOCK_TIMEOUT)
            .map_err(io::Error::other)?;
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        let size = file.metadata()?.len();
        // A process that was killed while writing left half a line, which must not swallow this
        // one.
        if size > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                lines.insert(0, '\n');
            }
        }
        file.write_all(lines.as_bytes())?;
        if size + lines.len() as u64 > MAX_FILE {
            let lines_read = tail(&self.path, MAX_HISTORY_BYTES)?;
            let skip = lines_read.len().saturating_sub(MAX_ENTRIES);
            write_atomic(
                &self.path,
                (lines_read[skip..].join("\n") + "\n").as_bytes(),
                0o600,
            )?;
        }
        drop(lock);
        Ok(())
    }
}

/// The whole lines within the last `max` bytes.
fn tail(path: &Path, max: u64) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(max);
    file.seek(SeekFrom::Start(start))?;
    let mut reader = BufReader::new(file.take(max));
    if start > 0 {
        reader.read_until(b'\n', &mut Vec::new())?;
    }
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().map(str::to_owned).collect())
}

/// Entries of the line chat's history or of the original's, distinguished by their format.
pub(super) fn seeds(paths: &[PathBuf]) -> Vec<RichText> {
    let mut entries = Vec::new();
    for path in paths {
        let regular = fs::metadata(path).is_ok_and(|meta| meta.is_file());
        let Some(lines) = regular
            .then(|| tail(path, MAX_HISTORY_BYTES).ok())
            .flatten()
        else {
            continue;
        };
        if lines.iter().any(|line| line.starts_with('+')) {
            entries.extend(stamped(&lines));
        } else {
            entries.extend(escaped(&lines));
        }
    }
    let skip = entries.len().saturating_sub(MAX_SEED_ENTRIES);
    entries[skip..]
        .iter()
        .filter(|entry| !entry.trim().is_empty())
        .map(|entry| RichText::plain(entry))
        .collect()
}

/// A comment with the time, then the lines of the entry, each after a plus sign.
fn stamped(lines: &[String]) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    let mut open = false;
    for line in lines {
        match line.strip_prefix('+') {
            Some(line) if open => {
                if let Some(entry) = entries.last_mut() {
                    entry.push('\n');
                    entry.push_str(line);
                }
            }
            Some(line) => {
                entries.push(line.to_owned());
                open = true;
            }
            None => open = false,
        }
    }
    entries
}

/// One entry on each line; `\n` and `\\` stand for a line break and a backslash.
fn escaped(lines: &[String]) -> Vec<String> {
    let mut entries = Vec::new();
    for line in lines.iter().filter(|line| !line.starts_with("#V")) {
        let mut entry = String::with_capacity(line.len());
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match (c, c == '\\') {
                (_, true) => match chars.next() {
                    Some('n') => entry.push('\n'),
                    Some(c) => entry.push(c),
                    None => entry.push('\\'),
                },
                (c, false) => entry.push(c),
            }
        }
        entries.push(entry);
    }
    entries
}
