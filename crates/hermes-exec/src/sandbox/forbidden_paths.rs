//! Auto-run files that do not exist yet: a missing path cannot be mounted over. They are looked for
//! when a command has ended, and periodically while one runs in the background, and renamed
//! (quarantined).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use hermes_core::private::{
    PUT_ASIDE, RUN_LATER_IN_PROJECT, runs_later_in_cache, runs_later_in_home,
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, openat, renameat_with, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::protect::work_dirs;
use super::repositories::{
    REBASE_STEPS, Repositories, RepositoryTrust, git_dirs, missing_git_control_files, offending,
    offending_additions, path_exists, repositories_at_top, steps_that_run,
};
use super::spec::OsBytes;
use super::start_files::StartFilePaths;
use super::tracked_fs;

/// Maximum number of forbidden names; further ones are found through their repository.
const MAX_NAMES: usize = 4096;
/// Maximum number of quarantined files with the same name in one directory.
const MAX_QUARANTINED: usize = 1024;

/// Paths that must not appear in directories that a command can write to.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForbiddenPaths {
    /// The user's home.
    home: Option<PathBuf>,
    /// Directories in which the user works, and all writable directories.
    work_dirs: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    /// Missing paths, each as writable directory and relative path.
    names: Vec<(PathBuf, PathBuf)>,
    /// The same, if only a file matters.
    files: Vec<(PathBuf, PathBuf)>,
    /// The same for files that control git.
    in_git: Vec<(PathBuf, PathBuf)>,
    /// Existing repositories, and their git directories.
    repositories: BTreeSet<PathBuf>,
    git_dirs: BTreeSet<PathBuf>,
    /// Steps of interrupted rebases that run programs.
    steps: BTreeSet<String>,
    /// Existing files in projects that are executed automatically. `None`: unknown.
    run_later: Option<BTreeMap<PathBuf, Identity>>,
    tops: Vec<TopLevelDir>,
    known: Repositories,
}

/// Device and inode; `None`: nothing exists.
type Identity = Option<(u64, u64)>;

