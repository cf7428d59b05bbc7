//! The main loop of an idle helper.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::process::{Pid, setsid};

use super::confine::{NextStep, start_session};
use super::fork::{ForkResult, fork_sibling};
use super::helper_protocol::{EncodedCommand, HelperReply, HelperRequest, RawRequest};
use super::jail::{Jail, RunningCommands};
use super::prepared_ruleset::PreparedRuleset;
use super::prepared_shell::PreparedShell;
use super::spare_process::{SpareFork, SpareProcess};
use super::spec::HelperSpec;

/// Serves requests. Each command runs in a fork, which returns from here with its next step; the helper itself
/// returns only when it is no longer needed, and kills the commands that still run.
pub(super) fn serve(spec: &HelperSpec) -> Result<NextStep, String> {
    // Not in the requester's session: what is typed there is not for us.
    let _ = setsid();
    // No command may signal the process that starts the next one.
    let mut spec = spec.clone();
    spec.guard.push(std::process::id());
    let socket = std::io::stdin();
    let mut rules = PreparedRuleset::default();
    let mut jail: Option<Jail> = None;
    let mut running = RunningCommands::default();
    let mut spare: Option<SpareProcess> = None;
    // If the requester is gone, there is nobody to report an error to.
    while let Ok(Some(raw)) = RawRequest::receive(&socket) {
        let jail = match &mut jail {
            Some(jail) => jail,
            none => none.insert(Jail::for_helper(&spec, &raw.files)?),
        };
        // A jail cannot be changed; the requester starts another helper.
        if !jail.matches_rules(&raw.files) {
            match HelperReply::default().send(&socket) {
                Ok(()) => continue,
                Err(_) => break,
            }
        }
        let as_before = rules.refresh(&raw.files, spec.network, jail.has_view());
        let assigned = match spare.take() {
            Some(spare) if as_before => spare.assign(&raw),
            Some(spare) => Err(spare.kill()),
            None => Err(0),
        };
        let (fork, discarded) = match assigned {
            Ok(sibling) => (Ok(ForkResult::Helper(sibling)), 0),
            Err(discarded) => (fork_sibling(jail.has_own_processes()), discarded),
        };
        match fork {
            Ok(ForkResult::Helper(sibling)) => running.add(sibling, raw.forbidden.clone()),
            Ok(ForkResult::Copy) => {
                // A command must not run unless the requester knows of it.
                let command = jail.host_pid()?;
                let sent = HelperReply { command, discarded }.send(&socket);
                sent.map_err(|error| format!("no order: {error}"))?;
                let request = raw.accept().map_err(|error| format!("order: {error}"))?;
                restrict(&spec, rules, jail)?;
                return into_next_step(&spec, &request, jail);
            }
            Err(_)
                if (HelperReply {
                    command: 0,
                    discarded,
                })
                .send(&socket)
                .is_ok() => {}
            Err(_) => break,
        }
        // Our copies of its streams are closed: the requester waits for their end.
        let last = raw.into_command();
        // If it cannot be created now, it is created when needed, and the reason is reported then.
        if jail.has_own_processes()
            && let Ok(forked) = SpareProcess::fork(true)
        {
            match forked {
                SpareFork::Helper(forked) => spare = Some(forked),
                SpareFork::Copy(channel) => {
                    let command = jail.host_pid()?;
                    restrict(&spec, rules, jail)?;
                    let Some(request) = wait_for_command(&last, &channel, command)? else {
                        return Ok(NextStep::Exit);
                    };
                    return match request {
                        AssignedCommand::Runs(command) => Ok(NextStep::Supervise(command)),
                        AssignedCommand::Starts(request) => into_next_step(&spec, &request, jail),
                    };
                }
            }
        }
    }
    if let Some(spare) = spare {
        spare.kill();
    }
    running.kill_all(jail.as_ref());
    Ok(NextStep::Exit)
}

/// The command of a spare process.
enum AssignedCommand {
    /// In the shell that was started in advance.
    Runs(Pid),
    Starts(HelperRequest),
}

/// Waits in a spare process, whose limits are in force, until its command arrives; `None`: none will. `last` is the
/// command before it, `own` this process as the requester knows it.
fn wait_for_command(
    last: &EncodedCommand,
    channel: &OwnedFd,
    own: i32,
) -> Result<Option<AssignedCommand>, String> {
    let shell = last.parse().ok().and_then(PreparedShell::start);
    let Ok(Some(raw)) = RawRequest::receive(channel) else {
        return Ok(None);
    };
    let reply = HelperReply {
        command: own,
        discarded: 0,
    };
    let sent = reply.send(std::io::stdin());
    sent.map_err(|error| format!("no order: {error}"))?;
    let request = raw.accept().map_err(|error| format!("order: {error}"))?;
    Ok(Some(match shell.and_then(|shell| shell.run(&request)) {
        Some(command) => AssignedCommand::Runs(command),
        None => AssignedCommand::Starts(request),
    }))
}

/// Applies the limits of a fork.
fn restrict(spec: &HelperSpec, rules: PreparedRuleset, jail: &Jail) -> Result<(), String> {
    jail.mount_proc()?;
    jail.apply_limits(spec)?;
    rules.enforce(jail.own_proc())?;
    jail.install_filters()
}

/// The next step of a fork whose limits are in force.
fn into_next_step(
    spec: &HelperSpec,
    request: &HelperRequest,
    jail: &Jail,
) -> Result<NextStep, String> {
    start_session(spec.session, request.terminal)?;
    if let Some(words) = jail.warning() {
        // Shown before any output of the command.
        let _ = writeln!(std::io::stderr(), "hermes: {words}");
    }
    std::env::set_current_dir(request.cwd.as_ref()).map_err(|error| error.to_string())?;
    let mut command = Command::new(&request.program);
    command.args(&request.args).env_clear();
    command.envs(request.env.iter().map(|(name, value)| (name, value)));
    Ok(if jail.has_own_processes() {
        NextStep::Spawn(command)
    } else if spec.session {
        NextStep::SpawnAndReap(command)
    } else {
        // Without a session the command is not ours to watch.
        NextStep::Exec(command)
    })
}
