//! Repositories in the places where a command may write: what later runs of git obey in them, and whether one
//! that a command has made would make git run something.

use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::private::RUN_LATER_IN_GIT;

use super::git_index::linked;
use super::git_settings::{GLOBAL_SETTINGS, are_harmless, hooks_named_by, named_by};
use super::look;
use super::places::{CACHES, canonical};
use super::seen::Seen;
use super::survey::{Area, Surveys};
use super::tree::{TreeFindings, Trees};

/// Repositories of one place, and directories of git's data in one of them.
const MAX_REPOSITORIES: usize = 1024;
/// How deep git directories of submodules lie below each other.
const MAX_MODULES: usize = 5;

/// What is known about the indexes of repositories.
#[derive(Clone, Debug, Default)]
pub(super) struct Repositories {
    surveys: Surveys,
    trees: Trees,
    links: Arc<Mutex<HashMap<PathBuf, Links>>>,
}

#[derive(Clone, Debug)]
struct Links {
    seen: Seen,
    paths: Vec<PathBuf>,
}

impl Repositories {
    pub(super) fn new(surveys: Surveys) -> Self {
        Self {
            surveys,
            trees: Trees::default(),
            links: Arc::default(),
        }
    }

    /// What is a repository in `place`, or is taken for one by git when it looks at another there.
    pub(super) fn below(&self, place: &Path, home: Option<&Path>) -> BTreeSet<PathBuf> {
        let mut waiting = self.surveys.below(place, Area::Projects).repositories;
        waiting.extend(self.tree(place, home).repositories);
        let mut found = BTreeSet::new();
        while let Some(entry) = waiting.pop() {
            if found.len() >= MAX_REPOSITORIES || !found.insert(entry.clone()) {
                continue;
            }
            let work_tree = work_tree(&entry);
            if let (Some(work_tree), Some(git_dir)) = (work_tree, git_dir(&entry)) {
                let links = self.links(&git_dir).into_iter();
                let inner = links.map(|link| work_tree.join(link).join(".git"));
                waiting.extend(inner.filter(|inner| is_there(inner) && inner.starts_with(place)));
            }
        }
        found
    }

    /// What editors, shells and agents run by themselves in projects in `place`.
    pub(super) fn run_later(&self, place: &Path, home: Option<&Path>) -> BTreeSet<PathBuf> {
        self.tree(place, home).run_later
    }

    fn tree(&self, place: &Path, home: Option<&Path>) -> TreeFindings {
        self.trees.below(place, || not_entered(place, home))
    }

    /// How often any of this in these places has come or gone.
    pub(super) fn changes(&self, places: &[PathBuf]) -> u64 {
        self.trees.changes(places)
    }

    fn links(&self, git_dir: &Path) -> Vec<PathBuf> {
        let index = git_dir.join("index");
        let mut known = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(links) = known.get(&index)
            && links.seen.is_as_it_was()
        {
            return links.paths.clone();
        }
        if known.len() >= MAX_REPOSITORIES {
            known.clear();
        }
        let seen = Seen::listed(&index);
        let config = look::read_text(&git_dir.join("config")).unwrap_or_default();
        let paths = linked(git_dir, config.to_ascii_lowercase().contains("sha256"));
        let links = Links {
            seen,
            paths: paths.clone(),
        };
        known.insert(index, links);
        paths
    }
}

/// What is not looked through where the person's directory lies in a place: what commands cannot write there, and
/// caches.
fn not_entered(place: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let Some(home) = home.filter(|home| home.starts_with(place)) else {
        return Vec::new();
    };
    let hidden = look::list(home);
    let hidden = hidden.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."));
    let caches = CACHES.iter().map(|name| home.join(name));
    hidden.map(|entry| entry.path()).chain(caches).collect()
}

/// What git takes for a repository at the top of a place in which nobody works, and so in everything below it:
/// temporary directories and caches are not looked through.
pub(super) fn at_its_top(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let inner = place.join(".git");
    if is_there(&inner) {
        found.push(inner);
    }
    if ["HEAD", "objects", "refs"]
        .iter()
        .all(|name| is_there(&place.join(name)))
    {
        found.push(place.to_owned());
    }
    found
}

