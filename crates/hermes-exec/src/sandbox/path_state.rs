//! What a path led to when it was looked at, and whether it still does.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::look;

/// File systems keep the time of a change in steps: what changed a moment ago may change again and show
/// the same time. Some know whole seconds only.
const STEP: Duration = Duration::from_millis(20);
const LARGE_STEP: Duration = Duration::from_secs(2);

const NANOS: i128 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct Seen {
    path: PathBuf,
    /// Device and inode.
    what: Option<(u64, u64)>,
    /// When its entries changed, in nanoseconds; only where they matter.
    changed: Option<i128>,
    /// Whether a later change would show.
    settled: bool,
}

impl Seen {
    /// A place, whatever is in it.
    pub(super) fn place(path: &Path) -> Self {
        let what = look::target(path).ok().as_ref().map(identity);
        Self {
            path: path.to_owned(),
            what,
            changed: None,
            settled: true,
        }
    }

    /// A directory, with its entries.
    pub(super) fn listed(path: &Path) -> Self {
        look::known(path);
        Self::unnoted(path)
    }

    /// The same, for callers that watch for changes of the answer themselves.
    pub(super) fn unnoted(path: &Path) -> Self {
        let found = path.metadata().ok();
        let changed = found.as_ref().map(change);
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let whole = changed.is_some_and(|changed| changed % NANOS == 0);
        let step = if whole { LARGE_STEP } else { STEP };
        let latest = since.saturating_sub(step).as_nanos();
        Self {
            path: path.to_owned(),
            what: found.as_ref().map(identity),
            changed,
            settled: changed.is_none_or(|changed| changed < latest.cast_signed()),
        }
    }

    pub(super) fn is_as_it_was(&self) -> bool {
        look::known(&self.path);
        self.is_unchanged()
    }

    pub(super) fn is_unchanged(&self) -> bool {
        let now = self.path.metadata().ok();
        self.settled
            && now.as_ref().map(identity) == self.what
            && (self.changed.is_none() || now.as_ref().map(change) == self.changed)
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// The kernel alone sets this time.
fn change(found: &Metadata) -> i128 {
    i128::from(found.ctime()) * NANOS + i128::from(found.ctime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_shows_and_a_fresh_one_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a");
        std::fs::create_dir(&inner).unwrap();
        // Just made: it may change again within the step.
        assert!(!Seen::listed(&inner).is_as_it_was());
        let place = Seen::place(&inner);
        assert!(place.is_as_it_was());
        let settled = Seen {
            settled: true,
            ..Seen::listed(&inner)
        };
        assert!(settled.is_as_it_was());
        // What lies in a place does not matter, what lies in a list does.
        let shows = (0..1_000_000).any(|nth| {
            std::fs::write(inner.join("new"), "").unwrap();
            std::fs::remove_file(inner.join("new")).unwrap();
            assert!(place.is_as_it_was(), "{nth}");
            !settled.is_as_it_was()
        });
        assert!(shows);
        // Another directory of the same name.
        std::fs::rename(&inner, dir.path().join("b")).unwrap();
        std::fs::create_dir(&inner).unwrap();
        assert!(!place.is_as_it_was());
        std::fs::remove_dir(&inner).unwrap();
        assert!(!place.is_as_it_was());
    }

    #[test]
    fn what_is_not_there_is_found_when_it_comes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later");
        let seen = [Seen::place(&path), Seen::listed(&path)];
        assert!(seen.iter().all(Seen::is_as_it_was));
        std::fs::create_dir(&path).unwrap();
        assert!(!seen.iter().any(Seen::is_as_it_was));
    }
}
