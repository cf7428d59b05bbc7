//! Commands in the terminals of another program (an editor).
//!
//! The program starts `hermes __hosted FILE -- COMMAND`, which reads from the file what to start, with which
//! environment and limits, so that a command has the same ones wherever it runs. We hold a lock on the file: when
//! it is released, because the call ended or this process died, the command is killed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use hermes_core::command_host::{CommandHostError, HostedCall, HostedCommand, HostedEnd};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group, set_child_subreaper};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::foreground::{DRAIN, RunLimits};
use super::process_tree::{ProcessTree, kill_descendants};
use crate::confinement::Launch;
use crate::environment::{ExecError, OutputSink, OutputStream, ProcessExit};

/// First argument that turns our binary into the process that a terminal of another program runs.
pub const HOSTED: &str = "__hosted";

/// Output that the program has to keep for us.
const OUTPUT_LIMIT: u64 = 1024 * 1024;

/// What follows the command in the arguments is shown to people only.
const MAX_TITLE: usize = 200;

#[derive(Serialize, Deserialize)]
struct HostedLaunch {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
}

/// The command's side in our process.
pub(super) struct HostedRun<'a> {
    pub(super) launch: Launch,
    pub(super) call: &'a HostedCall,
    /// The command as the user knows it.
    pub(super) title: &'a str,
    /// A directory that only we can write to.
    pub(super) dir: &'a Path,
    pub(super) mark: &'a str,
}

/// Runs a command there. `None`: the program does not run it, and nothing was started.
pub(super) async fn follow(
    run: HostedRun<'_>,
    limits: &RunLimits,
    sink: &mut dyn OutputSink,
) -> Result<Option<ProcessExit>, ExecError> {
    let could_not = || ExecError::io("the command could not be handed to the editor");
    let program = std::env::current_exe().map_err(could_not())?;
    let launch = run.dir.join(format!("launch-{}", run.mark));
    // Dropped at the end of the call, which ends whatever still runs.
    let lock = write_launch(&launch, &run.launch).map_err(could_not())?;
    let title: String = run.title.chars().take(MAX_TITLE).collect();
    let args = [HOSTED, &launch.to_string_lossy(), "--", &title];
    let command = HostedCommand {
        call_id: run.call.call_id.clone(),
        program,
        args: args.map(str::to_owned).to_vec(),
        cwd: run.launch.cwd.clone(),
        output_limit: OUTPUT_LIMIT,
    };
    let (ended, stopped) = wait(run.call, command, limits).await;
    drop(lock);
    // If it cannot be removed, the next start does it.
    let _ = std::fs::remove_file(&launch);
    if stopped.is_some() || ended.is_err() {
        // If the editor killed our program, what it started carries the mark of the call.
        ProcessTree::marked(run.mark).terminate(limits.grace).await;
    }
    let ended = match ended {
        Ok(ended) => ended,
        Err(CommandHostError::Refused(why)) => {
            tracing::info!("the editor does not run the command, so it runs here: {why}");
            return Ok(None);
        }
        Err(CommandHostError::Lost(why)) => {
            return Err(ExecError::Unavailable(format!(
                "the editor's terminal did not report how the command ended: {why}"
            )));
        }
    };
    if ended.truncated {
        sink.push(OutputStream::Out, b"[the beginning was dropped]\n");
    }
    sink.push(OutputStream::Out, ended.output.as_bytes());
    Ok(Some(stopped.unwrap_or_else(|| exit_of(&ended))))
}

/// Waits for the end, and whether the command had to be stopped for it.
async fn wait(
    call: &HostedCall,
    command: HostedCommand,
    limits: &RunLimits,
) -> (Result<HostedEnd, CommandHostError>, Option<ProcessExit>) {
    let stop = CancellationToken::new();
    let running = call.host.run(command, stop.clone());
    let deadline = tokio::time::sleep(limits.timeout);
    tokio::pin!(running, deadline);
    let stopped = tokio::select! {
        biased;
        ended = &mut running => return (ended, None),
        () = limits.cancel.cancelled() => ProcessExit::Interrupted,
        () = &mut deadline => ProcessExit::TimedOut,
    };
    stop.cancel();
    (running.await, Some(stopped))
}

fn exit_of(ended: &HostedEnd) -> ProcessExit {
    match (ended.exit_code, ended.signal.as_deref()) {
        (Some(code), _) => ProcessExit::Code(code),
        (None, Some(name)) => ProcessExit::Signal(signal_number(name)),
        (None, None) => ProcessExit::Code(0),
    }
}

/// Protocols name signals; which one it was matters little beyond KILL and TERM.
fn signal_number(name: &str) -> i32 {
    let name = name.trim().to_ascii_uppercase();
    let number = match name.strip_prefix("SIG").unwrap_or(&name) {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "QUIT" => Signal::QUIT,
        "ABRT" => Signal::ABORT,
        "SEGV" => Signal::SEGV,
        "PIPE" => Signal::PIPE,
        "KILL" => Signal::KILL,
        other => return other.parse().unwrap_or(Signal::TERM.as_raw()),
    };
    number.as_raw()
}

fn write_launch(path: &Path, launch: &Launch) -> io::Result<File> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    let stored = HostedLaunch {
        program: launch.program.clone(),
        args: launch.args.clone(),
        env: launch.env.clone().into_iter().collect(),
        cwd: launch.cwd.clone(),
    };
    file.write_all(&serde_json::to_vec(&stored)?)?;
    file.flush()?;
    Ok(file)
}

/// Entry point in the other program's terminal; `args` follows [`HOSTED`].
pub fn hosted_main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let ended = args
        .next()
        .ok_or_else(|| io::Error::other("no file given"))
        .and_then(|path| run_launch(Path::new(&path)));
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // There is nowhere else to report it.
            let _ = writeln!(io::stderr(), "hermes: the command was not started: {error}");
            ExitCode::from(126)
        }
    }
}

fn run_launch(path: &Path) -> io::Result<u8> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let launch: HostedLaunch = serde_json::from_slice(&text)?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return Err(io::Error::other("the call has ended"));
    }
    // Orphans of the command become ours.
    let is_subreaper = set_child_subreaper(Some(getpid())).is_ok();
    let (mut output, both) = io::pipe()?;
    // Not the terminal: a pager or a question would wait for somebody.
    let mut child = Command::new(&launch.program)
        .args(&launch.args)
        .env_clear()
        .envs(launch.env)
        .current_dir(&launch.cwd)
        .stdin(Stdio::null())
        .stdout(both.try_clone()?)
        .stderr(both)
        .spawn()?;
    let pid = Pid::from_child(&child);
    // Not joined: it ends with this process.
    std::thread::spawn(move || {
        if flock(&file, FlockOperation::LockShared).is_ok() {
            // An error means that there is nothing to kill.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    let copied = std::thread::spawn(move || io::copy(&mut output, &mut io::stdout().lock()));
    let status = child.wait()?;
    if is_subreaper {
        kill_descendants();
    }
    // On older kernels a process that left its session may hold the output longer than the command runs.
    let deadline = std::time::Instant::now() + DRAIN;
    while !copied.is_finished() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name() {
        for (name, number) in [
            ("SIGKILL", 9),
            ("int", 2),
            ("TERM", 15),
            ("11", 11),
            ("?", 15),
        ] {
            assert_eq!(signal_number(name), number, "{name}");
        }
    }
}
