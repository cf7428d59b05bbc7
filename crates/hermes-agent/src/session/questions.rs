//! Carries questions to the person through events, and the answers back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_core::BoxFuture;
use hermes_core::ask::{Answer, Asker, Question};
use hermes_core::event::AgentEvent;
use hermes_core::task;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::events::EventSink;

type QuestionWaiter = HashMap<String, oneshot::Sender<Answer>>;

/// Questions that wait for an answer.
#[derive(Clone, Default)]
pub(super) struct OpenQuestions(Arc<Mutex<QuestionWaiter>>);

impl OpenQuestions {
    /// Hands over an answer. `false`: nobody waits for it (any more).
    pub(super) fn answer(&self, question: &str, answer: Answer) -> bool {
        let waiting = self.lock().remove(question);
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    /// The asker of one turn.
    pub(super) fn asker(&self, events: EventSink, cancel: CancellationToken) -> SessionAsker {
        SessionAsker {
            questions: self.clone(),
            events,
            cancel,
        }
    }

    fn lock(&self) -> MutexGuard<'_, QuestionWaiter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct SessionAsker {
    questions: OpenQuestions,
    events: EventSink,
    cancel: CancellationToken,
}

/// An open question. However it ends, front ends are notified, so that none keeps asking.
struct QuestionGuard<'a> {
    asker: &'a SessionAsker,
    /// `None`: it is closed.
    id: Option<String>,
}

impl QuestionGuard<'_> {
    async fn close(mut self) {
        if let Some(question) = self.forget() {
            let closed = AgentEvent::QuestionClosed { question };
            self.asker.events.emit(closed).await;
        }
    }

    fn forget(&mut self) -> Option<String> {
        let id = self.id.take()?;
        self.asker.questions.lock().remove(&id);
        Some(id)
    }
}

/// Whoever asked has gone without waiting for the answer.
impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        let Some(question) = self.forget() else {
            return;
        };
        let events = self.asker.events.clone();
        if tokio::runtime::Handle::try_current().is_ok() {
            drop(task::spawn("question-closed", async move {
                events.emit(AgentEvent::QuestionClosed { question }).await;
            }));
        }
    }
}

impl Asker for SessionAsker {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let unanswered = |why: &str| Answer::Unanswered {
                why: why.to_owned(),
            };
            if self.cancel.is_cancelled() {
                return unanswered("the turn was stopped");
            }
            let (answer, waiting) = oneshot::channel();
            let id = question.id.clone();
            self.questions.lock().insert(id.clone(), answer);
            let open = QuestionGuard {
                asker: self,
                id: Some(id),
            };
            let asked = async {
                self.events
                    .emit(AgentEvent::QuestionAsked { question })
                    .await;
                waiting.await
            };
            let answer = tokio::select! {
                biased;
                () = self.cancel.cancelled() => unanswered("the turn was stopped"),
                answer = asked => answer.unwrap_or_else(|_| unanswered("nobody answered")),
            };
            open.close().await;
            answer
        })
    }
}
