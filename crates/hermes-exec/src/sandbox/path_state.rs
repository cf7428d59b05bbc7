//! The state of a path at one time, and whether it has changed since.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::tracked_fs;

/// File systems store change times in steps: a recent change may be followed by another with the same time.
/// Some store whole seconds only.
const TIME_STEP: Duration = Duration::from_millis(20);
const COARSE_TIME_STEP: Duration = Duration::from_secs(2);

const NANOS: i128 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct PathState {
    path: PathBuf,
    /// Device and inode.
    identity: Option<(u64, u64)>,
    /// Change time in nanoseconds, if the content matters.
    changed: Option<i128>,
    /// Whether a later change would be detectable.
    is_settled: bool,
}

impl PathState {
    /// Only the identity of the target, not its content.
    pub(super) fn of_target(path: &Path) -> Self {
        let identity = tracked_fs::stat(path).ok().as_ref().map(identity);
        Self {
            path: path.to_owned(),
            identity,
            changed: None,
            is_settled: true,
        }
    }

    /// The identity and the content (the entries of a directory).
    pub(super) fn of_content(path: &Path) -> Self {
        tracked_fs::depend_on_content(path);
        Self::of_content_untracked(path)
    }

    /// The same without recording a dependency, for callers that watch for changes themselves.
    pub(super) fn of_content_untracked(path: &Path) -> Self {
        let found = path.metadata().ok();
        let changed = found.as_ref().map(change_time);
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let whole = changed.is_some_and(|changed| changed % NANOS == 0);
        let step = if whole { COARSE_TIME_STEP } else { TIME_STEP };
        let latest = since.saturating_sub(step).as_nanos();
        Self {
            path: path.to_owned(),
            identity: found.as_ref().map(identity),
            changed,
            is_settled: changed.is_none_or(|changed| changed < latest.cast_signed()),
        }
    }

    pub(super) fn is_unchanged(&self) -> bool {
        tracked_fs::depend_on_content(&self.path);
        self.is_unchanged_untracked()
    }

    pub(super) fn is_unchanged_untracked(&self) -> bool {
        let now = self.path.metadata().ok();
        self.is_settled
            && now.as_ref().map(identity) == self.identity
            && (self.changed.is_none() || now.as_ref().map(change_time) == self.changed)
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// The change time, which only the kernel sets.
fn change_time(found: &Metadata) -> i128 {
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
        // Just created: it may change again within the time step.
        assert!(!PathState::of_content(&inner).is_unchanged());
        let place = PathState::of_target(&inner);
        assert!(place.is_unchanged());
        let settled = PathState {
            is_settled: true,
            ..PathState::of_content(&inner)
        };
        assert!(settled.is_unchanged());
        // The first ignores entries, the second does not.
        let shows = (0..1_000_000).any(|nth| {
            std::fs::write(inner.join("new"), "").unwrap();
            std::fs::remove_file(inner.join("new")).unwrap();
            assert!(place.is_unchanged(), "{nth}");
            !settled.is_unchanged()
        });
        assert!(shows);
        // Another directory of the same name.
        std::fs::rename(&inner, dir.path().join("b")).unwrap();
        std::fs::create_dir(&inner).unwrap();
        assert!(!place.is_unchanged());
        std::fs::remove_dir(&inner).unwrap();
        assert!(!place.is_unchanged());
    }

    #[test]
    fn what_is_not_there_is_found_when_it_comes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later");
        let seen = [PathState::of_target(&path), PathState::of_content(&path)];
        assert!(seen.iter().all(PathState::is_unchanged));
        std::fs::create_dir(&path).unwrap();
        assert!(!seen.iter().any(PathState::is_unchanged));
    }
}
