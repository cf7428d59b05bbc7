//! Collects what is hidden from confined commands, or read-only for them, beyond the workspace
//! rules: private files, auto-run files, sockets. Computed for each command, so that new files are
//! included; a helper started with another result is not reused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::private::{NAMED_BY_VARIABLES, PERSONAL, RUN_LATER_IN_PROJECT, SYSTEM};

use super::SandboxSettings;
use super::forbidden_paths::{ForbiddenPaths, links_below, top_level_run_later};
use super::mounts::Mounts;
use super::other_homes::{neighbouring_projects, other_homes};
use super::path_state::PathState;
use super::paths::canonical;
use super::repositories::{Repositories, git_control_files, path_exists, repositories_at_top};
use super::scripts::{files_run_by, files_run_by_script};
use super::sockets;
use super::start_files::{StartFilePaths, links_along, read_start_files};
use super::survey::{SurveyArea, Surveys};
use super::system_files::closed_system_files;
use super::tracked_fs;

/// Further paths of one kind are left to the rules for whole directories.
const MAX_PATHS: usize = 8192;

/// Cached information about the user's home and the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Protection {
    personal: Arc<Mutex<Option<CachedLookup<Vec<PathBuf>>>>>,
    system: Arc<Mutex<Option<CachedLookup<Vec<PathBuf>>>>>,
    start_files: Arc<Mutex<Option<CachedLookup<StartFilePaths>>>>,
    surveys: Surveys,
    repositories: Repositories,
}

/// A cached result and the path states that it depends on.
#[derive(Debug)]
pub(super) struct CachedLookup<T> {
    pub(super) value: T,
    pub(super) states: Vec<PathState>,
}

