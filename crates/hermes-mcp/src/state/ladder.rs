//! When to try again: the budget of a server.

use std::collections::VecDeque;
use std::time::Duration;

use hermes_core::clock::Rng;
use tokio::time::Instant;

/// Failures in a row before a server is parked.
const BUDGET: u32 = 5;
const LONGEST: Duration = Duration::from_mins(1);
const PARKED: Duration = Duration::from_mins(5);
/// Links that break before they proved to work, in [`FLAP_WINDOW`], before a server is parked.
const FLAPS: usize = 6;
const FLAP_WINDOW: Duration = Duration::from_mins(10);
/// Jitter: how far a pause may be off, as a part of it.
const SPREAD: f64 = 0.2;

/// Failures so far. A link that came up pays nothing back before it is proven by a call or by
/// lasting: a server that dies after each handshake must not be tried for ever at full speed.
#[derive(Debug, Default)]
pub struct Ladder {
    failures: u32,
    flaps: VecDeque<Instant>,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Now,
    Backoff(Duration),
    Park(Duration),
}

impl Ladder {
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// An attempt failed.
    pub fn failed(&mut self, rng: &dyn Rng) -> Next {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= BUDGET {
            return self.park(rng);
        }
        Next::Backoff(jitter(self.pause(), SPREAD, rng))
    }

    /// A live link was lost.
    pub fn dropped(&mut self, proven: bool, now: Instant, rng: &dyn Rng) -> Next {
        if proven {
            self.proven();
            return Next::Now;
        }
        self.flaps.push_back(now);
        while self
            .flaps
            .front()
            .is_some_and(|&at| now.duration_since(at) > FLAP_WINDOW)
        {
            self.flaps.pop_front();
        }
        if self.flaps.len() >= FLAPS {
            let window_ends = self.flaps.front().map_or(now, |&at| at + FLAP_WINDOW);
            self.failures = self.failures.max(BUDGET);
            return Next::Park(jitter(PARKED, SPREAD, rng).max(window_ends - now));
        }
        // The first loss is tried at once: sessions do end right after the handshake.
        if self.failures == 0 {
            self.failures = 1;
            return Next::Now;
        }
        self.failed(rng)
    }

    /// Nothing helps for now.
    pub fn park(&mut self, rng: &dyn Rng) -> Next {
        self.failures = self.failures.max(BUDGET);
        Next::Park(jitter(PARKED, SPREAD, rng))
    }

    /// The link works.
    pub fn proven(&mut self) {
        self.failures = 0;
        self.flaps.clear();
    }

    fn pause(&self) -> Duration {
        let doubled = 1_u64 << (self.failures.saturating_sub(1)).min(16);
        Duration::from_secs(doubled).min(LONGEST)
    }
}

/// `pause`, off by at most `spread` of itself in either direction.
pub fn jitter(pause: Duration, spread: f64, rng: &dyn Rng) -> Duration {
    pause.mul_f64(1.0 + spread * (2.0 * rng.unit() - 1.0))
}
