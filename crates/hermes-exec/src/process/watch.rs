//! Watch patterns, and how often their matches may be told.

use std::time::Duration;

use tokio::time::Instant;

use crate::output::{Cleaner, last};

/// Between two notices of one process.
const SPACING: Duration = Duration::from_secs(15);
/// So many spacings in a row with more matches than could be told turn the patterns off.
const STRIKES: u32 = 3;
/// Of all processes together: so many notices in this time, else a pause.
const BURST: u32 = 15;
const BURST_WINDOW: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(30);
/// What one notice shows.
const MAX_LINES: usize = 20;
const MAX_TEXT: usize = 2000;

/// What came of new output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Match {
        pattern: String,
        output: String,
        suppressed: u64,
    },
    /// Too often: watching is over.
    Disabled { suppressed: u64 },
}

/// Looks for patterns in the output of one process.
#[derive(Debug)]
pub struct Watcher {
    patterns: Vec<String>,
    cleaner: Cleaner,
    /// The unfinished line matched already.
    partial_matched: bool,
    next_allowed: Option<Instant>,
    struck: bool,
    strikes: u32,
    suppressed: u64,
    hits: u64,
    disabled: bool,
}

impl Watcher {
    /// Patterns are plain text; empty ones are left out.
    pub fn new(patterns: &[String]) -> Self {
        Self {
            patterns: patterns
                .iter()
                .filter(|pattern| !pattern.is_empty())
                .cloned()
                .collect(),
            cleaner: Cleaner::default(),
            partial_matched: false,
            next_allowed: None,
            struck: false,
            strikes: 0,
            suppressed: 0,
            hits: 0,
            disabled: false,
        }
    }

    pub fn is_active(&self) -> bool {
        !self.disabled && !self.patterns.is_empty()
    }

    pub fn has_hit(&self) -> bool {
        self.hits > 0
    }

    /// Takes new output.
    pub fn feed(&mut self, bytes: &[u8], now: Instant) -> Option<Found> {
        if !self.is_active() {
            return None;
        }
        let (pattern, lines) = self.matches(bytes)?;
        if self.next_allowed.is_some_and(|allowed| now < allowed) {
            return self.strike(lines.len() as u64);
        }
        if !std::mem::take(&mut self.struck) {
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
        Some(Found::Match {
            pattern,
            output,
            suppressed: std::mem::take(&mut self.suppressed) + left_out,
        })
    }

    /// One strike for each spacing, however many matches it had.
    fn strike(&mut self, lines: u64) -> Option<Found> {
        self.suppressed += lines;
        if std::mem::replace(&mut self.struck, true) {
            return None;
        }
        self.strikes += 1;
        if self.strikes < STRIKES {
            return None;
        }
        self.disabled = true;
        Some(Found::Disabled {
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
            // the first line may have matched before it was complete
            if !std::mem::take(&mut self.partial_matched)
                && let Some(pattern) = pattern_in(&self.patterns, line)
            {
                found.get_or_insert_with(|| pattern.to_owned());
                lines.push(line.trim_end().to_owned());
            }
        }
        if !self.partial_matched
            && let Some(pattern) = pattern_in(&self.patterns, self.cleaner.line())
        {
            self.partial_matched = true;
            found.get_or_insert_with(|| pattern.to_owned());
            lines.push(self.cleaner.line().trim_end().to_owned());
        }
        Some((found?, lines))
    }
}

fn pattern_in<'a>(patterns: &'a [String], line: &str) -> Option<&'a str> {
    patterns
        .iter()
        .find(|pattern| line.contains(pattern.as_str()))
        .map(String::as_str)
}

/// The limit over all processes.
#[derive(Debug, Default)]
pub struct Breaker {
    window_began: Option<Instant>,
    in_window: u32,
    paused_until: Option<Instant>,
    suppressed: u64,
}

/// What the breaker says to one match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    Yes,
    /// The pause is over, so many were left out; and yes.
    YesAgain {
        suppressed: u64,
    },
    /// The pause begins now.
    Pause,
    No,
}

impl Breaker {
    pub fn admit(&mut self, now: Instant) -> Admit {
        let mut again = None;
        if let Some(until) = self.paused_until {
            if now < until {
                self.suppressed += 1;
                return Admit::No;
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
            return Admit::Pause;
        }
        self.in_window += 1;
        match again {
            Some(suppressed) if suppressed > 0 => Admit::YesAgain { suppressed },
            _ => Admit::Yes,
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
            Some(Found::Match {
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
            matches!(found, Some(Found::Match { suppressed: 1, .. })),
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
                Some(Found::Match { .. })
            ));
            let second = watcher.feed(b"x\n", at + seconds(1));
            if round < 2 {
                assert_eq!(second, None);
            } else {
                assert!(matches!(second, Some(Found::Disabled { .. })), "{second:?}");
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
                matches!(watcher.feed(b"x\n", at), Some(Found::Match { .. })),
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
            assert_eq!(breaker.admit(start), Admit::Yes);
        }
        assert_eq!(breaker.admit(start), Admit::Pause);
        assert_eq!(breaker.admit(start + seconds(29)), Admit::No);
        assert_eq!(
            breaker.admit(start + seconds(31)),
            Admit::YesAgain { suppressed: 2 }
        );
        assert_eq!(breaker.admit(start + seconds(42)), Admit::Yes);
    }
}
