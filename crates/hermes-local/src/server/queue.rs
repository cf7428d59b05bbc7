//! Questions that wait for the model: few, in order, and gone when nobody waits for them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::talk::{Ask, Delta, Failure, Outcome};

/// Questions that wait, beside the one that is being answered.
pub(super) const WAITING: usize = 8;

pub(super) struct Job {
    pub(super) ask: Ask,
    pub(super) cancel: CancellationToken,
    pub(super) deltas: mpsc::Sender<Delta>,
    pub(super) done: oneshot::Sender<Answered>,
}

/// The end of an answer, with the deltas for which there was no room.
pub(super) struct Answered {
    pub(super) rest: Vec<Delta>,
    pub(super) result: Result<Outcome, Failure>,
}

#[derive(Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// There is no room.
#[derive(Debug)]
pub(super) struct Full;

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, job: Job) -> Result<(), Full> {
        let mut inner = self.lock();
        inner.jobs.retain(|job| !job.cancel.is_cancelled());
        if inner.closed || inner.jobs.len() >= WAITING {
            return Err(Full);
        }
        inner.jobs.push_back(job);
        drop(inner);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a question; none: there will be no more.
    pub(super) fn take(&self) -> Option<Job> {
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

    /// Nobody asks any more.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.jobs.clear();
        drop(inner);
        self.changed.notify_all();
    }
}
