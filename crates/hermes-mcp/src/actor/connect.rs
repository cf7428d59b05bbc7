//! Making a link: the same path for the first one, a new one and a revived one.

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
use super::tries::Tries;
use crate::actor::op::{Op, OpOutput};
use crate::failure::classify::METHOD_NOT_FOUND;
use crate::failure::{Certainty, FailureClass, McpFailure, length};
use crate::transport::link::{ConnectRequest, Link, LinkCall, LinkEvent, TransportKind};

/// Events waiting for the actor. Links drop what does not fit.
const EVENTS: usize = 64;
/// Sessions that one try opens at most, while the list is refused right after each handshake: the
/// session was lost meanwhile, or a load balancer led every question to another process.
const SESSIONS: usize = 3;

/// A link that is up and told what it offers.
pub(super) struct Fresh {
    pub(super) link: Arc<dyn Link>,
    pub(super) events: mpsc::Receiver<LinkEvent>,
    pub(super) tools: Vec<Value>,
    /// How long it took, from the first byte to the list.
    pub(super) took: Duration,
}

/// What a handshake led to.
enum Greeted {
    Ready(Fresh),
    /// It was made, and the server did not list its tools.
    Unlisted(McpFailure),
}

/// Which link an attempt makes, and for whom.
#[derive(Clone, Copy)]
pub(super) struct AttemptPlan {
    pub(super) epoch: u64,
    /// Attempts that failed so far.
    pub(super) failures: u32,
    /// A call waits for it, and others will: it is not given up early, so that the next ones find it
    /// under way.
    pub(super) woken: bool,
}

/// One attempt: handshake and discovery within the connect timeout. Cancelled, it leaves nothing
/// behind. It waits for no other server.
///
/// A server that was up before and does not answer in its usual time is asked once more, beside the
/// questions that are open.
pub(super) async fn attempt(
    shared: Arc<ActorState>,
    plan: AttemptPlan,
    cancel: CancellationToken,
) -> Result<Fresh, McpFailure> {
    let usual = usual(&shared);
    let allowed = allowed(&shared, usual, &plan);
    let deadline = Instant::now() + allowed;
    let mut tries = Tries::default();
    loop {
        tries.begin(|cancel| {
            let shared = Arc::clone(&shared);
            Box::pin(connect_once(
                shared,
                plan.epoch,
                (deadline, allowed),
                cancel,
            ))
        });
        let again = Instant::now() + usual.unwrap_or(allowed);
        tokio::select! {
            biased;
            outcome = tries.outcome() => return outcome,
            () = cancel.cancelled() => {
                tries.cancel().await;
                return Err(given_up());
            }
            () = sleep_until(again), if again < deadline => {}
        }
    }
}

/// A server over the network that refuses the list may have lost the session during the handshake, so
/// it is connected to again, also before it counts as having no tools.
async fn connect_once(
    shared: Arc<ActorState>,
    epoch: u64,
    times: (Instant, Duration),
    cancel: CancellationToken,
) -> Result<Fresh, McpFailure> {
    let remote = shared.settings().transport != TransportKind::Stdio;
    let mut left = if remote { SESSIONS } else { 1 };
    loop {
        left -= 1;
        let (shared, again) = (Arc::clone(&shared), cancel.clone());
        match connect(shared, epoch, times, again, left == 0).await? {
            Greeted::Ready(fresh) => return Ok(fresh),
            Greeted::Unlisted(failure) if left > 0 && is_lost(&failure) => {}
            Greeted::Unlisted(failure) => return Err(failure),
        }
    }
}

