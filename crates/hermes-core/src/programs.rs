//! Where Hermes looks for the programs that it runs itself, outside of every sandbox.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// Whether a directory belongs to an active virtual environment (Python, conda, Node). Its project installs
/// programs there, and so can a confined command: Hermes runs nothing from it.
pub fn is_in_environment(dir: &Path) -> bool {
    let mut prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .iter()
        .filter_map(std::env::var_os);
    dir.ends_with("node_modules/.bin")
        || prefixes.any(|prefix| !prefix.is_empty() && dir.starts_with(prefix))
}

/// Whether Hermes runs programs from a directory on the search path. A relative one depends on the working
/// directory, which may be a project.
pub fn is_own_directory(dir: &Path) -> bool {
    dir.is_absolute() && !is_in_environment(dir)
}

/// A search path without the directories from which Hermes runs nothing.
pub fn own_part_of(path: &OsStr) -> OsString {
    let own = std::env::split_paths(path).filter(|dir| is_own_directory(dir));
    // Joining fails only for a name with a separator, and these were split at it.
    let own = std::env::join_paths(own).unwrap_or_default();
    if own.is_empty() {
        "/usr/local/bin:/usr/bin:/bin".into()
    } else {
        own
    }
}

/// The search path of the programs that Hermes runs itself.
pub fn own_search_path() -> OsString {
    own_part_of(&std::env::var_os("PATH").unwrap_or_default())
}

/// A program that Hermes runs itself: it and what it starts are looked for on [`own_search_path`].
pub fn own_program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", own_search_path());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_a_project_fills_are_left_out() {
        let given = OsStr::new("/a/node_modules/.bin:bin:.:/usr/bin::/opt/x/bin");
        assert_eq!(own_part_of(given), "/usr/bin:/opt/x/bin");
        assert_eq!(
            own_part_of(OsStr::new("node_modules/.bin")),
            "/usr/local/bin:/usr/bin:/bin"
        );
        let command = own_program("git");
        let path = command.get_envs().find(|(name, _)| *name == "PATH");
        assert!(path.is_some_and(|(_, value)| value == Some(&own_search_path())));
    }
}
