//! Where `hermes-local` is.
//!
//! It lies beside `hermes`: `cargo build` and a release put both there. `cargo run` builds only
//! what it runs, so the second program may have to be built at that moment.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The file's name.
pub const NAME: &str = "hermes-local";

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    There(PathBuf),
    /// This process was started by `cargo run`, which can build it.
    Buildable(Build),
    Missing,
}

/// How to build it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    pub cargo: PathBuf,
    pub args: Vec<OsString>,
    pub dir: PathBuf,
}

/// How to get it, where it is not there.
pub const HOW_TO_GET: &str = "the program hermes-local is missing: it belongs next to hermes. From the source: cargo build \
     --release (it builds both); from an archive: unpack both files into one directory";

/// Looks beside this program, then in `PATH`.
pub fn find() -> Program {
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
) -> Program {
    let beside = exe.and_then(Path::parent).map(|dir| dir.join(NAME));
    let in_path = path
        .into_iter()
        .flat_map(std::env::split_paths)
        // An empty or relative entry would start what lies in the working directory.
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(NAME));
    if let Some(found) = beside.into_iter().chain(in_path).find(|file| runs(file)) {
        return Program::There(found);
    }
    let build = || {
        let (cargo, manifest) = (var("CARGO")?, var("CARGO_MANIFEST_DIR")?);
        build_with(cargo, manifest, exe?)
    };
    build().map_or(Program::Missing, Program::Buildable)
}

/// The command that puts it beside `exe`, which must lie in a target directory of the workspace.
fn build_with(cargo: PathBuf, manifest: PathBuf, exe: &Path) -> Option<Build> {
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
    Some(Build {
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
        assert_eq!(search(Some(&exe), Some(&path), none), Program::Missing);

        // Somebody else's cargo builds something else.
        assert_eq!(search(Some(&exe), Some(&path), cargo), Program::Missing);
        fs::create_dir_all(at("ws/crates/hermes-local")).unwrap();
        fs::write(at("ws/crates/hermes-local/Cargo.toml"), "").unwrap();
        fs::create_dir_all(at("ws/target/release")).unwrap();
        fs::write(at("ws/target/release/.cargo-lock"), "").unwrap();
        let Program::Buildable(build) = search(Some(&exe), Some(&path), cargo) else {
            panic!("it can be built");
        };
        assert!(build.args.contains(&OsString::from("release")));
        assert_eq!(build.args.last(), Some(&at("ws/target").into()));

        fs::create_dir_all(at("bin")).unwrap();
        fs::write(at("bin/hermes-local"), "not a program").unwrap();
        assert_eq!(search(Some(&exe), Some(&path), none), Program::Missing);
        program(&at("bin/hermes-local"));
        let found = search(Some(&exe), Some(&path), none);
        assert_eq!(found, Program::There(at("bin/hermes-local")));
        program(&at("ws/target/release/hermes-local"));
        let found = search(Some(&exe), Some(&path), none);
        assert_eq!(found, Program::There(exe.with_file_name(NAME)));
    }
}
