//! What is kept from confined commands beyond the rules of a workspace: private files of the person, what runs
//! by itself later, and sockets of the account. Looked up for each command, so that what has come since is
//! known; a helper that was started with another answer is not used.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::private::{
    PERSONAL, RUN_LATER_IN_GIT, RUN_LATER_IN_PROJECT, SYSTEM, runs_later_in_home,
};

use super::Settings;
use super::places::canonical;
use super::seen::Seen;
use super::sockets;
use super::survey::Surveys;

/// Further paths of one kind are left to the rules for whole directories.
const MAX_PATHS: usize = 1024;
/// How deep git directories of submodules lie below each other.
const MAX_MODULES: usize = 5;

/// What is known about the person's directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Protection {
    personal: Arc<Mutex<Option<Looked>>>,
    system: Arc<Mutex<Option<Looked>>>,
    surveys: Surveys,
}

#[derive(Debug)]
struct Looked {
    paths: Vec<PathBuf>,
    seen: Vec<Seen>,
}

/// What a command with these writable places is kept from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Below writable places, and never written.
    pub(super) read_only: Vec<PathBuf>,
    /// Covered with nothing.
    pub(super) hidden: Vec<PathBuf>,
}

/// Paths that must not come into being, with what lay there before (nothing, or a link).
#[derive(Clone, Debug, Default)]
pub(super) struct Awaited {
    paths: Vec<(PathBuf, Option<(u64, u64)>)>,
    /// A person's directory that is itself a workspace, and the names in it that run later.
    home: Option<(PathBuf, BTreeSet<std::ffi::OsString>)>,
}

impl Protection {
    /// The private files of the person, whether or not they exist, and where links among them lead.
    pub(super) fn personal(&self, settings: &Settings) -> Vec<PathBuf> {
        let Some(home) = &settings.user_home else {
            return Vec::new();
        };
        known_or(&self.personal, || look_up(&canonical(home), settings))
    }

    /// The secrets of the machine that this account could read.
    fn system(&self) -> Vec<PathBuf> {
        known_or(&self.system, || {
            let paths: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
            let above: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
            let there = above.into_iter().filter(|dir| dir.is_dir());
            Looked {
                seen: there.map(Seen::listed).collect(),
                paths: paths
                    .iter()
                    .filter_map(|path| path.canonicalize().ok())
                    .filter(|path| is_readable(path))
                    .collect(),
            }
        })
    }

    /// What is read-only or hidden by a view of the command's own.
    pub(super) fn kept(
        &self,
        settings: &Settings,
        writable: &[PathBuf],
        unreadable: &[PathBuf],
    ) -> Kept {
        let home = settings.user_home.as_deref().map(canonical);
        let is_below = |path: &Path| writable.iter().any(|place| path.starts_with(place));
        let allowed = |path: &Path| settings.readable.iter().any(|open| path.starts_with(open));
        let mut kept = Kept::default();
        let mut repositories = Vec::new();
        for place in own_places(writable, home.as_deref()) {
            repositories.extend([place.join(".git")]);
            repositories.extend(self.surveys.below(place).repositories);
            let names = RUN_LATER_IN_PROJECT.iter().map(|name| place.join(name));
            kept.read_only.extend(names.filter(|path| is_entry(path)));
        }
        for git in repositories {
            kept.read_only.extend(run_later_of(&git));
        }
        if let Some(home) = &home {
            if is_below(home) {
                let names = later_names(home);
                let paths = names.iter().map(|name| home.join(name));
                kept.read_only
                    .extend(paths.filter(|path| is_entry(path) && !writable.contains(path)));
            }
            let own: Vec<&PathBuf> = own_places(writable, Some(home))
                .filter(|place| !home.starts_with(place))
                .collect();
            let found = self.surveys.below(home).env_files;
            kept.hidden.extend(
                found
                    .into_iter()
                    .filter(|path| !own.iter().any(|place| path.starts_with(place))),
            );
        }
        kept.hidden.extend(
            unreadable
                .iter()
                .filter(|path| is_below(path) && is_entry(path))
                .cloned(),
        );
        kept.hidden.extend(self.system());
        kept.hidden.extend(sockets::foreign(settings, writable));
        kept.hidden.retain(|path| !allowed(path));
        for list in [&mut kept.read_only, &mut kept.hidden] {
            list.sort();
            list.dedup();
            list.truncate(MAX_PATHS);
        }
        kept
    }
}

impl Awaited {
    /// What must not appear while a command with these places runs.
    pub(super) fn of(settings: &Settings, writable: &[PathBuf]) -> Self {
        let home = settings.user_home.as_deref().map(canonical);
        let mut awaited = Self::default();
        let mut expect = |path: PathBuf| match path.symlink_metadata() {
            Err(_) => awaited.paths.push((path, None)),
            Ok(data) if data.is_symlink() => {
                awaited.paths.push((path, Some((data.dev(), data.ino()))));
            }
            Ok(_) => {}
        };
        for place in own_places(writable, home.as_deref()) {
            for name in RUN_LATER_IN_PROJECT {
                expect(place.join(name));
            }
            let git = place.join(".git");
            if git.is_dir() {
                for name in RUN_LATER_IN_GIT {
                    expect(git.join(name));
                }
            }
        }
        if let Some(home) = home.filter(|home| writable.iter().any(|place| home.starts_with(place)))
        {
            let names = later_names(&home);
            awaited.home = Some((home, names));
        }
        awaited
    }

