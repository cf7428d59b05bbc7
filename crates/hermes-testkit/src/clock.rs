//! Time and randomness that the test decides.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::clock::{Clock, Rng};

/// A clock that stands still until the test moves it.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Starts at this many seconds since the epoch.
    pub fn at(seconds: i64) -> Self {
        Self(AtomicI64::new(seconds * 1_000_000))
    }

    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).expect("a step of less than 292,000 years");
        self.0.fetch_add(micros, Ordering::SeqCst);
    }

    pub fn set(&self, seconds: i64) {
        self.0.store(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// 2026-01-02 03:04:05 UTC.
    fn default() -> Self {
        Self::at(1_767_323_045)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0.load(Ordering::SeqCst))
            .expect("a time that chrono can represent")
    }
}

/// The same numbers in every run: a Weyl sequence mixed by splitmix64.
#[derive(Debug, Default)]
pub struct SeqRng(AtomicU64);

impl SeqRng {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Rng for SeqRng {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.0.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Always the same number: jitter without surprise.
#[derive(Clone, Copy, Debug)]
pub struct FixedRng(pub u64);

impl Rng for FixedRng {
    fn next_u64(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_moves_only_when_told() {
        let clock = ManualClock::at(100);
        assert_eq!(clock.now(), clock.now());
        clock.advance(Duration::from_millis(1500));
        assert!((clock.epoch_seconds() - 101.5).abs() < 1e-9);
    }

    #[test]
    fn one_seed_gives_one_sequence() {
        let draw = |seed| {
            let rng = SeqRng::new(seed);
            (0..4).map(|_| rng.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
