//! Homes and projects to protect besides those of the current user.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::SandboxSettings;
use super::paths::{canonical, is_temporary};
use super::system_files::other_top_directories;
use super::tracked_fs;

/// Maximum number of other users' homes.
const MAX_HOMES: usize = 16;

/// Common project directories outside of homes.
const SHARED_PROJECTS: &[&str] = &["/srv", "/opt", "/var/www", "/workspaces"];

/// Directories that are too broad, or belong to the system, to be a project.
const SHARED_DIRECTORIES: &[&str] = &[
    "/",
    "/usr",
    "/usr/local",
    "/etc",
    "/var",
    "/var/lib",
    "/home",
    "/mnt",
    "/media",
    "/run",
    "/dev",
    "/proc",
    "/sys",
    "/boot",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/nix",
    "/Users",
];

/// Homes that this account can read: its own according to `/etc/passwd`, if `HOME` names another, and those of
/// other users.
pub(super) fn other_homes(settings: &SandboxSettings) -> Vec<PathBuf> {
    let accounts = tracked_fs::read_text(Path::new("/etc/passwd")).unwrap_or_default();
    let listed = accounts
        .lines()
        .filter_map(|line| line.split(':').nth(5))
        .map(PathBuf::from);
    let own = settings.user_home.as_deref().map(canonical);
    let is_a_persons = |home: &Path| {
        home.starts_with("/root") || home.starts_with("/home") || home.starts_with("/var/home")
    };
    let homes: BTreeSet<PathBuf> = listed
        .filter(|home| {
            is_a_persons(home)
                && !SHARED_DIRECTORIES
                    .iter()
                    .any(|wide| home == Path::new(wide))
        })
        .filter_map(|home| tracked_fs::resolve(&home).ok())
        .filter(|home| tracked_fs::can_read(home) && own.as_ref().is_none_or(|own| own != home))
        .collect();
    homes.into_iter().take(MAX_HOMES).collect()
}

/// Directories that may contain other projects: around the work directories, where servers keep theirs, and at the
/// top of the file system.
pub(super) fn neighbouring_projects(own: &[&PathBuf], homes: &[PathBuf]) -> BTreeSet<PathBuf> {
    let is_wide = |dir: &Path| {
        SHARED_DIRECTORIES.iter().any(|wide| dir == Path::new(wide)) || is_temporary(dir)
    };
    let around = own
        .iter()
        .flat_map(|base| {
            let above = base.ancestors().skip(1).take(2);
            above.take_while(|dir| !is_wide(dir))
        })
        .map(Path::to_owned);
    let shared = SHARED_PROJECTS.iter().map(PathBuf::from);
    around
        .chain(shared.filter(|dir| tracked_fs::is_dir(dir)))
        .chain(other_top_directories())
        .filter(|dir| !homes.iter().any(|home| dir.starts_with(home)))
        .collect()
}
