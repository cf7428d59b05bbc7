//! Locating `hermes-local`.
//!
//! It is next to `hermes`: `cargo build` and a release put both there. `cargo run` builds only what
//! it runs, so the second program may have to be built then.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The file's name.
pub const NAME: &str = "hermes-local";

/// The result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalProgram {
    Found(PathBuf),
    /// This process was started by `cargo run`, which can build it.
    Buildable(BuildCommand),
    Missing,
}

/// How to build it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildCommand {
    pub cargo: PathBuf,
    pub args: Vec<OsString>,
    pub dir: PathBuf,
}

/// How to get it if it is missing.
pub const HOW_TO_GET: &str = "the program hermes-local is missing: it belongs next to hermes. From the source: cargo build \
     --release (it builds both); from an archive: unpack both files into one directory";

/// Searches next to this program, then in `PATH`.
pub fn find() -> LocalProgram {
    let exe = std::env::current_exe().ok();
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    search(exe.as_deref(), var("PATH").as_deref(), |name| {
        var(name).map(PathBuf::from)
    })
}

fn search(
    exe: Option<&Path>,
    path: Option<&OsStr>,
    var: impl Fn(&str) -> Option<PathBuf>,
) -> LocalProgram {
    let beside = exe.and_then(Path::parent).map(|dir| dir.join(NAME));
    let in_path = path
        .into_iter()
        .flat_map(std::env::split_paths)
        // An empty or relative entry would run a file of the working directory.
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(NAME));
    if let Some(found) = beside.into_iter().chain(in_path).find(|file| runs(file)) {
        return LocalProgram::Found(found);
    }
    let build = || {
        let (cargo, manifest) = (var("CARGO")?, var("CARGO_MANIFEST_DIR")?);
        build_with(cargo, manifest, exe?)
    };
    build().map_or(LocalProgram::Missing, LocalProgram::Buildable)
}

/// The command that builds it next to `exe`, which must be in a target directory of the workspace.
fn build_with(cargo: PathBuf, manifest: PathBuf, exe: &Path) -> Option<BuildCommand> {
    let own = manifest.parent()?.join(NAME).join("Cargo.toml");
    let profile_dir = exe.parent()?;
    let target = profile_dir.parent()?;
    if !own.is_file() || !profile_dir.join(".cargo-lock").is_file() {
        return None;
    }
    let profile = match profile_dir.file_name()?.to_str()? {
        "debug" => "dev",
        other => other,
    };
    let mut args: Vec<OsString> = ["build", "-p", NAME, "--profile", profile, "--target-dir"]
        .map(OsString::from)
        .to_vec();
    args.push(target.into());
    Some(BuildCommand {
        cargo,
        args,
        dir: manifest,
    })
}

fn runs(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn it_is_beside_us_or_in_the_path_or_can_be_built() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let exe = at("ws/target/release/hermes");
        let path = std::env::join_paths([PathBuf::from("relative"), at("bin")]).unwrap();
        let cargo = |name: &str| match name {
            "CARGO" => Some(PathBuf::from("/opt/cargo")),
            "CARGO_MANIFEST_DIR" => Some(at("ws/crates/hermes-cli")),
            _ => None,
        };
        let none = |_: &str| None;
        assert_eq!(search(Some(&exe), Some(&path), none), LocalProgram::Missing);

        // Somebody else's cargo builds something else.
        assert_eq!(
            search(Some(&exe), Some(&path), cargo),
            LocalProgram::Missing
        );
        fs::create_dir_all(at("ws/crates/hermes-local")).unwrap();
        fs::write(at("ws/crates/hermes-local/Cargo.toml"), "").unwrap();
        fs::create_dir_all(at("ws/target/release")).unwrap();
        fs::write(at("ws/target/release/.cargo-lock"), "").unwrap();
        let LocalProgram::Buildable(build) = search(Some(&exe), Some(&path), cargo) else {
            panic!("it can be built");
        };
        assert!(build.args.contains(&OsString::from("release")));
        assert_eq!(build.args.last(), Some(&at("ws/target").into()));

        fs::create_dir_all(at("bin")).unwrap();
        fs::write(at("bin/hermes-local"), "not a program").unwrap();
        assert_eq!(search(Some(&exe), Some(&path), none), LocalProgram::Missing);
        program(&at("bin/hermes-local"));
        let found = search(Some(&exe), Some(&path), none);
        assert_eq!(found, LocalProgram::Found(at("bin/hermes-local")));
        program(&at("ws/target/release/hermes-local"));
        let found = search(Some(&exe), Some(&path), none);
        assert_eq!(found, LocalProgram::Found(exe.with_file_name(NAME)));
    }
}
