//! The repositories below a directory, and the files in projects there that editors, shells and agents execute
//! automatically, at any depth. Directories are listed once; then inotify reports which of them changed, so
//! that a command pays for what it created and not for what was there.
//!
//! The first scan is bounded: plain directories come before hidden ones and those of tools. Directories created
//! later are always scanned, whatever their name or depth, so that a command cannot choose one that is skipped.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hermes_core::private::{is_part_of_run_later, run_later_name};
use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::git_layout::{GIT_ENTRIES, GitLayout};
use super::inotify::{self, DrainOutcome, InotifyQueue};
use super::path_state::PathState;
use super::survey::SKIPPED;

/// Maximum number of directories in the first scan.
const MAX_FIRST: usize = 4096;
/// Maximum number of watches per tree. Further new directories are checked each time.
const MAX_WATCHED: usize = 32_768;
/// Maximum number of directories in one walk.
const MAX_WALKED: usize = 262_144;
/// Maximum number of cached trees.
const MAX_PLACES: usize = 16;
/// Creation times may be late by this much.
const CLOCK_SKEW: Duration = Duration::from_secs(2);

const ENTRIES: WatchFlags = inotify::ENTRIES
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// Findings that decide what is executed later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TreeFindings {
    /// Everything named `.git`, and directories that git treats as a repository.
    pub(super) repositories: BTreeSet<PathBuf>,
    /// Files that are executed automatically in a project. Directories of tools are left out: they contain
    /// copies of many projects.
    pub(super) run_later: BTreeSet<PathBuf>,
}

/// Cached trees by root.
#[derive(Clone, Debug, Default)]
pub(super) struct Trees(Arc<Mutex<HashMap<PathBuf, WatchedTree>>>);

impl Trees {
    /// Current findings below `root`. `skipped` are directories that are not entered.
    pub(super) fn below(
        &self,
        root: &Path,
        skipped: impl FnOnce() -> Vec<PathBuf>,
    ) -> TreeFindings {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_PLACES && !all.contains_key(root) {
            all.clear();
        }
        if let Some(tree) = all.get_mut(root) {
            tree.refresh();
            return tree.found.clone();
        }
        // Without inotify, only the survey is available.
        let Some(tree) = WatchedTree::new(root, skipped()) else {
            return TreeFindings::default();
        };
        let found = tree.found.clone();
        all.insert(root.to_owned(), tree);
        found
    }

    /// Change counter of these trees.
    pub(super) fn changes(&self, roots: &[PathBuf]) -> u64 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all
            .iter_mut()
            .filter(|(root, _)| roots.iter().any(|one| one == *root));
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
    root: PathBuf,
    skipped: Vec<PathBuf>,
    /// When it was first scanned.
    since: SystemTime,
    notifier: InotifyQueue,
    by_number: HashMap<i32, PathBuf>,
    numbers: BTreeMap<PathBuf, i32>,
    /// Created since then, beyond the watch limit.
    unwatched: BTreeMap<PathBuf, PathState>,
    found: TreeFindings,
    changes: u64,
}

/// Changes since the last check.
#[derive(Default)]
struct TreeChanges {
    removed: Vec<PathBuf>,
    added: Vec<PathBuf>,
    /// Directories in which a relevant entry has changed.
    touched: BTreeSet<PathBuf>,
    is_lost: bool,
}

/// Extent of a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkExtent {
    /// What existed before anything ran: bounded.
    First,
    /// What was or may have been created since: complete.
    Later,
}

impl WatchedTree {
    fn new(root: &Path, skipped: Vec<PathBuf>) -> Option<Self> {
        let now = SystemTime::now();
        let mut tree = Self {
            root: root.to_owned(),
            skipped,
            since: now.checked_sub(CLOCK_SKEW).unwrap_or(now),
            notifier: InotifyQueue::new()?,
            by_number: HashMap::new(),
            numbers: BTreeMap::new(),
            unwatched: BTreeMap::new(),
            found: TreeFindings::default(),
            changes: 0,
        };
        tree.walk(vec![root.to_owned()], WalkExtent::First);
        Some(tree)
    }