/// Whether a directory around `path` is one that git takes for a repository, once there is something at `path`.
pub(super) fn is_in_repository(path: &Path) -> bool {
    let is_one = |(dir, below): (&Path, &Path)| {
        let first = below.iter().next();
        let mut parts = ["HEAD", "objects", "refs"].into_iter();
        parts.all(|part| first.is_some_and(|first| first == part) || is_there(&dir.join(part)))
    };
    let around = path.ancestors().skip(1);
    around
        .filter_map(|dir| Some((dir, path.strip_prefix(dir).ok()?)))
        .any(is_one)
}

/// What later runs of git obey in a repository, as far as it is there: its settings and hooks, those of its
/// submodules and further work trees, and the files that they name.
pub(super) fn obeyed(entry: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if !look::entry(entry).is_ok_and(|data| data.is_dir() && !data.is_symlink()) {
        found.push(entry.to_owned());
    }
    for dir in git_dirs(entry) {
        let paths = RUN_LATER_IN_GIT.iter().map(|name| dir.join(name));
        found.extend(paths.filter(|path| is_there(path)));
        let named = named_in(&dir, work_tree(entry), home);
        found.extend(named.filter(|path| is_there(path)));
    }
    found
}

/// The same, as far as it is not there.
pub(super) fn obeyed_but_absent(entry: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut absent = Vec::new();
    for dir in git_dirs(entry) {
        absent.extend(RUN_LATER_IN_GIT.iter().map(|name| dir.join(name)));
        absent.extend(named_in(&dir, work_tree(entry), home));
    }
    absent.retain(|path| !is_there(path));
    absent
}

/// The files that the settings in a directory of git's name, and the hooks that the person's settings name for
/// every repository, whether or not they are there.
fn named_in(
    dir: &Path,
    work_tree: Option<&Path>,
    home: Option<&Path>,
) -> impl Iterator<Item = PathBuf> {
    let own = ["config", "config.worktree"].map(|name| dir.join(name));
    let own = own
        .into_iter()
        .flat_map(move |file| named_by(&file, work_tree, home));
    let global = home.into_iter().flat_map(move |home| {
        let files = GLOBAL_SETTINGS.map(|name| home.join(name));
        let files = files.into_iter();
        files.flat_map(move |file| hooks_named_by(&file, work_tree, home))
    });
    let work_tree = work_tree.map(canonical);
    let dir = dir.to_owned();
    own.chain(global)
        .map(|path| canonical(&without_dots(&path)))
        // A setting cannot close the whole work tree, or what is around it.
        .filter(move |path| {
            !work_tree
                .as_ref()
                .is_some_and(|tree| tree.starts_with(path))
        })
        .filter(move |path| !dir.starts_with(path))
}

/// A path without `.` and `..`; what is not there has no links to follow.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// What is known of the repositories that a new one may refer to.
pub(super) struct Trust<'a> {
    /// Whether nothing at a path can be changed by later commands.
    pub(super) is_kept: &'a dyn Fn(&Path) -> bool,
    /// Directories of git's that were there before, with whatever the person has in them.
    pub(super) known: &'a BTreeSet<PathBuf>,
}

/// What in a repository that was there would let later runs of git start something, because of directories that a
/// command has made in it.
pub(super) fn offending_additions(entry: &Path, trust: &Trust<'_>) -> Vec<PathBuf> {
    let dirs = git_dirs(entry);
    if !git_dir(entry).is_some_and(|dir| trust.known.contains(&dir)) {
        return Vec::new();
    }
    let new = dirs.difference(trust.known);
    new.flat_map(|dir| offending_in(dir, trust)).collect()
}

