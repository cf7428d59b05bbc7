//! The stderr output of children: the most recent part for the status, and a size-limited log file.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hermes_core::redact;
use tokio::time::Instant;

const RING_BYTES: usize = 64 << 10;

/// The log file is rotated at this size; one old file is kept.
const MAX_LOG_BYTES: u64 = 5 << 20;

/// A child that writes more than this in a minute is not logged until the minute is over.
const MAX_BYTES_PER_MINUTE: usize = 1 << 20;
const MINUTE: Duration = Duration::from_mins(1);

/// The last 64 KB, over all children of one server.
#[derive(Debug, Default)]
pub struct StderrRing {
    bytes: Mutex<VecDeque<u8>>,
}

impl StderrRing {
    pub(super) fn push(&self, chunk: &[u8]) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let chunk = &chunk[chunk.len().saturating_sub(RING_BYTES)..];
        let excess = (bytes.len() + chunk.len()).saturating_sub(RING_BYTES);
        bytes.drain(..excess);
        bytes.extend(chunk);
    }

    pub fn tail(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = bytes.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last non-empty line, for error messages.
    pub(crate) fn last_line(&self) -> Option<String> {
        let tail = self.tail();
        let line = tail.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(line.trim().chars().take(300).collect())
    }
}

/// `logs/mcp-stderr.log`.
#[derive(Debug)]
pub(super) struct StderrLog {
    path: PathBuf,
    open: Mutex<Option<(File, u64)>>,
}

impl StderrLog {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            open: Mutex::new(None),
        }
    }

    /// Appends. A failed write must not disturb the server.
    fn write(&self, text: &[u8]) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|(_, size)| *size > MAX_LOG_BYTES) {
            *open = None;
            let aside = self.path.with_extension("log.1");
            let _ = std::fs::rename(&self.path, aside);
        }
        if open.is_none() {
            *open = append_to(&self.path).ok();
        }
        if let Some((file, size)) = open.as_mut() {
            let _ = file.write_all(text);
            *size += text.len() as u64;
        }
    }
}

fn append_to(path: &Path) -> std::io::Result<(File, u64)> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

/// Prefixes each line with the server name and limits the rate.
pub(super) struct Logger<'a> {
    log: &'a StderrLog,
    server: &'a str,
    line: Vec<u8>,
    since: Instant,
    written: usize,
}

impl<'a> Logger<'a> {
    pub(super) fn new(log: &'a StderrLog, server: &'a str) -> Self {
        Self {
            log,
            server,
            line: Vec::new(),
            since: Instant::now(),
            written: 0,
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        if self.since.elapsed() > MINUTE {
            self.since = Instant::now();
            self.written = 0;
        }
        if self.written > MAX_BYTES_PER_MINUTE {
            return;
        }
        self.written += chunk.len();
        let mut text = Vec::new();
        for &byte in chunk {
            // A very long line is split into pieces.
            if byte != b'\n' && self.line.len() < 8192 {
                self.line.push(byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line);
            let line = format!("[{}] {}\n", self.server, redact::secrets(&line));
            text.extend_from_slice(line.as_bytes());
            self.line.clear();
        }
        if self.written > MAX_BYTES_PER_MINUTE {
            let note = format!("[{}] (too loud; not logged for a minute)\n", self.server);
            text.extend_from_slice(note.as_bytes());
        }
        if !text.is_empty() {
            self.log.write(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_last_64_kilobytes() {
        let ring = StderrRing::default();
        for number in 0..20_000 {
            ring.push(format!("line {number}\n").as_bytes());
        }
        assert_eq!(ring.tail().len(), RING_BYTES);
        assert_eq!(ring.last_line().as_deref(), Some("line 19999"));
        ring.push(&vec![b'x'; 3 * RING_BYTES]);
        assert_eq!(ring.tail(), "x".repeat(RING_BYTES));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_does_not_fill_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/mcp-stderr.log");
        let log = StderrLog::new(path.clone());
        let mut logger = Logger::new(&log, "loud");
        let chunk = "shout\n".repeat(10_000);
        for _ in 0..100 {
            logger.push(chunk.as_bytes());
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("[loud] shout\n"));
        assert!(text.contains("too loud"));
        assert!(text.len() < 4 << 20);
        tokio::time::advance(MINUTE * 2).await;
        logger.push(b"calm again\n");
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .contains("calm again")
        );
    }
}