fn identity(path: &Path) -> Identity {
    let found = tracked_fs::lstat(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// A directory in which the name alone decides what is executed later, and the existing entries with such
/// names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TopLevelDir {
    dir: PathBuf,
    is_cache: bool,
    run_later: BTreeSet<OsString>,
}

impl TopLevelDir {
    fn scan(dir: &Path, is_cache: bool) -> Self {
        let run_later = tracked_fs::list(dir)
            .map(|entry| entry.file_name())
            .filter(|name| {
                let name = name.to_string_lossy();
                if is_cache {
                    runs_later_in_cache(&name)
                } else {
                    runs_later_in_home(&name)
                }
            })
            .collect();
        Self {
            dir: dir.to_owned(),
            is_cache,
            run_later,
        }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.run_later.iter().map(|name| self.dir.join(name))
    }
}

/// Existing files at the top of the user's home and cache that are executed later.
pub(super) fn top_level_run_later(home: &Path, writable: &[PathBuf]) -> Vec<PathBuf> {
    tops(home, writable)
        .iter()
        .flat_map(TopLevelDir::paths)
        .collect()
}

fn tops(home: &Path, writable: &[PathBuf]) -> Vec<TopLevelDir> {
    let is_open = |dir: &Path| writable.iter().any(|base| dir.starts_with(base));
    let cache = home.join(".cache");
    [(home, false), (&*cache, true)]
        .into_iter()
        .filter(|(dir, _)| is_open(dir))
        .map(|(dir, is_cache)| TopLevelDir::scan(dir, is_cache))
        .collect()
}

impl ForbiddenPaths {
    /// Records what must not appear while a command with these writable directories runs.
    pub(super) fn new(
        home: Option<&Path>,
        writable: &[PathBuf],
        known: &Repositories,
        named: &StartFilePaths,
        run_by_scripts: &[PathBuf],
    ) -> Self {
        let mut forbidden = Self {
            home: home.map(Path::to_owned),
            work_dirs: work_dirs(writable, home).cloned().collect(),
            writable: writable.to_vec(),
            known: known.clone(),
            ..Self::default()
        };
        let below = |path: &PathBuf| {
            // A workspace may lie in a temporary directory.
            let around = writable.iter().filter(|base| path.starts_with(base));
            let base = around.max_by_key(|base| base.as_os_str().len())?;
            let below = path.strip_prefix(base).ok()?;
            (!below.as_os_str().is_empty()).then(|| (base.clone(), below.to_owned()))
        };
        for base in &forbidden.work_dirs {
            let run_later = forbidden.run_later.get_or_insert_default();
            let now = known.run_later(base, home).into_iter();
            run_later.extend(now.map(|path| (path.clone(), identity(&path))));
            for entry in known.below(base, home) {
                let absent = missing_git_control_files(&entry, home);
                let absent = absent.iter().filter_map(below);
                let absent = absent.filter(|(base, below)| is_absent(base, below));
                forbidden.in_git.extend(absent);
                let dirs = git_dirs(&entry);
                let steps = dirs.iter().flat_map(|dir| steps_that_run(dir));
                forbidden.steps.extend(steps);
                forbidden.git_dirs.extend(dirs);
                forbidden.repositories.insert(entry);
            }
            let names = RUN_LATER_IN_PROJECT.iter().map(PathBuf::from);
            let absent = names.filter(|name| is_absent(base, name));
            forbidden
                .names
                .extend(absent.map(|name| (base.clone(), name)));
        }
        for base in writable {
            forbidden.repositories.extend(repositories_at_top(base));
        }
        let directories = named.absent_directories();
        forbidden.names.extend(directories.filter_map(below));
        let files = named.absent_files().chain(run_by_scripts);
        let files = files.filter_map(below);
        forbidden
            .files
            .extend(files.filter(|(base, _)| forbidden.work_dirs.contains(base)));
        for names in [
            &mut forbidden.in_git,
            &mut forbidden.names,
            &mut forbidden.files,
        ] {
            names.truncate(MAX_NAMES);
        }
        forbidden.tops = home.map(|home| tops(home, writable)).unwrap_or_default();
        forbidden
    }

    /// Quarantines what has appeared and returns the paths.
    pub(crate) fn quarantine_new(&self) -> Vec<PathBuf> {
        let mut moved = Vec::new();
        for (base, name) in &self.names {
            moved.extend(quarantine(base, name));
        }
        for (base, name) in &self.files {
            if tracked_fs::lstat(&base.join(name)).is_ok_and(|data| !data.is_dir()) {
                moved.extend(quarantine(base, name));
            }
        }
        // There are many of them, and usually nothing has appeared.
        let added = self.in_git.iter();
        for (base, name) in added.filter(|(base, name)| path_exists(&base.join(name))) {
            moved.extend(quarantine(base, name));
        }
        let others = self.writable.iter();
        for base in others.filter(|base| !self.work_dirs.contains(base)) {
            let found = repositories_at_top(base).into_iter();
            for entry in found.filter(|entry| !self.repositories.contains(entry)) {
                // Whatever its settings are: nobody keeps a repository there.
                let name = if entry == *base { "HEAD" } else { ".git" };
                moved.extend(quarantine(base, Path::new(name)));
            }
        }
        let trust = RepositoryTrust {
            is_protected: &|path| self.stays_protected(path),
            known: &self.git_dirs,
        };
        for base in &self.work_dirs {
            let mut added = Vec::new();
            for entry in self.known.below(base, self.home.as_deref()) {
                let dirs = git_dirs(&entry).into_iter();
                let has_new = |dir: &PathBuf| !steps_that_run(dir).is_subset(&self.steps);
                added.extend(dirs.filter(has_new).map(|dir| dir.join(REBASE_STEPS)));
                added.extend(if self.repositories.contains(&entry) {
                    offending_additions(&entry, &trust)
                } else {
                    offending(&entry, &trust)
                });
            }
            if let Some(before) = &self.run_later {
                let now = self.known.run_later(base, self.home.as_deref());
                // A path may have been replaced by another file.
                let is_new = |path: &PathBuf| before.get(path) != Some(&identity(path));
                added.extend(now.into_iter().filter(is_new));
            }
            for path in added {
                let below = path.strip_prefix(base);
                moved.extend(below.ok().and_then(|below| quarantine(base, below)));
            }
        }
        for top in &self.tops {
            let now = TopLevelDir::scan(&top.dir, top.is_cache);
            for name in now.run_later.difference(&top.run_later) {
                moved.extend(quarantine(&top.dir, Path::new(name)));
            }
        }
        moved
    }

    /// Whether a file at `path` must not appear.
    pub(super) fn forbids(&self, path: &Path) -> bool {
        let is_at = |(base, below): &(PathBuf, PathBuf)| {
            path.strip_prefix(base)
                .is_ok_and(|path| path.starts_with(below))
        };
        let in_cache = |top: &TopLevelDir| {
            let below = path.strip_prefix(&top.dir).ok();
            let first = below.and_then(|below| below.iter().next());
            first.is_some_and(|name| top.is_cache && runs_later_in_cache(&name.to_string_lossy()))
        };
        self.names.iter().chain(&self.in_git).any(is_at)
            || self
                .files
                .iter()
                .any(|(base, below)| path == base.join(below))
            || self.tops.iter().any(in_cache)
    }

    /// Whether later commands cannot write to it: in work directories repositories are protected; elsewhere
    /// nothing is writable.
    fn stays_protected(&self, path: &Path) -> bool {
        let within = |bases: &[PathBuf]| bases.iter().any(|base| path.starts_with(base));
        within(&self.work_dirs) || !within(&self.writable)
    }
}

/// Whether nothing exists there, not even a link on the way: existing links are protected as they are.
fn is_absent(base: &Path, below: &Path) -> bool {
    let mut path = base.to_owned();
    for part in below.components() {
        path.push(part);
        match tracked_fs::lstat(&path) {
            Err(_) => return true,
            Ok(data) if data.is_symlink() => return false,
            Ok(_) => {}
        }
    }
    false
}

/// Quarantines a path and returns it. `None`: nothing was there, or it could not be renamed. Follows no link: a
/// link in place of a directory is itself quarantined.
fn quarantine(base: &Path, below: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = rustix::fs::open(base, flags, Mode::empty()).ok()?;
    let mut walked = base.to_owned();
    let mut parts = below.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else {
            return None;
        };
        let found = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        walked.push(name);
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory if parts.peek().is_some() => {
                dir = openat(&dir, name, flags, Mode::empty()).ok()?;
            }
            FileType::Symlink => return quarantine_entry(&dir, name, walked),
            _ if parts.peek().is_none() => return quarantine_entry(&dir, name, walked),
            _ => return None,
        }
    }
    None
}

