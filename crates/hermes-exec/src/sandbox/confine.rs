//! The helper: applies the limits to itself, then becomes the command.
//!
//! It runs for every command, so it has no configuration, runtime or threads. Most commands are started by an
//! idle helper ([`WAIT`]): it applies what it can once and forks for each command, so that a command does not
//! wait for a binary to be loaded.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

#[cfg(target_os = "linux")]
use rustix::process::Pid;
use rustix::process::{ioctl_tiocsctty, setsid};

use super::CONFINE_FAILED;
#[cfg(target_os = "linux")]
use super::fork::exit_like;
use super::spec::HelperSpec;

/// Precedes the spec: commands follow over standard input.
pub(super) const WAIT: &str = "--wait";

/// What the helper does once the limits are in force.
pub(super) enum NextStep {
    /// It is no longer needed.
    Exit,
    /// Becomes the command.
    Exec(Command),
    /// Stays as the parent of bubblewrap.
    Stay {
        program: OsString,
        args: Vec<OsString>,
    },
    /// Spawns the command and stays as init of its PID namespace, because the kernel treats init differently.
    #[cfg(target_os = "linux")]
    Spawn(Command),
    /// The same without a PID namespace: it stays as the parent of the command's orphans and kills them at its end.
    #[cfg(target_os = "linux")]
    SpawnAndReap(Command),
    /// Stays as init for a command that already runs.
    #[cfg(target_os = "linux")]
    Supervise(Pid),
}

pub(super) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let (code, why) = match prepare(args) {
        Ok(NextStep::Exit) => return ExitCode::SUCCESS,
        Ok(NextStep::Exec(mut command)) => {
            let error = command.exec();
            start_error(&command, &error)
        }
        Ok(NextStep::Stay { program, args }) => match super::bubblewrap::run(&program, args) {
            Ok(status) => return exit_as(status),
            Err(error) => start_error(&Command::new(program), &error),
        },
        #[cfg(target_os = "linux")]
        Ok(NextStep::Spawn(mut command)) => match command.spawn() {
            Ok(child) => exit_like(Pid::from_child(&child)),
            Err(error) => start_error(&command, &error),
        },
        #[cfg(target_os = "linux")]
        Ok(NextStep::SpawnAndReap(mut command)) => match command.spawn() {
            Ok(child) => super::fork::exit_without_orphans(Pid::from_child(&child)),
            Err(error) => start_error(&command, &error),
        },
        #[cfg(target_os = "linux")]
        Ok(NextStep::Supervise(command)) => exit_like(command),
        Err(why) => (
            CONFINE_FAILED,
            format!("the sandbox cannot be set up: {why}"),
        ),
    };
    // There is nowhere else to report it.
    let _ = writeln!(std::io::stderr(), "hermes: {why}");
    ExitCode::from(code)
}

/// As a shell reports it.
fn exit_as(status: std::process::ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;

    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Exit code and message as a shell would report them.
fn start_error(command: &Command, error: &std::io::Error) -> (u8, String) {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    (
        code,
        format!("{}: {error}", command.get_program().display()),
    )
}

fn prepare(mut args: impl Iterator<Item = OsString>) -> Result<NextStep, String> {
    let first = args.next().ok_or("no limits given")?;
    if first == WAIT {
        let spec = read_spec(&args.next().ok_or("no limits given")?)?;
        return serve(&spec);
    }
    let spec = read_spec(&first)?;
    if args.next().is_none_or(|mark| mark != "--") {
        return Err("-- is missing after the limits".to_owned());
    }
    let program = args.next().ok_or("no program given")?;
    if spec.stays {
        start_session(spec.session, spec.terminal)?;
        let args = args.collect();
        return Ok(NextStep::Stay { program, args });
    }
    let mut command = Command::new(program);
    command.args(args);
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    start_session(spec.session, spec.terminal)?;
    apply_all_limits(&spec)?;
    Ok(NextStep::Exec(command))
}

fn read_spec(json: &OsString) -> Result<HelperSpec, String> {
    serde_json::from_slice(json.as_encoded_bytes()).map_err(|error| error.to_string())
}

#[cfg(target_os = "linux")]
use super::helper_loop::serve;

#[cfg(not(target_os = "linux"))]
fn serve(_spec: &HelperSpec) -> Result<NextStep, String> {
    Err("no helper waits on this system".to_owned())
}

pub(super) fn start_session(session: bool, terminal: bool) -> Result<(), String> {
    if session {
        // Fails only if this is a session leader already, which is the goal.
        let _ = setsid();
        become_subreaper();
    }
    if terminal {
        ioctl_tiocsctty(std::io::stdin()).map_err(|error| format!("terminal: {error}"))?;
    }
    Ok(())
}

/// Orphans of the command become its children, so that they are found and killed even if they left its session
/// and environment.
#[cfg(target_os = "linux")]
fn become_subreaper() {
    // Older kernels still have sessions and marks.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

#[cfg(not(target_os = "linux"))]
fn become_subreaper() {}

/// Applies all limits of a command that is started without an idle helper. It shares the PID namespace: what it
/// starts may outlive us, as intended for such commands.
#[cfg(target_os = "linux")]
fn apply_all_limits(spec: &HelperSpec) -> Result<(), String> {
    use super::jail::Jail;
    use super::kernel::{enforce, ruleset};

    let jail = Jail::for_single_command(spec)?;
    jail.apply_limits(spec)?;
    if let Some(files) = spec.files.clone() {
        let files = if jail.has_view() {
            files.for_view()
        } else {
            files.without_view()
        };
        enforce(ruleset(&files.resolve().rules, spec.network)?)?;
    }
    jail.install_filters()
}

#[cfg(not(target_os = "linux"))]
fn apply_all_limits(spec: &HelperSpec) -> Result<(), String> {
    if spec.seccomp || spec.files.is_some() {
        return Err("there is no sandbox for this system".to_owned());
    }
    Ok(())
}
