//! `!command`: runs the user's own command in the directory of the conversation. Its output is
//! shown as it arrives and added to the next message to the model.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use hermes_core::event::AgentEvent;
use hermes_core::text::last_bytes;
use hermes_core::tool::ToolErrorKind;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

/// The end of the output that is kept, in bytes.
const MAX_OUTPUT: usize = 64 * 1024;
/// The part of the output for the model.
const MAX_OUTPUT_FOR_MODEL: usize = 8 * 1024;
/// Minimum interval between updates of the screen.
const MIN_UPDATE_INTERVAL: Duration = Duration::from_millis(50);
/// How long to wait for the end of the output after the command has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// A running command.
pub(super) struct ShellCommand {
    command: String,
    id: String,
    child: Child,
    group: Option<Pid>,
    output: tokio::net::unix::pipe::Receiver,
    text: Vec<u8>,
    cut: bool,
    open: bool,
    shown: Option<Instant>,
    started_at: Instant,
    stopped: bool,
}

/// The result of waiting.
pub(super) enum ShellStep {
    Event(AgentEvent),
    Ended { event: AgentEvent, note: String },
}

impl ShellCommand {
    /// Both streams go into one pipe, so that their lines stay in order.
    pub(super) fn start(command: &str, dir: &Path) -> Result<(Self, AgentEvent), String> {
        let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        let failed = |error: std::io::Error| format!("{}: {error}", shell.display());
        let (sender, output) = tokio::net::unix::pipe::pipe().map_err(failed)?;
        let sender = sender.into_blocking_fd().map_err(failed)?;
        let second = sender.try_clone().map_err(failed)?;
        let child = Command::new(&shell)
            .arg("-c")
            .arg(command)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(sender)
            .stderr(second)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let id = format!("shell-{}", child.id().unwrap_or_default());
        let started = AgentEvent::ToolStarted {
            call_id: id.clone(),
            name: "terminal".to_owned(),
            arguments: json!({"command": command}).to_string(),
        };
        let this = Self {
            command: command.to_owned(),
            id,
            child,
            group,
            output,
            text: Vec::new(),
            cut: false,
            open: true,
            shown: None,
            started_at: Instant::now(),
            stopped: false,
        };
        Ok((this, started))
    }

    /// The next thing to show. Nothing is lost when it is dropped.
    pub(super) async fn step(&mut self) -> ShellStep {
        let mut has_unsent_output = false;
        loop {
            let wait = self.shown.map_or(Duration::ZERO, |shown| {
                MIN_UPDATE_INTERVAL.saturating_sub(shown.elapsed())
            });
            tokio::select! {
                read = self.output.read_buf(&mut self.text), if self.open => match read {
                    Ok(1..) => {
                        self.cut_off();
                        has_unsent_output = true;
                    }
                    _ => self.open = false,
                },
                () = tokio::time::sleep(wait), if has_unsent_output => {
                    self.shown = Some(Instant::now());
                    return ShellStep::Event(AgentEvent::ToolProgress {
                        call_id: self.id.clone(),
                        text: self.output_text(),
                    });
                }
                status = self.child.wait() => {
                    let code = status.ok().and_then(|status| status.code());
                    self.drain().await;
                    return self.ended(code);
                }
            }
        }
    }

    fn cut_off(&mut self) {
        if self.text.len() > MAX_OUTPUT {
            let extra = self.text.len() - MAX_OUTPUT;
            self.text.drain(..extra);
            self.cut = true;
        }
    }

    /// The rest of the pipe; a child process may keep it open.
    async fn drain(&mut self) {
        while self.open {
            let read = self.output.read_buf(&mut self.text);
            match tokio::time::timeout(DRAIN_TIMEOUT, read).await {
                Ok(Ok(1..)) => self.cut_off(),
                _ => self.open = false,
            }
        }
    }

    fn output_text(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        if self.cut {
            // The first line is cut somewhere.
            let rest = text.split_once('\n').map_or(&*text, |(_, rest)| rest);
            format!("[earlier output is not shown]\n{rest}")
        } else {
            text.into_owned()
        }
    }

    fn ended(&self, code: Option<i32>) -> ShellStep {
        let output = self.output_text();
        let error = match code {
            Some(0) => None,
            _ if self.stopped => Some(ToolErrorKind::Cancelled),
            _ => Some(ToolErrorKind::Failed),
        };
        let preview = json!({"output": output, "exit_code": code.unwrap_or(-1)});
        let how = match code {
            Some(code) => format!("exit code {code}"),
            None if self.stopped => "stopped".to_owned(),
            None => "ended by a signal".to_owned(),
        };
        ShellStep::Ended {
            note: format!(
                "The person ran this command themselves ({how}):\n$ {}\n{}",
                self.command,
                last_bytes(&output, MAX_OUTPUT_FOR_MODEL)
            ),
            event: AgentEvent::ToolFinished {
                call_id: self.id.clone(),
                name: "terminal".to_owned(),
                error,
                preview: preview.to_string(),
                millis: u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            },
        }
    }

    /// Ends the command and everything it started.
    pub(super) fn kill(&mut self) {
        self.stopped = true;
        if let Some(group) = self.group {
            // It may have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    pub(super) async fn stop(mut self) {
        self.kill();
        let _ = self.child.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(command: &str) -> (Vec<AgentEvent>, String) {
        let dir = tempfile::tempdir().unwrap();
        let (mut shell, started) = ShellCommand::start(command, dir.path()).unwrap();
        let mut events = vec![started];
        loop {
            match shell.step().await {
                ShellStep::Event(event) => events.push(event),
                ShellStep::Ended { event, note } => {
                    events.push(event);
                    return (events, note);
                }
            }
        }
    }

    #[tokio::test]
    async fn output_and_code_are_told() {
        let (events, note) = run("echo one; echo two >&2; exit 3").await;
        let Some(AgentEvent::ToolFinished { preview, error, .. }) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!(*error, Some(ToolErrorKind::Failed));
        assert!(
            preview.contains("one\\ntwo") && preview.contains(":3"),
            "{preview}"
        );
        assert!(
            note.contains("exit code 3") && note.ends_with("one\ntwo\n"),
            "{note}"
        );
    }

    #[tokio::test]
    async fn much_output_is_bounded_and_its_end_is_kept() {
        let (events, note) = run("seq 1 200000").await;
        let Some(AgentEvent::ToolFinished { preview, .. }) = events.last() else {
            panic!("{events:?}")
        };
        assert!(preview.len() < 2 * MAX_OUTPUT && preview.contains("199999\\n200000"));
        assert!(note.len() < MAX_OUTPUT_FOR_MODEL + 200);
    }

    #[tokio::test]
    async fn stopping_ends_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let (mut shell, _) = ShellCommand::start("sleep 600 & sleep 600", dir.path()).unwrap();
        shell.kill();
        loop {
            if let ShellStep::Ended { note, .. } = shell.step().await {
                assert!(note.contains("(stopped)"), "{note}");
                break;
            }
        }
    }
}
