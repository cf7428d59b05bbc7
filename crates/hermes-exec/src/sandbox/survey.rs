//! What lies below the person's directory and the workspace: repositories, and files of variables. A look at
//! a bounded number of directories, each listed again only when it has changed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::private::is_env_file;

use super::seen::Seen;

/// How far down, and how many directories, are looked at: most projects lie two or three levels deep.
const MAX_DEPTH: usize = 4;
const MAX_DIRECTORIES: usize = 128;
/// Roots that are remembered.
const MAX_ROOTS: usize = 64;

/// Large, and made by tools: nobody keeps a project in there.
const SKIPPED: &[&str] = &[
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

/// What was found below one root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Directories and files called `.git`.
    pub(super) repositories: Vec<PathBuf>,
    /// Files with values of variables.
    pub(super) env_files: Vec<PathBuf>,
}

/// What is known of the directories below the roots that were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Surveys(Arc<Mutex<HashMap<PathBuf, HashMap<PathBuf, Listing>>>>);

#[derive(Clone, Debug)]
struct Listing {
    seen: Seen,
    directories: Vec<PathBuf>,
    repository: Option<PathBuf>,
    env_files: Vec<PathBuf>,
}

impl Surveys {
    /// What lies below `root` now.
    pub(super) fn below(&self, root: &Path) -> Found {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_ROOTS && !all.contains_key(root) {
            all.clear();
        }
        let known = all.entry(root.to_owned()).or_default();
        let mut kept = HashMap::new();
        let mut found = Found::default();
        let mut level = vec![root.to_owned()];
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for dir in level {
                if kept.len() >= MAX_DIRECTORIES {
                    break;
                }
                let listing = match known.remove(&dir) {
                    Some(listing) if listing.seen.is_as_it_was() => listing,
                    _ => list(&dir),
                };
                found.repositories.extend(listing.repository.clone());
                found.env_files.extend(listing.env_files.iter().cloned());
                next.extend(listing.directories.iter().cloned());
                kept.insert(dir, listing);
            }
            level = next;
        }
        *known = kept;
        found.repositories.sort();
        found.env_files.sort();
        found
    }
}

fn list(dir: &Path) -> Listing {
    let mut listing = Listing {
        // Noted before it is looked into: what changes meanwhile is found out.
        seen: Seen::listed(dir),
        directories: Vec::new(),
        repository: None,
        env_files: Vec::new(),
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries {
        let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else {
            continue;
        };
        let name = name.to_string_lossy();
        if name == ".git" && !kind.is_symlink() {
            listing.repository = Some(entry.path());
        } else if is_env_file(&name) && !kind.is_dir() {
            listing.env_files.push(entry.path());
        } else if kind.is_dir() && !name.starts_with('.') && !SKIPPED.contains(&&*name) {
            listing.directories.push(entry.path());
        }
    }
    listing.directories.sort();
    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_are_found_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("code/one/.git")).unwrap();
        std::fs::create_dir_all(at("code/node_modules/two/.git")).unwrap();
        std::fs::write(at("code/one/.env"), "KEY=1").unwrap();
        std::fs::write(at("code/one/.env.example"), "KEY=").unwrap();
        let surveys = Surveys::default();
        let found = surveys.below(dir.path());
        assert_eq!(found.repositories, [at("code/one/.git")]);
        assert_eq!(found.env_files, [at("code/one/.env")]);
        std::fs::create_dir_all(at("code/three/.git")).unwrap();
        std::fs::write(at("code/three/.env.local"), "").unwrap();
        let found = surveys.below(dir.path());
        assert_eq!(found.repositories.len(), 2);
        assert_eq!(
            found.env_files,
            [at("code/one/.env"), at("code/three/.env.local")]
        );
    }

    #[test]
    fn a_look_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..MAX_DIRECTORIES + 50 {
            let name = format!("d{number:04}");
            std::fs::create_dir(dir.path().join(&name)).unwrap();
        }
        let surveys = Surveys::default();
        surveys.below(dir.path());
        let all = surveys.0.lock().unwrap();
        assert_eq!(all[dir.path()].len(), MAX_DIRECTORIES);
    }
}
