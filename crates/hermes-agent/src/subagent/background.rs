//! Delegations that nobody waits for: their reports come as a message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::event::{AgentCommand, UserInput};

use crate::session::{SessionHandle, WeakSession};

/// Brings reports to the conversation that delegated the work. Clones share it.
#[derive(Clone, Default)]
pub struct Post {
    session: Arc<Mutex<Option<WeakSession>>>,
    running: Arc<AtomicUsize>,
}

impl Post {
    /// Reports go to this session from now on. It may still end when nobody else holds it.
    pub fn attach(&self, session: &SessionHandle) {
        let mut place = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(session.downgrade());
    }

    /// Whether somebody would get a report.
    pub(super) fn is_attached(&self) -> bool {
        self.session()
            .is_some_and(|session| session.upgrade().is_some())
    }

    /// A place for one more delegation; `None`: `most` are running.
    pub(super) fn take_place(&self, most: usize) -> Option<Place> {
        let taken = self
            .running
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |running| {
                (running < most).then_some(running + 1)
            });
        taken.ok().map(|_| Place(Arc::clone(&self.running)))
    }

    /// `false`: the session is over; the reports are in the rows of the children.
    pub(super) async fn deliver(&self, text: String) -> bool {
        let session = self.session().and_then(|session| session.upgrade());
        let Some(session) = session else {
            return false;
        };
        let input = UserInput::from(text.as_str());
        session.send(AgentCommand::Queue(input)).await.is_ok()
    }

    fn session(&self) -> Option<WeakSession> {
        self.session
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A running delegation.
pub(super) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
