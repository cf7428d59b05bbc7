//! Writes the ends of runs to the job table in groups: each write rewrites the whole file, so one
//! write per run would make the cost quadratic.
//!
//! Waiting is safe: the end of a run is stored in `finished/` first.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_config::Zone;
use hermes_store::jobs::{EndedRun, JobAfterRun};
use tokio::sync::oneshot;

use super::SchedulerInner;

/// How long to wait for further ends while other runs are active.
const BATCH_DELAY: Duration = Duration::from_millis(500);

type RecordResult = Result<JobAfterRun, String>;

/// Ends of runs that are not in the table yet.
#[derive(Default)]
pub(super) struct RunRecorder {
    queue: Mutex<RecordQueue>,
    /// Notified when there is no reason to wait any longer.
    full: tokio::sync::Notify,
}

#[derive(Default)]
struct RecordQueue {
    runs: Vec<(EndedRun<Zone>, oneshot::Sender<RecordResult>)>,
    /// A task is responsible for writing the queue.
    has_leader: bool,
}

impl RunRecorder {
    fn queue(&self) -> MutexGuard<'_, RecordQueue> {
        // A panic while holding this lock cannot leave the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SchedulerInner {
    /// Records the end of a run, together with others that end at about the same time.
    pub(super) async fn record_end(&self, end: EndedRun<Zone>) -> RecordResult {
        let (answer, answered) = oneshot::channel();
        let leads = {
            let mut queue = self.recorder.queue();
            queue.runs.push((end, answer));
            !std::mem::replace(&mut queue.has_leader, true)
        };
        if self.is_last() {
            self.recorder.full.notify_one();
        }
        if leads {
            self.write_ends().await;
        }
        answered
            .await
            .unwrap_or_else(|_| Err("the end was not written".to_owned()))
    }

    /// Whether no other run is active.
    fn is_last(&self) -> bool {
        self.recorder.queue().runs.len() >= self.running().len()
    }

    async fn write_ends(&self) {
        if !self.is_last() {
            // An early wake-up only makes the group smaller.
            let _ = tokio::time::timeout(BATCH_DELAY, self.recorder.full.notified()).await;
        }
        let claimed_jobs = {
            let mut queue = self.recorder.queue();
            queue.has_leader = false;
            std::mem::take(&mut queue.runs)
        };
        let (ends, answers): (Vec<_>, Vec<_>) = claimed_jobs.into_iter().unzip();
        let jobs = self.deps.jobs.clone();
        let written = tokio::task::spawn_blocking(move || jobs.finish_runs(&ends)).await;
        let after = match written {
            Ok(Ok(after)) => after.into_iter().map(Ok).collect(),
            Ok(Err(error)) => vec![Err(error.to_string()); answers.len()],
            Err(error) => vec![Err(error.to_string()); answers.len()],
        };
        for (answer, after) in answers.into_iter().zip::<Vec<RecordResult>>(after) {
            // The receiver may be gone.
            let _ = answer.send(after);
        }
    }
}