/// Paths protected from a command with certain writable directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProtectedPaths {
    /// Below writable directories, never written.
    pub(super) read_only: Vec<PathBuf>,
    /// The same, but the directories above can be moved.
    pub(super) movable: Vec<PathBuf>,
    /// Covered by something empty.
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

    /// Private files of the user, whether or not they exist, and the targets of links among them.
    pub(super) fn personal(&self, settings: &SandboxSettings) -> Vec<PathBuf> {
        let Some(home) = &settings.user_home else {
            return Vec::new();
        };
        cached_or(&self.personal, || {
            find_personal_files(&canonical(home), settings)
        })
    }

    /// Secrets of the machine and of other users that this account could read.
    fn system(&self, settings: &SandboxSettings) -> Vec<PathBuf> {
        cached_or(&self.system, || {
            let mut paths: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
            for home in other_homes(settings) {
                paths.extend(PERSONAL.iter().map(|name| home.join(name)));
            }
            let variables = NAMED_BY_VARIABLES.iter().filter_map(std::env::var_os);
            for named in variables {
                paths.extend(std::env::split_paths(&named).filter(|path| path.is_absolute()));
            }
            let closed = closed_system_files();
            paths.extend(closed.closed);
            let above = paths.iter().filter_map(|path| path.parent());
            let above: BTreeSet<&Path> =
                (above.chain(closed.listed.iter().map(PathBuf::as_path))).collect();
            let there = above.into_iter().filter(|dir| tracked_fs::is_dir(dir));
            CachedLookup {
                states: there.map(PathState::of_content).collect(),
                value: paths
                    .iter()
                    .filter_map(|path| tracked_fs::resolve(path.as_ref()).ok())
                    .filter(|path| is_readable(path) && !contains_home(path, settings))
                    .collect(),
            }
        })
    }

    /// Paths that the command's mount view makes read-only or hides.
    pub(super) fn protected_paths(
        &self,
        settings: &SandboxSettings,
        writable: &[PathBuf],
        unreadable: &[PathBuf],
        bound: Vec<PathBuf>,
    ) -> ProtectedPaths {
        let home = settings.user_home.as_deref().map(canonical);
        let is_below = |path: &Path| writable.iter().any(|base| path.starts_with(base));
        let allowed = |path: &Path| settings.readable.iter().any(|open| path.starts_with(open));
        let mut protected = ProtectedPaths {
            read_only: self.existing_run_later(settings, writable),
            movable: self.run_in_projects(writable, home.as_deref()),
            hidden: self.private_files(settings, writable),
        };
        protected
            .read_only
            .retain(|path| is_below(path) && !writable.contains(path));
        let is_read_only = |path: &PathBuf| {
            protected
                .read_only
                .iter()
                .any(|protected| path.starts_with(protected))
        };
        protected.movable.retain(|path| !is_read_only(path));
        protected.hidden.extend(
            unreadable
                .iter()
                .filter(|path| is_below(path) && is_non_link(path))
                .cloned(),
        );
        // A workspace may lie in a directory of the system that is closed to others.
        let system = self.system(settings).into_iter();
        let is_around = |path: &PathBuf| writable.iter().any(|base| base.starts_with(path));
        protected
            .hidden
            .extend(system.filter(|path| !is_around(path)));
        protected
            .hidden
            .extend(sockets::foreign_sockets(settings, writable, bound));
        let mounts = Mounts::current();
        let private = settings
            .homes
            .iter()
            .chain(unreadable)
            .chain(&protected.hidden);
        let mut twins: Vec<PathBuf> = private.flat_map(|path| mounts.aliases(path)).collect();
        // A project may read its own files under every name.
        let own: Vec<&PathBuf> = work_dirs(writable, home.as_deref())
            .filter(|base| !home.as_ref().is_some_and(|home| home.starts_with(base)))
            .collect();
        twins.retain(|path| !own.iter().any(|base| path.starts_with(base)));
        protected.hidden.extend(twins);
        protected.hidden.retain(|path| {
            !allowed(path) && !home.as_ref().is_some_and(|home| home.starts_with(path))
        });
        for list in [
            &mut protected.read_only,
            &mut protected.movable,
            &mut protected.hidden,
        ] {
            list.sort();
            list.dedup();
            list.truncate(MAX_PATHS);
        }
        protected
    }

    /// Existing files in projects that are executed automatically, at any depth.
    fn run_in_projects(&self, writable: &[PathBuf], home: Option<&Path>) -> Vec<PathBuf> {
        work_dirs(writable, home)
            .flat_map(|base| self.repositories.run_later(base, home))
            .collect()
    }

    /// Files of a project that its `.envrc` files and the configuration of Hermes run, whether or not they exist.
    fn run_by_scripts(
        &self,
        settings: &SandboxSettings,
        base: &Path,
        home: Option<&Path>,
    ) -> Vec<PathBuf> {
        let commands = settings.own_commands.iter();
        let mut found: Vec<PathBuf> = commands
            .flat_map(|command| files_run_by(command, base))
            .collect();
        let scripts = self.repositories.run_later(base, home).into_iter();
        for script in scripts.filter(|path| path.ends_with(".envrc")) {
            let dir = script.parent().unwrap_or(base);
            found.extend(files_run_by_script(&script, dir));
        }
        found
    }

    /// Existing files that are executed later.
    fn existing_run_later(&self, settings: &SandboxSettings, writable: &[PathBuf]) -> Vec<PathBuf> {
        let home = settings.user_home.as_deref().map(canonical);
        let home = home.as_deref();
        let mut found = Vec::new();
        for base in work_dirs(writable, home) {
            let names = RUN_LATER_IN_PROJECT.iter().map(|name| base.join(name));
            found.extend(names.filter(|path| path_exists(path)));
            found.extend(links_below(base));
            let run = self.run_by_scripts(settings, base, home).into_iter();
            found.extend(run.filter(|path| path_exists(path)));
            for entry in self.repositories.below(base, home) {
                found.extend(git_control_files(&entry, home));
            }
        }
        if let Some(home) = home {
            found.extend(top_level_run_later(home, writable));
        }
        let is_home = home.is_some_and(|home| writable.iter().any(|base| home.starts_with(base)));
        found.extend(self.start_file_paths(home).existing(is_home));
        for base in writable {
            found.extend(
                repositories_at_top(base)
                    .iter()
                    .flat_map(|entry| git_control_files(entry, home)),
            );
        }
        for home in &settings.homes {
            found.extend(links_along(home));
        }
        let targets: Vec<PathBuf> = found
            .iter()
            .filter(|path| tracked_fs::is_link(path))
            .filter_map(|path| tracked_fs::resolve(path.as_ref()).ok())
            .collect();
        found.extend(targets);
        found
    }

    /// Files with secrets outside of the command's work directories.
    fn private_files(&self, settings: &SandboxSettings, writable: &[PathBuf]) -> Vec<PathBuf> {
        let home = settings.user_home.as_deref().map(canonical);
        let own: Vec<&PathBuf> = work_dirs(writable, home.as_deref())
            .filter(|base| !home.as_ref().is_some_and(|home| home.starts_with(base)))
            .collect();
        let mut found = Vec::new();
        let mut homes = other_homes(settings);
        homes.extend(home.clone());
        for home in &homes {
            found.extend(self.surveys.below(home, SurveyArea::Projects).private_files);
            found.extend(self.surveys.below(home, SurveyArea::Settings).private_files);
        }
        for root in neighbouring_projects(&own, &homes) {
            found.extend(
                self.surveys
                    .below(&root, SurveyArea::Projects)
                    .private_files,
            );
        }
        found.retain(|path| !own.iter().any(|base| path.starts_with(base)));
        found
    }

    /// Secrets of the machine, of other users and of other projects, for tools that read files themselves.
    pub(super) fn unreadable_files(
        &self,
        settings: &SandboxSettings,
        writable: &[PathBuf],
    ) -> BTreeSet<PathBuf> {
        let mut found: BTreeSet<PathBuf> =
            self.private_files(settings, writable).into_iter().collect();
        found.extend(self.system(settings));
        found.extend(settings.unreadable.iter().map(|path| canonical(path)));
        found.retain(|path| {
            !settings.readable.iter().any(|open| path.starts_with(open))
                && !writable.iter().any(|base| base.starts_with(path))
        });
        found
    }

    /// Paths that must not appear while a command with these writable directories runs.
    pub(super) fn forbidden_paths(
        &self,
        settings: &SandboxSettings,
        writable: &[PathBuf],
    ) -> ForbiddenPaths {
        let home = settings.user_home.as_deref().map(canonical);
        let named = self.start_file_paths(home.as_deref());
        let run = work_dirs(writable, home.as_deref())
            .flat_map(|base| self.run_by_scripts(settings, base, home.as_deref()));
        let absent: Vec<PathBuf> = run.filter(|path| !path_exists(path)).collect();
        ForbiddenPaths::new(
            home.as_deref(),
            writable,
            &self.repositories,
            &named,
            &absent,
        )
    }

    /// Whether a file written at `path` is executed later, given these writable directories.
    pub(super) fn runs_later(
        &self,
        settings: &SandboxSettings,
        writable: &[PathBuf],
        path: &Path,
    ) -> bool {
        let mut obeyed = self.existing_run_later(settings, writable).into_iter();
        obeyed.any(|obeyed| path.starts_with(obeyed))
            || self.forbidden_paths(settings, writable).forbids(path)
    }

    /// Change counter of the repositories in these directories.
    pub(super) fn changes(&self, writable: &[PathBuf]) -> u64 {
        self.repositories.changes(writable)
    }

    /// Paths named by the search path and by the user's start files.
    fn start_file_paths(&self, home: Option<&Path>) -> StartFilePaths {
        cached_or(&self.start_files, || read_start_files(home))
    }
}

