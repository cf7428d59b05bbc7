//! How requests ended, where rmcp does not say it in full.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;
use serde_json::Value;

use crate::failure::McpFailure;

/// What is kept for requests that nobody waits for any more is little; this keeps it so.
const KEPT: usize = 256;

#[derive(Default)]
pub(crate) struct RequestOutcomes {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// What a transport knows about the end of a request that rmcp reports without its reason.
    faults: HashMap<RequestId, McpFailure>,
    /// Results as the server sent them. rmcp's types would lose what they do not know, and all of a
    /// list in which one entry is odd.
    results: HashMap<RequestId, Value>,
    /// Requests that nobody waits for any more.
    unwanted: HashSet<RequestId>,
}

impl RequestOutcomes {
    pub(super) fn fail(&self, id: RequestId, why: McpFailure) {
        let mut known = self.known();
        if known.faults.len() < KEPT {
            known.faults.insert(id, why);
        }
    }

    pub(super) fn take_fault(&self, id: &RequestId) -> Option<McpFailure> {
        self.known().faults.remove(id)
    }

    /// Keeps the result for its caller; returns whether it was kept.
    pub(super) fn keep_result(&self, id: RequestId, result: Value) -> bool {
        let mut known = self.known();
        let kept = !known.unwanted.remove(&id) && known.results.len() < KEPT;
        if kept {
            known.results.insert(id, result);
        }
        kept
    }

    pub(super) fn take_result(&self, id: &RequestId) -> Option<Value> {
        self.known().results.remove(id)
    }

    /// Nobody waits for this request any more.
    pub(super) fn forget(&self, id: &RequestId) {
        let mut known = self.known();
        known.faults.remove(id);
        if known.results.remove(id).is_none() {
            // Most are never answered, so the list would only grow.
            if known.unwanted.len() >= KEPT {
                known.unwanted.clear();
            }
            known.unwanted.insert(id.clone());
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
