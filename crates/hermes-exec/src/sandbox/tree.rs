//! The repositories in a place where a person works, wherever they lie in it. Its directories are listed once; from
//! then on the kernel tells which of them have changed, so that a command pays for what it has made and not for what
//! was there.
//!
//! What a place holds at first is looked at within a bound, plain directories before hidden ones and those of
//! tools. What is made later is looked at whatever its name and however deep: a command cannot choose a directory
//! that nobody looks into.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::inotify::{
    CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
};
use rustix::io::Errno;

use super::survey::{SKIPPED, is_part_of_git};

/// Directories that are looked at in a place that was not known before, and in all.
const MAX_FIRST: usize = 4096;
const MAX_ALL: usize = 32_768;
/// Places that are remembered.
const MAX_PLACES: usize = 16;

const ENTRIES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// What is known of places that were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Trees(Arc<Mutex<HashMap<PathBuf, WatchedTree>>>);

impl Trees {
    /// The repositories in `place` now: whatever is called `.git`, and directories that git takes for one. `skipped`
    /// are directories in it that are not looked into.
    pub(super) fn below(
        &self,
        place: &Path,
        skipped: impl FnOnce() -> Vec<PathBuf>,
    ) -> BTreeSet<PathBuf> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_PLACES && !all.contains_key(place) {
            all.clear();
        }
        if let Some(tree) = all.get_mut(place) {
            tree.refresh();
            return tree.repositories.clone();
        }
        // Where the kernel does not watch, the other look is all there is.
        let Some(tree) = WatchedTree::new(place, skipped(), MAX_FIRST) else {
            return BTreeSet::new();
        };
        let found = tree.repositories.clone();
        all.insert(place.to_owned(), tree);
        found
    }

    /// How often the answer for one of these places has changed.
    pub(super) fn changes(&self, places: &[PathBuf]) -> u64 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all
            .iter_mut()
            .filter(|(place, _)| places.iter().any(|one| one == *place));
        known
            .map(|(_, tree)| {
                tree.refresh();
                tree.changes
            })
            .sum()
    }
}

#[derive(Debug)]
struct WatchedTree {
    place: PathBuf,
    skipped: Vec<PathBuf>,
    notifier: OwnedFd,
    by_number: HashMap<i32, PathBuf>,
    numbers: BTreeMap<PathBuf, i32>,
    repositories: BTreeSet<PathBuf>,
    changes: u64,
}

/// What has happened since the last look.
#[derive(Default)]
struct TreeChanges {
    gone: Vec<PathBuf>,
    come: Vec<PathBuf>,
    /// Directories in which something that makes a repository has come or gone.
    touched: BTreeSet<PathBuf>,
    is_lost: bool,
}

impl WatchedTree {
    fn new(place: &Path, skipped: Vec<PathBuf>, most: usize) -> Option<Self> {
        let mut tree = Self {
            place: place.to_owned(),
            skipped,
            notifier: init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?,
            by_number: HashMap::new(),
            numbers: BTreeMap::new(),
            repositories: BTreeSet::new(),
            changes: 0,
        };
        tree.walk(vec![place.to_owned()], most);
        Some(tree)
    }

    fn refresh(&mut self) {
        let news = self.news();
        if news.is_lost {
            if let Some(mut fresh) = Self::new(&self.place, self.skipped.clone(), MAX_ALL) {
                fresh.changes = self.changes + 1;
                *self = fresh;
            }
            return;
        }
        if news.gone.is_empty() && news.come.is_empty() && news.touched.is_empty() {
            return;
        }
        let before = self.repositories.clone();
        // What was moved is the same directory for the kernel: it is let go before it is found again.
        for dir in &news.gone {
            self.forget(dir);
        }
        self.walk(news.come, MAX_ALL);
        for dir in &news.touched {
            self.repositories.remove(dir);
            self.repositories.remove(&dir.join(".git"));
            self.list(dir);
        }
        self.changes += u64::from(before != self.repositories);
    }

