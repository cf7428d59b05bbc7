//! Finds repositories and files with secrets below the user's home and the workspace. It scans a bounded number
//! of directories and lists one again only after it has changed.
//!
//! A command can create directories and so influence which ones fill the bound: known directories come first,
//! then older ones.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::DirEntry;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use hermes_core::private::{
    PRIVATE_DIRECTORIES, TOOLS_IN_HOME, is_private_to_project, is_read_by_all, is_secret_name,
    looks_secret,
};

use super::git_layout::GitLayout;
use super::path_state::PathState;
use super::tracked_fs;

/// Maximum number of directories scanned below one root.
const MAX_DIRECTORIES: usize = 512;
/// Maximum number of files of one kind in one directory.
const MAX_FILES: usize = 256;
/// Maximum number of cached roots.
const MAX_ROOTS: usize = 64;

/// Large directories that tools create; they contain no projects.
pub(super) const SKIPPED: &[&str] = &[
    "node_modules",
    "target",
    "dist",
    "build",
    "venv",
    "__pycache__",
    "site-packages",
    "vendor",
    "Library",
    "snap",
];

/// Large hidden directories that tools create in a project.
const TOOLS_IN_PROJECT: &[&str] = &[
    ".git",
    ".hg",
    ".svn",
    ".jj",
    ".venv",
    ".tox",
    ".nox",
    ".cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".next",
    ".nuxt",
    ".svelte-kit",
    ".angular",
    ".parcel-cache",
    ".turbo",
    ".yarn",
    ".pnpm-store",
    ".gradle",
    ".dart_tool",
    ".stack-work",
    ".eggs",
    ".ipynb_checkpoints",
    ".direnv",
    ".devenv",
    ".cargo",
    ".rustup",
    ".npm",
    ".nvm",
];

/// What a survey looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SurveyArea {
    /// Projects: at the top level, hidden directories are not entered.
    Projects,
    /// Settings of programs in a user's home: at the top level, only hidden directories are entered.
    Settings,
}

impl SurveyArea {
    fn depth(self) -> usize {
        match self {
            Self::Projects => 8,
            Self::Settings => 4,
        }
    }

    fn enters(self, name: &str, is_top: bool) -> bool {
        let is_hidden = name.starts_with('.');
        match self {
            // At the top they belong to programs of the user, or to the project itself.
            Self::Projects if is_hidden => !is_top && !TOOLS_IN_PROJECT.contains(&name),
            Self::Projects => !SKIPPED.contains(&name),
            Self::Settings => (is_hidden || !is_top) && !TOOLS_IN_HOME.contains(&name),
        }
    }

    /// Whether a file is meant for its owner only.
    fn is_private(self, entry: &DirEntry, name: &str, is_top: bool) -> bool {
        match self {
            Self::Projects => is_secret_name(name) || (!is_top && is_private_to_project(name)),
            Self::Settings if is_top && !name.starts_with('.') => false,
            Self::Settings => {
                looks_secret(name)
                    || (!(is_top && is_read_by_all(name)) && is_closed_to_others(entry))
            }
        }
    }
}

/// Whether the owner has removed access for others, if the umask does not do so anyway.
fn is_closed_to_others(entry: &DirEntry) -> bool {
    const OTHERS: u32 = 0o077;
    makes_files_for_others()
        && entry
            .metadata()
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & OTHERS == 0)
}

fn makes_files_for_others() -> bool {
    use std::sync::OnceLock;
    static MADE: OnceLock<bool> = OnceLock::new();
    *MADE.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("Umask:"))
            .and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
        mask.is_some_and(|mask| mask & 0o044 == 0)
    })
}

/// Findings below one root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SurveyResult {
    /// Everything named `.git`, and directories that git treats as a repository without that name.
    pub(super) repositories: Vec<PathBuf>,
    /// Files that contain keys, passwords or values of variables.
    pub(super) private_files: Vec<PathBuf>,
}

/// Cached surveys by root and area.
#[derive(Clone, Debug, Default)]
pub(super) struct Surveys(Arc<Mutex<HashMap<(PathBuf, SurveyArea), SurveyCache>>>);

/// One survey.
#[derive(Debug, Default)]
struct SurveyCache {
    listings: HashMap<PathBuf, DirListing>,
    found: SurveyResult,
}

