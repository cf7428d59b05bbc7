//! The state of the listening stream: whether it is open, how it is read, and which answers are
//! awaited on it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::RequestId;
use tokio::sync::watch;

/// How streams and answers of a server are read, according to the config.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadOptions {
    /// A listening stream that is silent for this long is reopened.
    pub(crate) silence: Option<Duration>,
    /// Answers are accepted by their content, whatever their content type.
    pub(crate) any_content_type: bool,
    /// How long an answer may take on the listening stream after its request was accepted.
    pub(crate) late_answer: Duration,
}

pub(crate) struct ListeningStream {
    options: Mutex<ReadOptions>,
    /// Open, or refused.
    settled: watch::Sender<bool>,
    open: AtomicBool,
    /// Requests that were accepted without an answer, which may arrive on this stream.
    awaited: Mutex<HashSet<RequestId>>,
}

impl Default for ListeningStream {
    fn default() -> Self {
        Self {
            options: Mutex::default(),
            settled: watch::Sender::new(false),
            open: AtomicBool::new(false),
            awaited: Mutex::default(),
        }
    }
}

impl ListeningStream {
    pub(crate) fn set_options(&self, options: ReadOptions) {
        *self.options.lock().unwrap_or_else(PoisonError::into_inner) = options;
    }

    pub(crate) fn options(&self) -> ReadOptions {
        *self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is open, or will not be.
    pub(crate) fn settle(&self) {
        self.settled.send_replace(true);
    }

    pub(super) fn is_settled(&self) -> bool {
        *self.settled.borrow()
    }

    pub(crate) async fn settled(&self) {
        let mut settled = self.settled.subscribe();
        // The sender is owned by `self`.
        let _ = settled.wait_for(|settled| *settled).await;
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// An answer to this request is awaited here while the guard exists.
    pub(super) fn expect(self: &Arc<Self>, id: &RequestId) -> OnStream {
        self.awaited().insert(id.clone());
        OnStream(Arc::clone(self), id.clone())
    }

    pub(super) fn expects_any(&self) -> bool {
        !self.awaited().is_empty()
    }

    /// Whether the answer to this request was awaited; ends the wait.
    pub(super) fn take(&self, id: &RequestId) -> bool {
        self.awaited().remove(id)
    }

    fn awaited(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`ListeningStream::expect`].
pub(crate) struct OnStream(Arc<ListeningStream>, RequestId);

impl Drop for OnStream {
    fn drop(&mut self) {
        self.0.awaited().remove(&self.1);
    }
}
