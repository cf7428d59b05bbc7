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

pub(super) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let (code, why) = match prepare(args) {
        // Whoever started us has no use for us any more.
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(mut command)) => {
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

fn prepare(mut args: impl Iterator<Item = OsString>) -> Result<Option<Command>, String> {
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
    Ok(Some(command))
}

fn read_spec(json: &OsString) -> Result<Spec, String> {
    serde_json::from_slice(json.as_encoded_bytes()).map_err(|error| error.to_string())
}

/// Waits for commands. Each is a copy of this process, which returns here with what it is to become; the
/// helper itself returns only when it is no longer needed, and takes the commands that still run with it.
#[cfg(target_os = "linux")]
fn wait(spec: &Spec) -> Result<Option<Command>, String> {
    use super::fork::{Side, sibling};
    use super::order::{Letter, answer};
    use super::prepared::Prepared;
    use super::room::{Room, Running};

    // Not in the session of whoever started us: what is typed there is not for us.
    let _ = setsid();
    // No command may stop whoever starts the next.
    let mut spec = spec.clone();
    spec.guard.push(std::process::id());
    let socket = std::io::stdin();
    let mut rules = Prepared::default();
    let mut room: Option<Room> = None;
    let mut running = Running::default();
    // Whoever is gone cannot be told, whether it left in order or was killed.
    while let Ok(Some(letter)) = Letter::receive(&socket) {
        let room = match &mut room {
            Some(room) => room,
            none => none.insert(Room::make(&spec, &letter.files)?),
        };
        // Rooms cannot be rebuilt; whoever asks for another starts another helper.
        let side = if room.is_for(&letter.files) {
            rules.renew(&letter.files, spec.network, room.is_covered());
            sibling(room.has_own_processes())
        } else {
            Err(std::io::ErrorKind::InvalidInput.into())
        };
        match side {
            Ok(Side::Helper(sibling)) => running.add(sibling, letter.awaited),
            Ok(Side::Copy) => {
                // One that nobody knows of must not run.
                answer(&socket, room.own_number()?)
                    .map_err(|error| format!("no order: {error}"))?;
                return become_it(&spec, letter, rules, room).map(Some);
            }
            Err(_) if answer(&socket, 0).is_ok() => {}
            Err(_) => break,
        }
    }
    running.end(room.as_ref());
    Ok(None)
}

#[cfg(not(target_os = "linux"))]
fn wait(_spec: &Spec) -> Result<Option<Command>, String> {
    Err("no helper waits on this system".to_owned())
}

/// What the command may do, and the command.
#[cfg(target_os = "linux")]
fn become_it(
    spec: &Spec,
    letter: super::order::Letter,
    rules: super::prepared::Prepared,
    room: &super::room::Room,
) -> Result<Command, String> {
    let order = letter.open().map_err(|error| format!("order: {error}"))?;
    begin(spec.session, order.terminal)?;
    if let Some(words) = room.warning() {
        // Its reader learns of it before anything else; one that is gone does not.
        let _ = writeln!(std::io::stderr(), "hermes: {words}");
    }
    room.show_processes()?;
    std::env::set_current_dir(order.cwd.as_ref()).map_err(|error| error.to_string())?;
    room.limit(spec)?;
    rules.enforce(room.own_table())?;
    room.filter()?;
    room.stay_as_first()?;
    let mut command = Command::new(&order.program);
    command.args(&order.args).env_clear();
    command.envs(order.env.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

fn begin(session: bool, terminal: bool) -> Result<(), String> {
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