    /// Renames what has come to a name that nothing runs, and says which.
    pub(super) fn put_aside(&self) -> Vec<PathBuf> {
        let mut moved = Vec::new();
        for (path, before) in &self.paths {
            let now = path
                .symlink_metadata()
                .ok()
                .map(|data| (data.dev(), data.ino()));
            if now.is_some() && now != *before {
                moved.extend(put_aside(path));
            }
        }
        if let Some((home, before)) = &self.home {
            for name in later_names(home).difference(before) {
                moved.extend(put_aside(&home.join(name)));
            }
        }
        moved
    }
}

/// The name it has from now on; `None`: it could not be renamed, and was left.
fn put_aside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    for number in 0..MAX_PATHS {
        let number = if number == 0 {
            String::new()
        } else {
            format!("-{number}")
        };
        let to = path.with_file_name(format!("{name}{number}{}", hermes_core::private::PUT_ASIDE));
        if to.symlink_metadata().is_ok() {
            continue;
        }
        match std::fs::rename(path, &to) {
            Ok(()) => return Some(path.to_owned()),
            Err(error) => {
                tracing::warn!(
                    "{} runs later and could not be put aside: {error}",
                    path.display()
                );
                return None;
            }
        }
    }
    None
}

/// What was found before, unless something has changed since.
fn known_or(known: &Mutex<Option<Looked>>, look: impl FnOnce() -> Looked) -> Vec<PathBuf> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*known
        && known.seen.iter().all(Seen::is_as_it_was)
    {
        return known.paths.clone();
    }
    let found = look();
    let paths = found.paths.clone();
    *known = Some(found);
    paths
}

fn look_up(home: &Path, settings: &Settings) -> Looked {
    let mut seen = BTreeSet::from([home.to_owned()]);
    let mut paths = BTreeSet::new();
    for name in PERSONAL {
        let path = home.join(name);
        let is_open = |path: &Path| settings.readable.iter().any(|open| path.starts_with(open));
        if is_open(&path) {
            continue;
        }
        seen.extend(path.parent().map(Path::to_owned));
        if let Ok(real) = path.canonicalize() {
            // Keys that are kept elsewhere and linked to, one by one.
            let entries = std::fs::read_dir(&real).into_iter().flatten().flatten();
            let links =
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
            paths.extend(links.filter_map(|entry| {
                let target = entry.path().canonicalize().ok()?;
                (!home.starts_with(&target)).then_some(target)
            }));
            // A link to the whole home, or above it, would hide everything.
            if !home.starts_with(&real) && !is_open(&real) {
                paths.insert(real);
            }
        }
        paths.insert(path);
    }
    // Only what exists can change what is below it; the rest shows in the home itself.
    seen.retain(|dir| dir.is_dir());
    Looked {
        paths: paths.into_iter().collect(),
        seen: seen.iter().map(|dir| Seen::listed(dir)).collect(),
    }
}

/// Writable places in which a person works: not temporary directories, not caches.
fn own_places<'a>(
    writable: &'a [PathBuf],
    home: Option<&'a Path>,
) -> impl Iterator<Item = &'a PathBuf> {
    let is_cache = move |place: &Path| {
        let below = home.and_then(|home| place.strip_prefix(home).ok());
        below.is_some_and(|below| {
            super::places::CACHES
                .iter()
                .any(|name| below.starts_with(name))
        })
    };
    writable.iter().filter(move |place| {
        !super::places::is_temporary(place) && place.is_dir() && !is_cache(place)
    })
}

fn later_names(home: &Path) -> BTreeSet<std::ffi::OsString> {
    let entries = std::fs::read_dir(home).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name())
        .filter(|name| runs_later_in_home(&name.to_string_lossy()))
        .collect()
}

/// Settings and hooks of a repository and its submodules, as far as they exist.
fn run_later_of(git: &Path) -> Vec<PathBuf> {
    if git.is_file() {
        return vec![git.to_owned()];
    }
    let mut found = Vec::new();
    let mut directories = vec![git.to_owned()];
    directories.extend(subdirectories(&git.join("worktrees")));
    let mut level = subdirectories(&git.join("modules"));
    for _ in 0..MAX_MODULES {
        let mut next = Vec::new();
        for dir in level {
            if dir.join("HEAD").is_file() {
                next.extend(subdirectories(&dir.join("modules")));
                next.extend(subdirectories(&dir.join("worktrees")));
                directories.push(dir);
            } else {
                next.extend(subdirectories(&dir));
            }
        }
        next.truncate(MAX_PATHS);
        level = next;
    }
    for dir in directories {
        let paths = RUN_LATER_IN_GIT.iter().map(|name| dir.join(name));
        found.extend(paths.filter(|path| is_entry(path)));
    }
    found
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// There, and no link: what a link leads to is protected where it lies.
fn is_entry(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| !data.is_symlink())
}

fn is_readable(path: &Path) -> bool {
    is_entry(path) && rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
}
