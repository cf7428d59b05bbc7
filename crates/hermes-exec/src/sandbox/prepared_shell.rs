//! A bash that a spare process starts in advance, with the environment of the command before: it waits for the text
//! and directory of the next command, which then does not wait for a program to be loaded. A command with another
//! environment gets a new shell.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::fork::{hide_memory, spawn_in_session};
use super::helper_protocol::HelperRequest;
use super::spec::OsBytes;
use crate::shell::{MARK, quote};

/// bash reads the text of a command character by character; a longer one is faster as an argument.
const MAX_TEXT: usize = 32 * 1024;

/// Holds the text of the command until it runs.
const TEXT: &str = "_HERMES_TEXT";

/// Variables that make bash do or set up something when it starts, before there is a command.
const START_VARIABLES: &[&str] = &["BASH_ENV", "SHELLOPTS", "BASHOPTS", "POSIXLY_CORRECT"];

/// Started by the init process of a PID namespace, which holds the streams of the command.
pub(super) struct PreparedShell {
    /// What it was started with, except for the text of the command.
    template: HelperRequest,
    process: Pid,
    text: File,
    /// A byte lets it read the text and open our streams, a second one run the text.
    trigger: PipeWriter,
    /// A byte says that it has opened them.
    ready: PipeReader,
}

impl PreparedShell {
    /// Starts a shell for a request like `template`. `None`: there is no such shell, or it does not start; the
    /// next command then starts its own.
    pub(super) fn start(template: HelperRequest) -> Option<Self> {
        let text = script_text(&template)?;
        let starts_something = |name: &OsBytes| {
            let name = name.as_ref();
            START_VARIABLES.iter().any(|start| name == *start)
        };
        if template.terminal
            || text.len() > MAX_TEXT
            || template.env.iter().any(|(name, _)| starts_something(name))
        {
            return None;
        }
        let (its_trigger, trigger) = std::io::pipe().ok()?;
        let (ready, its_ready) = std::io::pipe().ok()?;
        let text = memfd_create("command", MemfdFlags::empty()).ok()?;
        // The shell inherits them under their numbers; our copies of its ends of the pipes are closed below.
        let (its_trigger, its_ready) = (OwnedFd::from(its_trigger), OwnedFd::from(its_ready));
        for inherited in [&its_trigger, &its_ready] {
            fcntl_setfd(inherited, FdFlags::empty()).ok()?;
        }
        let program = waiting_program([&its_trigger, &its_ready, &text].map(OwnedFd::as_raw_fd));
        let mut bash = Command::new(&template.program);
        bash.args(["-c", &program])
            .env_clear()
            .envs(template.env.iter().map(|(name, value)| (name, value)))
            // Not in the workspace, which can be unmounted or replaced while nothing runs.
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = spawn_in_session(&mut bash).ok()?;
        Some(Self {
            template,
            process,
            text: text.into(),
            trigger,
            ready,
        })
    }

    /// Runs the command in this shell, with our streams, and returns its process id. `None`: this shell does not fit
    /// and is gone; nothing was run.
    pub(super) fn run(mut self, request: &HelperRequest) -> Option<Pid> {
        let done = self.fits(request) && self.send(request).is_some();
        if !done {
            // An error means that it has exited.
            let _ = kill_process(self.process, Signal::KILL);
            let _ = waitpid(Some(self.process), WaitOptions::empty());
        }
        done.then_some(self.process)
    }

    /// Whether it can run the command. This process is then in the directory of the command, which can be entered.
    fn fits(&self, request: &HelperRequest) -> bool {
        !request.terminal
            && request.program == self.template.program
            && fixed_variables(request).eq(fixed_variables(&self.template))
            && std::env::set_current_dir(request.cwd.as_ref()).is_ok()
            && matches!(waitpid(Some(self.process), WaitOptions::NOHANG), Ok(None))
    }

    fn send(&mut self, request: &HelperRequest) -> Option<()> {
        let text = script_text(request).filter(|text| text.len() <= MAX_TEXT)?;
        let OsBytes::Text(cwd) = &request.cwd else {
            return None;
        };
        let old_cwd = match text_of(request, "OLDPWD") {
            Some(old) => format!("OLDPWD={}", quote(old)),
            // As in a new shell.
            None => "unset OLDPWD; export OLDPWD".to_owned(),
        };
        // All in the first line: the lines of the command keep their numbers. `:` sets `$_` as at the start.
        let whole = format!(
            "unset {TEXT}; cd -- {} || exit 126; {old_cwd}; export {MARK}={}; SECONDS=0; : bash; {text}\0",
            quote(cwd),
            quote(text_of(request, MARK)?),
        );
        self.text.write_all_at(whole.as_bytes(), 0).ok()?;
        self.trigger.write_all(b"\n").ok()?;
        self.ready.read_exact(&mut [0]).ok()?;
        // It has opened our streams through this process; the command must not look into it.
        hide_memory();
        self.trigger.write_all(b"\n").ok()
    }
}

/// The streams of the init process, which started the shell.
const INIT: &str = "/proc/1/fd/";

/// Waits for the trigger, opens the streams, and runs the text. Exits at once where it could not open them later.
fn waiting_program([trigger, ready, text]: [i32; 3]) -> String {
    format!(
        "{{ : >{INIT}1; }} || exit 125; read -r -N 1 -u {trigger} {TEXT} || exit 125; \
         IFS= read -r -d '' -u {text} {TEXT}; exec <{INIT}0 >{INIT}1 2>{INIT}2 || exit 125; \
         echo >&{ready}; read -r -N 1 -u {trigger} _ || exit 125; \
         exec {trigger}<&- {ready}>&- {text}<&-; eval \"${TEXT}\""
    )
}

/// The text of a request of the form `program -c text`.
fn script_text(request: &HelperRequest) -> Option<&str> {
    match request.args.as_slice() {
        [OsBytes::Text(option), OsBytes::Text(text)] if option == "-c" => Some(text),
        _ => None,
    }
}

/// The variables that are the same in requests with the same environment.
fn fixed_variables(request: &HelperRequest) -> impl Iterator<Item = &(OsBytes, OsBytes)> {
    let varies = |name: &OsBytes| [MARK, "PWD"].iter().any(|own| name.as_ref() == *own);
    request.env.iter().filter(move |(name, _)| !varies(name))
}

fn text_of<'a>(request: &'a HelperRequest, variable: &str) -> Option<&'a str> {
    let mut variables = request.env.iter();
    match variables.find(|(name, _)| name.as_ref() == variable)? {
        (_, OsBytes::Text(value)) => Some(value),
        _ => None,
    }
}
