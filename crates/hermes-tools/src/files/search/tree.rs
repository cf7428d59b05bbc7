//! Walks a tree as ripgrep does: hidden and ignored files are skipped, links are not followed.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, WalkBuilder, WalkParallel, WalkState};
use tokio_util::sync::CancellationToken;

use super::{SearchError, SearchRoot};
use crate::files::guard::FileGuard;

/// A search that takes longer ends with what it has.
const SEARCH_TIMEOUT: Duration = Duration::from_mins(1);

/// Whether to continue.
pub(super) struct SearchDeadline {
    cancel: CancellationToken,
    until: Instant,
}

impl SearchDeadline {
    pub(super) fn new(cancel: CancellationToken) -> Self {
        Self {
            cancel,
            until: Instant::now() + SEARCH_TIMEOUT,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() >= self.until
    }

    /// Why it ended early, if it did.
    pub(super) fn verdict(&self) -> Result<Option<&'static str>, SearchError> {
        if self.cancel.is_cancelled() {
            return Err(SearchError::Cancelled);
        }
        let late = Instant::now() >= self.until;
        Ok(late.then_some("the search took longer than 60 s; narrow the path or the pattern"))
    }
}

/// A reader that stops when the search is cancelled.
pub(super) struct DeadlineReader<'a, R> {
    pub(super) inner: R,
    pub(super) watch: &'a SearchDeadline,
}

impl<R: Read> Read for DeadlineReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.watch.is_over() {
            return Err(io::Error::other("ended"));
        }
        self.inner.read(buffer)
    }
}

fn walker(root: &Path, overrides: Override) -> WalkParallel {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(12));
    WalkBuilder::new(root)
        .overrides(overrides)
        .threads(threads)
        .build_parallel()
}

/// The globs that files must match, with ripgrep's semantics.
pub(super) fn overrides(root: &Path, globs: &[&str]) -> Result<Override, SearchError> {
    let dir = if root.is_dir() {
        root
    } else {
        root.parent().unwrap_or(root)
    };
    let mut builder = OverrideBuilder::new(dir);
    for glob in globs {
        builder
            .add(glob)
            .map_err(|error| SearchError::Pattern(error.to_string()))?;
    }
    builder
        .build()
        .map_err(|error| SearchError::Pattern(error.to_string()))
}

/// Calls `visit` for every readable file below `root`, on several threads. Returns how many were skipped
/// because they may not be read.
pub(super) fn each_file<V>(
    root: &SearchRoot,
    overrides: Override,
    guard: &FileGuard,
    watch: &SearchDeadline,
    new_visitor: impl Fn() -> V + Sync,
) -> u64
where
    V: FnMut(&DirEntry) + Send,
{
    let omitted = AtomicU64::new(0);
    let new_visitor = &new_visitor;
    walker(&root.real, overrides).run(|| {
        let mut visit = new_visitor();
        let omitted = &omitted;
        Box::new(move |entry| {
            if watch.is_over() {
                return WalkState::Quit;
            }
            // What cannot be listed cannot be searched; ripgrep reports it on standard error only.
            let Ok(entry) = entry else {
                return WalkState::Continue;
            };
            if entry.file_type().is_some_and(|kind| kind.is_file()) {
                if guard.unreadable(entry.path()).is_some() {
                    omitted.fetch_add(1, Ordering::Relaxed);
                } else {
                    visit(&entry);
                }
            }
            WalkState::Continue
        })
    });
    omitted.into_inner()
}

/// Results of several threads.
pub(super) struct SharedResults<T>(Mutex<T>);

impl<T> SharedResults<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(super) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