/// The cached result, unless something has changed since.
fn cached_or<T: Clone>(
    known: &Mutex<Option<CachedLookup<T>>>,
    look: impl FnOnce() -> CachedLookup<T>,
) -> T {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = &*known
        && known.states.iter().all(PathState::is_unchanged)
    {
        return known.value.clone();
    }
    let lookup = look();
    let found = lookup.value.clone();
    *known = Some(lookup);
    found
}

fn find_personal_files(home: &Path, settings: &SandboxSettings) -> CachedLookup<Vec<PathBuf>> {
    let mut states = BTreeSet::from([home.to_owned()]);
    let mut paths = BTreeSet::new();
    for name in PERSONAL {
        let path = home.join(name);
        let is_open = |path: &Path| settings.readable.iter().any(|open| path.starts_with(open));
        if is_open(&path) {
            continue;
        }
        states.extend(path.parent().map(Path::to_owned));
        if let Ok(real) = tracked_fs::resolve(&path) {
            // Keys that are stored elsewhere and linked one by one.
            let entries = tracked_fs::list(&real);
            let links =
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
            paths.extend(links.filter_map(|entry| {
                let target = tracked_fs::resolve(&entry.path()).ok()?;
                (!home.starts_with(&target)).then_some(target)
            }));
            // A link to the home or above it would hide everything.
            if !home.starts_with(&real) && !is_open(&real) {
                paths.insert(real);
            }
        }
        paths.insert(path);
    }
    // Only existing directories can change; the rest shows in the home itself.
    states.retain(|dir| tracked_fs::is_dir(dir));
    CachedLookup {
        value: paths.into_iter().collect(),
        states: states
            .iter()
            .map(|dir| PathState::of_content(dir))
            .collect(),
    }
}

/// Writable directories in which the user works: no temporary directories, caches or scratch directories.
pub(super) fn work_dirs<'a>(
    writable: &'a [PathBuf],
    home: Option<&'a Path>,
) -> impl Iterator<Item = &'a PathBuf> {
    let is_cache = move |base: &Path| {
        let below = home.and_then(|home| base.strip_prefix(home).ok());
        below.is_some_and(|below| {
            super::paths::CACHES
                .iter()
                .any(|name| below.starts_with(name))
        })
    };
    writable.iter().filter(move |base| {
        !super::paths::is_temporary(base) && tracked_fs::is_dir(base) && !is_cache(base)
    })
}

/// Whether hiding it would hide the user's home or a Hermes home.
fn contains_home(path: &Path, settings: &SandboxSettings) -> bool {
    let mut homes = settings.homes.iter().chain(&settings.user_home);
    homes.any(|home| canonical(home).starts_with(path))
}

/// Exists and is no link: the target of a link is protected at its own path.
fn is_non_link(path: &Path) -> bool {
    tracked_fs::lstat(path).is_ok_and(|data| !data.is_symlink())
}

fn is_readable(path: &Path) -> bool {
    is_non_link(path) && tracked_fs::can_read(path)
}
