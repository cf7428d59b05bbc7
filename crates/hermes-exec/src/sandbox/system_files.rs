//! Files of the system that are closed to ordinary users. Root could read them; nothing that a command does for
//! the user needs them.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::tracked_fs;

/// Where programs of the system keep settings and data, and how deep.
const PLACES: [(&str, usize); 3] = [("/etc", 6), ("/var/lib", 3), ("/var/cache", 3)];
/// Maximum number of directories listed.
const MAX_DIRECTORIES: usize = 1024;

/// Closed files and directories, and the directories that were listed.
#[derive(Debug, Default)]
pub(super) struct ClosedFiles {
    pub(super) closed: Vec<PathBuf>,
    pub(super) listed: Vec<PathBuf>,
}

pub(super) fn closed_system_files() -> ClosedFiles {
    closed_below(&PLACES.map(|(dir, depth)| (PathBuf::from(dir), depth)))
}

fn closed_below(places: &[(PathBuf, usize)]) -> ClosedFiles {
    let user = rustix::process::geteuid();
    let mut found = ClosedFiles::default();
    let mut waiting: VecDeque<(PathBuf, usize)> = places.iter().cloned().collect();
    while let Some((dir, depth)) = waiting.pop_front()
        && found.listed.len() < MAX_DIRECTORIES
    {
        for entry in tracked_fs::list(&dir) {
            let Ok(data) = entry.metadata() else {
                continue;
            };
            // What a service account keeps for itself is its own.
            let is_own = !user.is_root() && data.uid() == user.as_raw();
            if data.is_symlink() || is_own {
                continue;
            }
            let needed = if data.is_dir() { 0o005 } else { 0o004 };
            if data.mode() & needed == 0 {
                found.closed.push(entry.path());
            } else if data.is_dir() && depth > 1 {
                waiting.push_back((entry.path(), depth - 1));
            }
        }
        found.listed.push(dir);
    }
    found
}

/// Directories at the top of the file system that belong to neither the system nor a user: projects, data,
/// backups. What is mounted from elsewhere is left out.
pub(super) fn other_top_directories() -> Vec<PathBuf> {
    let root = Path::new("/");
    let Ok(device) = tracked_fs::lstat(root).map(|data| data.dev()) else {
        return Vec::new();
    };
    tracked_fs::list(root)
        .filter(|entry| {
            let name = entry.file_name();
            let is_system = SYSTEM_NAMES.iter().any(|known| name == *known);
            let data = entry.metadata();
            !is_system && data.is_ok_and(|data| data.is_dir() && data.dev() == device)
        })
        .map(|entry| entry.path())
        .collect()
}

const SYSTEM_NAMES: &[&str] = &[
    "bin",
    "boot",
    "cdrom",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "lost+found",
    "media",
    "mnt",
    "nix",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "snap",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "Applications",
    "Library",
    "System",
    "Users",
    "Volumes",
    "cores",
    "private",
];

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_closed_to_others_is_found_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (name, mode) in [
            ("open/a.conf", 0o644),
            ("open/secret.conf", 0o640),
            ("key/k", 0o644),
        ] {
            std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            std::fs::write(at(name), "x").unwrap();
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::set_permissions(at("key"), PermissionsExt::from_mode(0o750)).unwrap();
        let mut found = closed_below(&[(dir.path().to_owned(), 3)]).closed;
        found.sort();
        // A user's own files are no files of the system.
        if rustix::process::geteuid().is_root() {
            assert_eq!(found, [at("key"), at("open/secret.conf")]);
        } else {
            assert!(found.is_empty());
        }
    }
}
