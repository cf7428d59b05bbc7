//! New lines as they come, through rotations.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::record::{LogFilter, LogRecord, LogRecords};
use crate::exit::{Failure, Outcome};

/// How often the file is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Shows what is appended after `end` until nobody reads any more. A file that was rotated away is
/// read to its end before the new one.
pub(super) fn follow(
    path: &Path,
    end: u64,
    filter: &LogFilter,
    mut show: impl FnMut(&LogRecord) -> Outcome,
) -> Outcome {
    let mut source = FollowedFile::open(path, end);
    loop {
        let text = match &mut source {
            Some(source) => source.lines(path)?,
            None => String::new(),
        };
        for record in LogRecords::new(&text) {
            if filter.passes(&record) {
                show(&record)?;
            }
        }
        match &source {
            Some(open) if open.was_replaced(path) => source = FollowedFile::open(path, 0),
            Some(_) => {}
            None => source = FollowedFile::open(path, 0),
        }
        if text.is_empty() && reader_is_gone(POLL_INTERVAL) {
            return Ok(());
        }
    }
}

struct FollowedFile {
    file: File,
    /// Up to where whole lines were read.
    at: u64,
    pending: Vec<u8>,
}

impl FollowedFile {
    fn open(path: &Path, at: u64) -> Option<Self> {
        let file = File::open(path).ok()?;
        Some(Self {
            file,
            at,
            pending: Vec::new(),
        })
    }

    /// The whole lines that were appended.
    fn lines(&mut self, path: &Path) -> Result<String, Failure> {
        let unreadable = |error: std::io::Error| {
            Failure::failed(format!("cannot read {}: {error}", path.display()))
        };
        let length = self.file.metadata().map_err(unreadable)?.len();
        if length < self.at {
            // Emptied in place.
            self.at = 0;
            self.pending.clear();
        }
        self.file
            .seek(SeekFrom::Start(self.at))
            .map_err(unreadable)?;
        let mut new = Vec::new();
        let read = self.file.by_ref().take(1024 * 1024).read_to_end(&mut new);
        self.at += read.map_err(unreadable)? as u64;
        self.pending.append(&mut new);
        let whole = self.pending.iter().rposition(|byte| *byte == b'\n');
        let lines: Vec<u8> = self.pending.drain(..whole.map_or(0, |at| at + 1)).collect();
        Ok(String::from_utf8_lossy(&lines).into_owned())
    }

    /// Whether the path leads to another file by now, and this one is read to its end.
    fn was_replaced(&self, path: &Path) -> bool {
        let (Ok(own), Ok(now)) = (self.file.metadata(), std::fs::metadata(path)) else {
            return false;
        };
        (own.dev(), own.ino()) != (now.dev(), now.ino()) && own.len() <= self.at
    }
}

/// Waits, and says whether stdout is a pipe that nobody reads any more: then the next line would
/// come too late to tell.
fn reader_is_gone(wait: Duration) -> bool {
    let out = std::io::stdout();
    let mut fds = [PollFd::new(&out, PollFlags::empty())];
    let wait = Timespec::try_from(wait).ok();
    matches!(poll(&mut fds, wait.as_ref()), Ok(1..))
        && fds[0]
            .revents()
            .intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}
