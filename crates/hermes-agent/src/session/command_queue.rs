//! Receives commands, during a turn and between turns.

use std::collections::VecDeque;
use std::future::Future;

use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, UserInput};
use hermes_core::redact;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::approvals::Approvals;
use super::questions::OpenQuestions;
use super::steer::{SteeringText, defang};
use crate::events::EventSink;
use crate::turn::outside::ToolSpending;

/// Messages that may wait for their turn.
const MAX_QUEUED_MESSAGES: usize = 256;
/// Bytes of what happened in the background that may wait for the model.
const MAX_BACKGROUND_BYTES: usize = 32 * 1024;

/// What runs while commands arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunningWork {
    Turn,
    /// Something that a steering text cannot reach.
    Other,
}

pub(super) struct CommandQueue {
    pub inbox: mpsc::Receiver<AgentCommand>,
    pub events: EventSink,
    pub mailbox: SteeringText,
    /// What happened in the background, for the model.
    pub informed: SteeringText,
    /// Some of that shall start a turn if none reads it.
    pub wake: bool,
    /// What tools spent, also those that report after their turn.
    pub spending: ToolSpending,
    pub approvals: Approvals,
    pub questions: OpenQuestions,
    /// Messages that wait for their turn.
    pub queue: VecDeque<UserInput>,
    /// Commands that wait for the end of what runs.
    pub later: VecDeque<AgentCommand>,
    pub closing: bool,
}

impl CommandQueue {
    /// Waits for `work` and attends to commands meanwhile. `cancel` stops the work.
    pub(super) async fn attend<T>(
        &mut self,
        busy: RunningWork,
        cancel: &CancellationToken,
        work: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                command = self.inbox.recv(), if !self.closing => match command {
                    Some(command) => self.take(command, busy, cancel).await,
                    // Nobody can speak to the session any more: it ends after this.
                    None => self.closing = true,
                },
            }
        }
    }

    async fn take(&mut self, command: AgentCommand, busy: RunningWork, cancel: &CancellationToken) {
        match command {
            AgentCommand::Submit(input) | AgentCommand::Queue(input) => self.enqueue(input).await,
            AgentCommand::Steer(text) if busy == RunningWork::Turn => self.mailbox.put(&text),
            AgentCommand::Steer(text) => self.enqueue(text.as_str().into()).await,
            AgentCommand::Interrupt => cancel.cancel(),
            AgentCommand::Answer { request, verdict } => {
                if !self.approvals.answer(&request, verdict) {
                    let text = "That question is no longer open.";
                    self.events.notice(NoticeLevel::Info, text).await;
                }
            }
            AgentCommand::Reply { question, answer } => {
                if !self.questions.answer(&question, answer) {
                    let text = "That question is no longer open.";
                    self.events.notice(NoticeLevel::Info, text).await;
                }
            }
            AgentCommand::Inform {
                headline,
                text,
                wakes,
            } => {
                self.wake |= wakes;
                self.inform(headline, &text).await;
            }
            AgentCommand::Close => {
                self.closing = true;
                cancel.cancel();
            }
            AgentCommand::Compact { .. } | AgentCommand::SwitchRoute { .. } => {
                self.later.push_back(command);
                let text = "This happens when the turn has ended.";
                self.events.notice(NoticeLevel::Info, text).await;
            }
            AgentCommand::Set(_) => self.later.push_back(command),
            AgentCommand::Rewind { .. } | AgentCommand::Restore => {
                let text = "A running turn cannot be undone: stop it first.";
                self.events.notice(NoticeLevel::Warning, text).await;
            }
        }
    }

    /// Shows what happened now; the model reads it when it reads next.
    pub(super) async fn inform(&self, headline: String, text: &str) {
        let headline = redact::keys(&headline).into_owned();
        self.events.notice(NoticeLevel::Info, headline).await;
        let text = redact::keys(text);
        if !self
            .informed
            .put_within(&defang(&text), MAX_BACKGROUND_BYTES)
        {
            tracing::warn!("too much happened in the background: the model is not told everything");
        }
    }

    pub(super) async fn enqueue(&mut self, input: UserInput) {
        if self.queue.len() >= MAX_QUEUED_MESSAGES {
            let text =
                format!("{MAX_QUEUED_MESSAGES} messages wait already: this one was not taken.");
            self.events.notice(NoticeLevel::Error, text).await;
            return;
        }
        self.queue.push_back(input);
        self.report_queue().await;
    }

    pub(super) async fn report_queue(&self) {
        let waiting = self.queue.len();
        self.events.emit(AgentEvent::QueueChanged { waiting }).await;
    }
}
