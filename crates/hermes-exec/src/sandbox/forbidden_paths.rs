//! What would run later and does not exist yet: nothing can be mounted where nothing is. It is looked for when a
//! command has ended, and again and again while one runs in the background, and renamed.

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

use super::look;
use super::protect::own_places;
use super::repositories::{
    Repositories, Trust, at_its_top, git_dirs, is_there, obeyed_but_absent, offending,
    offending_additions,
};
use super::spec::Bytes;
use super::started::StartFileNames;

/// Names that are awaited; further ones are found as part of their repository.
const MAX_NAMES: usize = 4096;
/// Files of the same name that are put aside beside each other.
const MAX_ASIDE: usize = 1024;

/// What must not come into being in places where a command writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Awaited {
    /// The person's directory.
    home: Option<PathBuf>,
    /// Where a person works, and everything that can be written.
    own: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    /// A place, and what is not there below it.
    names: Vec<(PathBuf, PathBuf)>,
    /// The same, where only a file matters.
    files: Vec<(PathBuf, PathBuf)>,
    /// The same for what git obeys in repositories.
    in_git: Vec<(PathBuf, PathBuf)>,
    /// Those that were there, and directories of git's that belong to them.
    repositories: BTreeSet<PathBuf>,
    git_dirs: BTreeSet<PathBuf>,
    /// What was there and runs by itself in projects. `None`: nobody knows.
    run_later: Option<BTreeMap<PathBuf, Identity>>,
    tops: Vec<Top>,
    known: Repositories,
}

/// Device and inode; `None`: nothing is there.
type Identity = Option<(u64, u64)>;

fn identity(path: &Path) -> Identity {
    let found = look::entry(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// A directory in which names alone decide what runs later, and those of them that were there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Top {
    dir: PathBuf,
    is_cache: bool,
    before: BTreeSet<OsString>,
}

impl Top {
    fn of(dir: &Path, is_cache: bool) -> Self {
        let before = look::list(dir)
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
            before,
        }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.before.iter().map(|name| self.dir.join(name))
    }
}

/// What is there at the top of the person's directory and of its cache, and runs later.
pub(super) fn at_the_top(home: &Path, writable: &[PathBuf]) -> Vec<PathBuf> {
    tops(home, writable).iter().flat_map(Top::paths).collect()
}

fn tops(home: &Path, writable: &[PathBuf]) -> Vec<Top> {
    let is_open = |dir: &Path| writable.iter().any(|place| dir.starts_with(place));
    let cache = home.join(".cache");
    [(home, false), (&*cache, true)]
        .into_iter()
        .filter(|(dir, _)| is_open(dir))
        .map(|(dir, is_cache)| Top::of(dir, is_cache))
        .collect()
}

impl Awaited {
    /// What must not appear while a command with these places runs.
    pub(super) fn of(
        home: Option<&Path>,
        writable: &[PathBuf],
        known: &Repositories,
        named: &StartFileNames,
    ) -> Self {
        let mut awaited = Self {
            home: home.map(Path::to_owned),
            own: own_places(writable, home).cloned().collect(),
            writable: writable.to_vec(),
            known: known.clone(),
            ..Self::default()
        };
        let below = |path: &PathBuf| {
            // A workspace may lie in a temporary directory.
            let around = writable.iter().filter(|place| path.starts_with(place));
            let place = around.max_by_key(|place| place.as_os_str().len())?;
            let below = path.strip_prefix(place).ok()?;
            (!below.as_os_str().is_empty()).then(|| (place.clone(), below.to_owned()))
        };
        for place in &awaited.own {
            let run_later = awaited.run_later.get_or_insert_default();
            let now = known.run_later(place, home).into_iter();
            run_later.extend(now.map(|path| (path.clone(), identity(&path))));
            for entry in known.below(place, home) {
                let absent = obeyed_but_absent(&entry, home);
                let absent = absent.iter().filter_map(below);
                let absent = absent.filter(|(place, below)| is_absent(place, below));
                awaited.in_git.extend(absent);
                awaited.git_dirs.extend(git_dirs(&entry));
                awaited.repositories.insert(entry);
            }
            let names = RUN_LATER_IN_PROJECT.iter().map(PathBuf::from);
            let absent = names.filter(|name| is_absent(place, name));
            awaited
                .names
                .extend(absent.map(|name| (place.clone(), name)));
        }
        for place in writable {
            awaited.repositories.extend(at_its_top(place));
        }
        let directories = named.absent_directories();
        awaited.names.extend(directories.filter_map(below));
        let files = named.absent_files().filter_map(below);
        awaited
            .files
            .extend(files.filter(|(place, _)| awaited.own.contains(place)));
        for names in [&mut awaited.in_git, &mut awaited.names, &mut awaited.files] {
            names.truncate(MAX_NAMES);
        }
        awaited.tops = home.map(|home| tops(home, writable)).unwrap_or_default();
        awaited
    }

