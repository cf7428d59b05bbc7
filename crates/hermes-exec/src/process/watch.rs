//! Watch patterns and the rate limits of their notices.

use std::time::Duration;

use tokio::time::Instant;

use crate::output::{OutputCleaner, last};

/// Minimum time between two notices of one process.
const SPACING: Duration = Duration::from_secs(15);
/// After this many consecutive intervals with suppressed matches the patterns are disabled.
const STRIKES: u32 = 3;
/// Rate limit for all processes together: this many notices per window, then a pause.
const BURST: u32 = 15;
const BURST_WINDOW: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(30);
/// Limits of the text in one notice.
const MAX_LINES: usize = 20;
const MAX_TEXT: usize = 2000;

/// Result of feeding new output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchEvent {
    Match {
        pattern: String,
        output: String,
        suppressed: u64,
    },
    /// Too many matches: watching has ended.
    Disabled { suppressed: u64 },
}

/// Searches the output of one process for patterns.
#[derive(Debug)]
pub(crate) struct Watcher {
    patterns: Vec<String>,
    cleaner: OutputCleaner,
    /// The unfinished line has matched already.
    partial_matched: bool,
    next_allowed: Option<Instant>,
    has_strike: bool,
    strikes: u32,
    suppressed: u64,
    hits: u64,
    disabled: bool,
}

impl Watcher {
    /// Patterns are plain text; empty ones are ignored.
    pub(crate) fn new(patterns: &[String]) -> Self {
        Self {
            patterns: patterns
                .iter()
                .filter(|pattern| !pattern.is_empty())
                .cloned()
                .collect(),
            cleaner: OutputCleaner::default(),
            partial_matched: false,
            next_allowed: None,
            has_strike: false,
            strikes: 0,
            suppressed: 0,
            hits: 0,
            disabled: false,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        !self.disabled && !self.patterns.is_empty()
    }

    pub(crate) fn has_hit(&self) -> bool {
        self.hits > 0
    }

    /// Processes new output.
    pub(crate) fn feed(&mut self, bytes: &[u8], now: Instant) -> Option<WatchEvent> {
        if !self.is_active() {
            return None;
        }
        let (pattern, lines) = self.matches(bytes)?;
        if self.next_allowed.is_some_and(|allowed| now < allowed) {
            return self.strike(lines.len() as u64);
        }
        if !std::mem::take(&mut self.has_strike) {
            self.strikes = 0;
        }
        self.next_allowed = Some(now + SPACING);
        self.hits += 1;
        let shown = lines[..lines.len().min(MAX_LINES)].join("\n");
        let left_out = (lines.len() - lines.len().min(MAX_LINES)) as u64;
        let output = if shown.len() > MAX_TEXT {
            format!("…{}", last(&shown, MAX_TEXT))
        } else {
            shown
        };
        Some(WatchEvent::Match {
            pattern,
            output,
            suppressed: std::mem::take(&mut self.suppressed) + left_out,
        })
    }

    /// One strike per interval, however many matches it had.
    fn strike(&mut self, lines: u64) -> Option<WatchEvent> {
        self.suppressed += lines;
        if std::mem::replace(&mut self.has_strike, true) {
            return None;
        }
        self.strikes += 1;
        if self.strikes < STRIKES {
            return None;
        }
        self.disabled = true;
        Some(WatchEvent::Disabled {
            suppressed: self.suppressed,
        })
    }

    /// The matching lines of new output, and the pattern of the first.
    fn matches(&mut self, bytes: &[u8]) -> Option<(String, Vec<String>)> {
        let mut text = String::new();
        self.cleaner.feed(bytes, &mut |part| text.push_str(part));
        let mut found: Option<String> = None;
        let mut lines = Vec::new();
        for line in text.lines() {
            // The first line may have matched before it was complete.
            if !std::mem::take(&mut self.partial_matched)
                && let Some(pattern) = find_pattern(&self.patterns, line)
            {
                found.get_or_insert_with(|| pattern.to_owned());
                lines.push(line.trim_end().to_owned());
            }
        }
        if !self.partial_matched
            && let Some(pattern) = find_pattern(&self.patterns, self.cleaner.line())
        {
            self.partial_matched = true;
            found.get_or_insert_with(|| pattern.to_owned());
            lines.push(self.cleaner.line().trim_end().to_owned());
        }
        Some((found?, lines))
    }
}

fn find_pattern<'a>(patterns: &'a [String], line: &str) -> Option<&'a str> {
    patterns
        .iter()
        .find(|pattern| line.contains(pattern.as_str()))
        .map(String::as_str)
}

