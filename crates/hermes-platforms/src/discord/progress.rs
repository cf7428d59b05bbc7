//! Up to which sequence number everything is stored.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sequence numbers of one session. Events finish in any order; the first unfinished one counts.
#[derive(Debug, Default)]
pub(super) struct EventProgress(Mutex<EventProgressState>);

#[derive(Debug, Default)]
struct EventProgressState {
    /// Which session the numbers belong to.
    session: u64,
    last: Option<u64>,
    open: BTreeSet<u64>,
}

/// An event in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventTicket {
    session: u64,
    seq: u64,
}

impl EventProgress {
    fn state(&self) -> MutexGuard<'_, EventProgressState> {
        // A panic while holding this lock cannot leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session restarts the numbers.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        *state = EventProgressState {
            session: state.session + 1,
            ..EventProgressState::default()
        };
    }

    /// Registers an event, which is unfinished until [`EventProgress::done`].
    pub(super) fn came(&self, seq: u64) -> EventTicket {
        let mut state = self.state();
        state.last = state.last.max(Some(seq));
        state.open.insert(seq);
        EventTicket {
            session: state.session,
            seq,
        }
    }

    pub(super) fn done(&self, ticket: EventTicket) {
        let mut state = self.state();
        if state.session == ticket.session {
            state.open.remove(&ticket.seq);
        }
    }

    /// The number up to which everything is done. `None`: no event yet.
    pub(super) fn stored(&self) -> Option<u64> {
        let state = self.state();
        match state.open.first() {
            Some(open) => open.checked_sub(1),
            None => state.last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_open_event_decides() {
        let progress = EventProgress::default();
        assert_eq!(progress.stored(), None);
        progress.begin();
        let one = progress.came(1);
        assert_eq!(progress.stored(), Some(0));
        progress.done(one);
        let (two, three) = (progress.came(2), progress.came(3));
        progress.done(three);
        assert_eq!(progress.stored(), Some(1));
        progress.done(two);
        assert_eq!(progress.stored(), Some(3));
        progress.begin();
        let first = progress.came(2);
        progress.done(two);
        assert_eq!(progress.stored(), Some(1));
        progress.done(first);
        assert_eq!(progress.stored(), Some(2));
    }
}
