//! Counts recent starts and delays the next one after repeated crashes.

use std::path::Path;
use std::time::Duration;

use hermes_config::fs::write_atomic;

/// How many starts in how much time are too many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RestartStormLimits {
    pub starts: usize,
    pub window: f64,
}

impl Default for RestartStormLimits {
    fn default() -> Self {
        Self {
            starts: 5,
            window: 120.0,
        }
    }
}

/// Too many starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RestartStorm {
    pub starts: usize,
    /// To be waited before going on.
    pub pause: Duration,
}

const MAX_PAUSE_SECONDS: f64 = 300.0;

/// Records this start (`now`: seconds since the epoch). Errors of the file are ignored.
pub fn started(root: &Path, limits: RestartStormLimits, now: f64) -> Option<RestartStorm> {
    let path = root.join("gateway-starts.log");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut starts: Vec<f64> = text
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    starts.push(now);
    let keep = (limits.starts * 4).max(40);
    let recent_starts = &starts[starts.len().saturating_sub(keep)..];
    let lines: Vec<String> = recent_starts.iter().map(|at| format!("{at:?}\n")).collect();
    if let Err(error) = write_atomic(&path, lines.concat().as_bytes(), 0o600) {
        tracing::warn!("{}: {error}", path.display());
    }
    let recent = starts
        .iter()
        .filter(|at| now - **at <= limits.window)
        .count();
    let excess = recent
        .checked_sub(limits.starts)
        .filter(|excess| *excess > 0)?;
    let pause = (5.0 * f64::powi(2.0, excess.min(6) as i32)).min(MAX_PAUSE_SECONDS);
    Some(RestartStorm {
        starts: recent,
        pause: Duration::from_secs_f64(pause),
    })
}
