//! What is kept from confined commands beyond the rules of a workspace: private files of the person, what runs
//! by itself later, and sockets of the account. Looked up for each command, so that what has come since is
//! known; a helper that was started with another answer is not used.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::private::{NAMED_BY_VARIABLES, PERSONAL, RUN_LATER_IN_PROJECT, SYSTEM};

use super::Settings;
use super::later::{Awaited, at_the_top, links_below};
use super::look;
use super::mounts::Mounts;
use super::people::{other_homes, projects_around};
use super::places::canonical;
use super::repositories::{Repositories, at_its_top, is_there, obeyed};
use super::seen::Seen;
use super::sockets;
use super::started::{StartFileNames, links_on_the_way, look_at_start_files};
use super::survey::{Area, Surveys};

/// Further paths of one kind are left to the rules for whole directories.
const MAX_PATHS: usize = 8192;

/// What is known about the person's directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Protection {
    personal: Arc<Mutex<Option<Looked<Vec<PathBuf>>>>>,
    system: Arc<Mutex<Option<Looked<Vec<PathBuf>>>>>,
    started: Arc<Mutex<Option<Looked<StartFileNames>>>>,
    surveys: Surveys,
    repositories: Repositories,
}

/// An answer, and what it rests on.
#[derive(Debug)]
pub(super) struct Looked<T> {
    pub(super) found: T,
    pub(super) seen: Vec<Seen>,
}

/// What a command with these writable places is kept from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Below writable places, and never written.
    pub(super) read_only: Vec<PathBuf>,
    /// The same, but the directories around it can be moved.
    pub(super) movable: Vec<PathBuf>,
    /// Covered with nothing.
    pub(super) hidden: Vec<PathBuf>,
}

impl Protection {
    pub(super) fn new() -> Self {
        let surveys = Surveys::default();
        Self {
            repositories: Repositories::new(surveys.clone()),
            surveys,
            ..Self::default()
        }
    }

    /// The private files of the person, whether or not they exist, and where links among them lead.
    pub(super) fn personal(&self, settings: &Settings) -> Vec<PathBuf> {
        let Some(home) = &settings.user_home else {
            return Vec::new();
        };
        known_or(&self.personal, || look_up(&canonical(home), settings))
    }

