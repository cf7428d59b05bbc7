//! Starting the server and waiting until it is ready.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use hermes_config::fs::{FileLock, LockError};
use hermes_core::task;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::StartError;
use crate::local::LocalModelSettings;
use crate::local::weights::{NamedWeights, stem};

/// Time limit of loading. A large model is converted once.
pub(super) const READY_TIMEOUT: Duration = Duration::from_mins(10);
/// How often the server's output is checked meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum length of its output quoted in a message.
const MAX_MESSAGE_BYTES: usize = 400;
/// How much of the end of the log is searched.
const LOG_TAIL_BYTES: u64 = 8_192;
/// A longer log is truncated at the next start.
const MAX_LOG_BYTES: u64 = 1_000_000;
/// Prefix of our lines in the log: earlier output belongs to a previous server.
const MARK: &str = "hermes starts it: ";
/// Exit code: another server holds the lock.
const EXIT_ALREADY_RUNNING: i32 = 3;

/// Environment variables passed to the server. Keys are not among them.
const ENVIRONMENT: &[&str] = &["HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartOutcome {
    Ready,
    AnotherRunning,
}

pub(super) struct ServerStart<'a> {
    pub program: &'a Path,
    pub settings: &'a LocalModelSettings,
    pub weights: &'a NamedWeights,
    pub run: &'a Path,
    /// Of all attempts together.
    pub deadline: Instant,
}

impl ServerStart<'_> {
    /// Waits until no other process is starting it.
    pub(super) async fn turn(&self, tell: &(dyn Fn(&str) + Sync)) -> Result<FileLock, StartError> {
        let path = self.run.with_extension("starting");
        while Instant::now() < self.deadline {
            match FileLock::try_acquire(&path) {
                Ok(lock) => return Ok(lock),
                Err(LockError::Busy(_)) => {
                    tell(&self.words());
                    tokio::time::sleep(super::POLL_INTERVAL).await;
                }
                Err(error) => return Err(StartError::Setting(error.to_string())),
            }
        }
        Err(self.late())
    }

    fn log(&self) -> PathBuf {
        let name = format!("local-{}.log", stem(&self.weights.path));
        self.settings.logs.join(name)
    }

    /// The last line that the server wrote, whichever process started it.
    pub(super) fn words(&self) -> String {
        last_line_since_start(&self.log())
    }

    /// It was ready, and gone when queried, each time.
    pub(super) fn gone(&self, starts: u32) -> StartError {
        let log_tail = log_tail(&self.log());
        StartError::Died(format!(
            "it was started {starts} times and ended each time: {log_tail}"
        ))
    }

    /// The time is up.
    pub(super) fn late(&self) -> StartError {
        let minutes = READY_TIMEOUT.as_secs() / 60;
        let mut text = format!("it was not ready within {minutes} minutes");
        let words = self.words();
        if !words.is_empty() {
            text = format!("{text}: {words}");
        }
        StartError::Died(text)
    }

    pub(super) async fn go(
        &self,
        tell: &(dyn Fn(&str) + Sync),
    ) -> Result<StartOutcome, StartError> {
        let mut child = self.spawn()?;
        let waited = self.wait(&mut child, tell).await;
        match waited {
            Ok(StartOutcome::Ready) => {
                // The child must be waited for, or it stays as a zombie.
                let _detached = task::spawn("end of the local model", async move {
                    if let Ok(status) = child.wait().await {
                        tracing::info!(%status, "the local model's server ended");
                    }
                });
            }
            Ok(StartOutcome::AnotherRunning) => {}
            Err(_) => {
                // It may have exited already.
                let _ = child.start_kill();
                let _ = child.wait().await;
            }
        }
        waited
    }

    fn spawn(&self) -> Result<Child, StartError> {
        let failed =
            |what: &str, error: std::io::Error| StartError::Refused(format!("{what} ({error})"));
        hermes_config::fs::create_private_dir(&self.settings.logs)
            .map_err(|error| failed("its log cannot be written", error))?;
        // To a file, not to a pipe: it outlives this process.
        let words = open_log(&self.log(), self.run)
            .map_err(|error| failed("its log cannot be written", error))?;
        let passed = ENVIRONMENT
            .iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)));
        Command::new(self.program)
            .args(self.arguments())
            .env_clear()
            .envs(passed)
            .current_dir(&self.settings.cache)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(words)
            // Ctrl+C at our terminal is not meant for it: other processes may use it.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&format!("{} cannot be run", self.program.display()), error))
    }

    fn arguments(&self) -> Vec<OsString> {
        let seconds = |time: Duration| time.as_secs().to_string().into();
        let mut args: Vec<OsString> = vec![
            "serve".into(),
            "--model".into(),
            self.weights.path.clone().into(),
            "--run".into(),
            self.run.into(),
            "--cache".into(),
            self.settings.cache.clone().into(),
            "--context".into(),
            self.settings.context.to_string().into(),
            "--idle".into(),
            seconds(self.settings.idle),
            "--grace".into(),
            seconds(self.settings.grace),
        ];
        if self.settings.threads > 0 {
            args.push("--threads".into());
            args.push(self.settings.threads.to_string().into());
        }
        args
    }

    /// Waits until it reports that it is ready, or exits.
    async fn wait(
        &self,
        child: &mut Child,
        tell: &(dyn Fn(&str) + Sync),
    ) -> Result<StartOutcome, StartError> {
        let mut lines = child
            .stdout
            .take()
            .map(|out| BufReader::new(out).lines())
            .ok_or_else(|| StartError::Refused("its answer cannot be read".to_owned()))?;
        let mut look = tokio::time::interval(POLL_INTERVAL);
        loop {
            tokio::select! {
                line = lines.next_line() => match line {
                    Ok(Some(line)) if line.trim() == "ready" => return Ok(StartOutcome::Ready),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => {
                        let status = child.wait().await;
                        return ended(status, &self.log());
                    }
                },
                _ = look.tick() => tell(&self.words()),
                () = tokio::time::sleep_until(self.deadline) => return Err(self.late()),
            }
        }
    }
}

