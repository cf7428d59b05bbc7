//! Connects to a server: the same path for first connections, replacements and retries.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::task;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::retire::close;
use super::shared::ActorState;
use super::tries::ConnectTries;
use crate::actor::op::{Op, OpOutput};
use crate::failure::classify::METHOD_NOT_FOUND;
use crate::failure::{Certainty, FailureClass, McpFailure, format_duration};
use crate::transport::link::{ConnectRequest, Link, LinkCall, LinkEvent, TransportKind};

/// Capacity of the event channel; links drop events that do not fit.
const EVENT_CAPACITY: usize = 64;
/// Maximum number of sessions one try opens while the tool list is refused right after the
/// handshake: the session was lost, or a load balancer sent the request to another process.
const MAX_SESSIONS_PER_TRY: usize = 3;

/// A connected link with its tool list.
pub(super) struct NewConnection {
    pub(super) link: Arc<dyn Link>,
    pub(super) events: mpsc::Receiver<LinkEvent>,
    pub(super) tools: Vec<Value>,
    /// From the first byte to the tool list.
    pub(super) handshake_time: Duration,
}

/// The result of a handshake.
enum ConnectOutcome {
    Ready(NewConnection),
    /// The handshake succeeded, but the server did not list its tools.
    ListFailed(McpFailure),
}

/// The parameters of an attempt.
#[derive(Clone, Copy)]
pub(super) struct AttemptPlan {
    pub(super) epoch: u64,
    /// Failed attempts so far.
    pub(super) failures: u32,
    /// A call waits for this attempt. It gets the full timeout, so that later calls can join it.
    pub(super) for_call: bool,
}

/// One attempt: handshake and tool list within the connect timeout, independent of other servers.
/// It cleans up when cancelled.
///
/// A server that was up before and does not answer in its usual time gets a second, concurrent try.
pub(super) async fn attempt(
    shared: Arc<ActorState>,
    plan: AttemptPlan,
    cancel: CancellationToken,
) -> Result<NewConnection, McpFailure> {
    let usual = usual_time(&shared);
    let time_limit = attempt_timeout(&shared, usual, &plan);
    let deadline = Instant::now() + time_limit;
    let mut tries = ConnectTries::default();
    loop {
        tries.begin(|cancel| {
            let shared = Arc::clone(&shared);
            Box::pin(connect_once(
                shared,
                plan.epoch,
                (deadline, time_limit),
                cancel,
            ))
        });
        let again = Instant::now() + usual.unwrap_or(time_limit);
        tokio::select! {
            biased;
            outcome = tries.outcome() => return outcome,
            () = cancel.cancelled() => {
                tries.cancel().await;
                return Err(attempt_cancelled());
            }
            () = sleep_until(again), if again < deadline => {}
        }
    }
}

/// A remote server that refuses the tool list may have lost the session during the handshake, so
/// the connection is retried, even before concluding that it has no tools.
async fn connect_once(
    shared: Arc<ActorState>,
    epoch: u64,
    times: (Instant, Duration),
    cancel: CancellationToken,
) -> Result<NewConnection, McpFailure> {
    let remote = shared.settings().transport != TransportKind::Stdio;
    let mut left = if remote { MAX_SESSIONS_PER_TRY } else { 1 };
    loop {
        left -= 1;
        let (shared, again) = (Arc::clone(&shared), cancel.clone());
        match connect(shared, epoch, times, again, left == 0).await? {
            ConnectOutcome::Ready(connection) => return Ok(connection),
            ConnectOutcome::ListFailed(failure)
                if left > 0 && may_work_in_new_session(&failure) => {}
            ConnectOutcome::ListFailed(failure) => return Err(failure),
        }
    }
}

/// `allow_empty`: whether a refused list means that there are no tools.
async fn connect(
    shared: Arc<ActorState>,
    epoch: u64,
    (deadline, time_limit): (Instant, Duration),
    cancel: CancellationToken,
    allow_empty: bool,
) -> Result<ConnectOutcome, McpFailure> {
    let started = Instant::now();
    let (events_in, events) = mpsc::channel(EVENT_CAPACITY);
    let connector = shared.connector();
    let request = ConnectRequest {
        epoch,
        deadline,
        cancel: cancel.clone(),
        events: events_in,
    };
    let timed_out = |what: &str| {
        McpFailure::new(
            FailureClass::TimedOut,
            Certainty::NotSent,
            format!("{what} within {}", format_duration(time_limit)),
        )
    };
    let link = tokio::select! {
        made = timeout_at(deadline, connector.connect(request)) => {
            made.unwrap_or_else(|_| Err(timed_out("no connection")))?
        }
        () = cancel.cancelled() => return Err(attempt_cancelled()),
    };
    let unused = UnusedLink(Some(Arc::clone(&link)));
    let listed = tokio::select! {
        listed = timeout_at(deadline, list_tools(&*link, deadline, &cancel, allow_empty)) => {
            listed.unwrap_or_else(|_| Err(timed_out("no answer")))
        }
        why = link.closed() => Err(why),
        () = cancel.cancelled() => Err(attempt_cancelled()),
    };
    unused.keep();
    match listed {
        Ok(tools) => Ok(ConnectOutcome::Ready(NewConnection {
            link,
            events,
            tools,
            handshake_time: started.elapsed(),
        })),
        Err(mut failure) => {
            close(&*link).await;
            failure.text = format!("connected, but no list of tools: {}", failure.text);
            Ok(ConnectOutcome::ListFailed(failure))
        }
    }
}