    /// The secrets of the machine, and of other people on it, that this account could read.
    fn system(&self, settings: &Settings) -> Vec<PathBuf> {
        known_or(&self.system, || {
            let mut paths: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
            for home in other_homes(settings) {
                paths.extend(PERSONAL.iter().map(|name| home.join(name)));
            }
            let variables = NAMED_BY_VARIABLES.iter().filter_map(std::env::var_os);
            for named in variables {
                paths.extend(std::env::split_paths(&named).filter(|path| path.is_absolute()));
            }
            let above: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
            let there = above.into_iter().filter(|dir| look::is_dir(dir));
            Looked {
                seen: there.map(Seen::listed).collect(),
                found: paths
                    .iter()
                    .filter_map(|path| look::real(path.as_ref()).ok())
                    .filter(|path| is_readable(path) && !holds_home(path, settings))
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
        bound: Vec<PathBuf>,
    ) -> Kept {
        let home = settings.user_home.as_deref().map(canonical);
        let is_below = |path: &Path| writable.iter().any(|place| path.starts_with(place));
        let allowed = |path: &Path| settings.readable.iter().any(|open| path.starts_with(open));
        let mut kept = Kept {
            read_only: self.obeyed_later(settings, writable),
            movable: self.run_in_projects(writable, home.as_deref()),
            hidden: self.private_files(settings, writable),
        };
        kept.read_only
            .retain(|path| is_below(path) && !writable.contains(path));
        let is_read_only =
            |path: &PathBuf| kept.read_only.iter().any(|kept| path.starts_with(kept));
        kept.movable.retain(|path| !is_read_only(path));
        kept.hidden.extend(
            unreadable
                .iter()
                .filter(|path| is_below(path) && is_entry(path))
                .cloned(),
        );
        kept.hidden.extend(self.system(settings));
        kept.hidden
            .extend(sockets::foreign(settings, writable, bound));
        let mounts = Mounts::now();
        let private = settings.homes.iter().chain(unreadable).chain(&kept.hidden);
        let mut twins: Vec<PathBuf> = private.flat_map(|path| mounts.twins(path)).collect();
        // What a project can read of its own it can read by every name.
        let own: Vec<&PathBuf> = own_places(writable, home.as_deref())
            .filter(|place| !home.as_ref().is_some_and(|home| home.starts_with(place)))
            .collect();
        twins.retain(|path| !own.iter().any(|place| path.starts_with(place)));
        kept.hidden.extend(twins);
        kept.hidden.retain(|path| {
            !allowed(path) && !home.as_ref().is_some_and(|home| home.starts_with(path))
        });
        for list in [&mut kept.read_only, &mut kept.movable, &mut kept.hidden] {
            list.sort();
            list.dedup();
            list.truncate(MAX_PATHS);
        }
        kept
    }

    /// What is there and run by itself in projects, wherever they lie.
    fn run_in_projects(&self, writable: &[PathBuf], home: Option<&Path>) -> Vec<PathBuf> {
        own_places(writable, home)
            .flat_map(|place| self.repositories.run_later(place, home))
            .collect()
    }

    /// What is there and runs later.
    fn obeyed_later(&self, settings: &Settings, writable: &[PathBuf]) -> Vec<PathBuf> {
        let home = settings.user_home.as_deref().map(canonical);
        let home = home.as_deref();
        let mut found = Vec::new();
        for place in own_places(writable, home) {
            let names = RUN_LATER_IN_PROJECT.iter().map(|name| place.join(name));
            found.extend(names.filter(|path| is_there(path)));
            found.extend(links_below(place));
            for entry in self.repositories.below(place, home) {
                found.extend(obeyed(&entry, home));
            }
        }
        if let Some(home) = home {
            found.extend(at_the_top(home, writable));
        }
        let is_home = home.is_some_and(|home| writable.iter().any(|place| home.starts_with(place)));
        found.extend(self.named(home).there(is_home));
        for place in writable {
            found.extend(
                at_its_top(place)
                    .iter()
                    .flat_map(|entry| obeyed(entry, home)),
            );
        }
        for home in &settings.homes {
            found.extend(links_on_the_way(home));
        }
        let targets: Vec<PathBuf> = found
            .iter()
            .filter(|path| look::is_link(path))
            .filter_map(|path| look::real(path.as_ref()).ok())
            .collect();
        found.extend(targets);
        found
    }

    /// Files with secrets in them that lie elsewhere than where the command works.
    fn private_files(&self, settings: &Settings, writable: &[PathBuf]) -> Vec<PathBuf> {
        let home = settings.user_home.as_deref().map(canonical);
        let own: Vec<&PathBuf> = own_places(writable, home.as_deref())
            .filter(|place| !home.as_ref().is_some_and(|home| home.starts_with(place)))
            .collect();
        let mut found = Vec::new();
        let mut homes = other_homes(settings);
        homes.extend(home.clone());
        for home in &homes {
            found.extend(self.surveys.below(home, Area::Projects).private_files);
            found.extend(self.surveys.below(home, Area::Settings).private_files);
        }
        for root in projects_around(&own, &homes) {
            found.extend(self.surveys.below(&root, Area::Projects).private_files);
        }
        found.retain(|path| !own.iter().any(|place| path.starts_with(place)));
        found
    }

    /// What must not appear while a command with these places runs.
    pub(super) fn awaited(&self, settings: &Settings, writable: &[PathBuf]) -> Awaited {
        let home = settings.user_home.as_deref().map(canonical);
        let named = self.named(home.as_deref());
        Awaited::of(home.as_deref(), writable, &self.repositories, &named)
    }

    /// Whether what is written at `path` runs later, with these places to write in.
    pub(super) fn runs_later(
        &self,
        settings: &Settings,
        writable: &[PathBuf],
        path: &Path,
    ) -> bool {
        let mut obeyed = self.obeyed_later(settings, writable).into_iter();
        obeyed.any(|obeyed| path.starts_with(obeyed))
            || self.awaited(settings, writable).awaits(path)
    }

    /// How often repositories in these places have come or gone.
    pub(super) fn changes(&self, writable: &[PathBuf]) -> u64 {
        self.repositories.changes(writable)
    }

    /// What is named by the search path and by files that run when the person logs in.
    fn named(&self, home: Option<&Path>) -> StartFileNames {
        known_or(&self.started, || look_at_start_files(home))
    }
}

/// What was found before, unless something has changed since.
fn known_or<T: Clone>(known: &Mutex<Option<Looked<T>>>, look: impl FnOnce() -> Looked<T>) -> T {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*known
        && known.seen.iter().all(Seen::is_as_it_was)
    {
        return known.found.clone();
    }
    let looked = look();
    let found = looked.found.clone();
    *known = Some(looked);
    found
}

fn look_up(home: &Path, settings: &Settings) -> Looked<Vec<PathBuf>> {
    let mut seen = BTreeSet::from([home.to_owned()]);
    let mut paths = BTreeSet::new();
    for name in PERSONAL {
        let path = home.join(name);
        let is_open = |path: &Path| settings.readable.iter().any(|open| path.starts_with(open));
        if is_open(&path) {
            continue;
        }
        seen.extend(path.parent().map(Path::to_owned));
        if let Ok(real) = look::real(&path) {
            // Keys that are kept elsewhere and linked to, one by one.
            let entries = look::list(&real);
            let links =
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
            paths.extend(links.filter_map(|entry| {
                let target = look::real(&entry.path()).ok()?;
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
    seen.retain(|dir| look::is_dir(dir));
    Looked {
        found: paths.into_iter().collect(),
        seen: seen.iter().map(|dir| Seen::listed(dir)).collect(),
    }
}

/// Writable places in which a person works: not temporary directories, not caches, not what we made for one call.
pub(super) fn own_places<'a>(
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
        !super::places::is_temporary(place) && look::is_dir(place) && !is_cache(place)
    })
}

/// Whether hiding it would hide the person's directory or a home of ours.
fn holds_home(path: &Path, settings: &Settings) -> bool {
    let mut homes = settings.homes.iter().chain(&settings.user_home);
    homes.any(|home| canonical(home).starts_with(path))
}

/// There, and no link: what a link leads to is protected where it lies.
fn is_entry(path: &Path) -> bool {
    look::entry(path).is_ok_and(|data| !data.is_symlink())
}

fn is_readable(path: &Path) -> bool {
    is_entry(path) && look::can_read(path)
}
