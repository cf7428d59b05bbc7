//! The repositories in a place, and what editors, shells and agents run by themselves in the projects there,
//! wherever it lies. Directories are listed once; from then on the kernel tells which of them have changed, so that a
//! command pays for what it has made and not for what was there.
//!
//! What a place holds at first is looked at within a bound, plain directories before hidden ones and those of
//! tools. What is made later is looked at whatever its name and however deep: a command cannot choose a directory
//! that nobody looks into.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hermes_core::private::{is_part_of_run_later, run_later_name};
use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::notify::{self, InotifyQueue, Reading};
use super::seen::Seen;
use super::survey::{SKIPPED, is_part_of_git};

/// Directories that are looked at in a place that was not known before.
const MAX_FIRST: usize = 4096;
/// Directories that are watched in a place. Further ones that are made are looked at each time.
const MAX_WATCHED: usize = 32_768;
/// Directories that are looked at in one go.
const MAX_LOOKED: usize = 262_144;
/// Places that are remembered.
const MAX_PLACES: usize = 16;
/// File systems may be this late with the time at which something was made.
const LATE: Duration = Duration::from_secs(2);

const ENTRIES: WatchFlags = notify::ENTRIES
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// What there is in a place and decides what runs later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TreeFindings {
    /// Whatever is called `.git`, and directories that git takes for a repository.
    pub(super) repositories: BTreeSet<PathBuf>,
    /// What runs by itself in a project. Directories of tools hold copies of many projects that nobody works in.
    pub(super) run_later: BTreeSet<PathBuf>,
}

/// What is known of places that were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Trees(Arc<Mutex<HashMap<PathBuf, WatchedTree>>>);

impl Trees {
    /// What there is in `place` now. `skipped` are directories in it that are not looked into.
    pub(super) fn below(
        &self,
        place: &Path,
        skipped: impl FnOnce() -> Vec<PathBuf>,
    ) -> TreeFindings {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_PLACES && !all.contains_key(place) {
            all.clear();
        }
        if let Some(tree) = all.get_mut(place) {
            tree.refresh();
            return tree.found.clone();
        }
        // Where the kernel does not watch, the other look is all there is.
        let Some(tree) = WatchedTree::new(place, skipped()) else {
            return TreeFindings::default();
        };
        let found = tree.found.clone();
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
    /// When it was looked at first.
    since: SystemTime,
    notifier: InotifyQueue,
    by_number: HashMap<i32, PathBuf>,
    numbers: BTreeMap<PathBuf, i32>,
    /// Made since then, and more than can be watched.
    unwatched: BTreeMap<PathBuf, Seen>,
    found: TreeFindings,
    changes: u64,
}

/// What has happened since the last look.
#[derive(Default)]
struct TreeChanges {
    gone: Vec<PathBuf>,
    come: Vec<PathBuf>,
    /// Directories in which something that decides what runs later has come or gone.
    touched: BTreeSet<PathBuf>,
    is_lost: bool,
}

/// How far a walk goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// What was there before anything ran.
    First,
    /// What was made since, or may have been: all of it.
    Later,
}

impl WatchedTree {
    fn new(place: &Path, skipped: Vec<PathBuf>) -> Option<Self> {
        let now = SystemTime::now();
        let mut tree = Self {
            place: place.to_owned(),
            skipped,
            since: now.checked_sub(LATE).unwrap_or(now),
            notifier: InotifyQueue::new()?,
            by_number: HashMap::new(),
            numbers: BTreeMap::new(),
            unwatched: BTreeMap::new(),
            found: TreeFindings::default(),
            changes: 0,
        };
        tree.walk(vec![place.to_owned()], Reach::First);
        Some(tree)
    }

    fn refresh(&mut self) {
        let mut news = self.news();
        if news.is_lost {
            let Some(notifier) = InotifyQueue::new() else {
                return;
            };
            self.notifier = notifier;
            self.by_number.clear();
            self.numbers.clear();
            self.unwatched.clear();
            self.found = TreeFindings::default();
            self.walk(vec![self.place.clone()], Reach::Later);
            self.changes += 1;
            return;
        }
        let changed: Vec<PathBuf> = (self.unwatched.iter())
            .filter(|(_, seen)| !seen.is_unchanged())
            .map(|(dir, _)| dir.clone())
            .collect();
        if news.gone.is_empty()
            && news.come.is_empty()
            && news.touched.is_empty()
            && changed.is_empty()
        {
            return;
        }
        let before = self.found.clone();
        // What was moved is the same directory for the kernel: it is let go before it is found again.
        for dir in &news.gone {
            self.forget(dir);
        }
        for dir in &changed {
            self.forget(dir);
        }
        news.come.extend(changed);
        self.walk(news.come, Reach::Later);
        for dir in &news.touched {
            self.forget_entries(dir);
            self.list(dir);
        }
        self.changes += u64::from(before != self.found);
    }

