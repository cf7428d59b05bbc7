//! When and how to probe a silent server.

use std::time::Duration;

use hermes_core::clock::Rng;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actor::op::Op;
use crate::actor::state::backoff::jitter;
use crate::failure::{Certainty, FailureClass, McpFailure, format_duration};
use crate::transport::link::{Era, Link, LinkCall, LinkFacts, TransportKind};

const MIN_INTERVAL: Duration = Duration::from_secs(5);
const MAX_PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// A child may be briefly slow.
const MIN_PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The HTTP+SSE stream carries every answer and may die silently. Probing it this early leaves time
/// to replace it within the interval.
const SSE_INTERVAL_FACTOR: f64 = 0.6;
const JITTER: f64 = 0.1;

/// How often a link is probed; `None` if there is nothing to keep alive: without a session
/// (stateless HTTP, or a server that issued no id) requests are independent, and a stateless child
/// is watched as a process.
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
    let interval = configured.max(MIN_INTERVAL);
    Some(match transport {
        TransportKind::Sse => interval.mul_f64(SSE_INTERVAL_FACTOR),
        _ => interval,
    })
}

/// How long a link must last to count as proven without a call.
pub(crate) fn proof_time(configured: Duration) -> Duration {
    const MIN_PROOF: Duration = Duration::from_secs(30);
    const PROOF_WITHOUT_KEEPALIVE: Duration = Duration::from_mins(3);
    if configured.is_zero() {
        return PROOF_WITHOUT_KEEPALIVE;
    }
    configured.max(MIN_PROOF)
}

/// The timeout of a probe of the old session. A child needs no network and is replaced only
/// afterwards, so the probe must not use up the time of the next call (`call`).
pub(crate) fn probe_timeout(
    transport: TransportKind,
    configured: Duration,
    call: Duration,
) -> Duration {
    if configured.is_zero() && transport != TransportKind::Stdio {
        return MAX_PROBE_TIMEOUT;
    }
    match transport {
        TransportKind::Stdio => MIN_INTERVAL.min(call / 3).max(MIN_PROBE_TIMEOUT),
        TransportKind::Http | TransportKind::Sse => {
            configured.max(MIN_INTERVAL).min(MAX_PROBE_TIMEOUT)
        }
    }
}

/// The time of the next probe, counted from the last activity.
pub(crate) fn next_probe(last_activity: Instant, interval: Duration, rng: &dyn Rng) -> Instant {
    last_activity + jitter(interval, JITTER, rng)
}

/// How a server is probed. Determined once and kept for its later links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProbeMethod {
    #[default]
    Ping,
    /// For servers that do not support or never answer ping.
    List,
}

impl ProbeMethod {
    fn op(self) -> Op {
        match self {
            Self::Ping => Op::Probe,
            Self::List => Op::ProbeByList,
        }
    }
}

/// Sends one probe. Only a well-formed result counts: an error proves nothing about the session,
/// whether the server or a proxy sent it.
pub(crate) async fn probe(
    link: &dyn Link,
    method: ProbeMethod,
    timeout: Duration,
) -> Result<(), McpFailure> {
    match probe_once(link, method, timeout).await {
        // The transport has renewed the token, so the same probe is sent again.
        Err(failure) if failure.class == FailureClass::AuthExpired => {
            probe_once(link, method, timeout).await
        }
        answer => answer,
    }
}

async fn probe_once(
    link: &dyn Link,
    method: ProbeMethod,
    timeout: Duration,
) -> Result<(), McpFailure> {
    let deadline = Instant::now() + timeout;
    let cancel = CancellationToken::new();
    let _guard = cancel.clone().drop_guard();
    let call = LinkCall {
        deadline,
        cancel,
        progress: None,
        origin: None,
        slot: None,
    };
    let op = method.op();
    let answer = tokio::time::timeout_at(deadline, link.request(&op, call)).await;
    let Ok(answer) = answer else {
        return Err(McpFailure::new(
            FailureClass::TimedOut,
            Certainty::MaybeExecuted,
            format!(
                "no answer to {} within {}",
                op.name(),
                format_duration(timeout)
            ),
        ));
    };
    let result = answer?.result;
    let well_formed = match method {
        // A tool error is not an answer to ping, even if it mentions a session.
        ProbeMethod::Ping => result.is_object() && result.get("isError").is_none(),
        ProbeMethod::List => result.get("tools").is_some_and(Value::is_array),
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
        let limit = |seconds| {
            let call = Duration::from_secs(seconds);
            probe_timeout(TransportKind::Stdio, Duration::from_mins(3), call)
        };
        assert_eq!(limit(300), MIN_INTERVAL);
        assert_eq!(limit(6), Duration::from_secs(2));
        assert_eq!(limit(1), MIN_PROBE_TIMEOUT);
    }
}
