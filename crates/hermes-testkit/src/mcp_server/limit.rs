//! What stands in front of a healthy session: a rate limit, or slowness.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::FaultyServer;
use super::plan::{PlannedAnswer, Seen};

/// So many messages of sessions in a window; more are refused.
pub(super) struct Limiter {
    most: usize,
    status: u16,
    recent: VecDeque<Instant>,
}

impl Limiter {
    const WINDOW: Duration = Duration::from_millis(50);

    /// The refusal of one more message, unless there is room for it.
    pub(super) fn refuses(&mut self) -> Option<PlannedAnswer> {
        let now = Instant::now();
        self.recent.retain(|at| now - *at < Self::WINDOW);
        if self.recent.len() >= self.most {
            return Some(PlannedAnswer::plain(self.status, "text/plain", "slow down"));
        }
        self.recent.push_back(now);
        None
    }
}

/// Whether a message asks something that has no effect.
pub(super) fn is_question(seen: &Seen) -> bool {
    matches!(seen.method(), "ping" | "tools/list")
}

impl FaultyServer {
    /// Refuses messages of sessions with this status beyond so many in 50 ms; `None`: no more.
    pub fn limit(&self, limit: Option<(usize, u16)>) -> &Self {
        self.shared.state().limiter = limit.map(|(most, status)| Limiter {
            most,
            status,
            recent: VecDeque::new(),
        });
        self
    }

    /// Allows so many sessions and refuses further ones with this status, until one is deleted.
    pub fn limit_sessions(&self, most: usize, status: u16) -> &Self {
        self.shared.state().most_places = Some((most, status));
        self
    }

    /// From now on `ping` and `tools/list` of a session take this long. A handshake does not.
    pub fn slow_questions(&self, time: Duration) -> &Self {
        self.shared.state().slow_questions = time;
        self
    }

    /// From now on a handshake takes this long.
    pub fn slow_handshakes(&self, time: Duration) -> &Self {
        self.shared.state().slow_handshakes = time;
        self
    }

    /// One instance is left, which knows all sessions.
    pub fn end_balancer(&self) -> &Self {
        self.shared.state().balancer = None;
        self
    }
}
