//! Starting the server and waiting until it is ready.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use hermes_core::task;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::StartError;
use crate::local::Settings;
use crate::local::weights::{Weights, stem};

/// What loading may take. A large model is converted once.
const READY: Duration = Duration::from_mins(10);
/// How often it is looked what the server says meanwhile.
const LOOK: Duration = Duration::from_millis(250);
/// Most of its words that a message repeats.
const WORDS: usize = 400;
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
}

impl Start<'_> {
    pub(super) async fn go(&self, tell: &(dyn Fn(&str) + Sync)) -> Result<Outcome, StartError> {
        let log = self
            .settings
            .logs
            .join(format!("local-{}.log", stem(&self.weights.path)));
        let mut child = self.spawn(&log)?;
        let waited = self.wait(&mut child, &log, tell).await;
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

    fn spawn(&self, log: &Path) -> Result<Child, StartError> {
        let failed =
            |what: &str, error: std::io::Error| StartError::Refused(format!("{what} ({error})"));
        hermes_config::fs::create_private_dir(&self.settings.logs)
            .map_err(|error| failed("its log cannot be written", error))?;
        // To a file, not to us: it outlives this process.
        let words =
            File::create(log).map_err(|error| failed("its log cannot be written", error))?;
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
        log: &Path,
        tell: &(dyn Fn(&str) + Sync),
    ) -> Result<Outcome, StartError> {
        let mut lines = child
            .stdout
            .take()
            .map(|out| BufReader::new(out).lines())
            .ok_or_else(|| StartError::Refused("its answer cannot be read".to_owned()))?;
        let deadline = Instant::now() + READY;
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                line = lines.next_line() => match line {
                    Ok(Some(line)) if line.trim() == "ready" => return Ok(Outcome::Ready),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => {
                        let status = child.wait().await;
                        return ended(status, log);
                    }
                },
                _ = look.tick() => tell(&last_words(log)),
                () = tokio::time::sleep_until(deadline) => {
                    let minutes = READY.as_secs() / 60;
                    return Err(StartError::Died(format!("it was not ready within {minutes} minutes")));
                }
            }
        }
    }
}

fn ended(status: std::io::Result<ExitStatus>, log: &Path) -> Result<Outcome, StartError> {
    let words = last_words(log);
    let said = if words.is_empty() {
        format!("see {}", log.display())
    } else {
        words
    };
    match status {
        Ok(status) if status.code() == Some(ANOTHER) => Ok(Outcome::AnotherLives),
        Ok(status) => match status.signal() {
            Some(signal) => Err(StartError::Died(format!("signal {signal}: {said}"))),
            None => Err(StartError::Refused(said)),
        },
        Err(error) => Err(StartError::Died(error.to_string())),
    }
}

/// The last line that the server wrote.
fn last_words(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or_default()
        .trim()
        .chars()
        .take(WORDS)
        .collect()
}