/// `may_have_none`: whether it is believed that there are no tools.
async fn connect(
    shared: Arc<ActorState>,
    epoch: u64,
    (deadline, allowed): (Instant, Duration),
    cancel: CancellationToken,
    may_have_none: bool,
) -> Result<Greeted, McpFailure> {
    let started = Instant::now();
    let (events_in, events) = mpsc::channel(EVENTS);
    let connector = shared.connector();
    let request = ConnectRequest {
        epoch,
        deadline,
        cancel: cancel.clone(),
        events: events_in,
    };
    let late = |what: &str| {
        McpFailure::new(
            FailureClass::TimedOut,
            Certainty::NotSent,
            format!("{what} within {}", length(allowed)),
        )
    };
    let link = tokio::select! {
        made = timeout_at(deadline, connector.connect(request)) => {
            made.unwrap_or_else(|_| Err(late("no connection")))?
        }
        () = cancel.cancelled() => return Err(given_up()),
    };
    let unused = UnusedLink(Some(Arc::clone(&link)));
    let listed = tokio::select! {
        listed = timeout_at(deadline, tools(&*link, deadline, &cancel, may_have_none)) => {
            listed.unwrap_or_else(|_| Err(late("no answer")))
        }
        why = link.closed() => Err(why),
        () = cancel.cancelled() => Err(given_up()),
    };
    unused.keep();
    match listed {
        Ok(tools) => Ok(Greeted::Ready(Fresh {
            link,
            events,
            tools,
            took: started.elapsed(),
        })),
        Err(mut failure) => {
            close(&*link).await;
            failure.text = format!("connected, but no list of tools: {}", failure.text);
            Ok(Greeted::Unlisted(failure))
        }
    }
}

/// A link that is not in use yet. Whoever waits for it may go away at any moment; it is closed then.
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

/// The time in which a server over the network is ready, as far as it is known. A child is asked only
/// once: there are never two of them.
fn usual(shared: &ActorState) -> Option<Duration> {
    const SHORTEST: Duration = Duration::from_secs(3);
    const MANY_TIMES: Duration = Duration::from_secs(15);
    if shared.settings().transport == TransportKind::Stdio {
        return None;
    }
    let known = shared.catalogue.borrow();
    let took = known.as_ref()?.facts.handshake;
    let usual = took.saturating_mul(10).clamp(SHORTEST, MANY_TIMES);
    Some(usual.max(took.saturating_mul(2)))
}

/// How long an attempt may take. A child may have to be fetched first; a server that was up before
/// answers about as fast as then. It gets twice the time with each failure, for it may have become
/// slower, and all of it where a call waits.
fn allowed(shared: &ActorState, usual: Option<Duration>, plan: &AttemptPlan) -> Duration {
    let longest = shared.settings().connect_timeout;
    let usual = usual.filter(|_| !plan.woken);
    let usual = usual.map(|usual| usual.saturating_mul(1 << plan.failures.min(10)));
    usual.map_or(longest, |usual| usual.min(longest))
}

/// The tools; none where the server offers none. Some offer tools and have none, which is believed if
/// `may_have_none`.
pub(super) async fn tools(
    link: &dyn Link,
    deadline: Instant,
    cancel: &CancellationToken,
    may_have_none: bool,
) -> Result<Vec<Value>, McpFailure> {
    let capabilities = &link.facts().capabilities;
    let silent = capabilities
        .as_object()
        .is_none_or(serde_json::Map::is_empty);
    if !silent && !offers(link, "tools") {
        return Ok(Vec::new());
    }
    match list(link, &Op::ListTools, "tools", deadline, cancel).await {
        Err(failure)
            if may_have_none
                && (is_unknown_list(&failure)
                    || silent && failure.rpc_code == Some(METHOD_NOT_FOUND)) =>
        {
            Ok(Vec::new())
        }
        listed => listed,
    }
}

/// Whether a list that failed like this may come in another session. Waiting or a login is what rate
/// limits and missing tokens need.
fn is_lost(failure: &McpFailure) -> bool {
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

/// With a status of its own it is a refusal like any other.
fn is_unknown_list(failure: &McpFailure) -> bool {
    failure.rpc_code == Some(METHOD_NOT_FOUND) && failure.http_status.is_none()
}

pub(super) fn offers(link: &dyn Link, capability: &str) -> bool {
    let found = link.facts().capabilities.get(capability);
    found.is_some_and(|value| !value.is_null())
}

/// One list, as an array.
pub(super) async fn list(
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
        behalf: None,
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

fn given_up() -> McpFailure {
    McpFailure::new(
        FailureClass::Cancelled,
        Certainty::NotSent,
        "the attempt was given up",
    )
}
