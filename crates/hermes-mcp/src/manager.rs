//! Manages all servers of a process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use hermes_core::clock::{Clock, Rng};
use hermes_core::task;
use tokio::sync::broadcast;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::actor::op::{Op, OpOutput};
use crate::actor::resume::{CHECK_INTERVAL, ClockReadings, ResumeDetector, time_since_boot};
use crate::actor::state::status::ServerStatus;
use crate::actor::{
    ActorEnv, ActorTask, CallError, CallOptions, EventKind, McpEvent, ServerHandle, ServerSpec,
};
use crate::failure::{Certainty, FailureClass, McpFailure};

/// Capacity of the event channel; slow subscribers miss events.
const EVENT_CAPACITY: usize = 256;
/// Time for calls of a removed server to finish.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// After a sleep, servers are probed at random times within this period.
const MAX_STAGGER: Duration = Duration::from_secs(3);

/// Owns the actors. Dropping it stops only the clock watch; call [`McpManager::shutdown`] to stop
/// the actors.
pub struct McpManager {
    servers: Arc<Mutex<Servers>>,
    /// Removed servers whose calls may still finish.
    removed: Mutex<Vec<Server>>,
    env: ActorEnv,
    ended: CancellationToken,
}

struct Server {
    handle: ServerHandle,
    spec: ServerSpec,
    task: ActorTask,
}

type Servers = BTreeMap<String, Server>;

impl McpManager {
    /// Starts all servers and returns at once.
    pub fn start(specs: Vec<ServerSpec>, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Self {
        let this = Self {
            servers: Arc::default(),
            removed: Mutex::default(),
            env: ActorEnv {
                clock,
                rng,
                events: broadcast::Sender::new(EVENT_CAPACITY),
            },
            ended: CancellationToken::new(),
        };
        this.apply(specs);
        this.watch_clock();
        this
    }

    /// Applies a config: unchanged servers are not touched, removed ones are stopped.
    pub fn apply(&self, specs: Vec<ServerSpec>) {
        if self.ended.is_cancelled() {
            return;
        }
        let mut servers = lock(&self.servers);
        let mut old = std::mem::take(&mut *servers);
        for spec in specs {
            let name = spec.settings.name.clone();
            if servers.contains_key(&name) {
                tracing::warn!(server = name, "configured twice; the first one counts");
                continue;
            }
            let server = if let Some(mut server) = old.remove(&name) {
                if server.spec.settings != spec.settings {
                    server.handle.apply(spec.clone());
                    server.spec = spec;
                }
                server
            } else {
                let (handle, task) = ServerHandle::start(spec.clone(), self.env.clone());
                Server { handle, spec, task }
            };
            servers.insert(name, server);
        }
        let mut removed = lock(&self.removed);
        removed.retain(|server| !server.task.is_finished());
        for server in old.into_values() {
            server.handle.stop(Instant::now() + DRAIN_TIMEOUT);
            removed.push(server);
        }
    }

    /// Waits until every server is up or has failed once. Returns false after `limit`.
    pub async fn wait_ready(&self, limit: Duration) -> bool {
        let handles = self.servers();
        let all = join_all(handles.iter().map(ServerHandle::settled));
        timeout(limit, all).await.is_ok()
    }

    pub fn server(&self, name: &str) -> Option<ServerHandle> {
        lock(&self.servers).get(name).map(|s| s.handle.clone())
    }

    /// Sorted by name.
    pub fn servers(&self) -> Vec<ServerHandle> {
        lock(&self.servers)
            .values()
            .map(|server| server.handle.clone())
            .collect()
    }

    pub async fn call(
        &self,
        server: &str,
        op: Op,
        options: CallOptions,
    ) -> Result<OpOutput, CallError> {
        let Some(handle) = self.server(server) else {
            return Err(CallError {
                server: server.to_owned(),
                failure: McpFailure::new(
                    FailureClass::Unavailable,
                    Certainty::NotSent,
                    "there is no such server in the config",
                ),
                outcome_unknown: false,
                retried: false,
            });
        };
        handle.call(op, options).await
    }

    pub fn status(&self) -> Vec<ServerStatus> {
        self.servers().iter().map(ServerHandle::status).collect()
    }

    pub fn events(&self) -> broadcast::Receiver<McpEvent> {
        self.env.events.subscribe()
    }

    /// Stops all servers: running calls get half of the time, closing the rest. Servers that still
    /// hang are aborted.
    pub async fn shutdown(&self, limit: Duration) {
        self.ended.cancel();
        let now = Instant::now();
        let servers = std::mem::take(&mut *lock(&self.servers));
        let removed = std::mem::take(&mut *lock(&self.removed));
        let all = servers.into_values().chain(removed);
        let stopping = all.map(|mut server| async move {
            server.handle.stop(now + limit / 2);
            if timeout_at(now + limit, &mut server.task).await.is_err() {
                let server_name = server.handle.name();
                tracing::warn!(server = server_name, "MCP server did not stop in time");
                server.task.abort();
            }
        });
        join_all(stopping).await;
    }

    /// Checks the clocks until shutdown.
    fn watch_clock(&self) {
        let env = self.env.clone();
        let servers = Arc::clone(&self.servers);
        let ended = self.ended.clone();
        task::spawn("mcp-clock", async move {
            let mut detector = ResumeDetector::new(clocks(&env));
            let mut ticks = interval(CHECK_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = ended.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                if let Some(gap) = detector.check(clocks(&env)) {
                    resumed(&lock(&servers), &env, gap);
                }
            }
        });
    }
}

impl Drop for McpManager {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

fn clocks(env: &ActorEnv) -> ClockReadings {
    ClockReadings {
        wall: env.clock.now(),
        monotonic: Instant::now(),
        boot: time_since_boot(),
    }
}

/// Notifies every server, each with its own delay.
fn resumed(servers: &Servers, env: &ActorEnv, gap: Duration) {
    tracing::info!(gap = gap.as_secs(), "the machine slept or its clock jumped");
    for server in servers.values() {
        server
            .handle
            .resumed(gap, MAX_STAGGER.mul_f64(env.rng.unit()));
    }
    // Having no subscribers is fine.
    let _ = env.events.send(McpEvent {
        server: "".into(),
        kind: EventKind::Resumed { gap },
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
