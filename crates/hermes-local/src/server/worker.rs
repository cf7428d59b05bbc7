//! The thread that the model lives on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use super::queue::{Answered, Job, Queue};
use super::stats::Stats;
use crate::chat::ChatError;
use crate::engine::{Facts, OpenError};
use crate::talk::{Delta, Failure, Open, Outcome, Session};

/// Why there is no model (any more).
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkerError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Chat(#[from] ChatError),
    #[error("the thread of the model cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// What comes from the thread: the model once it is open, and the end.
pub(super) struct Started {
    pub(super) ready: oneshot::Receiver<Result<Facts, WorkerError>>,
    /// Ends when the queue is closed; with an error if the model is lost.
    pub(super) ended: oneshot::Receiver<Result<(), WorkerError>>,
}

pub(super) fn start(
    mut open: Open,
    queue: Arc<Queue>,
    stats: Arc<Stats>,
) -> Result<Started, WorkerError> {
    let (tell_ready, ready) = oneshot::channel();
    let (tell_ended, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name("model".to_owned())
        .spawn(move || {
            let session = match session(&mut open) {
                Ok(session) => session,
                Err(error) => {
                    let _ = tell_ready.send(Err(error));
                    return;
                }
            };
            let _ = tell_ready.send(Ok(session.facts().clone()));
            let _ = tell_ended.send(work(session, &mut open, &queue, &stats));
        })?;
    Ok(Started { ready, ended })
}

fn session(open: &mut Open) -> Result<Session, WorkerError> {
    Ok(Session::new(open()?)?)
}

fn work(
    mut session: Session,
    open: &mut Open,
    queue: &Queue,
    stats: &Stats,
) -> Result<(), WorkerError> {
    while let Some(job) = queue.take() {
        if job.cancel.is_cancelled() {
            continue;
        }
        stats.begin();
        let mut sink = Sink::new(&job);
        let answered = catch_unwind(AssertUnwindSafe(|| {
            answer(&mut session, &job, stats, &mut sink)
        }));
        let rest = sink.rest;
        let panicked = answered.is_err();
        let result = answered.unwrap_or(Err(Failure::Panicked));
        stats.end(result.as_ref().ok().map(|outcome| &outcome.used));
        // A client that is gone needs no answer.
        let _ = job.done.send(Answered { rest, result });
        if panicked {
            tracing::error!("the model panicked; it is opened again");
            // There may be no room in memory for both.
            drop(session);
            session = self::session(open)?;
        }
    }
    Ok(())
}

fn answer(
    session: &mut Session,
    job: &Job,
    stats: &Stats,
    sink: &mut Sink,
) -> Result<Outcome, Failure> {
    session.answer(
        &job.ask,
        &mut |delta| sink.tell(delta),
        &|| stats.token(),
        &|| job.cancel.is_cancelled(),
    )
}

/// Deltas on their way to the client. The model never waits for one that reads slowly: what there
/// is no room for is kept and joined.
struct Sink {
    deltas: tokio::sync::mpsc::Sender<Delta>,
    rest: Vec<Delta>,
}

impl Sink {
    fn new(job: &Job) -> Self {
        Self {
            deltas: job.deltas.clone(),
            rest: Vec::new(),
        }
    }

    fn tell(&mut self, delta: Delta) {
        join(&mut self.rest, delta);
        while let Some(first) = self.rest.first() {
            match self.deltas.try_send(first.clone()) {
                Ok(()) => {
                    self.rest.remove(0);
                }
                Err(TrySendError::Full(_)) => return,
                Err(TrySendError::Closed(_)) => {
                    self.rest.clear();
                    return;
                }
            }
        }
    }
}

fn join(deltas: &mut Vec<Delta>, delta: Delta) {
    match (deltas.last_mut(), delta) {
        (Some(Delta::Text(last)), Delta::Text(more)) => last.push_str(&more),
        (
            Some(Delta::Arguments { index, text }),
            Delta::Arguments {
                index: next,
                text: more,
            },
        ) if *index == next => text.push_str(&more),
        (_, delta) => deltas.push(delta),
    }
}
