//! The calls in progress, with their origins.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::actor::call_origin::{CallOrigin, Slot};
use crate::transport::link::LinkCall;

#[derive(Default)]
pub(crate) struct ActiveCalls {
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    last: u64,
    active: Vec<(u64, CallOrigin, Option<Slot>)>,
}

impl ActiveCalls {
    /// The call counts as active while the guard exists.
    pub(super) fn enter(self: &Arc<Self>, call: &LinkCall) -> ActiveCallGuard {
        let mut calls = self.calls();
        calls.last += 1;
        let key = calls.last;
        if let Some(origin) = &call.origin {
            let entry = (key, origin.clone(), call.slot.clone());
            calls.active.push(entry);
        }
        ActiveCallGuard(Arc::clone(self), key)
    }

    /// The conversation that receives a server's question without a call id: the one with calls in
    /// progress, if there is exactly one. The slot is that of the latest call.
    pub(super) fn only_conversation(&self) -> Result<(CallOrigin, Option<Slot>), String> {
        let calls = self.calls();
        let Some((_, last, slot)) = calls.active.last() else {
            return Err("no call of a person is under way".to_owned());
        };
        if calls
            .active
            .iter()
            .any(|(_, other, _)| other.session != last.session)
        {
            // From now on conversations take turns, so that the next question has one origin.
            if let Some(slot) = slot {
                slot.isolate_conversations();
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

/// See [`ActiveCalls::enter`].
pub(crate) struct ActiveCallGuard(Arc<ActiveCalls>, u64);

impl Drop for ActiveCallGuard {
    fn drop(&mut self) {
        self.0.calls().active.retain(|(key, ..)| *key != self.1);
    }
}
