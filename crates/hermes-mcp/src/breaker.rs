//! Stops asking a server that only fails. Tool errors never count: a server that answers is well.

use std::time::Duration;

use tokio::time::Instant;

const LIMIT: u32 = 3;
const OPEN: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub struct Breaker {
    failures: u32,
    /// Until when nobody passes; afterwards one at a time.
    open_until: Option<Instant>,
    /// The one probing call.
    probing: bool,
}

/// Whether a call may go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Pass,
    /// It is the one that finds out. [`Breaker::released`] if it ends without an answer.
    Probe,
    Refused {
        retry_after: Duration,
    },
}

impl Breaker {
    pub fn admit(&mut self, now: Instant) -> Admission {
        let Some(until) = self.open_until else {
            return Admission::Pass;
        };
        if now < until {
            return Admission::Refused {
                retry_after: until - now,
            };
        }
        if self.probing {
            return Admission::Refused {
                retry_after: Duration::from_secs(1),
            };
        }
        self.probing = true;
        Admission::Probe
    }

    pub fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.probing = false;
        if self.failures >= LIMIT {
            self.open_until = Some(now + OPEN);
        }
    }

    /// The server answered, or a new link is up.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The probing call ended without telling anything.
    pub fn released(&mut self) {
        self.probing = false;
    }

    pub fn name(&self, now: Instant) -> &'static str {
        match self.open_until {
            None => "closed",
            Some(until) if now < until => "open",
            Some(_) => "half_open",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_failures_in_a_row_open_it() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..10 {
            breaker.failed(now);
            breaker.failed(now);
            breaker.reset();
        }
        assert_eq!(breaker.admit(now), Admission::Pass);
        for _ in 0..3 {
            breaker.failed(now);
        }
        let retry_after = OPEN;
        assert_eq!(breaker.admit(now), Admission::Refused { retry_after });
        assert_eq!(breaker.name(now), "open");
    }

    #[tokio::test(start_paused = true)]
    async fn half_open_admits_one_at_a_time() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            breaker.failed(now);
        }
        let later = now + OPEN;
        assert_eq!(breaker.name(later), "half_open");
        assert_eq!(breaker.admit(later), Admission::Probe);
        assert!(matches!(breaker.admit(later), Admission::Refused { .. }));
        breaker.released();
        assert_eq!(breaker.admit(later), Admission::Probe);
        breaker.failed(later);
        assert_eq!(breaker.name(later), "open");
        assert_eq!(breaker.admit(later + OPEN), Admission::Probe);
        breaker.reset();
        assert_eq!(breaker.admit(later + OPEN), Admission::Pass);
    }
}