/// Closes a new link if the future that waits for it is dropped.
struct UnusedLink(Option<Arc<dyn Link>>);

impl UnusedLink {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for UnusedLink {
    fn drop(&mut self) {
        if let Some(link) = self.0.take()
            && Handle::try_current().is_ok()
        {
            drop(task::spawn("mcp-discard", async move {
                close(&*link).await;
            }));
        }
    }
}

/// The usual connect time of a remote server, if known. `None` for child processes: there must
/// never be two, so they get no second try.
fn usual_time(shared: &ActorState) -> Option<Duration> {
    const MIN_USUAL: Duration = Duration::from_secs(3);
    const MAX_USUAL: Duration = Duration::from_secs(15);
    if shared.settings().transport == TransportKind::Stdio {
        return None;
    }
    let known = shared.catalogue.borrow();
    let took = known.as_ref()?.facts.handshake;
    let usual = took.saturating_mul(10).clamp(MIN_USUAL, MAX_USUAL);
    Some(usual.max(took.saturating_mul(2)))
}

/// The timeout of an attempt. A child may have to be downloaded first. A server that was up before
/// should answer about as fast; it gets twice the time with each failure in case it became slower,
/// and the full timeout when a call waits.
fn attempt_timeout(shared: &ActorState, usual: Option<Duration>, plan: &AttemptPlan) -> Duration {
    let connect_timeout = shared.settings().connect_timeout;
    let usual = usual.filter(|_| !plan.for_call);
    let usual = usual.map(|usual| usual.saturating_mul(1 << plan.failures.min(10)));
    usual.map_or(connect_timeout, |usual| usual.min(connect_timeout))
}

/// The tools; empty if the server has no such capability. With `allow_empty`, also if it declares
/// the capability and refuses the list.
pub(super) async fn list_tools(
    link: &dyn Link,
    deadline: Instant,
    cancel: &CancellationToken,
    allow_empty: bool,
) -> Result<Vec<Value>, McpFailure> {
    let capabilities = &link.facts().capabilities;
    let undeclared = capabilities
        .as_object()
        .is_none_or(serde_json::Map::is_empty);
    if !undeclared && !has_capability(link, "tools") {
        return Ok(Vec::new());
    }
    match fetch_list(link, &Op::ListTools, "tools", deadline, cancel).await {
        Err(failure)
            if allow_empty
                && (is_unknown_list(&failure)
                    || undeclared && failure.rpc_code == Some(METHOD_NOT_FOUND)) =>
        {
            Ok(Vec::new())
        }
        listed => listed,
    }
}

/// Whether listing may succeed in a new session. Rate limits and missing logins need something
/// else.
fn may_work_in_new_session(failure: &McpFailure) -> bool {
    use FailureClass as C;
    if failure.class == C::SessionLost || is_unknown_list(failure) {
        return true;
    }
    let refused = failure
        .http_status
        .is_some_and(|status| (400..500).contains(&status));
    let other_reason = matches!(
        failure.class,
        C::Throttled | C::NeedsAuth | C::AuthExpired | C::ScopeNeeded
    );
    refused && !other_reason
}

/// With an HTTP status it is an ordinary refusal.
fn is_unknown_list(failure: &McpFailure) -> bool {
    failure.rpc_code == Some(METHOD_NOT_FOUND) && failure.http_status.is_none()
}

pub(super) fn has_capability(link: &dyn Link, capability: &str) -> bool {
    let found = link.facts().capabilities.get(capability);
    found.is_some_and(|value| !value.is_null())
}

/// Fetches one list.
pub(super) async fn fetch_list(
    link: &dyn Link,
    op: &Op,
    key: &str,
    deadline: Instant,
    cancel: &CancellationToken,
) -> Result<Vec<Value>, McpFailure> {
    let call = LinkCall {
        deadline,
        cancel: cancel.clone(),
        progress: None,
        origin: None,
        slot: None,
    };
    let OpOutput { mut result } = link.request(op, call).await?;
    match result.get_mut(key).map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        _ => Err(McpFailure::new(
            FailureClass::Rpc,
            Certainty::Rejected,
            format!("the answer to {} has no list {key:?}", op.name()),
        )),
    }
}

fn attempt_cancelled() -> McpFailure {
    McpFailure::new(
        FailureClass::Cancelled,
        Certainty::NotSent,
        "the attempt was given up",
    )
}
