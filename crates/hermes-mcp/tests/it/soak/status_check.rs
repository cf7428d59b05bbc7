//! Checks the status against the facts.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_mcp::{BreakerState, McpManager, ReportedState, ServerStatus};

use super::load::CallLog;

/// An answer sent before a server exited may be read slightly later.
const IN_FLIGHT_MARGIN: chrono::Duration = chrono::Duration::seconds(1);
/// How long the load continues during an outage before the status is read.
const OUTAGE_TIME: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(super) struct StatusCheck {
    manager: Arc<McpManager>,
    log: Arc<CallLog>,
}

impl StatusCheck {
    pub(super) fn new(manager: &Arc<McpManager>, log: &Arc<CallLog>) -> Self {
        Self {
            manager: Arc::clone(manager),
            log: Arc::clone(log),
        }
    }

    pub(super) fn now() -> DateTime<Utc> {
        SystemClock.now()
    }

    fn status(&self, name: &str) -> ServerStatus {
        self.manager.server(name).unwrap().status()
    }

    fn wrong(&self, name: &str, what: &str, status: &ServerStatus) {
        let (state, why) = (status.state.name(), &status.why);
        let (ok, error) = (status.last_ok, &status.last_error);
        self.log.wrong_statuses(format!(
            "{name}: {what}: {state} ({why:?}), last ok {ok:?}, last error {error:?}"
        ));
    }

    /// The process exited at `lost`, and is called meanwhile.
    pub(super) async fn is_gone(&self, name: &str, lost: DateTime<Utc>) {
        // Part of the scenario: the outage lasts this long.
        tokio::time::sleep(OUTAGE_TIME).await;
        let status = self.status(name);
        if status
            .last_ok
            .is_some_and(|ok| ok > lost + IN_FLIGHT_MARGIN)
        {
            self.wrong(name, "a success of a dead server", &status);
        }
        if status.state == ReportedState::Ready
            && status.last_error.as_ref().is_some_and(|e| e.at > lost)
        {
            self.wrong(name, "a dead server is ready", &status);
        }
    }

    /// It answered calls again.
    pub(super) fn is_back(&self, name: &str, lost: DateTime<Utc>) {
        let status = self.status(name);
        if !matches!(status.state, ReportedState::Ready | ReportedState::Degraded) {
            self.wrong(name, "it answers and is down", &status);
        }
        if status.last_ok.is_none_or(|ok| ok < lost) {
            self.wrong(name, "it answers and has no success", &status);
        }
        if status.breaker != BreakerState::Closed {
            self.wrong(name, "it answers and the breaker is open", &status);
        }
    }

    /// So that the run continues.
    pub(super) fn reconnect(&self, name: &str) {
        self.manager.server(name).unwrap().reconnect();
    }
}
