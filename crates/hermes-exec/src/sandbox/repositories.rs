//! Repositories in writable directories: which of their files control later runs of git, and whether a
//! repository that a command created would make git execute something.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::paths::lexically_normal;
use hermes_core::private::RUN_LATER_IN_GIT;

use super::git_index::linked_repositories;
use super::git_layout::GitLayout;
use super::git_settings::{GLOBAL_SETTINGS, are_harmless, files_named_by, hooks_named_by_user};
use super::path_state::PathState;
use super::paths::{CACHES, canonical};
use super::scripts::files_run_by_hooks;
use super::survey::{SurveyArea, Surveys};
use super::tracked_fs;
use super::tree::{TreeFindings, Trees};

/// Maximum number of repositories below one directory, and of git directories in one of them.
const MAX_REPOSITORIES: usize = 1024;
/// Maximum nesting of submodule git directories.
const MAX_MODULES: usize = 5;

/// Cached information about repositories.
#[derive(Clone, Debug, Default)]
pub(super) struct Repositories {
    surveys: Surveys,
    trees: Trees,
    links: Arc<Mutex<HashMap<PathBuf, CachedLinks>>>,
}

#[derive(Clone, Debug)]
struct CachedLinks {
    state: PathState,
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

    /// Repositories below `base`, and those that git enters through their indexes.
    pub(super) fn below(&self, base: &Path, home: Option<&Path>) -> BTreeSet<PathBuf> {
        let mut waiting = self.surveys.below(base, SurveyArea::Projects).repositories;
        waiting.extend(self.tree(base, home).repositories);
        let mut found = BTreeSet::new();
        while let Some(entry) = waiting.pop() {
            if found.len() >= MAX_REPOSITORIES || !found.insert(entry.clone()) {
                continue;
            }
            let work_tree = work_tree(&entry);
            if let (Some(work_tree), Some(git_dir)) = (work_tree, git_dir(&entry)) {
                let links = self.links(&git_dir).into_iter();
                let inner = links.map(|link| work_tree.join(link).join(".git"));
                waiting.extend(inner.filter(|inner| path_exists(inner) && inner.starts_with(base)));
            }
        }
        found
    }

    /// Files in projects below `base` that editors, shells and agents execute automatically.
    pub(super) fn run_later(&self, base: &Path, home: Option<&Path>) -> BTreeSet<PathBuf> {
        self.tree(base, home).run_later
    }

    fn tree(&self, base: &Path, home: Option<&Path>) -> TreeFindings {
        self.trees.below(base, || skipped_dirs(base, home))
    }

    /// Change counter of the repositories in these directories.
    pub(super) fn changes(&self, bases: &[PathBuf]) -> u64 {
        self.trees.changes(bases)
    }

    fn links(&self, git_dir: &Path) -> Vec<PathBuf> {
        let index = git_dir.join("index");
        let mut known = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(links) = known.get(&index)
            && links.state.is_unchanged()
        {
            return links.paths.clone();
        }
        if known.len() >= MAX_REPOSITORIES {
            known.clear();
        }
        let state = PathState::of_content(&index);
        let config = tracked_fs::read_text(&git_dir.join("config")).unwrap_or_default();
        let paths = linked_repositories(git_dir, config.to_ascii_lowercase().contains("sha256"));
        let links = CachedLinks {
            state,
            paths: paths.clone(),
        };
        known.insert(index, links);
        paths
    }
}

/// Directories that are skipped when the user's home lies below `base`: what commands cannot write there, and
/// caches.
fn skipped_dirs(base: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let Some(home) = home.filter(|home| home.starts_with(base)) else {
        return Vec::new();
    };
    let hidden = tracked_fs::list(home);
    let hidden = hidden.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."));
    let caches = CACHES.iter().map(|name| home.join(name));
    hidden.map(|entry| entry.path()).chain(caches).collect()
}

/// Repositories at the top of a writable directory in which nobody works, which affect everything below it.
/// Temporary directories and caches are not scanned deeper.
pub(super) fn repositories_at_top(base: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let inner = base.join(".git");
    if path_exists(&inner) {
        found.push(inner);
    }
    if GitLayout::of(base).is_repository() {
        found.push(base.to_owned());
    }
    found
}

/// Whether an ancestor of `path` would be a repository for git once `path` exists.
pub(super) fn is_in_repository(path: &Path) -> bool {
    let is_one = |(dir, below): (&Path, &Path)| {
        let mut layout = GitLayout::of(dir);
        if let Some(first) = below.iter().next() {
            layout.add(&first.to_string_lossy());
        }
        layout.is_repository()
    };
    let around = path.ancestors().skip(1);
    around
        .filter_map(|dir| Some((dir, path.strip_prefix(dir).ok()?)))
        .any(is_one)
}