/// The log, with a line that marks where the output of this server begins. Servers of other
/// settings may write to it, too, so nothing is removed.
fn open_log(log: &Path, run: &Path) -> std::io::Result<File> {
    let mut words = File::options().create(true).append(true).open(log)?;
    if words.metadata()?.len() > MAX_LOG_BYTES {
        words.set_len(0)?;
    }
    writeln!(words, "{MARK}{}", run.display())?;
    Ok(words)
}

fn ended(status: std::io::Result<ExitStatus>, log: &Path) -> Result<StartOutcome, StartError> {
    let log_tail = log_tail(log);
    match status {
        Ok(status) if status.code() == Some(EXIT_ALREADY_RUNNING) => {
            Ok(StartOutcome::AnotherRunning)
        }
        Ok(status) => match status.signal() {
            Some(signal) => Err(StartError::Died(format!("signal {signal}: {log_tail}"))),
            None => Err(StartError::Refused(log_tail)),
        },
        Err(error) => Err(StartError::Died(error.to_string())),
    }
}

/// Its last output, or where to find more.
fn log_tail(log: &Path) -> String {
    let words = last_line_since_start(log);
    if words.is_empty() {
        return format!("see {}", log.display());
    }
    words
}

/// The last line that the server wrote since its start.
fn last_line_since_start(log: &Path) -> String {
    let text = read_tail(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text
        .lines()
        .rev()
        .take_while(|line| !line.starts_with(MARK))
        .find(|line| !line.trim().is_empty());
    last.unwrap_or_default()
        .trim()
        .chars()
        .take(MAX_MESSAGE_BYTES)
        .collect()
}

fn read_tail(log: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut end = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut end)?;
    Ok(end)
}
