//! A server and the production manager on one paused runtime.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use hermes_core::clock::Clock;
use hermes_core::task;
use hermes_mcp::{
    CallError, CallOptions, LinkState, McpManager, Op, ServerHandle, ServerSettings, ServerSpec,
    ServerStatus,
};
use hermes_testkit::clock::SeqRng;
use hermes_testkit::mcp_server::combination::Transport;
use hermes_testkit::mcp_server::{FaultyServer, Wire};
use serde_json::{Value, json};

use super::time::{drive, pass, settle};
use crate::fake::TestClock;
use crate::rig::{call, http_target, named};

/// Timeout of a call.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const KEEPALIVE: Duration = Duration::from_secs(30);
/// Longer than any call may take, including the wait for a link.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_mins(2);

/// How one call ended.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) token: String,
    pub(super) result: Option<Result<Value, CallError>>,
}

impl Outcome {
    /// Whether it is reported as executed.
    pub(super) fn is_ok(&self) -> bool {
        matches!(&self.result, Some(Ok(result)) if result["isError"] != true)
    }

    /// A short description.
    pub(super) fn describe(&self) -> String {
        match &self.result {
            None => "hangs".to_owned(),
            Some(Ok(result)) => format!("ok {result}"),
            Some(Err(error)) => format!(
                "{}{}: {}",
                error.class().name(),
                if error.outcome_unknown {
                    " (unknown)"
                } else {
                    ""
                },
                error.failure.text.chars().take(90).collect::<String>()
            ),
        }
    }
}

pub(super) struct Stage {
    pub(super) server: Arc<FaultyServer>,
    pub(super) manager: Arc<McpManager>,
    pub(super) peer: ServerHandle,
    clock: Arc<TestClock>,
    calls: std::cell::Cell<usize>,
}

/// The spec of a server under test.
pub(super) fn spec(
    name: &str,
    server: &FaultyServer,
    change: impl FnOnce(&mut ServerSettings),
) -> ServerSpec {
    let target = http_target(&server.url(), server.url().ends_with("/sse"));
    named(name, &target, |settings| {
        settings.timeout = TIMEOUT;
        settings.max_timeout = ServerSettings::max_timeout(TIMEOUT);
        settings.keepalive_interval = KEEPALIVE;
        change(settings);
    })
}

impl Stage {
    /// Connected, and with one call made. Returns an error if that failed.
    pub(super) async fn set(transport: Transport, seed: u64) -> Result<Self, String> {
        Self::set_with(transport, seed, |_| {}).await
    }

    /// The same with other settings.
    pub(super) async fn set_with(
        transport: Transport,
        seed: u64,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Result<Self, String> {
        let wire = match transport {
            Transport::Http => Wire::Legacy,
            Transport::Sse | Transport::SseEnds => Wire::Sse,
        };
        let server = FaultyServer::start_here(wire).await;
        server.forget_requests();
        let specs = vec![spec("peer", &server, change)];
        let stage = Self::with(server, specs, seed);
        if !stage.is_ready_within(TEST_TIMEOUT).await {
            return Err(format!("never up: {:?}", stage.status()));
        }
        let first = stage.call().await;
        if !first.is_ok() {
            return Err(format!("the call before the loss: {}", first.describe()));
        }
        Ok(stage)
    }

    /// With these specs; calls are made to the one named `peer`.
    pub(super) fn with(server: FaultyServer, specs: Vec<ServerSpec>, seed: u64) -> Self {
        let clock = TestClock::new();
        let clock_of_manager: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let manager = McpManager::start(specs, clock_of_manager, Arc::new(SeqRng::new(seed)));
        let peer = manager.server("peer").unwrap();
        Self {
            server: Arc::new(server),
            manager: Arc::new(manager),
            peer,
            clock,
            calls: std::cell::Cell::new(0),
        }
    }

    pub(super) fn activity(&self) -> impl Fn() -> u64 + use<> {
        let server = Arc::clone(&self.server);
        move || server.activity()
    }

    pub(super) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    pub(super) fn status(&self) -> ServerStatus {
        self.peer.status()
    }

    pub(super) async fn settle(&self) {
        settle(&self.activity()).await;
    }

    pub(super) async fn pass(&self, length: Duration) {
        pass(&self.activity(), length).await;
    }

    /// Waits until it is ready and its listening stream is open.
    pub(super) async fn is_ready_within(&self, limit: Duration) -> bool {
        let peer = self.peer.clone();
        let mut events = self.manager.events();
        let ready = async {
            while peer.connection_status().state != LinkState::Ready {
                // Lagging only means that there are new events.
                let _ = events.recv().await;
            }
        };
        let done = drive(&self.activity(), limit, ready).await.is_some();
        self.settle().await;
        done
    }

    pub(super) async fn op(&self, op: Op) -> Option<Result<Value, CallError>> {
        let (peer, options) = (self.peer.clone(), CallOptions::default());
        let calling = task::spawn("matrix-call", async move { peer.call(op, options).await });
        let result = drive(&self.activity(), TEST_TIMEOUT, calling).await?;
        Some(result.unwrap().unwrap().map(|output| output.result))
    }

    /// One call with an effect.
    pub(super) async fn call(&self) -> Outcome {
        self.calls(1).await.pop().unwrap()
    }

    /// This many at once, each with its own token.
    pub(super) async fn calls(&self, count: usize) -> Vec<Outcome> {
        let first = self.calls.get();
        self.calls.set(first + count);
        let tokens: Vec<String> = (first..first + count).map(|at| format!("t{at}")).collect();
        let calls: Vec<_> = tokens
            .iter()
            .map(|token| {
                let op = call("bump", json!({"token": token}));
                let peer = self.peer.clone();
                task::spawn("matrix-call", async move {
                    peer.call(op, CallOptions::default()).await
                })
            })
            .collect();
        let done = drive(&self.activity(), TEST_TIMEOUT, join_all(calls)).await;
        let Some(done) = done else {
            return tokens
                .into_iter()
                .map(|token| Outcome {
                    token,
                    result: None,
                })
                .collect();
        };
        tokens
            .into_iter()
            .zip(done)
            .map(|(token, result)| Outcome {
                token,
                result: Some(result.unwrap().unwrap().map(|output| output.result)),
            })
            .collect()
    }
}
