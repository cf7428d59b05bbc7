//! On whose behalf a call is made: who is asked when the server asks back.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::ask::Asker;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
    queue: Arc<Semaphore>,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    permit: Option<OwnedSemaphorePermit>,
    questions: usize,
}

impl Slot {
    pub(crate) fn new(queue: Arc<Semaphore>, permit: OwnedSemaphorePermit) -> Self {
        let held = Mutex::new(Held {
            permit: Some(permit),
            questions: 0,
        });
        Self(Arc::new(SlotState { queue, held }))
    }

    /// The place is free while the guard lives.
    pub(crate) fn pause(&self) -> Paused {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.questions += 1;
        held.permit = None;
        Paused(Arc::clone(&self.0))
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
            held.permit = Arc::clone(&self.0.queue).try_acquire_owned().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_free_while_a_person_thinks() {
        let queue = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&queue).acquire_owned().await.unwrap();
        let slot = Slot::new(Arc::clone(&queue), permit);
        assert_eq!(queue.available_permits(), 0);
        let first = slot.pause();
        let second = slot.pause();
        assert_eq!(queue.available_permits(), 1);
        drop(first);
        assert_eq!(queue.available_permits(), 1);
        drop(second);
        assert_eq!(queue.available_permits(), 0);
        let paused = slot.pause();
        let other = Arc::clone(&queue).acquire_owned().await.unwrap();
        drop(paused);
        drop(other);
        drop(slot);
        assert_eq!(queue.available_permits(), 1);
    }
}
