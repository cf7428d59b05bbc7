//! Making a link: the same path for the first one, a new one and a revived one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::retire::close;
use super::shared::Shared;
use crate::classify::METHOD_NOT_FOUND;
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::link::{Call, ConnectRequest, Link, LinkEvent, TransportKind};
use crate::op::{Op, OpOutput};

/// Events waiting for the actor. Links drop what does not fit.
const EVENTS: usize = 64;

/// A link that is up and told what it offers.
pub(super) struct Fresh {
    pub(super) link: Arc<dyn Link>,
    pub(super) events: mpsc::Receiver<LinkEvent>,
    pub(super) tools: Vec<Value>,
}

/// One attempt: handshake and discovery within the connect timeout. Cancelled, it leaves nothing
/// behind. It waits for no other server.
pub(super) async fn attempt(
    shared: Arc<Shared>,
    (epoch, failures): (u64, u32),
    cancel: CancellationToken,
) -> Result<Fresh, McpFailure> {
    let allowed = allowed(&shared, failures);
    let deadline = Instant::now() + allowed;
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
            format!("{what} within {} s", allowed.as_secs()),
        )
    };
    let link = tokio::select! {
        made = timeout_at(deadline, connector.connect(request)) => {
            made.unwrap_or_else(|_| Err(late("no connection")))?
        }
        () = cancel.cancelled() => return Err(given_up()),
    };
    let listed = tokio::select! {
        listed = timeout_at(deadline, tools(&*link, deadline, &cancel)) => {
            listed.unwrap_or_else(|_| Err(late("no answer")))
        }
        why = link.closed() => Err(why),
        () = cancel.cancelled() => Err(given_up()),
    };
    match listed {
        Ok(tools) => Ok(Fresh {
            link,
            events,
            tools,
        }),
        Err(mut failure) => {
            close(&*link).await;
            failure.text = format!("connected, but no list of tools: {}", failure.text);
            Err(failure)
        }
    }
}

/// How long an attempt may take. A child may have to be fetched first; a server over the network that
/// was up before answers about as fast as then, and one that swallowed the question must be asked
/// again soon. It gets twice the time with each failure, for it may have become slower.
fn allowed(shared: &Shared, failures: u32) -> Duration {
    const SHORTEST: Duration = Duration::from_secs(3);
    const LONGEST: Duration = Duration::from_secs(15);
    let settings = shared.settings();
    let known = shared.catalogue.borrow();
    match known.as_ref().map(|known| known.facts.handshake) {
        Some(took) if settings.transport != TransportKind::Stdio => {
            let usual = took.saturating_mul(10).clamp(SHORTEST, LONGEST);
            let longer = usual.saturating_mul(1 << failures.min(10));
            longer.min(settings.connect_timeout)
        }
        _ => settings.connect_timeout,
    }
}

/// The tools; none where the server offers none.
pub(super) async fn tools(
    link: &dyn Link,
    deadline: Instant,
    cancel: &CancellationToken,
) -> Result<Vec<Value>, McpFailure> {
    let capabilities = &link.facts().capabilities;
    let silent = capabilities
        .as_object()
        .is_none_or(serde_json::Map::is_empty);
    if !silent && !offers(link, "tools") {
        return Ok(Vec::new());
    }
    match list(link, &Op::ListTools, "tools", deadline, cancel).await {
        // Some offer tools and have none. With a status of its own it is a refusal like any other.
        Err(failure)
            if failure.rpc_code == Some(METHOD_NOT_FOUND)
                && (silent || failure.http_status.is_none()) =>
        {
            Ok(Vec::new())
        }
        listed => listed,
    }
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
    let call = Call {
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
