//! Who has calls under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::actor::behalf::{Behalf, Slot};
use crate::transport::link::LinkCall;

#[derive(Default)]
pub(crate) struct CallsUnderWay {
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    last: u64,
    under_way: Vec<(u64, Behalf, Option<Slot>)>,
}

impl CallsUnderWay {
    /// The call is under way while the guard lives.
    pub(super) fn enter(self: &Arc<Self>, call: &LinkCall) -> Calling {
        let mut calls = self.calls();
        calls.last += 1;
        let key = calls.last;
        if let Some(behalf) = &call.behalf {
            let entry = (key, behalf.clone(), call.slot.clone());
            calls.under_way.push(entry);
        }
        Calling(Arc::clone(self), key)
    }

    /// The conversation that receives a server's question that names no call: the one with calls in
    /// progress, if there is exactly one. The slot is that of the latest call.
    pub(super) fn only_one(&self) -> Result<(Behalf, Option<Slot>), String> {
        let calls = self.calls();
        let Some((_, last, slot)) = calls.under_way.last() else {
            return Err("no call of a person is under way".to_owned());
        };
        if calls
            .under_way
            .iter()
            .any(|(_, other, _)| other.session != last.session)
        {
            // The next question can be asked.
            if let Some(slot) = slot {
                slot.keep_conversations_apart();
            }
            return Err(
                "several conversations use this server now, and it does not say which of them \
                 it asks"
                    .to_owned(),
            );
        }
        Ok((last.clone(), slot.clone()))
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`CallsUnderWay::enter`].
pub(crate) struct Calling(Arc<CallsUnderWay>, u64);

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.calls().under_way.retain(|(key, ..)| *key != self.1);
    }
}
