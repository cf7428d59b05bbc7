//! The helper that waits for commands.

use std::io::Write as _;
use std::process::Command;

use rustix::process::setsid;

use super::confine::{Next, begin};
use super::fork::{Side, sibling};
use super::order::{HelperAnswer, Letter, Order};
use super::prepared::Prepared;
use super::room::{Room, Running};
use super::spare::{Spare, SpareSide};
use super::spec::Spec;

/// Waits for commands. Each is a copy of this process, which returns here with what it is to become; the
/// helper itself returns only when it is no longer needed, and takes the commands that still run with it.
pub(super) fn wait(spec: &Spec) -> Result<Next, String> {
    // Not in the session of whoever started us: what is typed there is not for us.
    let _ = setsid();
    // No command may stop whoever starts the next.
    let mut spec = spec.clone();
    spec.guard.push(std::process::id());
    let socket = std::io::stdin();
    let mut rules = Prepared::default();
    let mut room: Option<Room> = None;
    let mut running = Running::default();
    let mut spare: Option<Spare> = None;
    // Whoever is gone cannot be told, whether it left in order or was killed.
    while let Ok(Some(letter)) = Letter::receive(&socket) {
        let room = match &mut room {
            Some(room) => room,
            none => none.insert(Room::make(&spec, &letter.files)?),
        };
        // Rooms cannot be rebuilt; whoever asks for another starts another helper.
        if !room.is_for(&letter.files) {
            match HelperAnswer::default().send(&socket) {
                Ok(()) => continue,
                Err(_) => break,
            }
        }
        let as_before = rules.renew(&letter.files, spec.network, room.is_covered());
        let taken = match spare.take() {
            Some(spare) if as_before => spare.take(&letter),
            Some(spare) => Err(spare.end()),
            None => Err(0),
        };
        let (side, ended) = match taken {
            Ok(sibling) => (Ok(Side::Helper(sibling)), 0),
            Err(ended) => (sibling(room.has_own_processes()), ended),
        };
        match side {
            Ok(Side::Helper(sibling)) => running.add(sibling, letter.awaited.clone()),
            Ok(Side::Copy) => {
                // One that nobody knows of must not run.
                let command = room.own_number()?;
                let answered = HelperAnswer { command, ended }.send(&socket);
                answered.map_err(|error| format!("no order: {error}"))?;
                let order = letter.open().map_err(|error| format!("order: {error}"))?;
                restrict(&spec, rules, room)?;
                return become_it(&spec, &order, room);
            }
            Err(_) if (HelperAnswer { command: 0, ended }).send(&socket).is_ok() => {}
            Err(_) => break,
        }
        drop(letter);
        // One that cannot be made now is made when it is needed, which tells why it cannot.
        if room.has_own_processes()
            && let Ok(made) = Spare::make(true)
        {
            match made {
                SpareSide::Helper(made) => spare = Some(made),
                SpareSide::Copy(line) => {
                    let command = room.own_number()?;
                    restrict(&spec, rules, room)?;
                    let Ok(Some(letter)) = Letter::receive(&line) else {
                        return Ok(Next::End);
                    };
                    let answered = HelperAnswer { command, ended: 0 }.send(&socket);
                    answered.map_err(|error| format!("no order: {error}"))?;
                    let order = letter.open().map_err(|error| format!("order: {error}"))?;
                    return become_it(&spec, &order, room);
                }
            }
        }
    }
    if let Some(spare) = spare {
        spare.end();
    }
    running.end(room.as_ref());
    Ok(Next::End)
}

/// The limits of a copy, for good.
fn restrict(spec: &Spec, rules: Prepared, room: &Room) -> Result<(), String> {
    room.show_processes()?;
    room.limit(spec)?;
    rules.enforce(room.own_table())?;
    room.filter()
}

/// What a copy in its limits is to become.
fn become_it(spec: &Spec, order: &Order, room: &Room) -> Result<Next, String> {
    begin(spec.session, order.terminal)?;
    if let Some(words) = room.warning() {
        // Its reader learns of it before anything else; one that is gone does not.
        let _ = writeln!(std::io::stderr(), "hermes: {words}");
    }
    std::env::set_current_dir(order.cwd.as_ref()).map_err(|error| error.to_string())?;
    let mut command = Command::new(&order.program);
    command.args(&order.args).env_clear();
    command.envs(order.env.iter().map(|(name, value)| (name, value)));
    Ok(if room.has_own_processes() {
        Next::Start(command)
    } else {
        Next::Become(command)
    })
}
