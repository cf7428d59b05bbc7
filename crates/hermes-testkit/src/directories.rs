//! Where tests put what must not lie among temporary files: those may be written by everybody.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory that is gone after the test and lies in no temporary one, wherever the sources are.
/// `near` is where it would be best, the build's own directory.
pub fn beyond_temporary(near: &str) -> TempDir {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let places = [Some(PathBuf::from(near)), home]
        .into_iter()
        .flatten()
        .chain(["/var/lib", "/srv", "/opt"].map(PathBuf::from));
    for place in places {
        // The build makes its directory when it is first asked for.
        let _ = std::fs::create_dir_all(&place);
        if let Ok(place) = place.canonicalize()
            && !is_temporary(&place)
            && let Ok(dir) = tempfile::Builder::new()
                .prefix("hermes-test-")
                .tempdir_in(&place)
        {
            return dir;
        }
    }
    panic!("no directory outside the temporary ones can be written here")
}

fn is_temporary(place: &Path) -> bool {
    ["/tmp", "/var/tmp", "/dev/shm", "/run"]
        .map(PathBuf::from)
        .into_iter()
        .chain([std::env::temp_dir()])
        .filter_map(|dir| dir.canonicalize().ok())
        .any(|dir| place.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_nowhere_temporary_even_if_the_build_is() {
        let build = tempfile::tempdir().expect("a directory");
        let place = beyond_temporary(&build.path().display().to_string());
        assert!(!is_temporary(place.path()), "{}", place.path().display());
    }
}
