//! When to ask a silent server whether it is there, and how.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::Rng;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::classify::METHOD_NOT_FOUND;
use crate::failure::{FailureClass, McpFailure};
use crate::link::{Call, Era, Link, LinkFacts, TransportKind};
use crate::op::Op;
use crate::state::ladder::jitter;

/// Shortest interval.
const FLOOR: Duration = Duration::from_secs(5);
const LONGEST_PROBE: Duration = Duration::from_secs(30);
const SPREAD: f64 = 0.1;

/// How often a link is asked; `None` where there is nothing to keep alive: without a session (HTTP
/// of the new protocol, or an older server that gave no id) a request needs no earlier one, and a
/// child of the new protocol is watched as a process.
pub fn interval(
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
    Some(configured.max(FLOOR))
}

/// How long a link must last to be trusted without a call.
pub fn proof(configured: Duration) -> Duration {
    const SHORTEST: Duration = Duration::from_secs(30);
    const WHEN_OFF: Duration = Duration::from_mins(3);
    if configured.is_zero() {
        return WHEN_OFF;
    }
    configured.max(SHORTEST)
}

/// How long an answer may take.
pub fn probe_timeout(configured: Duration) -> Duration {
    if configured.is_zero() {
        return LONGEST_PROBE;
    }
    configured.max(FLOOR).min(LONGEST_PROBE)
}

/// The next question, counted from the last byte heard.
pub fn due(heard: Instant, interval: Duration, rng: &dyn Rng) -> Instant {
    heard + jitter(interval, SPREAD, rng)
}

/// How a server wants to be asked. Learned once, kept for its later links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeBy {
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

/// What a probe found.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Somebody answered, and this is how to ask from now on.
    Alive(ProbeBy),
    /// Something in front of it answered: wait and ask again.
    Sick(McpFailure),
    /// A person must log in.
    Login(McpFailure),
    Dead(McpFailure),
}

impl Finding {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Alive(_) => "ok",
            Self::Sick(_) => "sick",
            Self::Login(_) => "needs_auth",
            Self::Dead(_) => "dead",
        }
    }
}

/// Asks, and asks in another way before declaring a server dead.
pub async fn probe(link: Arc<dyn Link>, by: ProbeBy, timeout: Duration) -> Finding {
    let began = Instant::now();
    let first = match ask(&*link, by, timeout).await {
        // The token was renewed below: the same question once more.
        Err(failure) if failure.class == FailureClass::AuthExpired => {
            ask(&*link, by, timeout).await
        }
        answer => answer,
    };
    let failure = match first {
        Ok(()) => return Finding::Alive(by),
        Err(failure) => failure,
    };
    match failure.class {
        FailureClass::Rpc if is_unknown(&failure) => Finding::Alive(ProbeBy::List),
        FailureClass::Rpc => Finding::Alive(by),
        FailureClass::TimedOut if link.last_heard() > began => Finding::Alive(by),
        FailureClass::TimedOut if by == ProbeBy::Ping => {
            second_opinion(&*link, timeout, failure).await
        }
        FailureClass::Throttled => Finding::Sick(failure),
        FailureClass::AuthExpired | FailureClass::NeedsAuth | FailureClass::ScopeNeeded => {
            Finding::Login(failure)
        }
        _ => Finding::Dead(failure),
    }
}

async fn second_opinion(link: &dyn Link, timeout: Duration, first: McpFailure) -> Finding {
    let began = Instant::now();
    match ask(link, ProbeBy::List, timeout).await {
        Ok(()) => Finding::Alive(ProbeBy::List),
        Err(failure) => match failure.class {
            FailureClass::Rpc => Finding::Alive(ProbeBy::List),
            FailureClass::TimedOut if link.last_heard() > began => Finding::Alive(ProbeBy::Ping),
            FailureClass::TimedOut => Finding::Dead(first),
            FailureClass::Throttled => Finding::Sick(failure),
            _ => Finding::Dead(failure),
        },
    }
}

async fn ask(link: &dyn Link, by: ProbeBy, timeout: Duration) -> Result<(), McpFailure> {
    let deadline = Instant::now() + timeout;
    let cancel = CancellationToken::new();
    let _guard = cancel.clone().drop_guard();
    let call = Call {
        deadline,
        cancel,
        progress: None,
        behalf: None,
        slot: None,
    };
    let op = by.op();
    match tokio::time::timeout_at(deadline, link.request(&op, call)).await {
        Ok(answer) => answer.map(drop),
        Err(_) => Err(McpFailure::new(
            FailureClass::TimedOut,
            crate::failure::Certainty::MaybeExecuted,
            format!("no answer to {} within {} s", op.name(), timeout.as_secs()),
        )),
    }
}

fn is_unknown(failure: &McpFailure) -> bool {
    failure.rpc_code == Some(METHOD_NOT_FOUND)
        || failure.text.to_lowercase().contains("unknown method")
}
