//! What the kernel says about changes in the file system (inotify).

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

/// What changes the entries of a directory.
pub(super) const ENTRIES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO);

/// One queue of changes.
#[derive(Debug)]
pub(super) struct InotifyQueue(OwnedFd);

/// A change of something that is watched.
pub(super) struct WatchedChange<'a> {
    /// What [`InotifyQueue::add`] gave.
    pub(super) number: i32,
    pub(super) what: ReadFlags,
    /// The entry that changed; `None`: what is watched itself.
    pub(super) name: Option<&'a OsStr>,
}

/// What became of reading all changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// There are no more.
    Complete,
    /// The reader wanted no more.
    Stopped,
    /// There were more than the kernel keeps, or it does not say.
    Lost,
}

impl InotifyQueue {
    /// `None`: the kernel does not watch here.
    pub(super) fn new() -> Option<Self> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        init(flags).ok().map(Self)
    }

    pub(super) fn add(&self, path: &Path, what: WatchFlags) -> Result<i32, Errno> {
        add_watch(&self.0, path, what)
    }

    pub(super) fn remove(&self, number: i32) {
        // One that is gone is not watched any more either.
        let _ = remove_watch(&self.0, number);
    }

    /// Reads the changes since the last time.
    pub(super) fn read(
        &self,
        mut see: impl FnMut(&WatchedChange<'_>) -> ControlFlow<()>,
    ) -> Reading {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut events = Reader::new(&self.0, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Reading::Complete,
                Err(Errno::INTR) => continue,
                Err(_) => return Reading::Lost,
            };
            let lost = ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT;
            if event.events().intersects(lost) {
                return Reading::Lost;
            }
            let notice = WatchedChange {
                number: event.wd(),
                what: event.events(),
                name: event
                    .file_name()
                    .map(|name| OsStr::from_bytes(name.to_bytes())),
            };
            if see(&notice).is_break() {
                return Reading::Stopped;
            }
        }
    }
}
