//! Routes progress notifications to the callers.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::ProgressToken;
use tokio::sync::mpsc;

#[derive(Default)]
pub(crate) struct ProgressReports {
    readers: Mutex<HashMap<ProgressToken, mpsc::Sender<String>>>,
}

impl ProgressReports {
    pub(crate) fn watch(&self, token: ProgressToken, to: mpsc::Sender<String>) {
        self.readers().insert(token, to);
    }

    pub(crate) fn forget(&self, token: &ProgressToken) {
        self.readers().remove(token);
    }

    /// A report is dropped if the reader is busy: the next one is more recent.
    pub(crate) fn report(&self, token: &ProgressToken, text: String) {
        if let Some(to) = self.readers().get(token) {
            let _ = to.try_send(text);
        }
    }

    fn readers(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<String>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