fn quarantine_entry(dir: impl std::os::fd::AsFd, name: &OsStr, path: PathBuf) -> Option<PathBuf> {
    for number in 0..MAX_QUARANTINED {
        let mut to = name.to_owned();
        if number > 0 {
            to.push(format!("-{number}"));
        }
        to.push(PUT_ASIDE);
        match renameat_with(&dir, name, &dir, &to, RenameFlags::NOREPLACE) {
            Ok(()) => return Some(path),
            Err(Errno::EXIST) => {}
            Err(error) => {
                let shown = path.display();
                tracing::warn!("{shown} runs later and could not be put aside: {error}");
                return None;
            }
        }
    }
    None
}

/// The serialized form for another process: a path need not be UTF-8.
#[derive(Serialize, Deserialize)]
struct ForbiddenPathsWire {
    #[serde(default)]
    home: Option<OsBytes>,
    own: Vec<OsBytes>,
    writable: Vec<OsBytes>,
    names: Vec<(OsBytes, OsBytes)>,
    #[serde(default)]
    files: Vec<(OsBytes, OsBytes)>,
    in_git: Vec<(OsBytes, OsBytes)>,
    repositories: Vec<OsBytes>,
    #[serde(default)]
    git_dirs: Vec<OsBytes>,
    #[serde(default)]
    steps: BTreeSet<String>,
    #[serde(default)]
    run_later: Option<Vec<(OsBytes, Identity)>>,
    tops: Vec<(OsBytes, bool, Vec<OsBytes>)>,
}

impl Serialize for ForbiddenPaths {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = |path: &PathBuf| OsBytes::from(path.clone().into_os_string());
        let all = |paths: &[PathBuf]| paths.iter().map(bytes).collect();
        let tops = self.tops.iter().map(|top| {
            let before = top.run_later.iter().cloned().map(OsBytes::from).collect();
            (bytes(&top.dir), top.is_cache, before)
        });
        let both = |names: &[(PathBuf, PathBuf)]| {
            let names = names.iter();
            names
                .map(|(base, name)| (bytes(base), bytes(name)))
                .collect()
        };
        ForbiddenPathsWire {
            home: self.home.as_ref().map(bytes),
            own: all(&self.work_dirs),
            writable: all(&self.writable),
            names: both(&self.names),
            files: both(&self.files),
            in_git: both(&self.in_git),
            repositories: self.repositories.iter().map(bytes).collect(),
            git_dirs: self.git_dirs.iter().map(bytes).collect(),
            steps: self.steps.clone(),
            run_later: self.run_later.as_ref().map(|paths| {
                let each = paths.iter();
                each.map(|(path, identity)| (bytes(path), *identity))
                    .collect()
            }),
            tops: tops.collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ForbiddenPaths {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = ForbiddenPathsWire::deserialize(deserializer)?;
        let path = |bytes: &OsBytes| PathBuf::from(bytes.as_ref());
        let all = |paths: &[OsBytes]| paths.iter().map(path).collect();
        let tops = wire.tops.iter().map(|(dir, is_cache, before)| TopLevelDir {
            dir: path(dir),
            is_cache: *is_cache,
            run_later: before.iter().map(|name| name.as_ref().to_owned()).collect(),
        });
        let both = |names: &[(OsBytes, OsBytes)]| {
            let names = names.iter();
            names.map(|(base, name)| (path(base), path(name))).collect()
        };
        Ok(Self {
            home: wire.home.as_ref().map(path),
            work_dirs: all(&wire.own),
            writable: all(&wire.writable),
            names: both(&wire.names),
            files: both(&wire.files),
            in_git: both(&wire.in_git),
            repositories: wire.repositories.iter().map(path).collect(),
            git_dirs: wire.git_dirs.iter().map(path).collect(),
            steps: wire.steps,
            run_later: wire.run_later.map(|paths| {
                let each = paths.iter();
                each.map(|(file, identity)| (path(file), *identity))
                    .collect()
            }),
            tops: tops.collect(),
            known: Repositories::default(),
        })
    }
}

/// Links on the way to protected and to forbidden paths.
pub(super) fn links_below(base: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in RUN_LATER_IN_PROJECT {
        let mut path = base.to_owned();
        for part in Path::new(name) {
            path.push(part);
            if tracked_fs::is_link(&path) {
                found.push(path);
                break;
            }
            if !path_exists(&path) {
                break;
            }
        }
    }
    found
}
