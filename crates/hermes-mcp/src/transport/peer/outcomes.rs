//! Outcomes of requests that rmcp does not report completely.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;
use serde_json::Value;

use crate::failure::McpFailure;

/// Limits the entries for requests that no caller waits for any more.
const MAX_ENTRIES: usize = 256;

#[derive(Default)]
pub(crate) struct RequestOutcomes {
    tables: Mutex<OutcomeTables>,
}

#[derive(Default)]
struct OutcomeTables {
    /// The reason known to the transport, for requests whose failure rmcp reports without one.
    faults: HashMap<RequestId, McpFailure>,
    /// Raw results. rmcp's types would lose unknown members, and a whole list if one entry is odd.
    results: HashMap<RequestId, Value>,
    /// Requests that no caller waits for any more.
    abandoned: HashSet<RequestId>,
}

impl RequestOutcomes {
    pub(super) fn fail(&self, id: RequestId, why: McpFailure) {
        let mut tables = self.tables();
        if tables.faults.len() < MAX_ENTRIES {
            tables.faults.insert(id, why);
        }
    }

    pub(super) fn take_fault(&self, id: &RequestId) -> Option<McpFailure> {
        self.tables().faults.remove(id)
    }

    /// Stores the result for its caller; returns whether it was stored.
    pub(super) fn store_result(&self, id: RequestId, result: Value) -> bool {
        let mut tables = self.tables();
        let stored = !tables.abandoned.remove(&id) && tables.results.len() < MAX_ENTRIES;
        if stored {
            tables.results.insert(id, result);
        }
        stored
    }

    pub(super) fn take_result(&self, id: &RequestId) -> Option<Value> {
        self.tables().results.remove(id)
    }

    /// No caller waits for this request any more.
    pub(super) fn forget(&self, id: &RequestId) {
        let mut tables = self.tables();
        tables.faults.remove(id);
        if tables.results.remove(id).is_none() {
            // Most are never answered, so the list would only grow.
            if tables.abandoned.len() >= MAX_ENTRIES {
                tables.abandoned.clear();
            }
            tables.abandoned.insert(id.clone());
        }
    }

    fn tables(&self) -> MutexGuard<'_, OutcomeTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