/// The rate limit for all processes.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    window_began: Option<Instant>,
    in_window: u32,
    paused_until: Option<Instant>,
    suppressed: u64,
}

/// The breaker's decision about one match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerDecision {
    Allow,
    /// The pause is over, with this many suppressed matches; the match is allowed.
    Resume {
        suppressed: u64,
    },
    /// The pause starts now.
    Pause,
    Deny,
}

impl Breaker {
    pub(crate) fn admit(&mut self, now: Instant) -> BreakerDecision {
        let mut again = None;
        if let Some(until) = self.paused_until {
            if now < until {
                self.suppressed += 1;
                return BreakerDecision::Deny;
            }
            again = Some(std::mem::take(&mut self.suppressed));
            *self = Self::default();
        }
        let began = *self.window_began.get_or_insert(now);
        if now - began >= BURST_WINDOW {
            self.window_began = Some(now);
            self.in_window = 0;
        }
        if self.in_window >= BURST {
            self.paused_until = Some(now + PAUSE);
            self.suppressed = 1;
            return BreakerDecision::Pause;
        }
        self.in_window += 1;
        match again {
            Some(suppressed) if suppressed > 0 => BreakerDecision::Resume { suppressed },
            _ => BreakerDecision::Allow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn watcher(patterns: &[&str]) -> Watcher {
        let patterns: Vec<String> = patterns.iter().map(|&p| p.to_owned()).collect();
        Watcher::new(&patterns)
    }

    #[test]
    fn lines_are_matched_once_however_they_come() {
        let mut watcher = watcher(&["ready", ""]);
        let now = Instant::now();
        assert_eq!(watcher.feed(b"nothing\nserver re", now), None);
        let found = watcher.feed(b"ady on 8080", now);
        assert_eq!(
            found,
            Some(WatchEvent::Match {
                pattern: "ready".to_owned(),
                output: "server ready on 8080".to_owned(),
                suppressed: 0
            })
        );
        assert_eq!(watcher.feed(b" now\n", now + seconds(20)), None);
        assert_eq!(
            watcher.feed(b"\x1b[32mready\x1b[0m\n", now + seconds(1)),
            None
        );
        let found = watcher.feed(b"again re\x1b[1mady\n", now + seconds(20));
        assert!(
            matches!(found, Some(WatchEvent::Match { suppressed: 1, .. })),
            "{found:?}"
        );
    }

    #[test]
    fn three_busy_spacings_turn_it_off() {
        let mut watcher = watcher(&["x"]);
        let start = Instant::now();
        for round in 0..3_u64 {
            let at = start + seconds(round * 16);
            assert!(matches!(
                watcher.feed(b"x\n", at),
                Some(WatchEvent::Match { .. })
            ));
            let second = watcher.feed(b"x\n", at + seconds(1));
            if round < 2 {
                assert_eq!(second, None);
            } else {
                assert!(
                    matches!(second, Some(WatchEvent::Disabled { .. })),
                    "{second:?}"
                );
            }
        }
        assert!(!watcher.is_active());
        assert_eq!(watcher.feed(b"x\n", start + seconds(999)), None);
    }

    #[test]
    fn a_quiet_spacing_forgives() {
        let mut watcher = watcher(&["x"]);
        let start = Instant::now();
        for round in 0..20_u64 {
            let at = start + seconds(round * 16);
            assert!(
                matches!(watcher.feed(b"x\n", at), Some(WatchEvent::Match { .. })),
                "{round}"
            );
            if round % 3 != 0 {
                assert_eq!(watcher.feed(b"x\n", at + seconds(1)), None);
            }
        }
    }

    #[test]
    fn all_together_are_paused() {
        let mut breaker = Breaker::default();
        let start = Instant::now();
        for _ in 0..15 {
            assert_eq!(breaker.admit(start), BreakerDecision::Allow);
        }
        assert_eq!(breaker.admit(start), BreakerDecision::Pause);
        assert_eq!(breaker.admit(start + seconds(29)), BreakerDecision::Deny);
        assert_eq!(
            breaker.admit(start + seconds(31)),
            BreakerDecision::Resume { suppressed: 2 }
        );
        assert_eq!(breaker.admit(start + seconds(42)), BreakerDecision::Allow);
    }
}
