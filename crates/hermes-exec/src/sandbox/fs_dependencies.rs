//! What answers about the file system rest on, watched by the kernel.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::WatchFlags;
use rustix::io::Errno;

use super::notify::{self, InotifyQueue, Reading};

/// Directories and files that are watched for one answer; more are too many to be worth it.
const MAX_WATCHED: usize = 8192;
/// Links that are followed on one way.
const MAX_LINKS: usize = 40;

/// What changes the entries of a directory, or an entry in it.
const ENTRIES: WatchFlags = notify::ENTRIES
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);
/// What changes a file.
const CONTENT: WatchFlags = ENTRIES.union(WatchFlags::MODIFY);

/// Which entries of a directory matter.
#[derive(Debug, Default)]
struct Interest {
    names: HashSet<OsString>,
    all: bool,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    /// `None`: nothing can be watched there; what is above it can.
    number: Option<i32>,
    what: WatchFlags,
}

#[derive(Debug)]
pub(super) struct Basis {
    notifier: InotifyQueue,
    watched: HashMap<PathBuf, Watched>,
    interests: HashMap<i32, Interest>,
    /// Whose way from the root is noted.
    noted: HashSet<PathBuf>,
    is_complete: bool,
}

impl Basis {
    /// `None`: there is no watching here.
    pub(super) fn new() -> Option<Self> {
        Some(Self {
            notifier: InotifyQueue::new()?,
            watched: HashMap::new(),
            interests: HashMap::new(),
            noted: HashSet::new(),
            is_complete: true,
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What is called so, as it is; and every directory on the way to it.
    pub(super) fn rests_on(&mut self, path: &Path) {
        let mut at = path;
        while let (Some(parent), Some(name)) = (at.parent(), at.file_name()) {
            if !self.noted.insert(at.to_owned()) {
                return;
            }
            if let Some(interest) = self.watch(parent, ENTRIES) {
                interest.names.insert(name.to_owned());
            }
            at = parent;
        }
    }

    /// The same, and wherever links on the way lead.
    pub(super) fn rests_on_target(&mut self, path: &Path) {
        self.rests_on(path);
        let mut waiting: Vec<OsString> = path.iter().rev().map(OsStr::to_owned).collect();
        let mut at = PathBuf::new();
        let mut links = 0;
        while let Some(part) = waiting.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            at.push(&part);
            let Ok(target) = at.read_link() else { continue };
            links += 1;
            if links > MAX_LINKS {
                return;
            }
            self.rests_on(&at);
            at.pop();
            waiting.extend(target.iter().rev().map(OsStr::to_owned));
        }
        self.rests_on(&at);
    }

    /// All entries of a directory.
    pub(super) fn rests_on_entries(&mut self, dir: &Path) {
        self.rests_on_target(dir);
        if let Some(interest) = self.watch(dir, ENTRIES) {
            interest.all = true;
        }
    }

    /// What a file holds, or the entries of a directory.
    pub(super) fn rests_on_content(&mut self, path: &Path) {
        self.rests_on_target(path);
        // In a directory this would tell of everything that is written to files there.
        let what = if path.is_dir() { ENTRIES } else { CONTENT };
        if let Some(interest) = self.watch(path, what) {
            interest.all = true;
        }
    }

    fn watch(&mut self, path: &Path, what: WatchFlags) -> Option<&mut Interest> {
        let number = match self.watched.get(path) {
            Some(watched) if watched.what.contains(what) => watched.number,
            None if self.watched.len() >= MAX_WATCHED => {
                self.is_complete = false;
                None
            }
            _ => {
                let number = self.add(path, what);
                self.watched
                    .insert(path.to_owned(), Watched { number, what });
                number
            }
        };
        number.map(|number| self.interests.entry(number).or_default())
    }

    fn add(&mut self, path: &Path, what: WatchFlags) -> Option<i32> {
        match self.notifier.add(path, what | WatchFlags::MASK_ADD) {
            Ok(number) => Some(number),
            // What is not there, or may not be read, is watched from above.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => None,
            Err(_) => {
                self.is_complete = false;
                None
            }
        }
    }

    /// Whether everything is as it was. What has changed once is never as it was again.
    pub(super) fn is_as_it_was(&mut self) -> bool {
        if self.is_complete && self.has_changed() {
            self.is_complete = false;
        }
        self.is_complete
    }

    fn has_changed(&self) -> bool {
        let reading = self.notifier.read(|notice| {
            let matters = match (self.interests.get(&notice.number), notice.name) {
                (Some(interest), Some(name)) => interest.all || interest.names.contains(name),
                // It is about what is watched itself.
                _ => true,
            };
            if matters {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        reading != Reading::Complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        (dir, path)
    }

    /// What changes each kind of answer, and what does not.
    #[test]
    fn a_change_of_what_was_looked_at_shows() {
        type Look = fn(&mut Basis, &Path);
        type Change = fn(&Path);
        let looks: [Look; 4] = [
            |basis, dir| basis.rests_on(&dir.join("a/b")),
            |basis, dir| basis.rests_on_target(&dir.join("link/b")),
            |basis, dir| basis.rests_on_entries(&dir.join("a")),
            |basis, dir| basis.rests_on_content(&dir.join("a/b")),
        ];
        let write = |path: PathBuf| std::fs::write(path, "new").unwrap();
        // Which of the looks see it.
        let changes: [(Change, [bool; 4]); 7] = [
            (|_| {}, [false; 4]),
            (
                |dir| std::fs::write(dir.join("beside"), "x").unwrap(),
                [false; 4],
            ),
            (
                |dir| std::fs::write(dir.join("a/other"), "x").unwrap(),
                [false, false, true, false],
            ),
            (
                |dir| std::fs::write(dir.join("a/b"), "more").unwrap(),
                [false, false, false, true],
            ),
            (
                |dir| {
                    std::fs::write(dir.join("a/c"), "x").unwrap();
                    std::fs::rename(dir.join("a/c"), dir.join("a/b")).unwrap();
                },
                [true; 4],
            ),
            (
                |dir| std::fs::rename(dir.join("a"), dir.join("was")).unwrap(),
                [true; 4],
            ),
            (
                |dir| {
                    std::fs::remove_file(dir.join("link")).unwrap();
                    std::os::unix::fs::symlink("elsewhere", dir.join("link")).unwrap();
                },
                [false, true, false, false],
            ),
        ];
        for (number, (change, seen)) in changes.iter().enumerate() {
            for (which, look) in looks.iter().enumerate() {
                let (_dir, dir) = place();
                std::fs::create_dir(dir.join("a")).unwrap();
                write(dir.join("a/b"));
                std::os::unix::fs::symlink("a", dir.join("link")).unwrap();
                let mut basis = Basis::new().unwrap();
                look(&mut basis, &dir);
                assert!(basis.is_as_it_was());
                change(&dir);
                assert_eq!(!basis.is_as_it_was(), seen[which], "{number} {which}");
            }
        }
    }

    #[test]
    fn what_is_not_there_is_found_when_it_comes() {
        let (_dir, dir) = place();
        let mut basis = Basis::new().unwrap();
        basis.rests_on(&dir.join("not/yet/there"));
        std::fs::create_dir(dir.join("other")).unwrap();
        assert!(basis.is_as_it_was());
        std::fs::create_dir(dir.join("not")).unwrap();
        assert!(!basis.is_as_it_was());
        // Not believed again.
        std::fs::remove_dir(dir.join("not")).unwrap();
        assert!(!basis.is_as_it_was());
    }

    #[test]
    fn the_way_to_a_directory_belongs_to_it() {
        let (_dir, dir) = place();
        std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
        let mut basis = Basis::new().unwrap();
        basis.rests_on_entries(&dir.join("a/b/c"));
        std::fs::rename(dir.join("a"), dir.join("was")).unwrap();
        std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
        assert!(!basis.is_as_it_was());
    }
}
