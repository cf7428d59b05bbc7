//! One server for all processes of this user: discovery, start, leases, status.
//!
//! A running server publishes its address in a file and holds a lock next to it. Every client holds
//! a lease, an open connection: when the last one is closed the server exits by itself, so that
//! nothing is left behind, however a process ended. Starting is serialised by another lock.

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

use super::LocalModelSettings;
use super::program::{self, LocalProgram};
use super::pull::hex;
use super::weights::NamedWeights;

pub(crate) use held::ServerLease;
use run_file::ServerRunFile;
use start::{ServerStart, StartOutcome};

/// Timeout of one request to a server: it answers from memory.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How often to check whether another process has finished starting it.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A server that was ready and does not answer for this long hangs.
const HANG_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum starts for one call. More than once: it may exit before it is joined.
const MAX_STARTS: u32 = 3;

/// No server is available.
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
        "the local model's server (pid {pid}) is running but does not answer; end it: kill -9 {pid}"
    )]
    Silent { pid: i32 },
    #[error("{0}")]
    Setting(String),
}

/// What a running server reports about itself.
#[derive(Clone, Debug, PartialEq, Deserialize, serde::Serialize)]
pub struct RunningServer {
    /// No other program on that port reports both.
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

/// The server of one model, from the view of this process.
pub struct LocalService {
    settings: LocalModelSettings,
    weights: NamedWeights,
    http: reqwest::Client,
    held: Mutex<Option<Arc<ServerLease>>>,
}

impl LocalService {
    pub fn new(settings: LocalModelSettings, weights: NamedWeights) -> Result<Self, StartError> {
        Ok(Self {
            settings,
            weights,
            http: loopback_client()?,
            held: Mutex::default(),
        })
    }

    /// The server, started if necessary. `tell` receives progress messages.
    pub async fn ensure(
        &self,
        tell: &(dyn Fn(&str) + Sync),
    ) -> Result<Arc<ServerLease>, StartError> {
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
        let LocalProgram::Found(program) = program::find() else {
            return Err(StartError::NoProgram);
        };
        hermes_config::fs::create_private_dir(&self.settings.run)
            .and_then(|()| hermes_config::fs::create_private_dir(&self.settings.cache))
            .map_err(|error| StartError::Setting(format!("nothing can be stored: {error}")))?;
        let start = ServerStart {
            program: &program,
            settings: &self.settings,
            weights: &self.weights,
            run: &run,
            deadline: Instant::now() + start::READY_TIMEOUT,
        };
        self.started(&start, tell).await
    }

    /// The server that another process is starting, or one of our own.
    async fn started(
        &self,
        start: &ServerStart<'_>,
        tell: &(dyn Fn(&str) + Sync),
    ) -> Result<Arc<ServerLease>, StartError> {
        let _turn = start.turn(tell).await?;
        let mut starts = 0;
        let mut silent_from = None;
        while Instant::now() < start.deadline {
            if let Some(held) = self.join(start.run).await {
                return Ok(held);
            }
            if run_file::is_held(start.run) {
                // Its starter is gone and it is still loading; or it is exiting; or it hangs.
                silent_from = match ServerRunFile::read_of_running(start.run) {
                    Some(written) => Some(still_silent(silent_from, written.pid)?),
                    None => None,
                };
                tell(&start.words());
                tokio::time::sleep(POLL_INTERVAL).await;
            } else if starts < MAX_STARTS {
                starts += 1;
                silent_from = None;
                if start.go(tell).await? == StartOutcome::AnotherRunning {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            } else {
                return Err(start.gone(starts));
            }
        }
        Err(start.late())
    }

    fn known(&self) -> Option<Arc<ServerLease>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone().filter(|held| held.lives())
    }

    /// The server that already runs.
    async fn join(&self, run: &Path) -> Option<Arc<ServerLease>> {
        if let Some(held) = self.known() {
            return Some(held);
        }
        let written = ServerRunFile::read_of_running(run)?;
        let held = Arc::new(ServerLease::take(&self.http, &written).await?);
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&held));
        Some(held)
    }
}

/// How long a server that was ready has been silent; an error once that is too long.
fn still_silent(since: Option<Instant>, pid: i32) -> Result<Instant, StartError> {
    let since = since.unwrap_or_else(Instant::now);
    if since.elapsed() > HANG_TIMEOUT {
        return Err(StartError::Silent { pid });
    }
    Ok(since)
}

/// A client for loopback only.
fn loopback_client() -> Result<reqwest::Client, StartError> {
    let settings = HttpSettings {
        connect_timeout: REQUEST_TIMEOUT,
        ..HttpSettings::default()
    };
    hermes_http::client(&settings).map_err(|error| StartError::Setting(error.to_string()))
}

/// The file in which the server of these weights and settings publishes its address.
fn run_file(settings: &LocalModelSettings, weights: &NamedWeights) -> PathBuf {
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
pub async fn running(settings: &LocalModelSettings) -> Vec<RunningServer> {
    let Ok(http) = loopback_client() else {
        return Vec::new();
    };
    let files = std::fs::read_dir(&settings.run).into_iter().flatten();
    let mut found = Vec::new();
    for file in files.filter_map(Result::ok) {
        let path = file.path();
        let ours = file.file_name().to_string_lossy().starts_with("local-");
        if ours
            && path.extension().is_some_and(|ending| ending == "json")
            && let Some(written) = ServerRunFile::read_of_running(&path)
            && let Some(health) = health(&http, &written).await
        {
            found.push(health);
        }
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    found
}

async fn health(http: &reqwest::Client, written: &ServerRunFile) -> Option<RunningServer> {
    let asked = http
        .get(written.url("/health"))
        .bearer_auth(written.token().expose_secret())
        .timeout(REQUEST_TIMEOUT)
        .send()
        .await
        .ok()?;
    if !asked.status().is_success() {
        return None;
    }
    let mut health: RunningServer = serde_json::from_slice(&asked.bytes().await.ok()?).ok()?;
    health.pid = written.pid;
    health.file.clone_from(&written.model);
    Some(health)
}

/// Stops a server that was just seen running.
pub fn stop(server: &RunningServer) {
    if let Some(pid) = rustix::process::Pid::from_raw(server.pid)
        && let Err(error) = rustix::process::kill_process(pid, rustix::process::Signal::TERM)
    {
        tracing::debug!(%error, "the local model's server was gone already");
    }
}
