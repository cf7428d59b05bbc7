//! File system access for computing the limits of commands. While [`FsDependencies`] are recorded on this
//! thread, each access records what its result depends on; the kernel then reports whether any of it has
//! changed, which takes one call instead of hundreds.
//!
//! All code in this directory uses these functions: a result obtained in another way would be cached forever.

use std::cell::RefCell;
use std::fs::{DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::fs_dependencies::FsDependencies;

thread_local! {
    /// Dependencies recorded on this thread. Accesses happen deep below the caller and never wait.
    static RECORDING: RefCell<Option<FsDependencies>> = const { RefCell::new(None) };
}

/// Runs `work` and returns the dependencies of its accesses. `None`: they cannot be watched here.
pub(super) fn record<T>(work: impl FnOnce() -> T) -> (T, Option<FsDependencies>) {
    RECORDING.set(FsDependencies::new());
    let done = work();
    (done, RECORDING.take().filter(FsDependencies::is_complete))
}

fn record_dependency(add: impl FnOnce(&mut FsDependencies)) {
    RECORDING.with_borrow_mut(|noted| {
        if let Some(dependencies) = noted {
            add(dependencies);
        }
    });
}

/// Metadata of a path; a link is not followed.
pub(super) fn lstat(path: &Path) -> io::Result<Metadata> {
    record_dependency(|dependencies| dependencies.add_path(path));
    path.symlink_metadata()
}

/// Metadata of the target of a path.
pub(super) fn stat(path: &Path) -> io::Result<Metadata> {
    record_dependency(|dependencies| dependencies.add_target(path));
    path.metadata()
}

pub(super) fn is_dir(path: &Path) -> bool {
    stat(path).is_ok_and(|data| data.is_dir())
}

pub(super) fn is_file(path: &Path) -> bool {
    stat(path).is_ok_and(|data| data.is_file())
}

pub(super) fn is_link(path: &Path) -> bool {
    lstat(path).is_ok_and(|data| data.is_symlink())
}

/// The canonical path.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    record_dependency(|dependencies| dependencies.add_target(path));
    path.canonicalize()
}

pub(super) fn link_target(path: &Path) -> io::Result<PathBuf> {
    record_dependency(|dependencies| dependencies.add_path(path));
    path.read_link()
}

/// The entries of a directory; none if it cannot be read.
pub(super) fn list(dir: &Path) -> impl Iterator<Item = DirEntry> {
    record_dependency(|dependencies| dependencies.add_entries(dir));
    dir.read_dir().into_iter().flatten().flatten()
}

pub(super) fn read_bytes(file: &Path) -> io::Result<Vec<u8>> {
    record_dependency(|dependencies| dependencies.add_content(file));
    std::fs::read(file)
}

pub(super) fn read_text(file: &Path) -> io::Result<String> {
    record_dependency(|dependencies| dependencies.add_content(file));
    std::fs::read_to_string(file)
}

/// Whether this account may read it.
pub(super) fn can_read(path: &Path) -> bool {
    record_dependency(|dependencies| dependencies.add_target(path));
    rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
}

/// Records a dependency on a path and its content, for a result that is already known.
pub(super) fn depend_on_content(path: &Path) {
    record_dependency(|dependencies| dependencies.add_content(path));
}
