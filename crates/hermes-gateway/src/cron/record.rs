//! The ends of runs go into the table together: each write rewrites the whole file, so one for
//! every run would cost the square of what is due.
//!
//! Waiting is safe: the end of a run lies in `finished/` before it comes here.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_config::Zone;
use hermes_store::jobs::{EndedRun, JobAfterRun};
use tokio::sync::oneshot;

use super::SchedulerInner;

/// RecordedEnds wait this long for others while more runs go on.
const TOGETHER: Duration = Duration::from_millis(500);

type RecordResult = Result<JobAfterRun, String>;

/// RecordedEnds that are not in the table yet.
#[derive(Default)]
pub(super) struct RunRecorder {
    queue: Mutex<RecordQueue>,
    /// Somebody waits to write them, and a reason to wait is gone.
    full: tokio::sync::Notify,
}

#[derive(Default)]
struct RecordQueue {
    ends: Vec<(EndedRun<Zone>, oneshot::Sender<RecordResult>)>,
    /// Somebody has taken it on to write what is here.
    led: bool,
}

impl RunRecorder {
    fn queue(&self) -> MutexGuard<'_, RecordQueue> {
        // A panic while holding this lock cannot leave the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SchedulerInner {
    /// Records the end of a run in the table, with those of others that end at about the same time.
    pub(super) async fn record_end(&self, end: EndedRun<Zone>) -> RecordResult {
        let (answer, answered) = oneshot::channel();
        let leads = {
            let mut queue = self.ends.queue();
            queue.ends.push((end, answer));
            !std::mem::replace(&mut queue.led, true)
        };
        if self.nobody_else_comes() {
            self.ends.full.notify_one();
        }
        if leads {
            self.write_ends().await;
        }
        answered
            .await
            .unwrap_or_else(|_| Err("the end was not written".to_owned()))
    }

    /// Whether every run that goes on has come to its end already.
    fn nobody_else_comes(&self) -> bool {
        self.ends.queue().ends.len() >= self.running().len()
    }

    async fn write_ends(&self) {
        if !self.nobody_else_comes() {
            // Whichever comes first; an early wake only makes a smaller group.
            let _ = tokio::time::timeout(TOGETHER, self.ends.full.notified()).await;
        }
        let taken = {
            let mut queue = self.ends.queue();
            queue.led = false;
            std::mem::take(&mut queue.ends)
        };
        let (ends, answers): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
        let jobs = self.deps.jobs.clone();
        let written = tokio::task::spawn_blocking(move || jobs.finish_runs(&ends)).await;
        let after = match written {
            Ok(Ok(after)) => after.into_iter().map(Ok).collect(),
            Ok(Err(error)) => vec![Err(error.to_string()); answers.len()],
            Err(error) => vec![Err(error.to_string()); answers.len()],
        };
        for (answer, after) in answers.into_iter().zip::<Vec<RecordResult>>(after) {
            // Whoever asked may be gone.
            let _ = answer.send(after);
        }
    }
}
