//! Looks at the file system for the limits of commands. While a [`Basis`] is being noted on this thread, each look
//! tells it what the answer rests on; the kernel then says whether any of that has changed, which takes one call
//! instead of hundreds of looks.
//!
//! All of this directory looks through here: what is looked at past it would be believed for ever.

use std::cell::RefCell;
use std::fs::{DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::basis::Basis;

thread_local! {
    /// What the looks on this thread are noted in. Looks are deep below whoever wants to know, and never wait.
    static NOTED: RefCell<Option<Basis>> = const { RefCell::new(None) };
}

/// Does `work`, and gives what its looks rest on. `None`: the kernel cannot watch that here.
pub(super) fn noting<T>(work: impl FnOnce() -> T) -> (T, Option<Basis>) {
    NOTED.set(Basis::new());
    let done = work();
    (done, NOTED.take().filter(Basis::is_complete))
}

fn note(add: impl FnOnce(&mut Basis)) {
    NOTED.with_borrow_mut(|noted| {
        if let Some(basis) = noted {
            add(basis);
        }
    });
}

/// What is at a path; a link is not followed.
pub(super) fn entry(path: &Path) -> io::Result<Metadata> {
    note(|basis| basis.rests_on(path));
    path.symlink_metadata()
}

/// What a path leads to.
pub(super) fn target(path: &Path) -> io::Result<Metadata> {
    note(|basis| basis.rests_on_target(path));
    path.metadata()
}

pub(super) fn is_dir(path: &Path) -> bool {
    target(path).is_ok_and(|data| data.is_dir())
}

pub(super) fn is_file(path: &Path) -> bool {
    target(path).is_ok_and(|data| data.is_file())
}

pub(super) fn is_link(path: &Path) -> bool {
    entry(path).is_ok_and(|data| data.is_symlink())
}

/// Where a path lies, without links in it.
pub(super) fn real(path: &Path) -> io::Result<PathBuf> {
    note(|basis| basis.rests_on_target(path));
    path.canonicalize()
}

pub(super) fn link(path: &Path) -> io::Result<PathBuf> {
    note(|basis| basis.rests_on(path));
    path.read_link()
}

/// The entries of a directory; none where it cannot be read.
pub(super) fn list(dir: &Path) -> impl Iterator<Item = DirEntry> {
    note(|basis| basis.rests_on_entries(dir));
    dir.read_dir().into_iter().flatten().flatten()
}

pub(super) fn read(file: &Path) -> io::Result<Vec<u8>> {
    note(|basis| basis.rests_on_content(file));
    std::fs::read(file)
}

pub(super) fn read_text(file: &Path) -> io::Result<String> {
    note(|basis| basis.rests_on_content(file));
    std::fs::read_to_string(file)
}

/// Whether this account may read it.
pub(super) fn can_read(path: &Path) -> bool {
    note(|basis| basis.rests_on_target(path));
    rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
}

/// A directory, its entries and what is known of both from an earlier look.
pub(super) fn known(path: &Path) {
    note(|basis| basis.rests_on_content(path));
}
