//! Confinement by bubblewrap: the file system is bound read-only, writable directories are bound over it, and
//! hidden paths are covered.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::rules::FileRules;
use super::spec::HelperSpec;
use crate::confinement::Launch;
use crate::environment::ExecError;

/// The program, if it works here.
pub(super) fn find(path: &OsStr) -> Option<PathBuf> {
    let program = std::env::split_paths(path)
        .map(|dir| dir.join("bwrap"))
        .find(|file| file.is_file())?;
    let works = Command::new(&program)
        .args(["--ro-bind", "/", "/", "--unshare-user", "--unshare-pid"])
        .args(["--proc", "/proc", "--", "/bin/true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    works.then_some(program)
}

/// The path of our binary that is also valid inside.
pub(super) fn helper_path(given: Option<&Path>) -> Result<PathBuf, ExecError> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe().map_err(ExecError::io("finding our own program"))?,
    };
    if path.exists() {
        Ok(path)
    } else {
        let why = format!("{} is gone; start hermes again", path.display());
        Err(ExecError::Sandbox(why))
    }
}

/// Helper (session, terminal) → bwrap → helper (limits, system calls) → command.
pub(super) fn wrap(
    launch: Launch,
    mut spec: HelperSpec,
    bwrap: &Path,
    helper: &Path,
) -> Result<Launch, ExecError> {
    let files = spec
        .files
        .take()
        .ok_or_else(|| ExecError::Sandbox("no rules for files".to_owned()))?;
    let outer = HelperSpec {
        session: spec.session,
        terminal: spec.terminal,
        ..HelperSpec::default()
    };
    spec.session = false;
    spec.terminal = false;
    // Inside there is a separate PID namespace.
    spec.guard.clear();
    // Its mount view already exists.
    spec.expects_view = false;
    let mut args = flags(&files, &launch.cwd, spec.network);
    args.push("--".into());
    args.push(helper.into());
    args.extend(spec.arguments());
    args.push(launch.program);
    args.extend(launch.args);
    let inner = Launch {
        program: bwrap.into(),
        args,
        ..launch
    };
    Ok(outer.wrap(inner, helper))
}

fn flags(files: &FileRules, cwd: &Path, network: bool) -> Vec<OsString> {
    let mut args: Vec<OsString> = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--cap-drop",
        "ALL",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
    ]
    .map(OsString::from)
    .to_vec();
    if !network {
        args.push("--unshare-net".into());
    }
    // What was removed since it was found needs no mount, and must not stop the command.
    let mut bind = |how: &str, path: &Path| {
        args.extend([how.into(), path.into(), path.into()]);
    };
    for path in &files.writable {
        bind("--bind-try", path);
    }
    for path in files.read_only.iter().chain(&files.movable) {
        bind("--ro-bind-try", path);
    }
    for private in &files.private {
        cover_home(private, files, &mut args);
    }
    for path in files.unreadable.iter().chain(&files.hidden) {
        cover(path, &mut args);
    }
    for path in files.readable.iter().filter(|path| path.exists()) {
        args.extend(["--ro-bind-try".into(), path.into(), path.into()]);
    }
    args.extend(["--chdir".into(), cwd.into()]);
    args
}

/// Covers a home with an empty directory and binds its shared entries again.
fn cover_home(private: &super::paths::PrivateDir, files: &FileRules, args: &mut Vec<OsString>) {
    if !private.dir.is_dir() {
        return;
    }
    args.extend(["--tmpfs".into(), (&private.dir).into()]);
    let shared = private.shared.iter().map(|name| private.dir.join(name));
    for path in shared.filter(|path| path.symlink_metadata().is_ok_and(|data| !data.is_symlink())) {
        args.extend(["--ro-bind-try".into(), (&path).into(), (&path).into()]);
    }
    for base in &files.writable {
        if base.starts_with(&private.dir) {
            args.extend(["--bind-try".into(), base.into(), base.into()]);
        }
    }
}

fn cover(path: &Path, args: &mut Vec<OsString>) {
    let Ok(metadata) = path.metadata() else {
        return;
    };
    if metadata.is_dir() {
        args.extend(["--tmpfs".into(), path.into()]);
    } else {
        args.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]);
    }
}
