//! When to try again: the budget of a server.

use std::collections::VecDeque;
use std::time::Duration;

use hermes_core::clock::Rng;
use tokio::time::Instant;

/// Failures in a row before a server is parked.
const BUDGET: u32 = 5;
const PARKED: Duration = Duration::from_mins(1);
/// Links that break before they proved to work, in [`FLAP_WINDOW`], before a server is parked.
const FLAPS: usize = 6;
const FLAP_WINDOW: Duration = Duration::from_mins(10);
/// Jitter: how far a pause may be off, as a part of it.
const SPREAD: f64 = 0.2;

/// Failures so far. A link that came up pays nothing back before it is proven by a call or by
/// lasting: a server that dies after each handshake must not be tried for ever at full speed.
#[derive(Debug, Default)]
pub(crate) struct Ladder {
    failures: u32,
    flaps: VecDeque<Instant>,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Now,
    Backoff(Duration),
    Park(Duration),
}

impl Ladder {
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// An attempt failed. One that a call asked for does not count: impatience is not the server's
    /// fault.
    pub(crate) fn failed(&mut self, rng: &dyn Rng, counts: bool) -> Next {
        if counts || self.failures == 0 {
            self.failures = self.failures.saturating_add(1);
        }
        if self.failures >= BUDGET {
            return self.park(rng);
        }
        Next::Backoff(jitter(self.pause(), SPREAD, rng))
    }

    /// A live link was lost.
    pub(crate) fn dropped(&mut self, proven: bool, now: Instant, rng: &dyn Rng) -> Next {
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
        self.failed(rng, true)
    }

    /// Nothing helps for now.
    pub(crate) fn park(&mut self, rng: &dyn Rng) -> Next {
        self.failures = self.failures.max(BUDGET);
        Next::Park(jitter(PARKED, SPREAD, rng))
    }

    /// The link works.
    pub(crate) fn proven(&mut self) {
        self.failures = 0;
        self.flaps.clear();
    }

    fn pause(&self) -> Duration {
        Duration::from_secs(1 << self.failures.saturating_sub(1).min(BUDGET))
    }
}

/// `pause`, off by at most `spread` of itself in either direction.
pub(crate) fn jitter(pause: Duration, spread: f64, rng: &dyn Rng) -> Duration {
    pause.mul_f64(1.0 + spread * (2.0 * rng.unit() - 1.0))
}

#[cfg(test)]
mod tests {
    use hermes_testkit::clock::{FixedRng, SeqRng};

    use super::*;

    const STILL: FixedRng = FixedRng(1 << 63);

    #[test]
    fn pauses_double_and_end_in_a_rest() {
        let mut ladder = Ladder::default();
        let pauses: Vec<Next> = (0..6).map(|_| ladder.failed(&STILL, true)).collect();
        let backoff = |seconds| Next::Backoff(Duration::from_secs(seconds));
        assert_eq!(
            pauses[..4],
            [backoff(1), backoff(2), backoff(4), backoff(8)]
        );
        assert_eq!(pauses[4..], [Next::Park(PARKED), Next::Park(PARKED)]);
        ladder.proven();
        assert_eq!(ladder.failed(&STILL, true), backoff(1));
    }

    #[test]
    fn pauses_are_off_by_a_fifth_at_most() {
        let rng = SeqRng::new(5);
        for _ in 0..200 {
            let Next::Park(pause) = Ladder::default().park(&rng) else {
                panic!("parked");
            };
            assert!((48..=72).contains(&pause.as_secs()), "{pause:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn six_unproven_links_in_ten_minutes_are_enough() {
        let mut ladder = Ladder::default();
        let begin = Instant::now();
        let mut last = Next::Now;
        for n in 0..FLAPS {
            ladder.failures = 0;
            last = ladder.dropped(false, begin + Duration::from_mins(n as u64), &STILL);
        }
        // Not before the first of them is forgotten.
        assert_eq!(last, Next::Park(Duration::from_mins(5)));
        ladder.proven();
        assert_eq!(ladder.dropped(false, begin, &STILL), Next::Now);
    }

    #[tokio::test(start_paused = true)]
    async fn old_losses_are_forgotten() {
        let mut ladder = Ladder::default();
        let begin = Instant::now();
        for n in 0..20 {
            ladder.failures = 0;
            let now = begin + Duration::from_mins(3 * n);
            assert_eq!(ladder.dropped(false, now, &STILL), Next::Now, "{n}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_proven_link_is_replaced_at_once_however_often() {
        let mut ladder = Ladder::default();
        for _ in 0..50 {
            assert_eq!(ladder.dropped(true, Instant::now(), &STILL), Next::Now);
        }
    }
}