#[derive(Clone, Debug)]
struct DirListing {
    state: PathState,
    /// With the creation time of each.
    directories: Vec<(SystemTime, PathBuf)>,
    repositories: Vec<PathBuf>,
    private_files: Vec<PathBuf>,
}

impl Surveys {
    /// Surveys `root`, reusing unchanged listings.
    pub(super) fn below(&self, root: &Path, area: SurveyArea) -> SurveyResult {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (root.to_owned(), area);
        if all.len() >= MAX_ROOTS && !all.contains_key(&key) {
            all.clear();
        }
        let survey = all.entry(key).or_default();
        let mut listings = survey.listings.values();
        let is_known = !survey.listings.is_empty();
        if !is_known || !listings.all(|listing| listing.state.is_unchanged()) {
            *survey = run_survey(root, area, std::mem::take(&mut survey.listings));
        }
        survey.found.clone()
    }
}

/// A directory that is still to be scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PendingDir {
    is_new: bool,
    made: SystemTime,
    depth: usize,
    dir: PathBuf,
}

impl PendingDir {
    fn by_age(&self) -> (bool, SystemTime, PathBuf) {
        (self.is_new, self.made, self.dir.clone())
    }

    fn by_depth(&self) -> (bool, usize, SystemTime, PathBuf) {
        (self.is_new, self.depth, self.made, self.dir.clone())
    }
}

/// Pending directories in both orders. They are taken alternately, so that near directories are not crowded out
/// by old deep ones, nor old ones by those that a command has just created.
#[derive(Default)]
struct DirQueue {
    by_age: BTreeMap<(bool, SystemTime, PathBuf), PendingDir>,
    by_depth: BTreeMap<(bool, usize, SystemTime, PathBuf), PendingDir>,
}

impl DirQueue {
    fn add(&mut self, waiting: PendingDir) {
        self.by_age.insert(waiting.by_age(), waiting.clone());
        self.by_depth.insert(waiting.by_depth(), waiting);
    }

    fn next(&mut self, number: usize) -> Option<PendingDir> {
        let next = if number.is_multiple_of(2) {
            self.by_depth.pop_first()?.1
        } else {
            self.by_age.pop_first()?.1
        };
        self.by_depth.remove(&next.by_depth());
        self.by_age.remove(&next.by_age());
        Some(next)
    }
}

fn run_survey(
    root: &Path,
    area: SurveyArea,
    mut known: HashMap<PathBuf, DirListing>,
) -> SurveyCache {
    let mut survey = SurveyCache::default();
    let mut queue = DirQueue::default();
    queue.add(PendingDir {
        is_new: false,
        made: SystemTime::UNIX_EPOCH,
        depth: 0,
        dir: root.to_owned(),
    });
    let is_known: HashSet<PathBuf> = known.keys().cloned().collect();
    while survey.listings.len() < MAX_DIRECTORIES
        && let Some(PendingDir { depth, dir, .. }) = queue.next(survey.listings.len())
    {
        let listing = match known.remove(&dir) {
            Some(listing) if listing.state.is_unchanged() => listing,
            _ => list_dir(&dir, area, depth == 0),
        };
        let found = &mut survey.found;
        found.repositories.extend_from_slice(&listing.repositories);
        found
            .private_files
            .extend_from_slice(&listing.private_files);
        if depth + 1 < area.depth() {
            for (made, dir) in &listing.directories {
                queue.add(PendingDir {
                    is_new: !is_known.contains(dir),
                    made: *made,
                    depth: depth + 1,
                    dir: dir.clone(),
                });
            }
        }
        survey.listings.insert(dir, listing);
    }
    survey.found.repositories.sort();
    survey
}

