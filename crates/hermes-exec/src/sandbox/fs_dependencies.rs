//! The paths that a cached result depends on, watched with inotify.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::WatchFlags;
use rustix::io::Errno;

use super::inotify::{self, DrainOutcome, InotifyQueue};

/// Maximum number of watches for one result; caching larger results is not worth it.
const MAX_WATCHED: usize = 8192;
/// Maximum number of links followed while resolving one path.
const MAX_LINKS: usize = 40;

/// Events that change the entries of a directory, or an entry in it.
const ENTRIES: WatchFlags = inotify::ENTRIES
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);
/// Events that change a file.
const CONTENT: WatchFlags = ENTRIES.union(WatchFlags::MODIFY);

/// Which entries of a watched directory matter.
#[derive(Debug, Default)]
struct Interest {
    names: HashSet<OsString>,
    all: bool,
}

#[derive(Clone, Copy, Debug)]
struct WatchState {
    /// `None`: the path cannot be watched, but its parent is.
    descriptor: Option<i32>,
    flags: WatchFlags,
}

#[derive(Debug)]
pub(super) struct FsDependencies {
    notifier: InotifyQueue,
    watched: HashMap<PathBuf, WatchState>,
    interests: HashMap<i32, Interest>,
    /// Paths whose ancestors are already watched.
    recorded: HashSet<PathBuf>,
    is_complete: bool,
}

impl FsDependencies {
    /// `None`: inotify is not available.
    pub(super) fn new() -> Option<Self> {
        Some(Self {
            notifier: InotifyQueue::new()?,
            watched: HashMap::new(),
            interests: HashMap::new(),
            recorded: HashSet::new(),
            is_complete: true,
        })
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Depends on the entry at `path` and on every ancestor directory.
    pub(super) fn add_path(&mut self, path: &Path) {
        let mut at = path;
        while let (Some(parent), Some(name)) = (at.parent(), at.file_name()) {
            if !self.recorded.insert(at.to_owned()) {
                return;
            }
            if let Some(interest) = self.watch(parent, ENTRIES) {
                interest.names.insert(name.to_owned());
            }
            at = parent;
        }
    }

    /// The same, and on the targets of all links along the path.
    pub(super) fn add_target(&mut self, path: &Path) {
        self.add_path(path);
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
            self.add_path(&at);
            at.pop();
            waiting.extend(target.iter().rev().map(OsStr::to_owned));
        }
        self.add_path(&at);
    }

    /// Depends on all entries of a directory.
    pub(super) fn add_entries(&mut self, dir: &Path) {
        self.add_target(dir);
        if let Some(interest) = self.watch(dir, ENTRIES) {
            interest.all = true;
        }
    }

    /// Depends on the content of a file, or on the entries of a directory.
    pub(super) fn add_content(&mut self, path: &Path) {
        self.add_target(path);
        // For a directory, `MODIFY` would report every write to a file in it.
        let what = if path.is_dir() { ENTRIES } else { CONTENT };
        if let Some(interest) = self.watch(path, what) {
            interest.all = true;
        }
    }

    fn watch(&mut self, path: &Path, what: WatchFlags) -> Option<&mut Interest> {
        let number = match self.watched.get(path) {
            Some(watched) if watched.flags.contains(what) => watched.descriptor,
            None if self.watched.len() >= MAX_WATCHED => {
                self.is_complete = false;
                None
            }
            _ => {
                let number = self.add(path, what);
                self.watched.insert(
                    path.to_owned(),
                    WatchState {
                        descriptor: number,
                        flags: what,
                    },
                );
                number
            }
        };
        number.map(|number| self.interests.entry(number).or_default())
    }

    fn add(&mut self, path: &Path, what: WatchFlags) -> Option<i32> {
        match self.notifier.add(path, what | WatchFlags::MASK_ADD) {
            Ok(number) => Some(number),
            // What is missing or unreadable is watched through its parent.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => None,
            Err(_) => {
                self.is_complete = false;
                None
            }
        }
    }

    /// Whether nothing has changed. Once changed, it stays changed.
    pub(super) fn is_unchanged(&mut self) -> bool {
        if self.is_complete && self.has_changed() {
            self.is_complete = false;
        }
        self.is_complete
    }

    fn has_changed(&self) -> bool {
        let reading = self.notifier.drain(|event| {
            let matters = match (self.interests.get(&event.descriptor), event.name) {
                (Some(interest), Some(name)) => interest.all || interest.names.contains(name),
                // The event concerns the watched path itself.
                _ => true,
            };
            if matters {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        reading != DrainOutcome::Complete
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

    /// Which changes invalidate which kind of dependency.
    #[test]
    fn a_change_of_what_was_looked_at_shows() {
        type Look = fn(&mut FsDependencies, &Path);
        type Change = fn(&Path);
        let looks: [Look; 4] = [
            |dependencies, dir| dependencies.add_path(&dir.join("a/b")),
            |dependencies, dir| dependencies.add_target(&dir.join("link/b")),
            |dependencies, dir| dependencies.add_entries(&dir.join("a")),
            |dependencies, dir| dependencies.add_content(&dir.join("a/b")),
        ];
        let write = |path: PathBuf| std::fs::write(path, "new").unwrap();
        // Which of the dependencies notice it.
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
                let mut dependencies = FsDependencies::new().unwrap();
                look(&mut dependencies, &dir);
                assert!(dependencies.is_unchanged());
                change(&dir);
                assert_eq!(
                    !dependencies.is_unchanged(),
                    seen[which],
                    "{number} {which}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_there_is_found_when_it_comes() {
        let (_dir, dir) = place();
        let mut dependencies = FsDependencies::new().unwrap();
        dependencies.add_path(&dir.join("not/yet/there"));
        std::fs::create_dir(dir.join("other")).unwrap();
        assert!(dependencies.is_unchanged());
        std::fs::create_dir(dir.join("not")).unwrap();
        assert!(!dependencies.is_unchanged());
        // A change is never undone.
        std::fs::remove_dir(dir.join("not")).unwrap();
        assert!(!dependencies.is_unchanged());
    }

    #[test]
    fn the_way_to_a_directory_belongs_to_it() {
        let (_dir, dir) = place();
        std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
        let mut dependencies = FsDependencies::new().unwrap();
        dependencies.add_entries(&dir.join("a/b/c"));
        std::fs::rename(dir.join("a"), dir.join("was")).unwrap();
        std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
        assert!(!dependencies.is_unchanged());
    }
}
