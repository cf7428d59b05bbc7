//! Notices that the machine slept or that its clock jumped.
//!
//! Timers alone miss it: on Linux the monotonic clock stands still during sleep, so sockets are
//! dead and tokens expired while every timer believes that no time went by.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

/// Between two looks.
pub const TICK: Duration = Duration::from_secs(5);
/// Wall clock and monotonic clock may differ by this much.
const DRIFT: Duration = Duration::from_secs(10);
/// A look may come this late (a stopped process, a frozen machine).
const LATE: Duration = Duration::from_secs(30);

/// Compares both clocks from look to look.
#[derive(Debug)]
pub struct ResumeDetector {
    wall: DateTime<Utc>,
    monotonic: Instant,
}

impl ResumeDetector {
    pub fn new(wall: DateTime<Utc>, monotonic: Instant) -> Self {
        Self { wall, monotonic }
    }

    /// The gap, if there was one since the last look.
    pub fn look(&mut self, wall: DateTime<Utc>, monotonic: Instant) -> Option<Duration> {
        let by_wall = wall - self.wall;
        let by_timer = monotonic.saturating_duration_since(self.monotonic);
        self.wall = wall;
        self.monotonic = monotonic;
        let timer = chrono::Duration::from_std(by_timer).unwrap_or(chrono::Duration::MAX);
        let drift = (by_wall - timer).abs().to_std().unwrap_or(Duration::MAX);
        if drift > DRIFT {
            return Some(drift);
        }
        let late = by_timer.saturating_sub(TICK);
        (late > LATE).then_some(late)
    }
}
