//! Session ids in use. A server may give the same id again, so that a connection that ends would
//! delete the session of its successor.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ids of one server, and how many connections use each.
#[derive(Debug, Default)]
pub(crate) struct SessionIds(Mutex<HashMap<String, usize>>);

/// An id that a connection uses, for as long as this lives.
#[derive(Debug)]
pub(crate) struct HeldSession {
    ids: Arc<SessionIds>,
    id: String,
}

impl SessionIds {
    pub(crate) fn hold(self: &Arc<Self>, id: String) -> HeldSession {
        *self.counts().entry(id.clone()).or_default() += 1;
        let ids = Arc::clone(self);
        HeldSession { ids, id }
    }

    pub(crate) fn is_held(&self, id: &str) -> bool {
        self.counts().contains_key(id)
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldSession {
    fn drop(&mut self) {
        let mut counts = self.ids.counts();
        match counts.get_mut(&self.id) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                counts.remove(&self.id);
            }
        }
    }
}
