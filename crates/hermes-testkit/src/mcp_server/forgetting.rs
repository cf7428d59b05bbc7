//! Sessions that are forgotten in any shape, for some requests or for all, and balancers.

use std::sync::atomic::Ordering;

use serde_json::Value;

use super::FaultyServer;
use super::combination::{Combination, Scenario, Scope, Transport};
use super::plan::Seen;
use super::shape::{Shape, ShapeRng};

/// How requests of a forgotten session are answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forgetting {
    shape: Shape,
    scope: Scope,
    /// The connection ends with the answer.
    closes: bool,
    /// Calls are carried out before the answer.
    late: bool,
}

impl Forgetting {
    pub(super) fn new(how: &Combination) -> Self {
        Self {
            shape: how.shape,
            scope: how.scope,
            closes: how.scenario == Scenario::ProxyCloses,
            late: how.scenario == Scenario::Late,
        }
    }

    pub(super) fn covers_everything(&self) -> bool {
        self.scope == Scope::All
    }

    /// Whether a request of a forgotten session gets the shape.
    pub(super) fn covers(&self, seen: &Seen) -> bool {
        match self.scope {
            Scope::All => true,
            Scope::Calls => seen.method() == "tools/call",
            Scope::Pings => seen.method() == "ping",
        }
    }

    pub(super) fn runs_first(&self, seen: &Seen) -> bool {
        self.late && seen.method() == "tools/call"
    }

    pub(super) fn answer(&self, id: &Value) -> (Vec<u8>, bool) {
        self.shape.bytes(id, self.closes)
    }
}

/// Two instances, of which each request reaches one. Messages and all other requests (the
/// listening stream, the end of a session) are dealt apart: when a client opens its stream beside
/// its messages is its own affair and must not decide what becomes of them.
pub(super) struct Balancer {
    messages: Dealer,
    others: Dealer,
}

struct Dealer {
    chance: Option<ShapeRng>,
    requests: usize,
}

impl Balancer {
    fn new(how: &Combination) -> Self {
        let dealer = |seed| Dealer {
            chance: (how.scenario == Scenario::Random).then(|| ShapeRng::new(seed)),
            requests: 0,
        };
        Self {
            messages: dealer(how.seed),
            others: dealer(how.seed + 1),
        }
    }

    /// Whether the next request goes to the second instance.
    pub(super) fn next_is_second(&mut self, verb: &str) -> bool {
        let dealer = if verb == "POST" {
            &mut self.messages
        } else {
            &mut self.others
        };
        dealer.requests += 1;
        match &dealer.chance {
            Some(dice) => dice.percent(50),
            None => !dealer.requests.is_multiple_of(2),
        }
    }
}

impl FaultyServer {
    /// Loses all sessions in this way. A new handshake works at once.
    pub fn lose_sessions_in(&self, how: &Combination) -> &Self {
        {
            let mut state = self.shared.state();
            state.forgetting = Some(Forgetting::new(how));
            match how.scenario {
                Scenario::Alternating | Scenario::Random => {
                    state.balancer = Some(Balancer::new(how));
                }
                _ => state.sessions.clear(),
            }
        }
        if how.transport == Transport::SseEnds {
            self.end_streams();
        }
        if how.scenario == Scenario::Restarted {
            self.cut_connections();
        }
        self
    }

    /// So many sessions are forgotten as soon as they are given out: whatever follows the handshake is
    /// refused.
    pub fn forget_new_sessions(&self, count: usize) -> &Self {
        self.shared.state().forgets_next = count;
        self
    }

    /// Changes with everything that is received or sent: what it is when a test looks twice tells
    /// whether anything happened in between.
    pub fn activity(&self) -> u64 {
        self.shared.activity.load(Ordering::Relaxed)
    }

    /// Ends every connection and forgets every session, and goes on listening: a restart that
    /// takes no time.
    pub fn cut_connections(&self) -> &Self {
        super::serve::hang_up(&self.shared);
        self
    }
}
