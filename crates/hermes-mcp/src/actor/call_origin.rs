//! On whose behalf a call is made: who is asked when the server asks back.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::ask::Asker;

use crate::actor::call_queue::{CallPermit, CallQueue};

/// The conversation that a call belongs to.
#[derive(Clone)]
pub struct Behalf {
    /// Names the conversation: a server that asks without saying about which call is answered only
    /// if all its calls belong to one.
    pub session: String,
    pub asker: Arc<dyn Asker>,
}

impl fmt::Debug for Behalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behalf")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// Whoever can be asked now, or why nobody can.
pub type Person = Result<Arc<dyn Asker>, String>;

/// A call's place among those that may run at once. It is given up while a person thinks, so that
/// a question holds up no other call.
#[derive(Clone, Debug)]
pub struct Slot(Arc<SlotState>);

#[derive(Debug)]
struct SlotState {
    queue: CallQueue,
    conversation: String,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    permit: Option<CallPermit>,
    questions: usize,
}

impl Slot {
    pub(crate) fn new(queue: CallQueue, permit: CallPermit) -> Self {
        let conversation = permit.conversation().to_owned();
        let held = Mutex::new(Held {
            permit: Some(permit),
            questions: 0,
        });
        Self(Arc::new(SlotState {
            queue,
            conversation,
            held,
        }))
    }

    /// The place is free while the guard lives.
    pub(crate) fn pause(&self) -> Paused {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.questions += 1;
        held.permit = None;
        Paused(Arc::clone(&self.0))
    }

    /// See [`CallQueue::separate`].
    pub(crate) fn keep_conversations_apart(&self) {
        self.0.queue.separate();
    }
}

/// See [`Slot::pause`].
pub(crate) struct Paused(Arc<SlotState>);

impl Drop for Paused {
    fn drop(&mut self) {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.questions = held.questions.saturating_sub(1);
        if held.questions == 0 && held.permit.is_none() {
            // Where somebody took the place, one call more than usual runs for a while: the one that
            // was asked has already begun and cannot wait.
            held.permit = self.0.queue.try_acquire(&self.0.conversation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_free_while_a_person_thinks() {
        let queue = CallQueue::new(1);
        let slot = Slot::new(queue.clone(), queue.acquire("a").await);
        assert_eq!(queue.running(), 1);
        let first = slot.pause();
        let second = slot.pause();
        assert_eq!(queue.running(), 0);
        drop(first);
        assert_eq!(queue.running(), 0);
        drop(second);
        assert_eq!(queue.running(), 1);
        let paused = slot.pause();
        let other = queue.acquire("b").await;
        drop(paused);
        drop(other);
        drop(slot);
        assert_eq!(queue.running(), 0);
    }
}
