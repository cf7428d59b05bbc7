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
use crate::local::Settings;
use crate::local::weights::{Weights, stem};

/// What loading may take. A large model is converted once.
pub(super) const READY: Duration = Duration::from_mins(10);
/// How often it is looked what the server says meanwhile.
const LOOK: Duration = Duration::from_millis(250);
/// Most of its words that a message repeats.
const WORDS: usize = 400;
/// So much of the log's end is looked at for them.
const END: u64 = 8_192;
/// A log that is longer begins anew with the next start.
const LOG: u64 = 1_000_000;
/// Begins a line of ours in the log: what stands before it was said by an earlier server.
const MARK: &str = "hermes starts it: ";
/// Another server holds the lock.
const ANOTHER: i32 = 3;

/// What the server may know of this process's environment. Keys are not among it.
const ENVIRONMENT: &[&str] = &["HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ready,
    AnotherLives,
}

pub(super) struct Start<'a> {
    pub program: &'a Path,
    pub settings: &'a Settings,
    pub weights: &'a Weights,
    pub run: &'a Path,
    /// Of everything together, however often it is tried.
    pub deadline: Instant,
}

impl Start<'_> {
    /// Waits until nobody else starts it.
    pub(super) async fn turn(&self, tell: &(dyn Fn(&str) + Sync)) -> Result<FileLock, StartError> {
        let path = self.run.with_extension("starting");
        while Instant::now() < self.deadline {
            match FileLock::try_acquire(&path) {
                Ok(lock) => return Ok(lock),
                Err(LockError::Busy(_)) => {
                    tell(&self.words());
                    tokio::time::sleep(super::LOOK).await;
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

    /// The last line that the server wrote, whoever started it.
    pub(super) fn words(&self) -> String {
        last_words(&self.log())
    }

    /// It was ready, and gone when it was asked, each time.
    pub(super) fn gone(&self, starts: u32) -> StartError {
        let said = said(&self.log());
        StartError::Died(format!(
            "it was started {starts} times and ended each time: {said}"
        ))
    }

    /// Time is up.
    pub(super) fn late(&self) -> StartError {
        let minutes = READY.as_secs() / 60;
        let mut text = format!("it was not ready within {minutes} minutes");
        let words = self.words();
        if !words.is_empty() {
            text = format!("{text}: {words}");
        }
        StartError::Died(text)
    }

    pub(super) async fn go(&self, tell: &(dyn Fn(&str) + Sync)) -> Result<Outcome, StartError> {
        let mut child = self.spawn()?;
        let waited = self.wait(&mut child, tell).await;
        match waited {
            Ok(Outcome::Ready) => {
                // Somebody has to learn of its end, or it stays as a zombie.
                let _detached = task::spawn("end of the local model", async move {
                    if let Ok(status) = child.wait().await {
                        tracing::info!(%status, "the local model's server ended");
                    }
                });
            }
            Ok(Outcome::AnotherLives) => {}
            Err(_) => {
                // It may have ended already.
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
        // To a file, not to us: it outlives this process.
        let words = open_log(&self.log(), self.run)
            .map_err(|error| failed("its log cannot be written", error))?;
        let kept = ENVIRONMENT
            .iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)));
        Command::new(self.program)
            .args(self.arguments())
            .env_clear()
            .envs(kept)
            .current_dir(&self.settings.cache)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(words)
            // Ctrl+C at our terminal is not meant for it: others may use it.
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

    /// Until it says that it is ready, or ends.
    async fn wait(
        &self,
        child: &mut Child,
        tell: &(dyn Fn(&str) + Sync),
    ) -> Result<Outcome, StartError> {
        let mut lines = child
            .stdout
            .take()
            .map(|out| BufReader::new(out).lines())
            .ok_or_else(|| StartError::Refused("its answer cannot be read".to_owned()))?;
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                line = lines.next_line() => match line {
                    Ok(Some(line)) if line.trim() == "ready" => return Ok(Outcome::Ready),
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

/// The log, with a line that says where the words of this server begin. Servers of other settings
/// may write to it, too, so nothing is taken from under them.
fn open_log(log: &Path, run: &Path) -> std::io::Result<File> {
    let mut words = File::options().create(true).append(true).open(log)?;
    if words.metadata()?.len() > LOG {
        words.set_len(0)?;
    }
    writeln!(words, "{MARK}{}", run.display())?;
    Ok(words)
}

fn ended(status: std::io::Result<ExitStatus>, log: &Path) -> Result<Outcome, StartError> {
    let said = said(log);
    match status {
        Ok(status) if status.code() == Some(ANOTHER) => Ok(Outcome::AnotherLives),
        Ok(status) => match status.signal() {
            Some(signal) => Err(StartError::Died(format!("signal {signal}: {said}"))),
            None => Err(StartError::Refused(said)),
        },
        Err(error) => Err(StartError::Died(error.to_string())),
    }
}

/// Its last words, or where to look for more.
fn said(log: &Path) -> String {
    let words = last_words(log);
    if words.is_empty() {
        return format!("see {}", log.display());
    }
    words
}

/// The last line that the server wrote since its start.
fn last_words(log: &Path) -> String {
    let text = end_of(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text
        .lines()
        .rev()
        .take_while(|line| !line.starts_with(MARK))
        .find(|line| !line.trim().is_empty());
    last.unwrap_or_default()
        .trim()
        .chars()
        .take(WORDS)
        .collect()
}

fn end_of(log: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end)?;
    Ok(end)
}
