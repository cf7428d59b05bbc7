//! When to ask a silent server whether it is there, and how.

use std::time::Duration;

use hermes_core::clock::Rng;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actor::op::Op;
use crate::actor::state::ladder::jitter;
use crate::failure::{Certainty, FailureClass, McpFailure, length};
use crate::transport::link::{Era, Link, LinkCall, LinkFacts, TransportKind};

/// Shortest interval.
const FLOOR: Duration = Duration::from_secs(5);
const LONGEST_PROBE: Duration = Duration::from_secs(10);
/// A child may be slow for a moment.
const SHORTEST_PROBE: Duration = Duration::from_secs(1);
/// The stream of HTTP+SSE carries every answer and may die without a sign: it is asked this early,
/// so that one which gives no answer is replaced before the interval is over.
const SSE_SHARE: f64 = 0.6;
const SPREAD: f64 = 0.1;

/// How often a link is asked; `None` where there is nothing to keep alive: without a session (HTTP
/// of the new protocol, or an older server that gave no id) a request needs no earlier one, and a
/// child of the new protocol is watched as a process.
pub(crate) fn interval(
    transport: TransportKind,
    facts: &LinkFacts,
    configured: Duration,
) -> Option<Duration> {
    if configured.is_zero() || facts.era == Era::Modern {
        return None;
    }
    if transport == TransportKind::Http && !facts.session {
        return None;
    }
    let interval = configured.max(FLOOR);
    Some(match transport {
        TransportKind::Sse => interval.mul_f64(SSE_SHARE),
        _ => interval,
    })
}

/// How long a link must last to be trusted without a call.
pub(crate) fn proof(configured: Duration) -> Duration {
    const SHORTEST: Duration = Duration::from_secs(30);
    const WHEN_OFF: Duration = Duration::from_mins(3);
    if configured.is_zero() {
        return WHEN_OFF;
    }
    configured.max(SHORTEST)
}

/// How long the old session may take to prove itself. A child needs no network for it, and is
/// replaced only afterwards: the next call must not spend all of its time (`call`) on that.
pub(crate) fn probe_timeout(
    transport: TransportKind,
    configured: Duration,
    call: Duration,
) -> Duration {
    if configured.is_zero() && transport != TransportKind::Stdio {
        return LONGEST_PROBE;
    }
    match transport {
        TransportKind::Stdio => FLOOR.min(call / 3).max(SHORTEST_PROBE),
        TransportKind::Http | TransportKind::Sse => configured.max(FLOOR).min(LONGEST_PROBE),
    }
}

/// The next question, counted from the last byte received.
pub(crate) fn due(received: Instant, interval: Duration, rng: &dyn Rng) -> Instant {
    received + jitter(interval, SPREAD, rng)
}

/// How a server is asked whether it works. Learned once, kept for its later links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProbeBy {
    #[default]
    Ping,
    /// It does not know ping, or never answers it.
    List,
}

impl ProbeBy {
    fn op(self) -> Op {
        match self {
            Self::Ping => Op::Probe,
            Self::List => Op::ProbeByList,
        }
    }
}

/// One question. Only a well-formed result counts: an error of any kind, by whomever it was sent,
/// says nothing about the session.
pub(crate) async fn ask(link: &dyn Link, by: ProbeBy, timeout: Duration) -> Result<(), McpFailure> {
    match ask_once(link, by, timeout).await {
        // The token was renewed below: the same question once more.
        Err(failure) if failure.class == FailureClass::AuthExpired => {
            ask_once(link, by, timeout).await
        }
        answer => answer,
    }
}

async fn ask_once(link: &dyn Link, by: ProbeBy, timeout: Duration) -> Result<(), McpFailure> {
    let deadline = Instant::now() + timeout;
    let cancel = CancellationToken::new();
    let _guard = cancel.clone().drop_guard();
    let call = LinkCall {
        deadline,
        cancel,
        progress: None,
        behalf: None,
        slot: None,
    };
    let op = by.op();
    let answer = tokio::time::timeout_at(deadline, link.request(&op, call)).await;
    let Ok(answer) = answer else {
        return Err(McpFailure::new(
            FailureClass::TimedOut,
            Certainty::MaybeExecuted,
            format!("no answer to {} within {}", op.name(), length(timeout)),
        ));
    };
    let result = answer?.result;
    let well_formed = match by {
        // The error of a tool is no answer to a ping, whatever session it talks about.
        ProbeBy::Ping => result.is_object() && result.get("isError").is_none(),
        ProbeBy::List => result.get("tools").is_some_and(Value::is_array),
    };
    if well_formed {
        return Ok(());
    }
    Err(McpFailure::new(
        FailureClass::Rpc,
        Certainty::MaybeExecuted,
        format!("the answer to {} is not one", op.name()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_asked_so_briefly_that_the_next_call_has_time_for_another_one() {
        let longest = |seconds| {
            let call = Duration::from_secs(seconds);
            probe_timeout(TransportKind::Stdio, Duration::from_mins(3), call)
        };
        assert_eq!(longest(300), FLOOR);
        assert_eq!(longest(6), Duration::from_secs(2));
        assert_eq!(longest(1), SHORTEST_PROBE);
    }
}
