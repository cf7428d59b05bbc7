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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a look finds when the clocks went on by so many seconds.
    fn found(wall: i64, monotonic: u64) -> Option<Duration> {
        let (start, now) = (Utc::now(), Instant::now());
        let mut detector = ResumeDetector::new(start, now);
        let gap = detector.look(
            start + chrono::Duration::seconds(wall),
            now + Duration::from_secs(monotonic),
        );
        // Found once, not again.
        let wall = start + chrono::Duration::seconds(wall + 5);
        let again = detector.look(wall, now + Duration::from_secs(monotonic + 5));
        assert_eq!(again, None);
        gap
    }

    #[test]
    fn sleep_is_seen_by_the_wall_clock() {
        assert_eq!(found(12 * 3600 + 5, 5), Some(Duration::from_hours(12)));
    }

    #[test]
    fn steps_of_the_wall_clock_are_seen_in_both_directions() {
        assert_eq!(found(3605, 5), Some(Duration::from_hours(1)));
        assert_eq!(found(-3595, 5), Some(Duration::from_hours(1)));
    }

    #[test]
    fn a_frozen_process_is_seen_by_the_late_look() {
        assert_eq!(found(60, 60), Some(Duration::from_secs(55)));
    }

    #[test]
    fn ordinary_looks_and_small_corrections_are_nothing() {
        assert_eq!(found(5, 5), None);
        assert_eq!(found(13, 5), None);
        assert_eq!(found(30, 30), None);
    }
}
