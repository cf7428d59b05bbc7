//! Runs the server from start to shutdown.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::{Clock, SystemClock};
use hermes_core::task;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::chat::{ServerState, router};
use super::lifetime::{ServerLifetime, ShutdownReason};
use super::listen;
use super::queue::RequestQueue;
use super::run_file::{RunFileError, RunFileLock};
use super::stats::ServerStats;
use super::worker::{self, WorkerError};
use crate::engine::ModelFacts;
use crate::generation::ModelOpener;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct LocalServerSettings {
    /// The model's file as shown to clients.
    pub model: PathBuf,
    /// Where clients find the server.
    pub run: PathBuf,
    pub idle: Duration,
    pub grace: Duration,
}

/// Why there is no server (any more).
#[derive(Debug, thiserror::Error)]
pub enum ServerExit {
    #[error("{0}")]
    Taken(String),
    #[error("{0}")]
    Failed(String),
}

impl From<RunFileError> for ServerExit {
    fn from(error: RunFileError) -> Self {
        match error {
            RunFileError::Taken(_) => Self::Taken(error.to_string()),
            RunFileError::Io { .. } => Self::Failed(error.to_string()),
        }
    }
}

impl From<WorkerError> for ServerExit {
    fn from(error: WorkerError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Serves until it is no longer needed. `ready` is called once clients can find the server.
pub async fn serve(
    settings: LocalServerSettings,
    open: ModelOpener,
    ready: impl FnOnce(),
) -> Result<ShutdownReason, ServerExit> {
    let mut signals = Signals::new()?;
    let mut run_file = RunFileLock::lock(&settings.run)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(|error| {
        ServerExit::Failed(format!("no port of 127.0.0.1 can be listened on: {error}"))
    })?;
    let port = listener
        .local_addr()
        .map_err(|error| ServerExit::Failed(format!("the port is not known: {error}")))?
        .port();
    let queue = Arc::new(RequestQueue::default());
    let stats = Arc::new(ServerStats::default());
    let worker = worker::start(open, Arc::clone(&queue), Arc::clone(&stats))?;
    let facts = tokio::select! {
        facts = worker.ready => facts,
        () = signals.any() => return Ok(ShutdownReason::Signal),
    };
    let lost = || ServerExit::Failed("the model's thread ended by an error inside".to_owned());
    let facts = facts.map_err(|_| lost())??;
    let cancel = CancellationToken::new();
    let lifetime = ServerLifetime::new(settings.idle, settings.grace);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let app = Arc::new(ServerState {
        token: token(),
        port,
        model: wire_name(&settings.model),
        facts,
        started: clock.now().timestamp(),
        queue: Arc::clone(&queue),
        stats,
        lifetime: Arc::clone(&lifetime),
        clock,
        cancel: cancel.clone(),
    });
    run_file.write(&announcement(&app, &settings.model, &app.facts))?;
    task::spawn("server", listen::run(listener, router(app), cancel.clone()));
    ready();
    let ended = tokio::select! {
        reason = lifetime.wait_for_shutdown() => Ok(reason),
        () = signals.any() => Ok(ShutdownReason::Signal),
        ended = worker.ended => match ended {
            Ok(Ok(())) => Ok(ShutdownReason::Signal),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(lost()),
        },
    };
    // From here on no client finds the server; then existing ones are disconnected.
    drop(run_file);
    cancel.cancel();
    queue.close();
    ended
}

fn announcement(app: &ServerState, model: &Path, facts: &ModelFacts) -> serde_json::Value {
    json!({
        "pid": std::process::id(),
        "started": app.started,
        "port": app.port,
        "token": app.token,
        "model": model,
        "name": facts.name,
        "id": app.model,
        "context": facts.context,
        "version": env!("CARGO_PKG_VERSION"),
    })
}

/// The file name without its extension: chosen by the user, unlike the name inside the file.
fn wire_name(model: &Path) -> String {
    let name = model.file_stem().unwrap_or(model.as_os_str());
    name.to_string_lossy().into_owned()
}

fn token() -> String {
    format!(
        "{:032x}{:032x}",
        rand::random::<u128>(),
        rand::random::<u128>()
    )
}

/// Signals that shut down the server. A closed terminal does not: other clients may use the server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    _hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, ServerExit> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| ServerExit::Failed(format!("signals cannot be heard: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            _hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
