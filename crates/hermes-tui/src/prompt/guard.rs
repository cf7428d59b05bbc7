//! Keys that were not meant for a prompt do not answer it.

use std::time::{Duration, Instant};

/// How long nothing may have been typed, and the prompt must have been on the screen, before a key
/// counts.
pub const QUIET: Duration = Duration::from_secs(1);

/// Closed at first; opens once the person has had time to see what is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guard {
    /// `None`: it is not on the screen yet.
    opens: Option<Instant>,
}

impl Guard {
    /// The prompt is on the screen.
    pub fn seen(&mut self, now: Instant) {
        self.opens.get_or_insert(now + QUIET);
    }

    /// It is not on the screen any more.
    pub fn hidden(&mut self) {
        self.opens = None;
    }

    pub fn is_open(&self, now: Instant) -> bool {
        self.opens.is_some_and(|opens| now >= opens)
    }

    /// A key came that was not meant for the prompt: the person types on.
    pub fn typed(&mut self, now: Instant) {
        if let Some(opens) = &mut self.opens {
            *opens = (*opens).max(now + QUIET);
        }
    }

    /// How long until it opens; `None`: it is open.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let left = self
            .opens
            .map_or(QUIET, |opens| opens.saturating_duration_since(now));
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_keeps_it_closed() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut guard = Guard::default();
        // Nobody has seen it.
        assert!(!guard.is_open(at(60_000)));
        guard.typed(at(500));
        guard.seen(at(0));
        assert!(!guard.is_open(at(999)));
        guard.typed(at(900));
        assert!(!guard.is_open(at(1_000)) && !guard.is_open(at(1_899)));
        assert_eq!(guard.left(at(1_400)), Some(Duration::from_millis(500)));
        assert!(guard.is_open(at(1_900)));
        assert_eq!(guard.left(at(1_900)), None);
        guard.hidden();
        assert!(!guard.is_open(at(9_000)));
    }
}
