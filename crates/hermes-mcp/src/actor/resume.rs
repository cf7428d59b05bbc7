//! Notices that the machine slept or that its clock jumped.
//!
//! Timers alone miss it: on Linux the monotonic clock stands still during sleep, so sockets are
//! dead and tokens expired while every timer believes that no time went by.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

/// Between two looks.
pub(crate) const TICK: Duration = Duration::from_secs(5);
/// Wall clock and monotonic clock may differ by this much.
const DRIFT: Duration = Duration::from_secs(10);
/// A look may come this late (a stopped process, a frozen machine).
const LATE: Duration = Duration::from_secs(30);

/// What the clocks say at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub wall: DateTime<Utc>,
    pub monotonic: Instant,
    /// Time since the machine started, with its sleep; where the system tells it.
    pub boot: Option<Duration>,
}

/// What CLOCK_BOOTTIME says, on Linux.
pub(crate) fn since_boot() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Compares the clocks from look to look.
#[derive(Debug)]
pub(crate) struct ResumeDetector {
    last: Clocks,
}

impl ResumeDetector {
    pub(crate) fn new(now: Clocks) -> Self {
        Self { last: now }
    }

    /// The gap, if there was one since the last look.
    pub(crate) fn look(&mut self, now: Clocks) -> Option<Duration> {
        let last = std::mem::replace(&mut self.last, now);
        let by_timer = now.monotonic.saturating_duration_since(last.monotonic);
        // The one that tells sleep from a step of the wall clock, and sees a sleep that such a
        // step hides.
        if let (Some(before), Some(boot)) = (last.boot, now.boot) {
            let slept = boot.saturating_sub(before).saturating_sub(by_timer);
            if slept > DRIFT {
                return Some(slept);
            }
        }
        let by_wall = now.wall - last.wall;
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
        found_with(wall, monotonic, None)
    }

    fn found_with(wall: i64, monotonic: u64, boot: Option<u64>) -> Option<Duration> {
        let (start, begin) = (Utc::now(), Instant::now());
        let at = |wall: i64, monotonic: u64, boot: Option<u64>| Clocks {
            wall: start + chrono::Duration::seconds(wall),
            monotonic: begin + Duration::from_secs(monotonic),
            boot: boot.map(|boot| Duration::from_secs(1000 + boot)),
        };
        let mut detector = ResumeDetector::new(at(0, 0, boot.map(|_| 0)));
        let gap = detector.look(at(wall, monotonic, boot));
        // Found once, not again.
        let again = detector.look(at(wall + 5, monotonic + 5, boot.map(|boot| boot + 5)));
        assert_eq!(again, None);
        gap
    }

    #[test]
    fn sleep_is_seen_by_the_clock_that_does_not_stop() {
        let hour = Duration::from_hours(1);
        assert_eq!(found_with(3605, 5, Some(3605)), Some(hour));
        // The wall clock was set back by as much while it slept.
        assert_eq!(found_with(5, 5, Some(3605)), Some(hour));
        assert_eq!(found_with(5, 5, Some(5)), None);
        // A frozen monotonic clock, and only that.
        assert_eq!(found_with(60, 0, Some(60)), Some(Duration::from_mins(1)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_how_long_it_runs() {
        let first = since_boot().unwrap();
        assert!(first > Duration::ZERO && since_boot().unwrap() >= first);
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
