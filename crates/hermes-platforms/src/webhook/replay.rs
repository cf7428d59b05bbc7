//! Accepted signed calls, so that an observer cannot send one again with another id.
//!
//! The signed content (time and body) is stored, because the format of the signature is the
//! sender's choice. A file in the home keeps it across restarts.

use std::collections::{HashSet, VecDeque};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::signature::{MAX_CLOCK_SKEW, hex};

const FILE: &str = "webhook_signatures";
/// A call may be up to five minutes ahead of our clock, and is valid until five minutes after its
/// time.
const RETENTION_SECONDS: i64 = 2 * MAX_CLOCK_SKEW;
/// More than any rate limit admits within that time.
const MAX_SIGNATURES: usize = 16_384;

/// Signatures of the last minutes.
pub(super) struct Replays {
    path: PathBuf,
    /// Arrival times and digests, the oldest first.
    order: VecDeque<(i64, String)>,
    known: HashSet<String>,
    /// Lines in the file, those that are of no more use included.
    lines: usize,
}

impl Replays {
    pub(super) fn open(home: &Path, now: i64) -> Self {
        let path = home.join(FILE);
        let mut replays = Self {
            order: VecDeque::new(),
            known: HashSet::new(),
            lines: 0,
            path,
        };
        let text = match std::fs::read_to_string(&replays.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                tracing::warn!("{}: {error}", replays.path.display());
                String::new()
            }
        };
        for line in text.lines() {
            replays.lines += 1;
            // The last line may have been cut by a crash.
            let entry = line.split_once(' ');
            if let Some((at, key)) = entry
                && let Ok(at) = at.parse()
                && key.len() == 64
            {
                replays.add(at, key.to_owned());
            }
        }
        replays.forget(now);
        replays
    }

    /// The digest of a call of a route.
    pub(super) fn key(route: &str, signed: &[u8]) -> String {
        hex(&Sha256::digest([route.as_bytes(), b"\n", signed].concat()))
    }

    pub(super) fn is_known(&mut self, key: &str, now: i64) -> bool {
        self.forget(now);
        self.known.contains(key)
    }

    /// Records an accepted call. If it cannot be written, it is remembered in memory only.
    pub(super) fn remember(&mut self, key: &str, now: i64) -> std::io::Result<()> {
        self.add(now, key.to_owned());
        self.forget(now);
        if self.lines > 2 * self.order.len() + 64 {
            return self.rewrite();
        }
        self.lines += 1;
        let mut file =
            private(std::fs::OpenOptions::new().append(true).create(true)).open(&self.path)?;
        file.write_all(format!("{now} {key}\n").as_bytes())?;
        file.sync_data()
    }

    fn add(&mut self, at: i64, key: String) {
        if self.known.insert(key.clone()) {
            self.order.push_back((at, key));
        }
    }

    fn forget(&mut self, now: i64) {
        while let Some((at, _)) = self.order.front() {
            if self.order.len() <= MAX_SIGNATURES && now - at <= RETENTION_SECONDS {
                return;
            }
            if let Some((_, key)) = self.order.pop_front() {
                self.known.remove(&key);
            }
        }
    }

    /// Without expired entries.
    fn rewrite(&mut self) -> std::io::Result<()> {
        use std::fmt::Write as _;
        let mut text = String::new();
        for (at, key) in &self.order {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{at} {key}");
        }
        let beside = self.path.with_extension("new");
        let mut file = private(
            std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true),
        )
        .open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        std::fs::rename(&beside, &self.path)?;
        self.lines = self.order.len();
        Ok(())
    }
}

fn private(options: &mut std::fs::OpenOptions) -> &mut std::fs::OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_known_until_it_is_too_old_to_be_taken() {
        let home = tempfile::tempdir().unwrap();
        let key = Replays::key("ci", b"signature");
        assert_ne!(key, Replays::key("other", b"signature"));
        let mut replays = Replays::open(home.path(), 1000);
        assert!(!replays.is_known(&key, 1000));
        replays.remember(&key, 1000).unwrap();
        assert!(replays.is_known(&key, 1000 + RETENTION_SECONDS));
        // A crash in the middle of a line.
        let path = home.path().join(FILE);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("10");
        std::fs::write(&path, text).unwrap();
        let mut again = Replays::open(home.path(), 1300);
        assert!(again.is_known(&key, 1300));
        assert!(!again.is_known(&key, 1001 + RETENTION_SECONDS));
    }

    #[test]
    fn neither_the_memory_nor_the_file_grows_without_end() {
        let home = tempfile::tempdir().unwrap();
        let mut replays = Replays::open(home.path(), 0);
        for n in 0..2000_i64 {
            let key = Replays::key("ci", &n.to_be_bytes());
            replays.remember(&key, n * 60).unwrap();
        }
        assert!(replays.order.len() < 20, "{}", replays.order.len());
        let text = std::fs::read_to_string(home.path().join(FILE)).unwrap();
        assert!(text.lines().count() < 200, "{}", text.lines().count());
        let mut again = Replays::open(home.path(), 1999 * 60);
        assert!(again.is_known(&Replays::key("ci", &1999_i64.to_be_bytes()), 1999 * 60));
    }
}
