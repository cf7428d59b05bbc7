//! The conversation a call belongs to, and its slot in the queue.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::ask::Asker;

use crate::actor::call_queue::{CallPermit, CallQueue};

/// The conversation a call belongs to, and whom to ask when the server sends a question during it.
#[derive(Clone)]
pub struct CallOrigin {
    /// Identifies the conversation. A question that names no call is only answered if all calls of
    /// the server belong to one conversation.
    pub session: String,
    pub asker: Arc<dyn Asker>,
}

impl fmt::Debug for CallOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behalf")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// Whom to ask, or why no user can be asked.
pub type AskerResult = Result<Arc<dyn Asker>, String>;

/// A call's permit, which is released while the user is asked so that a question delays no other
/// call.
#[derive(Clone, Debug)]
pub struct Slot(Arc<SlotState>);

#[derive(Debug)]
struct SlotState {
    queue: CallQueue,
    conversation: String,
    held: Mutex<HeldPermit>,
}

#[derive(Debug)]
struct HeldPermit {
    permit: Option<CallPermit>,
    questions: usize,
}

impl Slot {
    pub(crate) fn new(queue: CallQueue, permit: CallPermit) -> Self {
        let conversation = permit.conversation().to_owned();
        let held = Mutex::new(HeldPermit {
            permit: Some(permit),
            questions: 0,
        });
        Self(Arc::new(SlotState {
            queue,
            conversation,
            held,
        }))
    }

    /// Releases the permit while the guard is alive.
    pub(crate) fn pause(&self) -> PausedSlot {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.questions += 1;
        held.permit = None;
        PausedSlot(Arc::clone(&self.0))
    }

    /// See [`CallQueue::isolate_conversations`].
    pub(crate) fn isolate_conversations(&self) {
        self.0.queue.isolate_conversations();
    }
}

/// See [`Slot::pause`].
pub(crate) struct PausedSlot(Arc<SlotState>);

impl Drop for PausedSlot {
    fn drop(&mut self) {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.questions = held.questions.saturating_sub(1);
        if held.questions == 0 && held.permit.is_none() {
            // If another call took the permit, one call more than the limit runs for a while: this
            // one has already started and cannot wait.
            held.permit = self.0.queue.try_acquire(&self.0.conversation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slot_is_free_while_the_user_is_asked() {
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