    /// Renames what has come to a name that nothing runs, and says which.
    pub(crate) fn put_aside(&self) -> Vec<PathBuf> {
        let mut moved = Vec::new();
        for (place, name) in &self.names {
            moved.extend(put_aside(place, name));
        }
        for (place, name) in &self.files {
            if look::entry(&place.join(name)).is_ok_and(|data| !data.is_dir()) {
                moved.extend(put_aside(place, name));
            }
        }
        // There are many of them, and mostly nothing has come.
        let come = self.in_git.iter();
        for (place, name) in come.filter(|(place, name)| is_there(&place.join(name))) {
            moved.extend(put_aside(place, name));
        }
        let others = self.writable.iter();
        for place in others.filter(|place| !self.own.contains(place)) {
            let found = at_its_top(place).into_iter();
            for entry in found.filter(|entry| !self.repositories.contains(entry)) {
                // Whatever its settings are: nobody keeps a repository there.
                let name = if entry == *place { "HEAD" } else { ".git" };
                moved.extend(put_aside(place, Path::new(name)));
            }
        }
        let trust = Trust {
            is_kept: &|path| self.is_kept(path),
            known: &self.git_dirs,
        };
        for place in &self.own {
            let mut come = Vec::new();
            for entry in self.known.below(place, self.home.as_deref()) {
                come.extend(if self.repositories.contains(&entry) {
                    offending_additions(&entry, &trust)
                } else {
                    offending(&entry, &trust)
                });
            }
            if let Some(before) = &self.run_later {
                let now = self.known.run_later(place, self.home.as_deref());
                // Another one may lie at a path that was taken.
                let is_new = |path: &PathBuf| before.get(path) != Some(&identity(path));
                come.extend(now.into_iter().filter(is_new));
            }
            for path in come {
                let below = path.strip_prefix(place);
                moved.extend(below.ok().and_then(|below| put_aside(place, below)));
            }
        }
        for top in &self.tops {
            let now = Top::of(&top.dir, top.is_cache);
            for name in now.before.difference(&top.before) {
                moved.extend(put_aside(&top.dir, Path::new(name)));
            }
        }
        moved
    }

    /// Whether something at `path` is what must not appear.
    pub(super) fn awaits(&self, path: &Path) -> bool {
        let is_at = |(place, below): &(PathBuf, PathBuf)| {
            path.strip_prefix(place)
                .is_ok_and(|path| path.starts_with(below))
        };
        let in_cache = |top: &Top| {
            let below = path.strip_prefix(&top.dir).ok();
            let first = below.and_then(|below| below.iter().next());
            first.is_some_and(|name| top.is_cache && runs_later_in_cache(&name.to_string_lossy()))
        };
        self.names.iter().chain(&self.in_git).any(is_at)
            || self
                .files
                .iter()
                .any(|(place, below)| path == place.join(below))
            || self.tops.iter().any(in_cache)
    }

    /// Whether later commands find it closed: where a person works, repositories are; elsewhere nothing can be
    /// written.
    fn is_kept(&self, path: &Path) -> bool {
        let within = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
        within(&self.own) || !within(&self.writable)
    }
}

