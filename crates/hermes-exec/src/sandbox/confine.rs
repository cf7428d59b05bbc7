//! The helper: puts itself into its limits, then becomes the command.
//!
//! It runs between two programs for every command: no configuration, no runtime, no threads.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{ioctl_tiocsctty, setsid};

use super::CONFINE_FAILED;
use super::spec::Spec;

pub(super) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let (code, why) = match prepare(args) {
        Ok(mut command) => {
            let program = command.get_program().to_owned();
            let error = command.exec();
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => 127,
                _ => 126,
            };
            (code, format!("{}: {error}", program.display()))
        }
        Err(why) => (
            CONFINE_FAILED,
            format!("the sandbox cannot be set up: {why}"),
        ),
    };
    // There is nobody else to tell.
    let _ = writeln!(std::io::stderr(), "hermes: {why}");
    ExitCode::from(code)
}

fn prepare(mut args: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let spec = args.next().ok_or("no limits given")?;
    let spec: Spec =
        serde_json::from_slice(spec.as_encoded_bytes()).map_err(|error| error.to_string())?;
    if args.next().is_none_or(|mark| mark != "--") {
        return Err("-- is missing after the limits".to_owned());
    }
    let program = args.next().ok_or("no program given")?;
    let mut command = Command::new(program);
    command.args(args);
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    enter(&spec)?;
    Ok(command)
}

fn enter(spec: &Spec) -> Result<(), String> {
    if spec.session {
        // Fails only where it is a leader already, which is what is wanted.
        let _ = setsid();
        adopt();
    }
    if spec.terminal {
        ioctl_tiocsctty(std::io::stdin()).map_err(|error| format!("terminal: {error}"))?;
    }
    restrict(spec)
}

/// Orphans of the command become its children: whoever ends it finds them, also those that left
/// its session and their environment behind.
#[cfg(target_os = "linux")]
fn adopt() {
    // A kernel that cannot still has sessions and marks.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(not(target_os = "linux"))]
fn adopt() {}

#[cfg(target_os = "linux")]
fn restrict(spec: &Spec) -> Result<(), String> {
    use super::{kernel, seccomp};

    if spec.seccomp {
        kernel::limit(spec.limits)?;
    }
    if let Some(files) = &spec.files {
        let files = files.clone();
        // Without covers the rules permit less, never more.
        let files = if files.needs_covers() {
            files.cover().unwrap_or_else(|(files, _)| files)
        } else {
            files
        };
        kernel::restrict(&files, spec.network)?;
    }
    if spec.seccomp {
        kernel::drop_capabilities()?;
        seccomp::install(spec.network, &spec.guard)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn restrict(spec: &Spec) -> Result<(), String> {
    if spec.seccomp || spec.files.is_some() {
        return Err("there is no sandbox for this system".to_owned());
    }
    Ok(())
}
