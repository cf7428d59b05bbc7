//! Keys that were not meant for a prompt do not answer it.

use std::time::{Duration, Instant};

use super::approval::Step;
use crate::keys::{Code, Key};

/// How long nothing may have been typed, and the prompt must have been on the screen, before a key
/// counts.
pub const QUIET: Duration = Duration::from_secs(1);

/// Closed at first; opens once the person has had time to see what is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guard {
    /// `None`: it is not on the screen yet.
    opens: Option<Instant>,
    /// A message was being written when the prompt came: until there is a pause, keys are its.
    writing: bool,
}

impl Guard {
    /// For a prompt that comes while the person writes a message.
    pub fn amid_writing(writing: bool) -> Self {
        Self {
            opens: None,
            writing,
        }
    }

    /// A key that came too early to answer. What was typed before the prompt could be seen, or goes
    /// on with a message, is for the draft; anything else is refused, and the person is told.
    pub fn early<T>(&mut self, key: Key, now: Instant) -> (Step<T>, Option<String>) {
        let unseen = self.opens.is_none();
        self.typed(now);
        if !unseen && !self.writing {
            let told = format!("{} came too soon and was ignored", key.shown());
            return (Step::Redraw, Some(told));
        }
        // Enter and Esc edit no draft.
        if key.text().is_some() || key.code == Code::Backspace {
            let told = (!unseen).then(|| "what you type goes to your draft".to_owned());
            (Step::Draft(vec![key]), told)
        } else {
            (Step::Redraw, None)
        }
    }

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
            // After a pause nobody writes on.
            self.writing &= now < *opens;
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