/// What in a repository that a command has made would let later runs of git start something.
pub(super) fn offending(entry: &Path, trust: &Trust<'_>) -> Vec<PathBuf> {
    let whole = || vec![entry.to_owned()];
    let Ok(data) = look::entry(entry) else {
        return Vec::new();
    };
    if data.is_dir() {
        return modules_of(entry)
            .iter()
            .flat_map(|dir| offending_in(dir, trust))
            .collect();
    }
    if data.is_symlink() {
        return whole();
    }
    match git_dir(entry) {
        // Git does not read it either.
        None => Vec::new(),
        Some(target) if is_trusted(&target, trust) => Vec::new(),
        Some(_) => whole(),
    }
}

/// Whether a directory of git's starts nothing, and stays so.
fn is_trusted(dir: &Path, trust: &Trust<'_>) -> bool {
    let dir = canonical(dir);
    let is_known = trust.known.contains(&dir);
    (trust.is_kept)(&dir) && (is_known || offending_in(&dir, trust).is_empty())
}

fn offending_in(dir: &Path, trust: &Trust<'_>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in ["config", "config.worktree"] {
        let file = dir.join(name);
        if !are_harmless(&file) {
            found.push(file);
        }
    }
    let hooks = dir.join("hooks");
    if is_there(&hooks) && has_hooks(&hooks) {
        found.push(hooks);
    }
    let common = dir.join("commondir");
    if is_there(&common) {
        let target = pointer(&common).map(|target| canonical(&dir.join(target)));
        let is_fine = target.is_some_and(|target| {
            target != *dir && !is_there(&target.join("commondir")) && is_trusted(&target, trust)
        });
        if !is_fine {
            found.push(common);
        }
    }
    found
}

/// Whether there is more than the examples that every new repository has.
fn has_hooks(hooks: &Path) -> bool {
    let is_dir = look::entry(hooks).is_ok_and(|data| data.is_dir() && !data.is_symlink());
    let mut entries = look::list(hooks);
    !is_dir
        || entries.any(|entry| {
            let name = entry.file_name();
            let is_example = Path::new(&name)
                .extension()
                .is_some_and(|end| end == "sample");
            !is_example && name != "README"
        })
}

/// The directories of git's data that belong to a repository.
pub(super) fn git_dirs(entry: &Path) -> BTreeSet<PathBuf> {
    let Some(dir) = git_dir(entry) else {
        return BTreeSet::new();
    };
    let common = pointer(&dir.join("commondir")).map(|common| canonical(&dir.join(common)));
    let mut all = modules_of(&dir);
    if let Some(common) = common {
        all.extend(modules_of(&common));
    }
    all
}

/// The directory itself, and those of submodules and further work trees in it.
fn modules_of(dir: &Path) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::from([dir.to_owned()]);
    directories.extend(subdirectories(&dir.join("worktrees")));
    let mut level = subdirectories(&dir.join("modules"));
    for _ in 0..MAX_MODULES {
        let mut next = Vec::new();
        for dir in level {
            if is_there(&dir.join("HEAD")) {
                next.extend(subdirectories(&dir.join("modules")));
                next.extend(subdirectories(&dir.join("worktrees")));
                directories.insert(dir);
            } else {
                next.extend(subdirectories(&dir));
            }
        }
        next.truncate(MAX_REPOSITORIES);
        level = next;
    }
    directories
}

/// Where git keeps its data for what is called `.git`, or is such a directory itself.
fn git_dir(entry: &Path) -> Option<PathBuf> {
    let data = look::target(entry).ok()?;
    if data.is_dir() {
        return Some(if look::is_link(entry) {
            canonical(entry)
        } else {
            entry.to_owned()
        });
    }
    let text = pointer(entry)?;
    let target = text.strip_prefix("gitdir:")?.trim();
    Some(canonical(&entry.parent()?.join(target)))
}

fn work_tree(entry: &Path) -> Option<&Path> {
    (entry.file_name()? == ".git").then(|| entry.parent())?
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = look::list(dir);
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// A short file that names a path.
fn pointer(file: &Path) -> Option<String> {
    look::known(file);
    crate::git::pointer(file)
}

/// Whatever it is, a link to nothing included.
pub(super) fn is_there(path: &Path) -> bool {
    look::entry(path).is_ok()
}