    fn refresh(&mut self) {
        let mut changes = self.drain_changes();
        if changes.is_lost {
            let Some(notifier) = InotifyQueue::new() else {
                return;
            };
            self.notifier = notifier;
            self.by_number.clear();
            self.numbers.clear();
            self.unwatched.clear();
            self.found = TreeFindings::default();
            self.walk(vec![self.root.clone()], WalkExtent::Later);
            self.changes += 1;
            return;
        }
        let changed: Vec<PathBuf> = (self.unwatched.iter())
            .filter(|(_, state)| !state.is_unchanged_untracked())
            .map(|(dir, _)| dir.clone())
            .collect();
        if changes.removed.is_empty()
            && changes.added.is_empty()
            && changes.touched.is_empty()
            && changed.is_empty()
        {
            return;
        }
        let before = self.found.clone();
        // For inotify a moved directory is the same one: it is removed before it is found again.
        for dir in &changes.removed {
            self.forget(dir);
        }
        for dir in &changed {
            self.forget(dir);
        }
        changes.added.extend(changed);
        self.walk(changes.added, WalkExtent::Later);
        for dir in &changes.touched {
            self.forget_entries(dir);
            self.list(dir);
        }
        self.changes += u64::from(before != self.found);
    }

    fn drain_changes(&self) -> TreeChanges {
        let mut changes = TreeChanges::default();
        let reading = self.notifier.drain(|event| {
            let (Some(dir), Some(name)) = (self.by_number.get(&event.descriptor), event.name)
            else {
                return ControlFlow::Continue(());
            };
            let is_of_git = name == ".git" || GIT_ENTRIES.iter().any(|part| name == *part);
            if is_of_git || is_part_of_run_later(name) {
                changes.touched.insert(dir.clone());
            }
            if event.flags.contains(ReadFlags::ISDIR) && name != ".git" {
                let path = dir.join(name);
                if (event.flags).intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                    changes.added.push(path);
                } else {
                    changes.removed.push(path);
                }
            }
            ControlFlow::Continue(())
        });
        changes.is_lost = reading == DrainOutcome::Lost;
        changes
    }

    /// Removes a directory and everything below it.
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

    /// Removes only the findings directly in a directory.
    fn forget_entries(&mut self, dir: &Path) {
        let found = &mut self.found;
        found.repositories.remove(dir);
        found.repositories.remove(&dir.join(".git"));
        found.run_later.retain(|path| path.parent() != Some(dir));
    }

    /// Scans these directories and everything below them.
    fn walk(&mut self, from: Vec<PathBuf>, reach: WalkExtent) {
        let mut waiting = VecDeque::from(from);
        let mut later = VecDeque::new();
        let most = match reach {
            WalkExtent::First => MAX_FIRST,
            WalkExtent::Later => MAX_WALKED,
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

    /// Starts to watch a directory. `false`: there is none.
    fn watch(&mut self, dir: &Path, reach: WalkExtent) -> bool {
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
            // No more watches are available.
            Err(Errno::NOSPC | Errno::NOMEM) => {
                let is_dir = dir.symlink_metadata().is_ok_and(|data| data.is_dir());
                if reach == WalkExtent::First || !is_dir {
                    return false;
                }
                if self.may_be_new(dir) {
                    self.unwatched
                        .insert(dir.to_owned(), PathState::of_content_untracked(dir));
                }
            }
            Err(_) => return false,
        }
        true
    }

    /// Whether a directory may have been created since the first scan.
    fn may_be_new(&self, dir: &Path) -> bool {
        let made = dir.symlink_metadata().and_then(|data| data.created());
        !made.is_ok_and(|made| made < self.since)
    }

    /// Records the findings directly in a directory and returns its subdirectories, without those of git.
    fn list(&mut self, dir: &Path) -> Vec<PathBuf> {
        let mut below = Vec::new();
        let mut layout = GitLayout::default();
        for entry in dir.read_dir().into_iter().flatten().flatten() {
            let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else {
                continue;
            };
            layout.add(&name.to_string_lossy());
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
        // What is below is listed all the same: anything can be put into a directory that looks like one of git's.
        if layout.is_repository() {
            self.found.repositories.insert(dir.to_owned());
        }
        below
    }

    fn is_run_later(&self, path: &Path, is_link: bool) -> bool {
        let Some(name) = run_later_name(path, is_link) else {
            return false;
        };
        let project = path.ancestors().nth(name.split('/').count());
        project
            .and_then(|project| project.strip_prefix(&self.root).ok())
            .is_some_and(|below| {
                let mut parts = below.iter().map(|part| part.to_string_lossy());
                !parts.any(|part| SKIPPED.contains(&&*part))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        (dir, path)
    }

    fn make(path: PathBuf) {
        std::fs::create_dir_all(path).unwrap();
    }

    #[test]
    fn what_comes_and_goes_is_known_wherever_it_lies() {
        let (_dir, dir) = root();
        let at = |name: &str| dir.join(name);
        make(at("old/.git"));
        make(at("a/b"));
        let trees = Trees::default();
        let roots = [dir.clone()];
        let now = || {
            let found = trees.below(&dir, Vec::new).repositories;
            let below = |path: &PathBuf| path.strip_prefix(&dir).unwrap().display().to_string();
            found.iter().map(below).collect::<Vec<_>>()
        };
        assert_eq!(now(), ["old/.git"]);
        let before = trees.changes(&roots);
        std::fs::write(at("a/b/file"), "").unwrap();
        make(at("a/c"));
        assert_eq!(trees.changes(&roots), before);
        make(at("a/b/.git"));
        assert_ne!(trees.changes(&roots), before);
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
        // It is watched at its new path.
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
        // What git needs may lie elsewhere.
        make(at("split"));
        std::fs::write(at("split/HEAD"), "ref: refs/heads/main").unwrap();
        assert_eq!(now(), ["bare", "z/b/.git", "z/c/.git"]);
        std::fs::write(at("split/commondir"), "../elsewhere").unwrap();
        assert_eq!(now(), ["bare", "split", "z/b/.git", "z/c/.git"]);
        make(at("split/.x/deep/.git"));
        make(at("bare/node_modules/deep/.git"));
        let nested = [
            "bare",
            "bare/node_modules/deep/.git",
            "split",
            "split/.x/deep/.git",
        ];
        assert_eq!(now()[..4], nested);
    }

    #[test]
    fn many_new_directories_hide_none() {
        let (_dir, dir) = root();
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
        let (_dir, dir) = root();
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
        // Also in those created before, whether or not they are watched.
        let last = format!("d{:05}/new/.git", MAX_WATCHED + 199);
        make(dir.join(&last));
        make(dir.join("d00000/.git"));
        std::fs::write(dir.join("d00100/.envrc"), "").unwrap();
        std::fs::remove_dir(dir.join("zz/evil/.git")).unwrap();
        assert_eq!(now(), ["d00000/.git", last.as_str(), "d00100/.envrc"]);
    }

    #[test]
    fn what_projects_run_is_known_wherever_it_lies() {
        let (_dir, dir) = root();
        let at = |name: &str| dir.join(name);
        make(at("a/.vscode"));
        make(at("node_modules/x/.husky"));
        std::fs::write(at("a/.vscode/tasks.json"), "").unwrap();
        std::fs::write(at("a/settings.json"), "").unwrap();
        let trees = Trees::default();
        let roots = [dir.clone()];
        let now = || {
            let found = trees.below(&dir, Vec::new).run_later;
            let below = |path: &PathBuf| path.strip_prefix(&dir).unwrap().display().to_string();
            found.iter().map(below).collect::<Vec<_>>()
        };
        assert_eq!(now(), ["a/.vscode/tasks.json"]);
        let before = trees.changes(&roots);
        make(at("b/plain"));
        std::fs::write(at("b/plain/tasks.json"), "").unwrap();
        assert_eq!(trees.changes(&roots), before);
        // Moved into place, linked, created deep below, removed.
        std::fs::rename(at("b/plain"), at("b/.vscode")).unwrap();
        std::os::unix::fs::symlink("../a", at("b/.idea")).unwrap();
        make(at(".hidden/1/2/3/4/5/6/7/8/9/.claude"));
        std::fs::remove_file(at("a/.vscode/tasks.json")).unwrap();
        assert_ne!(trees.changes(&roots), before);
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
        let (_dir, dir) = root();
        make(dir.join("cache/x/.git"));
        let trees = Trees::default();
        let found = trees.below(&dir, || vec![dir.join("cache")]);
        assert!(found.repositories.is_empty());
    }
}