/// Existing files that control later runs of git in a repository: config and hooks of it, its submodules and
/// worktrees, and the files that they name.
pub(super) fn git_control_files(entry: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if !tracked_fs::lstat(entry).is_ok_and(|data| data.is_dir() && !data.is_symlink()) {
        found.push(entry.to_owned());
    }
    for dir in git_dirs(entry) {
        let paths = RUN_LATER_IN_GIT.iter().map(|name| dir.join(name));
        found.extend(paths.filter(|path| path_exists(path)));
        let named = files_named_in(&dir, work_tree(entry), home);
        found.extend(named.filter(|path| path_exists(path)));
    }
    found
}

/// The same files that do not exist.
pub(super) fn missing_git_control_files(entry: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut absent = Vec::new();
    for dir in git_dirs(entry) {
        absent.extend(RUN_LATER_IN_GIT.iter().map(|name| dir.join(name)));
        absent.extend(files_named_in(&dir, work_tree(entry), home));
    }
    absent.retain(|path| !path_exists(path));
    absent
}

/// Files named by the config in a git directory, hooks that the user's config names for every repository, and
/// files that hooks run, whether or not they exist.
fn files_named_in(
    dir: &Path,
    work_tree: Option<&Path>,
    home: Option<&Path>,
) -> impl Iterator<Item = PathBuf> {
    let own = ["config", "config.worktree"].map(|name| dir.join(name));
    let own = own
        .into_iter()
        .flat_map(move |file| files_named_by(&file, work_tree, home));
    let global = home.into_iter().flat_map(move |home| {
        let files = GLOBAL_SETTINGS.map(|name| home.join(name));
        let files = files.into_iter();
        files.flat_map(move |file| hooks_named_by_user(&file, work_tree, home))
    });
    let mut named: Vec<PathBuf> = own.chain(global).collect();
    if let Some(work_tree) = work_tree {
        let directories = [dir.join("hooks"), work_tree.join(".husky")];
        let directories = directories.iter().chain(&named);
        let run: Vec<PathBuf> = directories
            .filter(|dir| tracked_fs::is_dir(dir))
            .flat_map(|dir| files_run_by_hooks(dir, work_tree))
            .collect();
        named.extend(run);
    }
    let work_tree = work_tree.map(canonical);
    let dir = dir.to_owned();
    named
        .into_iter()
        .map(|path| canonical(&lexically_normal(&path)))
        // A setting cannot protect the whole work tree or a directory above it.
        .filter(move |path| {
            !work_tree
                .as_ref()
                .is_some_and(|tree| tree.starts_with(path))
        })
        .filter(move |path| !dir.starts_with(path))
}

/// What is known about repositories that a new one may refer to.
pub(super) struct RepositoryTrust<'a> {
    /// Whether later commands cannot change anything at a path.
    pub(super) is_protected: &'a dyn Fn(&Path) -> bool,
    /// Git directories that existed before, with whatever the user has in them.
    pub(super) known: &'a BTreeSet<PathBuf>,
}

/// Files in an existing repository that would make git execute something because of directories that a command
/// created in it.
pub(super) fn offending_additions(entry: &Path, trust: &RepositoryTrust<'_>) -> Vec<PathBuf> {
    let dirs = git_dirs(entry);
    if !git_dir(entry).is_some_and(|dir| trust.known.contains(&dir)) {
        return Vec::new();
    }
    let new = dirs.difference(trust.known);
    new.flat_map(|dir| offending_in(dir, trust)).collect()
}

