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
