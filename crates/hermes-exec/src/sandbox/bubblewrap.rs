//! Confinement by bubblewrap: the file system is bound read-only, writable directories are bound over it, and
//! hidden paths are covered.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use hermes_core::programs::is_own_directory;

use super::rules::FileRules;
use super::spec::HelperSpec;
use crate::confinement::Launch;
use crate::environment::ExecError;

/// The program, if it works here.
pub(super) fn find(path: &OsStr) -> Option<PathBuf> {
    let program = std::env::split_paths(path)
        .filter(|dir| is_own_directory(dir))
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
        stays: true,
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

/// Attempts to set up one command's view.
const ATTEMPTS: usize = 5;

/// Runs bubblewrap until the command has ended. It gives up if a file that it covers vanishes or changes its kind
/// before it gets there, and files come and go at any time: then it is started again with what exists now. It
/// reports an exit code only for a command that it has started, so nothing runs twice.
pub(super) fn run(program: &OsStr, args: Vec<OsString>) -> std::io::Result<ExitStatus> {
    let mut args = args;
    let mut attempt = 1;
    loop {
        let (mut report, writer) = std::io::pipe()?;
        rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty())?;
        let mut child = Command::new(program)
            .arg("--json-status-fd")
            .arg(writer.as_raw_fd().to_string())
            .args(&args)
            .spawn()?;
        drop(writer);
        let mut text = String::new();
        // What cannot be read counts as started.
        let is_read = report.read_to_string(&mut text).is_ok();
        let status = child.wait()?;
        let has_started = status.success() || !is_read || text.contains("\"exit-code\"");
        let current = with_current_covers(&args);
        if has_started || attempt == ATTEMPTS || current == args {
            return Ok(status);
        }
        args = current;
        attempt += 1;
    }
}

/// The same arguments with covers for what exists now.
fn with_current_covers(args: &[OsString]) -> Vec<OsString> {
    let end = args.iter().position(|arg| arg == "--");
    let (ours, command) = args.split_at(end.unwrap_or(args.len()));
    let mut current = Vec::with_capacity(args.len());
    let mut rest = ours;
    while let Some(option) = rest.first() {
        let values = match option.to_str() {
            Some("--ro-bind" | "--bind-try" | "--ro-bind-try") => 2,
            Some("--cap-drop" | "--dev" | "--proc" | "--tmpfs" | "--chdir") => 1,
            _ => 0,
        };
        let (item, after) = rest.split_at(rest.len().min(1 + values));
        match item {
            [option, path] if option == "--tmpfs" => cover(Path::new(path), &mut current),
            [option, from, path] if option == "--ro-bind" && from == "/dev/null" => {
                cover(Path::new(path), &mut current);
            }
            _ => current.extend_from_slice(item),
        }
        rest = after;
    }
    current.extend_from_slice(command);
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_follow_what_exists() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).into_os_string();
        std::fs::write(at("kept"), "").unwrap();
        std::fs::create_dir(at("now-a-directory")).unwrap();
        let os = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let mut args = os(&["--unshare-user", "--ro-bind", "/", "/", "--tmpfs"]);
        args.push(at("gone"));
        for name in ["kept", "gone-too", "now-a-directory"] {
            args.extend(os(&["--ro-bind", "/dev/null"]));
            args.push(at(name));
        }
        args.extend(os(&["--chdir", "/", "--", "x", "--tmpfs", "/gone"]));
        let mut expected = os(&[
            "--unshare-user",
            "--ro-bind",
            "/",
            "/",
            "--ro-bind",
            "/dev/null",
        ]);
        expected.push(at("kept"));
        expected.push("--tmpfs".into());
        expected.push(at("now-a-directory"));
        expected.extend(os(&["--chdir", "/", "--", "x", "--tmpfs", "/gone"]));
        assert_eq!(with_current_covers(&args), expected);
        assert_eq!(with_current_covers(&expected), expected);
    }
}
