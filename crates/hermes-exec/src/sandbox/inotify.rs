//! File change events (inotify).

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::inotify::{
    CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
};
use rustix::io::Errno;

/// Events that change the entries of a directory.
pub(super) const ENTRIES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO);

/// An inotify instance.
#[derive(Debug)]
pub(super) struct InotifyQueue(OwnedFd);

/// A change of a watched path.
pub(super) struct InotifyEvent<'a> {
    /// As returned by [`InotifyQueue::add`].
    pub(super) descriptor: i32,
    pub(super) flags: ReadFlags,
    /// The changed entry; `None`: the watched path itself.
    pub(super) name: Option<&'a OsStr>,
}

/// Result of reading all pending events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainOutcome {
    /// There are no more.
    Complete,
    /// The callback stopped early.
    Stopped,
    /// The kernel's queue overflowed, or events could not be read.
    Lost,
}

impl InotifyQueue {
    /// `None`: inotify is not available.
    pub(super) fn new() -> Option<Self> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        init(flags).ok().map(Self)
    }

    pub(super) fn add(&self, path: &Path, what: WatchFlags) -> Result<i32, Errno> {
        add_watch(&self.0, path, what)
    }

    pub(super) fn remove(&self, number: i32) {
        // A removed path is not watched any more either.
        let _ = remove_watch(&self.0, number);
    }

    /// Passes all pending events to `see`.
    pub(super) fn drain(
        &self,
        mut see: impl FnMut(&InotifyEvent<'_>) -> ControlFlow<()>,
    ) -> DrainOutcome {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut events = Reader::new(&self.0, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return DrainOutcome::Complete,
                Err(Errno::INTR) => continue,
                Err(_) => return DrainOutcome::Lost,
            };
            let lost = ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT;
            if event.events().intersects(lost) {
                return DrainOutcome::Lost;
            }
            let notice = InotifyEvent {
                descriptor: event.wd(),
                flags: event.events(),
                name: event
                    .file_name()
                    .map(|name| OsStr::from_bytes(name.to_bytes())),
            };
            if see(&notice).is_break() {
                return DrainOutcome::Stopped;
            }
        }
    }
}
