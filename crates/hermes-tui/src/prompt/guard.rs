//! Protects prompts from keys that were not meant for them.

use std::time::{Duration, Instant};

use super::approval::KeyResult;
use crate::keys::{KeyCode, KeyPress};

/// How long nothing may have been typed, and the prompt must have been visible, before a key
/// counts.
pub(crate) const QUIET_TIME: Duration = Duration::from_secs(1);

/// Closed at first; opens once the person has had time to see the prompt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyGuard {
    /// `None`: not visible yet.
    opens: Option<Instant>,
    /// A message was being written when the prompt appeared: keys belong to it until there is a
    /// pause.
    writing: bool,
}

impl KeyGuard {
    /// For a prompt that appears while the person writes a message.
    pub(crate) fn amid_writing(writing: bool) -> Self {
        Self {
            opens: None,
            writing,
        }
    }

    /// A key that came too early to answer. Input typed before the prompt was visible, or that
    /// continues a message, goes to the draft; anything else is refused with a notice.
    pub(crate) fn early<T>(
        &mut self,
        key: KeyPress,
        now: Instant,
    ) -> (KeyResult<T>, Option<String>) {
        let unseen = self.opens.is_none();
        self.typed(now);
        if !unseen && !self.writing {
            let notice = format!("{} was pressed too soon and ignored", key.shown());
            return (KeyResult::Ignored(vec![key]), Some(notice));
        }
        // Enter and Esc do not edit a draft.
        if key.text().is_some() || key.code == KeyCode::Backspace {
            let notice = (!unseen).then(|| "what you type goes to your draft".to_owned());
            (KeyResult::Draft(vec![key]), notice)
        } else {
            (KeyResult::Redraw, None)
        }
    }

    /// The prompt became visible.
    pub(crate) fn seen(&mut self, now: Instant) {
        self.opens.get_or_insert(now + QUIET_TIME);
    }

    /// It is no longer visible.
    pub(crate) fn hidden(&mut self) {
        self.opens = None;
    }

    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.opens.is_some_and(|opens| now >= opens)
    }

    /// A key that was not meant for the prompt: the person is still typing.
    pub(crate) fn typed(&mut self, now: Instant) {
        if let Some(opens) = &mut self.opens {
            // After a pause the message is no longer being written.
            self.writing &= now < *opens;
            *opens = (*opens).max(now + QUIET_TIME);
        }
    }

    /// Time until it opens; `None`: it is open.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let left = self
            .opens
            .map_or(QUIET_TIME, |opens| opens.saturating_duration_since(now));
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
        let mut guard = KeyGuard::default();
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
