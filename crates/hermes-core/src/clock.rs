//! Injected time and randomness, so that tests decide both.
//!
//! Waiting uses `tokio::time`, which tests pause; wall-clock time comes from [`Clock`].

use chrono::{DateTime, Utc};

pub trait Clock: Send + Sync {
    fn now(&self) -> DateTime<Utc>;

    /// Seconds since the epoch, as state.db stores times.
    fn epoch_seconds(&self) -> f64 {
        self.now().timestamp_micros() as f64 / 1e6
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

/// A source of randomness for jitter and ids. Not for secrets.
pub trait Rng: Send + Sync {
    fn next_u64(&self) -> u64;

    /// A number in `[0, 1)`.
    fn unit(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn next_u64(&self) -> u64 {
        rand::random()
    }
}