fn list_dir(dir: &Path, area: SurveyArea, is_top: bool) -> DirListing {
    let mut listing = DirListing {
        // Recorded before listing, so that a concurrent change is noticed.
        state: PathState::of_content(dir),
        directories: Vec::new(),
        repositories: Vec::new(),
        private_files: Vec::new(),
    };
    let mut layout = GitLayout::default();
    let entries = tracked_fs::list(dir);
    for entry in entries {
        let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else {
            continue;
        };
        let name = name.to_string_lossy();
        layout.add(&name);
        if name == ".git" {
            listing.repositories.push(entry.path());
        } else if kind.is_dir() && !is_top && PRIVATE_DIRECTORIES.contains(&&*name) {
            listing.private_files.push(entry.path());
        } else if !kind.is_dir() {
            if listing.private_files.len() < MAX_FILES && area.is_private(&entry, &name, is_top) {
                listing.private_files.push(entry.path());
            }
        } else if area.enters(&name, is_top) {
            let made = entry.metadata().and_then(|data| data.created());
            let made = made.unwrap_or(SystemTime::UNIX_EPOCH);
            listing.directories.push((made, entry.path()));
        }
    }
    if layout.is_repository() {
        listing.repositories.push(dir.to_owned());
    }
    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }

    #[test]
    fn projects_are_found_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("code/one/.git")).unwrap();
        std::fs::create_dir_all(at("code/node_modules/two/.git")).unwrap();
        write(at("code/one/.env"));
        write(at("code/one/.env.example"));
        let surveys = Surveys::default();
        let found = surveys.below(dir.path(), SurveyArea::Projects);
        assert_eq!(found.repositories, [at("code/one/.git")]);
        assert_eq!(found.private_files, [at("code/one/.env")]);
        std::fs::create_dir_all(at("code/three/.git")).unwrap();
        write(at("code/three/id_rsa"));
        write(at("code/three/.npmrc"));
        write(at("code/three/.streamlit/secrets.toml"));
        write(at("code/three/.venv/secrets.toml"));
        write(at("code/three/deploy/prod.env"));
        write(at("backup/.ssh/config"));
        for name in ["HEAD", "objects/x", "refs/x"] {
            write(at("code/four").join(name));
        }
        let found = surveys.below(dir.path(), SurveyArea::Projects);
        let mut files = found.private_files;
        files.sort();
        assert_eq!(
            files,
            [
                at("backup/.ssh"),
                at("code/one/.env"),
                at("code/three/.npmrc"),
                at("code/three/.streamlit/secrets.toml"),
                at("code/three/deploy/prod.env"),
                at("code/three/id_rsa")
            ]
        );
        assert_eq!(
            found.repositories,
            [at("code/four"), at("code/one/.git"), at("code/three/.git")]
        );
    }

    #[test]
    fn what_programs_keep_is_told_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in [
            ".config/tool/credentials.json",
            ".tool/auth.json",
            ".config/tool/config.toml",
            ".cargo/registry/token",
            "notes/token.txt",
            ".token",
        ] {
            write(at(name));
        }
        let mut found = Surveys::default()
            .below(dir.path(), SurveyArea::Settings)
            .private_files;
        found.sort();
        assert_eq!(
            found,
            [
                at(".config/tool/credentials.json"),
                at(".token"),
                at(".tool/auth.json")
            ]
        );
    }

    #[test]
    fn what_its_owner_has_closed_is_private_unless_every_command_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let names = [
            ".tool.cfg",
            ".config/x/data",
            ".gitconfig",
            ".bashrc",
            ".open.cfg",
        ];
        for name in names {
            write(at(name));
            let mode = if name == ".open.cfg" { 0o644 } else { 0o600 };
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        if !makes_files_for_others() {
            return;
        }
        let found = Surveys::default().below(dir.path(), SurveyArea::Settings);
        let mut files = found.private_files;
        files.sort();
        assert_eq!(files, [at(".config/x/data"), at(".tool.cfg")]);
    }

    #[test]
    fn a_look_is_bounded_and_new_directories_do_not_hide_old_ones() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("zz/old/.env"));
        let surveys = Surveys::default();
        assert_eq!(
            surveys
                .below(dir.path(), SurveyArea::Projects)
                .private_files
                .len(),
            1
        );
        for number in 0..MAX_DIRECTORIES + 50 {
            std::fs::create_dir(dir.path().join(format!("d{number:04}"))).unwrap();
        }
        for surveys in [surveys, Surveys::default()] {
            let found = surveys.below(dir.path(), SurveyArea::Projects);
            assert_eq!(found.private_files, [dir.path().join("zz/old/.env")]);
            let all = surveys.0.lock().unwrap();
            let key = (dir.path().to_owned(), SurveyArea::Projects);
            assert_eq!(all[&key].listings.len(), MAX_DIRECTORIES);
        }
    }
}
