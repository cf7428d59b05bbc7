//! Detects that the machine slept or that its clock jumped.
//!
//! Timers alone cannot: on Linux the monotonic clock stops during sleep, so sockets die and tokens
//! expire while no timer advances.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

/// Time between two checks.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Larger differences between wall clock and monotonic clock are a jump.
const MAX_DRIFT: Duration = Duration::from_secs(10);
/// A check later than this means that the process or the machine was stopped.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReadings {
    pub wall: DateTime<Utc>,
    pub monotonic: Instant,
    /// Time since boot including sleep, if the system provides it.
    pub boot: Option<Duration>,
}

/// CLOCK_BOOTTIME, on Linux.
pub(crate) fn time_since_boot() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Compares successive clock readings.
#[derive(Debug)]
pub(crate) struct ResumeDetector {
    last: ClockReadings,
}

impl ResumeDetector {
    pub(crate) fn new(now: ClockReadings) -> Self {
        Self { last: now }
    }

    /// The gap since the last check, if there was one.
    pub(crate) fn check(&mut self, now: ClockReadings) -> Option<Duration> {
        let last = std::mem::replace(&mut self.last, now);
        let by_timer = now.monotonic.saturating_duration_since(last.monotonic);
        // Distinguishes sleep from a step of the wall clock, and detects a sleep that such a step
        // hides.
        if let (Some(before), Some(boot)) = (last.boot, now.boot) {
            let slept = boot.saturating_sub(before).saturating_sub(by_timer);
            if slept > MAX_DRIFT {
                return Some(slept);
            }
        }
        let by_wall = now.wall - last.wall;
        let timer = chrono::Duration::from_std(by_timer).unwrap_or(chrono::Duration::MAX);
        let drift = (by_wall - timer).abs().to_std().unwrap_or(Duration::MAX);
        if drift > MAX_DRIFT {
            return Some(drift);
        }
        let late = by_timer.saturating_sub(CHECK_INTERVAL);
        (late > MAX_DELAY).then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gap found after the clocks advanced by these seconds.
    fn found(wall: i64, monotonic: u64) -> Option<Duration> {
        found_with(wall, monotonic, None)
    }

    fn found_with(wall: i64, monotonic: u64, boot: Option<u64>) -> Option<Duration> {
        let (start, begin) = (Utc::now(), Instant::now());
        let at = |wall: i64, monotonic: u64, boot: Option<u64>| ClockReadings {
            wall: start + chrono::Duration::seconds(wall),
            monotonic: begin + Duration::from_secs(monotonic),
            boot: boot.map(|boot| Duration::from_secs(1000 + boot)),
        };
        let mut detector = ResumeDetector::new(at(0, 0, boot.map(|_| 0)));
        let gap = detector.check(at(wall, monotonic, boot));
        // It is reported only once.
        let again = detector.check(at(wall + 5, monotonic + 5, boot.map(|boot| boot + 5)));
        assert_eq!(again, None);
        gap
    }

    #[test]
    fn sleep_is_seen_by_the_clock_that_does_not_stop() {
        let hour = Duration::from_hours(1);
        assert_eq!(found_with(3605, 5, Some(3605)), Some(hour));
        // The wall clock was set back by the same time during the sleep.
        assert_eq!(found_with(5, 5, Some(3605)), Some(hour));
        assert_eq!(found_with(5, 5, Some(5)), None);
        // Only the monotonic clock was frozen.
        assert_eq!(found_with(60, 0, Some(60)), Some(Duration::from_mins(1)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_how_long_it_runs() {
        let first = time_since_boot().unwrap();
        assert!(first > Duration::ZERO && time_since_boot().unwrap() >= first);
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