/// Files in a repository created by a command that would make git execute something.
pub(super) fn offending(entry: &Path, trust: &RepositoryTrust<'_>) -> Vec<PathBuf> {
    let whole = || vec![entry.to_owned()];
    let Ok(data) = tracked_fs::lstat(entry) else {
        return Vec::new();
    };
    if data.is_dir() {
        return nested_git_dirs(entry)
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

/// Whether a git directory executes nothing, and stays so.
fn is_trusted(dir: &Path, trust: &RepositoryTrust<'_>) -> bool {
    let dir = canonical(dir);
    let is_known = trust.known.contains(&dir);
    (trust.is_protected)(&dir) && (is_known || offending_in(&dir, trust).is_empty())
}

fn offending_in(dir: &Path, trust: &RepositoryTrust<'_>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let may_receive = |path: &Path| (trust.is_protected)(path) || !receives_with_hooks(path);
    for name in ["config", "config.worktree"] {
        let file = dir.join(name);
        if !are_harmless(&file, &may_receive) {
            found.push(file);
        }
    }
    let hooks = dir.join("hooks");
    if path_exists(&hooks) && has_hooks(&hooks) {
        found.push(hooks);
    }
    for name in ["remotes", "branches"] {
        let remotes = dir.join(name);
        let is_dir = tracked_fs::is_dir(&remotes) && !tracked_fs::is_link(&remotes);
        if path_exists(&remotes) && (!is_dir || tracked_fs::list(&remotes).next().is_some()) {
            found.push(remotes);
        }
    }
    let common = dir.join("commondir");
    if path_exists(&common) {
        let target = pointer(&common).map(|target| canonical(&dir.join(target)));
        let is_fine = target.is_some_and(|target| {
            target != *dir && !path_exists(&target.join("commondir")) && is_trusted(&target, trust)
        });
        if !is_fine {
            found.push(common);
        }
    }
    found
}

/// Whether a push to a repository at `path` would run something there.
fn receives_with_hooks(path: &Path) -> bool {
    [path.to_owned(), path.join(".git")].iter().any(|dir| {
        let hooks = dir.join("hooks");
        let settings = tracked_fs::read_text(&dir.join("config")).unwrap_or_default();
        let settings = settings.to_ascii_lowercase();
        (path_exists(&hooks) && has_hooks(&hooks))
            || settings.contains("hookspath")
            || settings.contains("include")
    })
}

/// The steps of a rebase that was interrupted.
pub(super) const REBASE_STEPS: &str = "rebase-merge/git-rebase-todo";
/// Longer lists are not read.
const MAX_STEPS: u64 = 1 << 20;

/// The steps of an interrupted rebase that run a program when it is continued.
pub(super) fn steps_that_run(git_dir: &Path) -> BTreeSet<String> {
    let file = git_dir.join(REBASE_STEPS);
    let Ok(data) = tracked_fs::stat(&file) else {
        return BTreeSet::new();
    };
    if !data.is_file() || data.len() > MAX_STEPS {
        return BTreeSet::from(["more than is read".to_owned()]);
    }
    let text = tracked_fs::read_bytes(&file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_run = |line: &&str| {
        let word = line.split_whitespace().next();
        matches!(word, Some("exec" | "x"))
    };
    text.lines().filter(is_run).map(str::to_owned).collect()
}

/// Whether it contains more than the samples of a new repository.
fn has_hooks(hooks: &Path) -> bool {
    let is_dir = tracked_fs::lstat(hooks).is_ok_and(|data| data.is_dir() && !data.is_symlink());
    let mut entries = tracked_fs::list(hooks);
    !is_dir
        || entries.any(|entry| {
            let name = entry.file_name();
            let is_example = Path::new(&name)
                .extension()
                .is_some_and(|end| end == "sample");
            !is_example && name != "README"
        })
}

/// The git directories that belong to a repository.
pub(super) fn git_dirs(entry: &Path) -> BTreeSet<PathBuf> {
    let Some(dir) = git_dir(entry) else {
        return BTreeSet::new();
    };
    let common = pointer(&dir.join("commondir")).map(|common| canonical(&dir.join(common)));
    let mut all = nested_git_dirs(&dir);
    if let Some(common) = common {
        all.extend(nested_git_dirs(&common));
    }
    all
}

/// The directory itself, and those of submodules and worktrees in it.
fn nested_git_dirs(dir: &Path) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::from([dir.to_owned()]);
    directories.extend(subdirectories(&dir.join("worktrees")));
    let mut level = subdirectories(&dir.join("modules"));
    for _ in 0..MAX_MODULES {
        let mut next = Vec::new();
        for dir in level {
            if path_exists(&dir.join("HEAD")) {
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

/// The git directory of a `.git` entry, or of a bare repository.
fn git_dir(entry: &Path) -> Option<PathBuf> {
    let data = tracked_fs::stat(entry).ok()?;
    if data.is_dir() {
        return Some(if tracked_fs::is_link(entry) {
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
    let entries = tracked_fs::list(dir);
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Reads a short file that names a path.
fn pointer(file: &Path) -> Option<String> {
    tracked_fs::depend_on_content(file);
    crate::git::read_pointer(file)
}

/// Whether anything exists there, including a dangling link.
pub(super) fn path_exists(path: &Path) -> bool {
    tracked_fs::lstat(path).is_ok()
}
