//! Who follows the progress of which request.

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

    /// A report that finds the reader busy is dropped: the next one says more.
    pub(crate) fn report(&self, token: &ProgressToken, text: String) {
        if let Some(to) = self.readers().get(token) {
            let _ = to.try_send(text);
        }
    }

    fn readers(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<String>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
