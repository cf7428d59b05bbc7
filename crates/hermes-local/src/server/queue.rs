//! Requests that wait for the model: few, in order, and dropped when cancelled.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::generation::{AnswerDelta, GenerationError, GenerationOutcome, GenerationRequest};

/// Maximum number of waiting requests, besides the running one.
pub(super) const MAX_WAITING: usize = 8;

pub(super) struct QueuedRequest {
    pub(super) ask: GenerationRequest,
    pub(super) cancel: CancellationToken,
    pub(super) deltas: mpsc::Sender<AnswerDelta>,
    pub(super) done: oneshot::Sender<FinishedAnswer>,
}

/// The end of an answer, with the deltas that did not fit into the channel.
pub(super) struct FinishedAnswer {
    pub(super) rest: Vec<AnswerDelta>,
    pub(super) result: Result<GenerationOutcome, GenerationError>,
}

#[derive(Default)]
pub(super) struct RequestQueue {
    inner: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<QueuedRequest>,
    closed: bool,
}

/// The queue is full.
#[derive(Debug)]
pub(super) struct QueueFull;

impl RequestQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, job: QueuedRequest) -> Result<(), QueueFull> {
        let mut inner = self.lock();
        inner.jobs.retain(|job| !job.cancel.is_cancelled());
        if inner.closed || inner.jobs.len() >= MAX_WAITING {
            return Err(QueueFull);
        }
        inner.jobs.push_back(job);
        drop(inner);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a request; `None`: the queue is closed.
    pub(super) fn take(&self) -> Option<QueuedRequest> {
        let mut inner = self.lock();
        loop {
            if inner.closed {
                return None;
            }
            if let Some(job) = inner.jobs.pop_front() {
                return Some(job);
            }
            inner = self
                .changed
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn waiting(&self) -> usize {
        let jobs = &self.lock().jobs;
        jobs.iter().filter(|job| !job.cancel.is_cancelled()).count()
    }

    /// Closes the queue.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.jobs.clear();
        drop(inner);
        self.changed.notify_all();
    }
}
