//! The helper: puts itself into its limits, then becomes the command.
//!
//! It runs between two programs for every command: no configuration, no runtime, no threads. Most commands
//! come from one that waits for them ([`WAIT`]): it limits what it can, once, and for each command makes a
//! copy of itself that does the rest, so that a command does not wait for a program to be loaded.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{ioctl_tiocsctty, setsid};

use super::CONFINE_FAILED;
use super::spec::Spec;

/// Before the limits: what they are for comes later, over standard input.
pub(super) const WAIT: &str = "--wait";

/// What the helper does once the limits are in force.
pub(super) enum Next {
    /// Whoever started it has no use for it any more.
    End,
    /// It becomes the command.
    Become(Command),
    /// It starts the command and stays as the first process of its table: the kernel treats that one
    /// differently.
    #[cfg(target_os = "linux")]
    Start(Command),
}

pub(super) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let (code, why) = match prepare(args) {
        Ok(Next::End) => return ExitCode::SUCCESS,
        Ok(Next::Become(mut command)) => {
            let error = command.exec();
            not_started(&command, &error)
        }
        #[cfg(target_os = "linux")]
        Ok(Next::Start(mut command)) => match command.spawn() {
            Ok(child) => super::fork::end_with(child.id()),
            Err(error) => not_started(&command, &error),
        },
        Err(why) => (
            CONFINE_FAILED,
            format!("the sandbox cannot be set up: {why}"),
        ),
    };
    // There is nobody else to tell.
    let _ = writeln!(std::io::stderr(), "hermes: {why}");
    ExitCode::from(code)
}

/// As a shell would put it.
fn not_started(command: &Command, error: &std::io::Error) -> (u8, String) {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    (
        code,
        format!("{}: {error}", command.get_program().display()),
    )
}

fn prepare(mut args: impl Iterator<Item = OsString>) -> Result<Next, String> {
    let first = args.next().ok_or("no limits given")?;
    if first == WAIT {
        let spec = read_spec(&args.next().ok_or("no limits given")?)?;
        return wait(&spec);
    }
    let spec = read_spec(&first)?;
    if args.next().is_none_or(|mark| mark != "--") {
        return Err("-- is missing after the limits".to_owned());
    }
    let program = args.next().ok_or("no program given")?;
    let mut command = Command::new(program);
    command.args(args);
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    begin(spec.session, spec.terminal)?;
    restrict(&spec)?;
    Ok(Next::Become(command))
}

fn read_spec(json: &OsString) -> Result<Spec, String> {
    serde_json::from_slice(json.as_encoded_bytes()).map_err(|error| error.to_string())
}

#[cfg(target_os = "linux")]
use super::waiting::wait;

#[cfg(not(target_os = "linux"))]
fn wait(_spec: &Spec) -> Result<Next, String> {
    Err("no helper waits on this system".to_owned())
}

pub(super) fn begin(session: bool, terminal: bool) -> Result<(), String> {
    if session {
        // Fails only where it is a leader already, which is what is wanted.
        let _ = setsid();
        adopt();
    }
    if terminal {
        ioctl_tiocsctty(std::io::stdin()).map_err(|error| format!("terminal: {error}"))?;
    }
    Ok(())
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

/// All limits of a command that no helper waits for. It shares the table of processes: what it starts may
/// outlive us, which is what such commands are for.
#[cfg(target_os = "linux")]
fn restrict(spec: &Spec) -> Result<(), String> {
    use super::kernel::{enforce, ruleset};
    use super::room::Room;

    let room = Room::shared(spec)?;
    room.limit(spec)?;
    if let Some(files) = spec.files.clone() {
        let files = if room.is_covered() {
            files.covered()
        } else {
            files.uncovered()
        };
        enforce(ruleset(&files.permissions().rules, spec.network)?)?;
    }
    room.filter()
}

#[cfg(not(target_os = "linux"))]
fn restrict(spec: &Spec) -> Result<(), String> {
    if spec.seccomp || spec.files.is_some() {
        return Err("there is no sandbox for this system".to_owned());
    }
    Ok(())
}
