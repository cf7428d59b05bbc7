//! Reconnect backoff: when to try again.

use std::collections::VecDeque;
use std::time::Duration;

use hermes_core::clock::Rng;
use tokio::time::Instant;

/// Consecutive failures before a server is parked.
const MAX_FAILURES: u32 = 5;
const PARK_TIME: Duration = Duration::from_mins(1);
/// Unproven links lost within [`FLAP_WINDOW`] before a server is parked.
const MAX_FLAPS: usize = 6;
const FLAP_WINDOW: Duration = Duration::from_mins(10);
/// Maximum deviation of a pause, as a fraction of it.
const JITTER: f64 = 0.2;

/// Failures so far. A new link resets them only once it is proven by a call or by lasting: a server
/// that dies after each handshake must not be retried forever at full speed.
#[derive(Debug, Default)]
pub(crate) struct ReconnectBackoff {
    failures: u32,
    flaps: VecDeque<Instant>,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAttempt {
    Now,
    Backoff(Duration),
    Park(Duration),
}

impl ReconnectBackoff {
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Records a failed attempt. One made for a call does not count: early retries are not the
    /// server's fault.
    pub(crate) fn record_failure(&mut self, rng: &dyn Rng, counts: bool) -> NextAttempt {
        if counts || self.failures == 0 {
            self.failures = self.failures.saturating_add(1);
        }
        if self.failures >= MAX_FAILURES {
            return self.park(rng);
        }
        NextAttempt::Backoff(jitter(self.pause(), JITTER, rng))
    }

    /// Records a lost link.
    pub(crate) fn record_lost_link(
        &mut self,
        proven: bool,
        now: Instant,
        rng: &dyn Rng,
    ) -> NextAttempt {
        if proven {
            self.reset();
            return NextAttempt::Now;
        }
        self.flaps.push_back(now);
        while self
            .flaps
            .front()
            .is_some_and(|&at| now.duration_since(at) > FLAP_WINDOW)
        {
            self.flaps.pop_front();
        }
        if self.flaps.len() >= MAX_FLAPS {
            let window_ends = self.flaps.front().map_or(now, |&at| at + FLAP_WINDOW);
            self.failures = self.failures.max(MAX_FAILURES);
            return NextAttempt::Park(jitter(PARK_TIME, JITTER, rng).max(window_ends - now));
        }
        // The first loss is retried immediately: sessions do end right after the handshake.
        if self.failures == 0 {
            self.failures = 1;
            return NextAttempt::Now;
        }
        self.record_failure(rng, true)
    }

    /// Gives up for now.
    pub(crate) fn park(&mut self, rng: &dyn Rng) -> NextAttempt {
        self.failures = self.failures.max(MAX_FAILURES);
        NextAttempt::Park(jitter(PARK_TIME, JITTER, rng))
    }

    /// Resets the backoff after the link was proven.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
        self.flaps.clear();
    }

    fn pause(&self) -> Duration {
        Duration::from_secs(1 << self.failures.saturating_sub(1).min(MAX_FAILURES))
    }
}

/// `pause`, changed by at most the fraction `spread` in either direction.
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
        let mut backoff = ReconnectBackoff::default();
        let pauses: Vec<NextAttempt> = (0..6)
            .map(|_| backoff.record_failure(&STILL, true))
            .collect();
        let after = |seconds| NextAttempt::Backoff(Duration::from_secs(seconds));
        assert_eq!(pauses[..4], [after(1), after(2), after(4), after(8)]);
        assert_eq!(
            pauses[4..],
            [NextAttempt::Park(PARK_TIME), NextAttempt::Park(PARK_TIME)]
        );
        backoff.reset();
        assert_eq!(backoff.record_failure(&STILL, true), after(1));
    }

    #[test]
    fn pauses_are_off_by_a_fifth_at_most() {
        let rng = SeqRng::new(5);
        for _ in 0..200 {
            let NextAttempt::Park(pause) = ReconnectBackoff::default().park(&rng) else {
                panic!("parked");
            };
            assert!((48..=72).contains(&pause.as_secs()), "{pause:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn six_unproven_links_in_ten_minutes_are_enough() {
        let mut backoff = ReconnectBackoff::default();
        let begin = Instant::now();
        let mut last = NextAttempt::Now;
        for n in 0..MAX_FLAPS {
            backoff.failures = 0;
            last = backoff.record_lost_link(false, begin + Duration::from_mins(n as u64), &STILL);
        }
        // Not before the first loss has left the window.
        assert_eq!(last, NextAttempt::Park(Duration::from_mins(5)));
        backoff.reset();
        assert_eq!(
            backoff.record_lost_link(false, begin, &STILL),
            NextAttempt::Now
        );
    }

    #[tokio::test(start_paused = true)]
    async fn old_losses_are_forgotten() {
        let mut backoff = ReconnectBackoff::default();
        let begin = Instant::now();
        for n in 0..20 {
            backoff.failures = 0;
            let now = begin + Duration::from_mins(3 * n);
            assert_eq!(
                backoff.record_lost_link(false, now, &STILL),
                NextAttempt::Now,
                "{n}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_proven_link_is_replaced_at_once_however_often() {
        let mut backoff = ReconnectBackoff::default();
        for _ in 0..50 {
            assert_eq!(
                backoff.record_lost_link(true, Instant::now(), &STILL),
                NextAttempt::Now
            );
        }
    }
}