/// Whether nothing is there, not even a link on the way: links that are there are kept as they are.
fn is_absent(place: &Path, below: &Path) -> bool {
    let mut path = place.to_owned();
    for part in below.components() {
        path.push(part);
        match look::entry(&path) {
            Err(_) => return true,
            Ok(data) if data.is_symlink() => return false,
            Ok(_) => {}
        }
    }
    false
}

/// The path that was put aside; `None`: there was nothing, or it could not be renamed. No link is followed: one
/// that leads elsewhere in place of a directory is what has come.
fn put_aside(place: &Path, below: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = rustix::fs::open(place, flags, Mode::empty()).ok()?;
    let mut walked = place.to_owned();
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
            FileType::Symlink => return rename_aside(&dir, name, walked),
            _ if parts.peek().is_none() => return rename_aside(&dir, name, walked),
            _ => return None,
        }
    }
    None
}

fn rename_aside(dir: impl std::os::fd::AsFd, name: &OsStr, path: PathBuf) -> Option<PathBuf> {
    for number in 0..MAX_ASIDE {
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

/// The same for whoever looks in place of this process: a path need not be text.
#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(default)]
    home: Option<Bytes>,
    own: Vec<Bytes>,
    writable: Vec<Bytes>,
    names: Vec<(Bytes, Bytes)>,
    #[serde(default)]
    files: Vec<(Bytes, Bytes)>,
    in_git: Vec<(Bytes, Bytes)>,
    repositories: Vec<Bytes>,
    #[serde(default)]
    git_dirs: Vec<Bytes>,
    #[serde(default)]
    run_later: Option<Vec<(Bytes, Identity)>>,
    tops: Vec<(Bytes, bool, Vec<Bytes>)>,
}

impl Serialize for Awaited {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = |path: &PathBuf| Bytes::from(path.clone().into_os_string());
        let all = |paths: &[PathBuf]| paths.iter().map(bytes).collect();
        let tops = self.tops.iter().map(|top| {
            let before = top.before.iter().cloned().map(Bytes::from).collect();
            (bytes(&top.dir), top.is_cache, before)
        });
        let both = |names: &[(PathBuf, PathBuf)]| {
            let names = names.iter();
            names
                .map(|(place, name)| (bytes(place), bytes(name)))
                .collect()
        };
        Wire {
            home: self.home.as_ref().map(bytes),
            own: all(&self.own),
            writable: all(&self.writable),
            names: both(&self.names),
            files: both(&self.files),
            in_git: both(&self.in_git),
            repositories: self.repositories.iter().map(bytes).collect(),
            git_dirs: self.git_dirs.iter().map(bytes).collect(),
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

impl<'de> Deserialize<'de> for Awaited {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        let path = |bytes: &Bytes| PathBuf::from(bytes.as_ref());
        let all = |paths: &[Bytes]| paths.iter().map(path).collect();
        let tops = wire.tops.iter().map(|(dir, is_cache, before)| Top {
            dir: path(dir),
            is_cache: *is_cache,
            before: before.iter().map(|name| name.as_ref().to_owned()).collect(),
        });
        let both = |names: &[(Bytes, Bytes)]| {
            let names = names.iter();
            names
                .map(|(place, name)| (path(place), path(name)))
                .collect()
        };
        Ok(Self {
            home: wire.home.as_ref().map(path),
            own: all(&wire.own),
            writable: all(&wire.writable),
            names: both(&wire.names),
            files: both(&wire.files),
            in_git: both(&wire.in_git),
            repositories: wire.repositories.iter().map(path).collect(),
            git_dirs: wire.git_dirs.iter().map(path).collect(),
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

/// The links on the way to what must stay where it is, and to the names that are awaited.
pub(super) fn links_below(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in RUN_LATER_IN_PROJECT {
        let mut path = place.to_owned();
        for part in Path::new(name) {
            path.push(part);
            if look::is_link(&path) {
                found.push(path);
                break;
            }
            if !is_there(&path) {
                break;
            }
        }
    }
    found
}