    fn news(&self) -> TreeChanges {
        let mut news = TreeChanges::default();
        let reading = self.notifier.read(|notice| {
            let (Some(dir), Some(name)) = (self.by_number.get(&notice.number), notice.name) else {
                return ControlFlow::Continue(());
            };
            let of_git = [".git", "HEAD", "objects", "refs"];
            if of_git.iter().any(|part| name == *part) || is_part_of_run_later(name) {
                news.touched.insert(dir.clone());
            }
            if notice.what.contains(ReadFlags::ISDIR) && name != ".git" {
                let path = dir.join(name);
                if (notice.what).intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                    news.come.push(path);
                } else {
                    news.gone.push(path);
                }
            }
            ControlFlow::Continue(())
        });
        news.is_lost = reading == Reading::Lost;
        news
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
                self.notifier.remove(number);
            }
        }
        self.unwatched.retain(|path, _| !path.starts_with(dir));
        let found = &mut self.found;
        found.repositories.retain(|path| !path.starts_with(dir));
        found.run_later.retain(|path| !path.starts_with(dir));
    }

    /// The same for what lies right in a directory.
    fn forget_entries(&mut self, dir: &Path) {
        let found = &mut self.found;
        found.repositories.remove(dir);
        found.repositories.remove(&dir.join(".git"));
        found.run_later.retain(|path| path.parent() != Some(dir));
    }

    /// Looks at these directories and all below them.
    fn walk(&mut self, from: Vec<PathBuf>, reach: Reach) {
        let mut waiting = VecDeque::from(from);
        let mut later = VecDeque::new();
        let most = match reach {
            Reach::First => MAX_FIRST,
            Reach::Later => MAX_LOOKED,
        };
        for _ in 0..most {
            let Some(dir) = waiting.pop_front().or_else(|| later.pop_front()) else {
                return;
            };
            if self.skipped.contains(&dir) || !self.watch(&dir, reach) {
                continue;
            }
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

    /// From now on changes in a directory show. `false`: there is none.
    fn watch(&mut self, dir: &Path, reach: Reach) -> bool {
        let added = if self.numbers.len() < MAX_WATCHED {
            self.notifier.add(dir, ENTRIES)
        } else {
            Err(Errno::NOSPC)
        };
        match added {
            Ok(number) => {
                self.by_number.insert(number, dir.to_owned());
                self.numbers.insert(dir.to_owned(), number);
            }
            // There are no more watches to be had.
            Err(Errno::NOSPC | Errno::NOMEM) => {
                let is_dir = dir.symlink_metadata().is_ok_and(|data| data.is_dir());
                if reach == Reach::First || !is_dir {
                    return false;
                }
                if self.may_be_new(dir) {
                    self.unwatched.insert(dir.to_owned(), Seen::unnoted(dir));
                }
            }
            Err(_) => return false,
        }
        true
    }

    /// Whether a directory was made since the first look, or nobody knows.
    fn may_be_new(&self, dir: &Path) -> bool {
        let made = dir.symlink_metadata().and_then(|data| data.created());
        !made.is_ok_and(|made| made < self.since)
    }

    /// Notes what decides what runs later right in a directory, and gives the directories in it. Git's own are not
    /// entered.
    fn list(&mut self, dir: &Path) -> Vec<PathBuf> {
        let mut below = Vec::new();
        let mut of_git = 0;
        for entry in dir.read_dir().into_iter().flatten().flatten() {
            let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else {
                continue;
            };
            of_git += usize::from(is_part_of_git(&name.to_string_lossy(), kind));
            if name == ".git" {
                self.found.repositories.insert(entry.path());
                continue;
            }
            if is_part_of_run_later(&name) && self.is_run_later(&entry.path(), kind.is_symlink()) {
                self.found.run_later.insert(entry.path());
            }
            if kind.is_dir() {
                below.push(entry.path());
            }
        }
        if of_git == 3 {
            self.found.repositories.insert(dir.to_owned());
            return Vec::new();
        }
        below
    }

    fn is_run_later(&self, path: &Path, is_link: bool) -> bool {
        let Some(name) = run_later_name(path, is_link) else {
            return false;
        };
        let project = path.ancestors().nth(name.split('/').count());
        project
            .and_then(|project| project.strip_prefix(&self.place).ok())
            .is_some_and(|below| {
                let mut parts = below.iter().map(|part| part.to_string_lossy());
                !parts.any(|part| SKIPPED.contains(&&*part))
            })
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
            let found = trees.below(&dir, Vec::new).repositories;
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
        assert!(trees.below(&dir, Vec::new).repositories.is_empty());
        for number in 0..MAX_FIRST + 100 {
            std::fs::create_dir(dir.join(format!("d{number:05}"))).unwrap();
        }
        make(dir.join("zz/evil/.git"));
        assert_eq!(
            (trees.below(&dir, Vec::new).repositories.into_iter()).collect::<Vec<_>>(),
            [dir.join("zz/evil/.git")]
        );
    }

    #[test]
    fn more_directories_than_are_watched_hide_nothing_that_comes() {
        let (_dir, dir) = place();
        let trees = Trees::default();
        let now = || {
            let found = trees.below(&dir, Vec::new);
            let all = found.repositories.iter().chain(&found.run_later);
            let below = |path: &PathBuf| path.strip_prefix(&dir).unwrap().display().to_string();
            all.map(below).collect::<Vec<_>>()
        };
        assert!(now().is_empty());
        for number in 0..MAX_WATCHED + 200 {
            std::fs::create_dir(dir.join(format!("d{number:05}"))).unwrap();
        }
        make(dir.join("zz/evil/.git"));
        assert_eq!(now(), ["zz/evil/.git"]);
        // Also in those that were made before, whichever of them are watched.
        let last = format!("d{:05}/new/.git", MAX_WATCHED + 199);
        make(dir.join(&last));
        make(dir.join("d00000/.git"));
        std::fs::write(dir.join("d00100/.envrc"), "").unwrap();
        std::fs::remove_dir(dir.join("zz/evil/.git")).unwrap();
        assert_eq!(now(), ["d00000/.git", last.as_str(), "d00100/.envrc"]);
    }

    #[test]
    fn what_projects_run_is_known_wherever_it_lies() {
        let (_dir, dir) = place();
        let at = |name: &str| dir.join(name);
        make(at("a/.vscode"));
        make(at("node_modules/x/.husky"));
        std::fs::write(at("a/.vscode/tasks.json"), "").unwrap();
        std::fs::write(at("a/settings.json"), "").unwrap();
        let trees = Trees::default();
        let places = [dir.clone()];
        let now = || {
            let found = trees.below(&dir, Vec::new).run_later;
            let below = |path: &PathBuf| path.strip_prefix(&dir).unwrap().display().to_string();
            found.iter().map(below).collect::<Vec<_>>()
        };
        assert_eq!(now(), ["a/.vscode/tasks.json"]);
        let before = trees.changes(&places);
        make(at("b/plain"));
        std::fs::write(at("b/plain/tasks.json"), "").unwrap();
        assert_eq!(trees.changes(&places), before);
        // Moved into place, linked, made deep below, gone.
        std::fs::rename(at("b/plain"), at("b/.vscode")).unwrap();
        std::os::unix::fs::symlink("../a", at("b/.idea")).unwrap();
        make(at(".hidden/1/2/3/4/5/6/7/8/9/.claude"));
        std::fs::remove_file(at("a/.vscode/tasks.json")).unwrap();
        assert_ne!(trees.changes(&places), before);
        assert_eq!(
            now(),
            [
                ".hidden/1/2/3/4/5/6/7/8/9/.claude",
                "b/.idea",
                "b/.vscode/tasks.json"
            ]
        );
    }

    #[test]
    fn what_is_skipped_is_not_looked_into() {
        let (_dir, dir) = place();
        make(dir.join("cache/x/.git"));
        let trees = Trees::default();
        let found = trees.below(&dir, || vec![dir.join("cache")]);
        assert!(found.repositories.is_empty());
    }
}