    fn news(&self) -> TreeChanges {
        let mut news = TreeChanges::default();
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut events = Reader::new(&self.notifier, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return news,
                Err(Errno::INTR) => continue,
                Err(_) => {
                    news.is_lost = true;
                    return news;
                }
            };
            let what = event.events();
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                news.is_lost = true;
                return news;
            }
            let (Some(dir), Some(name)) = (self.by_number.get(&event.wd()), event.file_name())
            else {
                continue;
            };
            let name = std::ffi::OsStr::from_bytes(name.to_bytes());
            if [".git", "HEAD", "objects", "refs"]
                .iter()
                .any(|part| name == *part)
            {
                news.touched.insert(dir.clone());
            }
            if what.contains(ReadFlags::ISDIR) && name != ".git" {
                let path = dir.join(name);
                if what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                    news.come.push(path);
                } else {
                    news.gone.push(path);
                }
            }
        }
    }

    /// Nothing is known of a directory and what is below it any more.
    fn forget(&mut self, dir: &Path) {
        let below: Vec<PathBuf> = self
            .numbers
            .range(dir.to_owned()..)
            .map(|(path, _)| path.clone())
            .take_while(|path| path.starts_with(dir))
            .collect();
        for path in below {
            if let Some(number) = self.numbers.remove(&path) {
                self.by_number.remove(&number);
                // One that is gone is not watched any more either.
                let _ = remove_watch(&self.notifier, number);
            }
        }
        self.repositories.retain(|path| !path.starts_with(dir));
    }

    /// Looks at these directories and all below them, as long as there are fewer than `most` in all.
    fn walk(&mut self, from: Vec<PathBuf>, most: usize) {
        let mut waiting = VecDeque::from(from);
        let mut later = VecDeque::new();
        while let Some(dir) = waiting.pop_front().or_else(|| later.pop_front()) {
            if self.numbers.len() >= most {
                return;
            }
            if self.skipped.contains(&dir) {
                continue;
            }
            let number = match add_watch(&self.notifier, &dir, ENTRIES) {
                Ok(number) => number,
                // There are no more watches to be had.
                Err(Errno::NOSPC | Errno::NOMEM) => return,
                Err(_) => continue,
            };
            self.by_number.insert(number, dir.clone());
            self.numbers.insert(dir.clone(), number);
            for below in self.list(&dir) {
                let name = below.file_name().unwrap_or_default().to_string_lossy();
                if name.starts_with('.') || SKIPPED.contains(&&*name) {
                    later.push_back(below);
                } else {
                    waiting.push_back(below);
                }
            }
        }
    }

    /// Notes the repositories right in a directory, and gives the directories in it. Git's own are not entered.
    fn list(&mut self, dir: &Path) -> Vec<PathBuf> {
        let mut below = Vec::new();
        let mut of_git = 0;
        for entry in dir.read_dir().into_iter().flatten().flatten() {
            let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else {
                continue;
            };
            of_git += usize::from(is_part_of_git(&name.to_string_lossy(), kind));
            if name == ".git" {
                self.repositories.insert(entry.path());
            } else if kind.is_dir() {
                below.push(entry.path());
            }
        }
        if of_git == 3 {
            self.repositories.insert(dir.to_owned());
            return Vec::new();
        }
        below
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

    fn make(path: PathBuf) {
        std::fs::create_dir_all(path).unwrap();
    }

    #[test]
    fn what_comes_and_goes_is_known_wherever_it_lies() {
        let (_dir, dir) = place();
        let at = |name: &str| dir.join(name);
        make(at("old/.git"));
        make(at("a/b"));
        let trees = Trees::default();
        let places = [dir.clone()];
        let now = || {
            let found = trees.below(&dir, Vec::new);
            let below = |path: &PathBuf| path.strip_prefix(&dir).unwrap().display().to_string();
            found.iter().map(below).collect::<Vec<_>>()
        };
        assert_eq!(now(), ["old/.git"]);
        let before = trees.changes(&places);
        std::fs::write(at("a/b/file"), "").unwrap();
        make(at("a/c"));
        assert_eq!(trees.changes(&places), before);
        make(at("a/b/.git"));
        assert_ne!(trees.changes(&places), before);
        assert_eq!(now(), ["a/b/.git", "old/.git"]);
        make(at("1/2/3/4/5/6/7/8/9/node_modules/.hidden/x"));
        std::fs::write(
            at("1/2/3/4/5/6/7/8/9/node_modules/.hidden/x/.git"),
            "gitdir: y",
        )
        .unwrap();
        std::fs::rename(at("a"), at("z")).unwrap();
        assert_eq!(
            now(),
            [
                "1/2/3/4/5/6/7/8/9/node_modules/.hidden/x/.git",
                "old/.git",
                "z/b/.git"
            ]
        );
        // It is watched where it is now.
        make(at("z/c/.git"));
        std::fs::remove_dir_all(at("1")).unwrap();
        std::fs::remove_dir(at("old/.git")).unwrap();
        for name in ["HEAD", "objects", "refs"] {
            make(at("bare"));
            if name == "HEAD" {
                std::fs::write(at("bare/HEAD"), "").unwrap();
            } else {
                make(at("bare").join(name));
            }
        }
        assert_eq!(now(), ["bare", "z/b/.git", "z/c/.git"]);
    }

    #[test]
    fn many_new_directories_hide_none() {
        let (_dir, dir) = place();
        let trees = Trees::default();
        assert!(trees.below(&dir, Vec::new).is_empty());
        for number in 0..MAX_FIRST + 100 {
            std::fs::create_dir(dir.join(format!("d{number:05}"))).unwrap();
        }
        make(dir.join("zz/evil/.git"));
        assert_eq!(
            trees.below(&dir, Vec::new).into_iter().collect::<Vec<_>>(),
            [dir.join("zz/evil/.git")]
        );
    }

    #[test]
    fn what_is_skipped_is_not_looked_into() {
        let (_dir, dir) = place();
        make(dir.join("cache/x/.git"));
        let trees = Trees::default();
        assert!(trees.below(&dir, || vec![dir.join("cache")]).is_empty());
    }
}
