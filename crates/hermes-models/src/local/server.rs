//! One server for all processes of this user: found, started, held, looked at.
//!
//! A server that runs says in a file of its own how it is reached, and holds a lock beside it.
//! Whoever uses it holds a lease, an open connection: when the last one is gone the server ends by
//! itself, so that nothing is left behind, however a process ended. Starting is serialised by
//! another lock.

mod held;
mod run_file;
mod start;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hermes_http::HttpSettings;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::Settings;
use super::program::{self, Program};
use super::pull::hex;
use super::weights::Weights;

pub use held::Held;
use run_file::RunFile;
use start::{Outcome, Start};

/// What one question to a server may take: it answers from memory.
const ASK: Duration = Duration::from_secs(2);
/// How often it is looked whether somebody else is done starting.
const LOOK: Duration = Duration::from_millis(50);
/// A server that was ready and says nothing for so long hangs.
const SILENT: Duration = Duration::from_mins(1);
/// So often it is started for one call. More than once: it may be gone before it is joined.
const STARTS: u32 = 3;

/// There is no server to talk to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("{}", program::HOW_TO_GET)]
    NoProgram,
    #[error(
        "the weights of {name} are not on this machine ({} is missing); fetch them: hermes model local pull {name}",
        .path.display()
    )]
    NoWeights { name: String, path: PathBuf },
    #[error("the local model did not start: {0}")]
    Refused(String),
    /// It ended by a signal, or was not ready in time.
    #[error("the local model did not start: {0}")]
    Died(String),
    #[error(
        "the local model's server (pid {pid}) is there and does not answer; end it: kill -9 {pid}"
    )]
    Silent { pid: i32 },
    #[error("{0}")]
    Setting(String),
}

/// What a running server says of itself.
#[derive(Clone, Debug, PartialEq, Deserialize, serde::Serialize)]
pub struct Running {
    /// No other program on that port says both.
    pub status: String,
    pub model: String,
    #[serde(default)]
    pub pid: i32,
    #[serde(default)]
    pub file: PathBuf,
    #[serde(default)]
    pub rss_bytes: Option<u64>,
    #[serde(default)]
    pub prefill_tokens_per_second: Option<f64>,
    #[serde(default)]
    pub decode_tokens_per_second: Option<f64>,
    #[serde(default)]
    pub requests: u64,
    #[serde(default)]
    pub idle_seconds: f64,
    #[serde(default)]
    pub leases: u64,
}

/// The server of one model, as this process sees it.
pub struct Service {
    settings: Settings,
    weights: Weights,
    http: reqwest::Client,
    held: Mutex<Option<Arc<Held>>>,
}

impl Service {
    pub fn new(settings: Settings, weights: Weights) -> Result<Self, StartError> {
        Ok(Self {
            settings,
            weights,
            http: plain()?,
            held: Mutex::default(),
        })
    }

    /// The server, started if need be. `tell` hears what goes on meanwhile.
    pub async fn ensure(&self, tell: &(dyn Fn(&str) + Sync)) -> Result<Arc<Held>, StartError> {
        if let Some(held) = self.known() {
            return Ok(held);
        }
        let run = run_file(&self.settings, &self.weights);
        if let Some(held) = self.join(&run).await {
            return Ok(held);
        }
        if !self.weights.is_there() {
            return Err(StartError::NoWeights {
                name: self.weights.name.clone(),
                path: self.weights.path.clone(),
            });
        }
        let Program::There(program) = program::find() else {
            return Err(StartError::NoProgram);
        };
        hermes_config::fs::create_private_dir(&self.settings.run)
            .and_then(|()| hermes_config::fs::create_private_dir(&self.settings.cache))
            .map_err(|error| StartError::Setting(format!("nothing can be kept: {error}")))?;
        let start = Start {
            program: &program,
            settings: &self.settings,
            weights: &self.weights,
            run: &run,
            deadline: Instant::now() + start::READY,
        };
        self.started(&start, tell).await
    }

