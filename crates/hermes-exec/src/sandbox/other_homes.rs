//! Whose files are to be looked after besides those of the person who runs us.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Settings;
use super::look;
use super::places::{canonical, is_temporary};

/// Directories of other people that are looked at.
const MAX_HOMES: usize = 16;

/// Where projects are kept that belong to nobody's directory.
const SHARED_PROJECTS: &[&str] = &["/srv", "/opt", "/var/www", "/workspaces"];

/// Too wide, or the system's: nobody keeps a project right in there.
const WIDE: &[&str] = &[
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

/// Directories of people whose files this account can read: its own one by the table of accounts, where the
/// variable names another, and those of others.
pub(super) fn other_homes(settings: &Settings) -> Vec<PathBuf> {
    let accounts = look::read_text(Path::new("/etc/passwd")).unwrap_or_default();
    let listed = accounts
        .lines()
        .filter_map(|line| line.split(':').nth(5))
        .map(PathBuf::from);
    let own = settings.user_home.as_deref().map(canonical);
    let is_a_persons = |home: &Path| {
        home.starts_with("/root") || home.starts_with("/home") || home.starts_with("/var/home")
    };
    let homes: BTreeSet<PathBuf> = listed
        .filter(|home| is_a_persons(home) && !WIDE.iter().any(|wide| home == Path::new(wide)))
        .filter_map(|home| look::real(&home).ok())
        .filter(|home| look::can_read(home) && own.as_ref().is_none_or(|own| own != home))
        .collect();
    homes.into_iter().take(MAX_HOMES).collect()
}

/// Directories in which other projects may lie: around those that are worked in, and where servers keep theirs.
pub(super) fn projects_around(own: &[&PathBuf], homes: &[PathBuf]) -> BTreeSet<PathBuf> {
    let is_wide = |dir: &Path| WIDE.iter().any(|wide| dir == Path::new(wide)) || is_temporary(dir);
    let around = own
        .iter()
        .flat_map(|place| {
            let above = place.ancestors().skip(1).take(2);
            above.take_while(|dir| !is_wide(dir))
        })
        .map(Path::to_owned);
    let shared = SHARED_PROJECTS.iter().map(PathBuf::from);
    around
        .chain(shared.filter(|dir| look::is_dir(dir)))
        .filter(|dir| !homes.iter().any(|home| dir.starts_with(home)))
        .collect()
}
