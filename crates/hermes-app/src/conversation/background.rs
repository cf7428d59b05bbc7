//! Sessions that answer one question in the background (`/background`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_core::event::{AgentCommand, AgentEvent, TurnExit, TurnSummary};
use hermes_core::front_end::{Effect, TextKind};
use hermes_core::ids::SessionId;
use hermes_core::task;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::context::AppContext;
use crate::options::TurnOptions;

use super::show_text;
use crate::failure::Failure;
use crate::text::shorten;
use crate::wiring::{ConversationMode, OpenSession};

/// Maximum number of concurrent questions.
const MAX_QUESTIONS: usize = 8;
/// How long closing waits for interrupted questions.
const CLOSE_GRACE: Duration = Duration::from_secs(3);

/// The running background questions.
#[derive(Default)]
pub struct BackgroundQuestions {
    running: Arc<Mutex<Vec<BackgroundQuestion>>>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

/// A running background question.
#[derive(Clone, Debug)]
pub struct BackgroundQuestion {
    pub session: SessionId,
    pub question: String,
    stop: CancellationToken,
}

impl BackgroundQuestions {
    pub fn list(&self) -> Vec<BackgroundQuestion> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<BackgroundQuestion>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks in a separate session that uses the servers and the environment of `chat`. Anything
    /// that needs approval is refused, because no one is watching.
    pub async fn ask(
        &self,
        question: &str,
        (options, cx): (&TurnOptions, &AppContext),
        chat: &OpenSession,
        later: mpsc::Sender<Effect>,
    ) -> Result<SessionId, Failure> {
        if self.lock().len() >= MAX_QUESTIONS {
            return Err(Failure::usage(format!(
                "{MAX_QUESTIONS} questions are being answered already; /agents lists them"
            )));
        }
        let request = chat.beside(options, cx, ConversationMode::Query);
        let (mut side, mut events) = OpenSession::open(request).await?;
        // Its resources belong to the conversation.
        side.borrows = true;
        side.send(AgentCommand::Submit(question.into())).await?;
        let asked = BackgroundQuestion {
            session: side.id.clone(),
            question: question.to_owned(),
            stop: self.ended.child_token(),
        };
        self.lock().push(asked.clone());
        let running = Arc::clone(&self.running);
        let id = asked.session.clone();
        let work = async move {
            let summary = loop {
                tokio::select! {
                    event = events.recv() => match event.map(|event| event.event) {
                        Some(AgentEvent::TurnFinished { summary }) => break Some(summary),
                        Some(_) => {}
                        None => break None,
                    },
                    () = asked.stop.cancelled() => break None,
                }
            };
            drop(events);
            side.close().await;
            done(&running, &asked.session);
            for effect in report(&asked, summary) {
                // The receiver is gone.
                let _ = later.send(effect).await;
            }
        };
        let _detached = task::spawn("background question", self.tasks.track_future(work));
        Ok(id)
    }

    /// Stops the question of this session, or all. Returns their number.
    pub fn stop(&self, session: Option<&str>) -> usize {
        let running = self.lock();
        let wanted = running
            .iter()
            .filter(|asked| session.is_none_or(|id| asked.session.as_str() == id));
        wanted.inspect(|asked| asked.stop.cancel()).count()
    }

    pub async fn close(&self) {
        self.ended.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(CLOSE_GRACE, self.tasks.wait()).await;
    }
}

fn done(running: &Mutex<Vec<BackgroundQuestion>>, session: &SessionId) {
    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
    running.retain(|other| other.session != *session);
}

fn report(asked: &BackgroundQuestion, summary: Option<TurnSummary>) -> Vec<Effect> {
    let about = shorten(&asked.question, 60);
    let id = &asked.session;
    match summary {
        Some(summary) if summary.exit == TurnExit::Answered => vec![
            show_text(
                TextKind::Info,
                format!("answered in the background: {about} (/resume {id})"),
            ),
            show_text(TextKind::Markdown, summary.text),
        ],
        Some(summary) => {
            let why = hermes_agent::turn::explain(&summary.exit, None)
                .unwrap_or_else(|| "it ended without an answer".to_owned());
            let fix = Some(format!("/resume {id} shows it"));
            vec![show_text(
                TextKind::Error { fix },
                format!("{about}: {why}"),
            )]
        }
        None => vec![show_text(TextKind::Info, format!("stopped: {about}"))],
    }
}