    /// The server that somebody is starting, or one of our own.
    async fn started(
        &self,
        start: &Start<'_>,
        tell: &(dyn Fn(&str) + Sync),
    ) -> Result<Arc<Held>, StartError> {
        let _turn = start.turn(tell).await?;
        let mut starts = 0;
        let mut silent_from = None;
        while Instant::now() < start.deadline {
            if let Some(held) = self.join(start.run).await {
                return Ok(held);
            }
            if run_file::is_held(start.run) {
                // Who started it is gone, and it still loads; or it ends; or it hangs.
                silent_from = match RunFile::of_living(start.run) {
                    Some(written) => Some(still_silent(silent_from, written.pid)?),
                    None => None,
                };
                tell(&start.words());
                tokio::time::sleep(LOOK).await;
            } else if starts < STARTS {
                starts += 1;
                silent_from = None;
                if start.go(tell).await? == Outcome::AnotherLives {
                    tokio::time::sleep(LOOK).await;
                }
            } else {
                return Err(start.gone(starts));
            }
        }
        Err(start.late())
    }

    fn known(&self) -> Option<Arc<Held>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone().filter(|held| held.lives())
    }

    /// The server that runs already.
    async fn join(&self, run: &Path) -> Option<Arc<Held>> {
        if let Some(held) = self.known() {
            return Some(held);
        }
        let written = RunFile::of_living(run)?;
        let held = Arc::new(Held::take(&self.http, &written).await?);
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&held));
        Some(held)
    }
}

/// Since when a server that was ready says nothing; an error once that is too long.
fn still_silent(since: Option<Instant>, pid: i32) -> Result<Instant, StartError> {
    let since = since.unwrap_or_else(Instant::now);
    if since.elapsed() > SILENT {
        return Err(StartError::Silent { pid });
    }
    Ok(since)
}

/// A client for loopback only.
fn plain() -> Result<reqwest::Client, StartError> {
    let settings = HttpSettings {
        connect_timeout: ASK,
        ..HttpSettings::default()
    };
    hermes_http::client(&settings).map_err(|error| StartError::Setting(error.to_string()))
}

/// Where the server of these weights, with these settings, says how it is reached.
fn run_file(settings: &Settings, weights: &Weights) -> PathBuf {
    let what = format!(
        "{}\n{}\n{}",
        weights.path.display(),
        settings.context,
        settings.threads
    );
    let sum = Sha256::digest(what.as_bytes());
    settings.run.join(format!("local-{}.json", hex(&sum[..6])))
}

/// The servers that run now and answer.
pub async fn running(settings: &Settings) -> Vec<Running> {
    let Ok(http) = plain() else {
        return Vec::new();
    };
    let files = std::fs::read_dir(&settings.run).into_iter().flatten();
    let mut found = Vec::new();
    for file in files.filter_map(Result::ok) {
        let path = file.path();
        let ours = file.file_name().to_string_lossy().starts_with("local-");
        if ours
            && path.extension().is_some_and(|ending| ending == "json")
            && let Some(written) = RunFile::of_living(&path)
            && let Some(health) = health(&http, &written).await
        {
            found.push(health);
        }
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    found
}

async fn health(http: &reqwest::Client, written: &RunFile) -> Option<Running> {
    let asked = http
        .get(written.url("/health"))
        .bearer_auth(written.token().expose_secret())
        .timeout(ASK)
        .send()
        .await
        .ok()?;
    if !asked.status().is_success() {
        return None;
    }
    let mut health: Running = serde_json::from_slice(&asked.bytes().await.ok()?).ok()?;
    health.pid = written.pid;
    health.file.clone_from(&written.model);
    Some(health)
}

/// Ends a server that was just seen to run.
pub fn stop(server: &Running) {
    if let Some(pid) = rustix::process::Pid::from_raw(server.pid)
        && let Err(error) = rustix::process::kill_process(pid, rustix::process::Signal::TERM)
    {
        tracing::debug!(%error, "the local model's server was gone already");
    }
}
