//! The thread that owns the model.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use super::queue::{FinishedAnswer, QueuedRequest, RequestQueue};
use super::stats::ServerStats;
use crate::chat::ChatError;
use crate::engine::{ModelFacts, OpenError};
use crate::generation::{
    AnswerDelta, GenerationError, GenerationOutcome, ModelOpener, ModelSession,
};

/// Why there is no model (any more).
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkerError {
    #[error(transparent)]
    ModelOpener(#[from] OpenError),
    #[error(transparent)]
    Chat(#[from] ChatError),
    #[error("the thread of the model cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// What the thread reports: the model's facts once it is open, and its end.
pub(super) struct ModelThread {
    pub(super) ready: oneshot::Receiver<Result<ModelFacts, WorkerError>>,
    /// Completes when the queue is closed; with an error if the model is lost.
    pub(super) ended: oneshot::Receiver<Result<(), WorkerError>>,
}

pub(super) fn start(
    mut open: ModelOpener,
    queue: Arc<RequestQueue>,
    stats: Arc<ServerStats>,
) -> Result<ModelThread, WorkerError> {
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
    Ok(ModelThread { ready, ended })
}

fn session(open: &mut ModelOpener) -> Result<ModelSession, WorkerError> {
    Ok(ModelSession::new(open()?)?)
}

fn work(
    mut session: ModelSession,
    open: &mut ModelOpener,
    queue: &RequestQueue,
    stats: &ServerStats,
) -> Result<(), WorkerError> {
    while let Some(job) = queue.take() {
        if job.cancel.is_cancelled() {
            continue;
        }
        stats.begin();
        let mut sink = DeltaSink::new(&job);
        let answered = catch_unwind(AssertUnwindSafe(|| {
            answer(&mut session, &job, stats, &mut sink)
        }));
        let rest = sink.rest;
        let panicked = answered.is_err();
        let result = answered.unwrap_or(Err(GenerationError::Panicked));
        stats.end(result.as_ref().ok().map(|outcome| &outcome.used));
        // A disconnected client needs no answer.
        let _ = job.done.send(FinishedAnswer { rest, result });
        if panicked {
            tracing::error!("the model panicked; it is opened again");
            // Memory may not suffice for both.
            drop(session);
            session = self::session(open)?;
        }
    }
    Ok(())
}

fn answer(
    session: &mut ModelSession,
    job: &QueuedRequest,
    stats: &ServerStats,
    sink: &mut DeltaSink,
) -> Result<GenerationOutcome, GenerationError> {
    session.answer(
        &job.ask,
        &mut |delta| sink.tell(delta),
        &|| stats.token(),
        &|| job.cancel.is_cancelled(),
    )
}

/// Forwards deltas to the client. The model never waits for a slow client: deltas that do not fit are kept and
/// merged.
struct DeltaSink {
    deltas: tokio::sync::mpsc::Sender<AnswerDelta>,
    rest: Vec<AnswerDelta>,
}

impl DeltaSink {
    fn new(job: &QueuedRequest) -> Self {
        Self {
            deltas: job.deltas.clone(),
            rest: Vec::new(),
        }
    }

    fn tell(&mut self, delta: AnswerDelta) {
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

fn join(deltas: &mut Vec<AnswerDelta>, delta: AnswerDelta) {
    match (deltas.last_mut(), delta) {
        (Some(AnswerDelta::Text(last)), AnswerDelta::Text(more)) => last.push_str(&more),
        (
            Some(AnswerDelta::Arguments { index, text }),
            AnswerDelta::Arguments {
                index: next,
                text: more,
            },
        ) if *index == next => text.push_str(&more),
        (_, delta) => deltas.push(delta),
    }
}
