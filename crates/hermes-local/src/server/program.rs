//! The server from its start to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::{Clock, SystemClock};
use hermes_core::task;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::chat::{App, router};
use super::life::{Life, Reason};
use super::listen;
use super::queue::Queue;
use super::run_file::{LockError, RunFile};
use super::stats::Stats;
use super::worker::{self, WorkerError};
use crate::engine::Facts;
use crate::talk::Open;

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The model's file, as others are told.
    pub model: PathBuf,
    /// Where others find the server.
    pub run: PathBuf,
    pub idle: Duration,
    pub grace: Duration,
}

/// Why there is no server (any more).
#[derive(Debug, thiserror::Error)]
pub enum Exit {
    #[error("{0}")]
    Taken(String),
    #[error("{0}")]
    Failed(String),
}

impl From<LockError> for Exit {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Taken(_) => Self::Taken(error.to_string()),
            LockError::Io { .. } => Self::Failed(error.to_string()),
        }
    }
}

impl From<WorkerError> for Exit {
    fn from(error: WorkerError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Serves until nobody needs it any more. `ready` is called once others can find the server.
pub async fn serve(settings: Settings, open: Open, ready: impl FnOnce()) -> Result<Reason, Exit> {
    let mut signals = Signals::new()?;
    let mut run_file = RunFile::lock(&settings.run)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(|error| {
        Exit::Failed(format!("no port of 127.0.0.1 can be listened on: {error}"))
    })?;
    let port = listener
        .local_addr()
        .map_err(|error| Exit::Failed(format!("the port is not known: {error}")))?
        .port();
    let queue = Arc::new(Queue::default());
    let stats = Arc::new(Stats::default());
    let worker = worker::start(open, Arc::clone(&queue), Arc::clone(&stats))?;
    let facts = tokio::select! {
        facts = worker.ready => facts,
        () = signals.any() => return Ok(Reason::Signal),
    };
    let lost = || Exit::Failed("the model's thread ended by an error inside".to_owned());
    let facts = facts.map_err(|_| lost())??;
    let cancel = CancellationToken::new();
    let life = Life::new(settings.idle, settings.grace);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let app = Arc::new(App {
        token: token(),
        port,
        model: wire_name(&settings.model),
        facts,
        started: clock.now().timestamp(),
        queue: Arc::clone(&queue),
        stats,
        life: Arc::clone(&life),
        clock,
        cancel: cancel.clone(),
    });
    run_file.write(&announcement(&app, &settings.model, &app.facts))?;
    task::spawn("server", listen::run(listener, router(app), cancel.clone()));
    ready();
    let ended = tokio::select! {
        reason = life.over() => Ok(reason),
        () = signals.any() => Ok(Reason::Signal),
        ended = worker.ended => match ended {
            Ok(Ok(())) => Ok(Reason::Signal),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(lost()),
        },
    };
    // From here on nobody finds the server; then those who are there are let go.
    drop(run_file);
    cancel.cancel();
    queue.close();
    ended
}

fn announcement(app: &App, model: &Path, facts: &Facts) -> serde_json::Value {
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

/// The file's name without its ending: what a person chose, unlike the name inside the file.
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

/// Signals that end the server. A terminal that closes does not: others may use the server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    _hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, Exit> {
        let listen = |kind| {
            signal(kind).map_err(|error| Exit::Failed(format!("signals cannot be heard: {error}")))
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
