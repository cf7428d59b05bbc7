//! One turn for a client: started, followed, and interrupted when the client disconnects.

use futures_util::FutureExt as _;
use hermes_app::{ConversationRequest, ConversationUpdate, HostError, OpeningRequest};
use hermes_core::approval::ApprovalRequest;
use hermes_core::ask::Answer;
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit, TurnSummary, UserInput};
use hermes_core::task;
use hermes_core::usage::Usage;
use hermes_gateway::PooledConversation;
use tokio_util::sync::CancellationToken;

use super::ApiState;
use super::admit::TurnPermit;
use super::error::ApiError;
use super::repeat_filter::RepeatFilter;

/// A step of a turn, as reported to clients.
#[derive(Debug)]
pub(super) enum TurnStep {
    /// Text of the answer; never retracted.
    Text(String),
    Reasoning(String),
    ToolStarted {
        call_id: String,
        name: String,
        arguments: String,
    },
    ToolFinished {
        call_id: String,
        name: String,
        failed: bool,
        preview: String,
        millis: u64,
    },
    Approval(ApprovalEvent),
    Done(Box<TurnResult>),
}

/// An approval request and its end.
#[derive(Debug)]
pub(super) enum ApprovalEvent {
    Needed(ApprovalRequest),
    /// The request with this id is closed: answered, or no longer needed.
    Closed(String),
}

/// The result of a turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TurnResult {
    /// The session of the turn.
    pub(super) session: String,
    /// The final answer.
    pub(super) text: String,
    /// The part that was not sent as [`TurnStep::Text`].
    pub(super) remaining_text: String,
    pub(super) usage: Usage,
    pub(super) exit: TurnExit,
}

/// A running turn. Dropping it early interrupts it.
pub(super) struct ApiTurn {
    /// `None`: done.
    conversation: Option<PooledConversation>,
    ticket: Option<TurnPermit>,
    session: String,
    started: bool,
    interrupted: bool,
    teller: RepeatFilter,
    cancel: CancellationToken,
}

impl ApiTurn {
    /// Acquires the conversation and sends the message.
    pub(super) async fn begin(
        state: &ApiState,
        ticket: TurnPermit,
        opening: OpeningRequest,
        input: UserInput,
    ) -> Result<Self, ApiError> {
        let mut conversation = state.deps.pool.acquire(opening).await?;
        catch_up(&mut conversation).await?;
        let session = conversation.id().to_owned();
        if !conversation.request(ConversationRequest::Input(input)) {
            return Err(ended().into());
        }
        Ok(Self {
            conversation: Some(conversation),
            ticket: Some(ticket),
            session,
            started: false,
            interrupted: false,
            teller: RepeatFilter::default(),
            cancel: state.cancel.clone(),
        })
    }

    /// The session, if known.
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// Answers or stops the turn. One that has ended needs neither.
    pub(super) fn command(&mut self, command: AgentCommand) {
        if let Some(conversation) = &mut self.conversation {
            conversation.command(command);
        }
    }

    /// The next step; none after [`TurnStep::Done`]. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<TurnStep> {
        loop {
            let conversation = self.conversation.as_mut()?;
            if let Some(text) = self.teller.take() {
                return Some(TurnStep::Text(text));
            }
            let update = if self.interrupted {
                conversation.next_update().await
            } else {
                tokio::select! {
                    biased;
                    update = conversation.next_update() => update,
                    () = self.cancel.cancelled() => {
                        self.interrupted = true;
                        conversation.command(AgentCommand::Interrupt);
                        continue;
                    }
                }
            };
            let step = match update {
                None => Some(self.done(broken(ended()))),
                Some(ConversationUpdate::Rejected(refusal)) => Some(self.done(broken(refusal))),
                Some(ConversationUpdate::Moved { id, .. }) => {
                    self.session = id;
                    None
                }
                Some(ConversationUpdate::Text { .. } | ConversationUpdate::CommandEnded(_)) => None,
                Some(ConversationUpdate::Event(event)) => self.event(event),
            };
            if let Some(step) = step {
                return Some(step);
            }
        }
    }

    /// The next step, if available.
    pub(super) fn ready(&mut self) -> Option<TurnStep> {
        self.next().now_or_never().flatten()
    }

    /// Follows the turn to its end.
    pub(super) async fn finish(mut self) -> TurnResult {
        while let Some(step) = self.next().await {
            if let TurnStep::Done(outcome) = step {
                return *outcome;
            }
        }
        // `next` ends with `Done` unless it was called after that.
        self.outcome(broken(ended()))
    }

    fn event(&mut self, event: AgentEvent) -> Option<TurnStep> {
        match event {
            AgentEvent::TurnStarted { session, .. } => {
                self.started = true;
                self.session = session.to_string();
                None
            }
            AgentEvent::TextDelta { text } => {
                self.teller.text(text);
                None
            }
            AgentEvent::ReasoningDelta { text } => Some(TurnStep::Reasoning(text)),
            AgentEvent::StepDiscarded { .. } => {
                self.teller.discarded();
                None
            }
            AgentEvent::ToolStarted {
                call_id,
                name,
                arguments,
            } => {
                self.teller.step_over();
                Some(TurnStep::ToolStarted {
                    call_id,
                    name,
                    arguments,
                })
            }
            AgentEvent::ToolFinished {
                call_id,
                name,
                error,
                preview,
                millis,
            } => Some(TurnStep::ToolFinished {
                call_id,
                name,
                failed: error.is_some(),
                preview,
                millis,
            }),
            AgentEvent::ApprovalNeeded { request } => {
                Some(TurnStep::Approval(ApprovalEvent::Needed(request)))
            }
            AgentEvent::QuestionClosed { question } => {
                Some(TurnStep::Approval(ApprovalEvent::Closed(question)))
            }
            AgentEvent::QuestionAsked { question } => {
                let answer = Answer::Unanswered {
                    why: "a client of the API cannot be asked; say in the answer what you need to \
                          know"
                        .to_owned(),
                };
                let reply = AgentCommand::Reply {
                    question: question.id,
                    answer,
                };
                self.command(reply);
                None
            }
            AgentEvent::TurnFinished { summary } if self.started => Some(self.done(summary)),
            AgentEvent::Closed => Some(self.done(broken(ended()))),
            _ => None,
        }
    }

    fn done(&mut self, summary: TurnSummary) -> TurnStep {
        // Releases the conversation for the next turn.
        self.conversation = None;
        self.ticket = None;
        TurnStep::Done(Box::new(self.outcome(summary)))
    }

    fn outcome(&self, summary: TurnSummary) -> TurnResult {
        TurnResult {
            session: self.session.clone(),
            remaining_text: self.teller.remaining_text(&summary.text).to_owned(),
            text: summary.text,
            usage: summary.usage,
            exit: summary.exit,
        }
    }
}

impl Drop for ApiTurn {
    fn drop(&mut self) {
        let Some(mut conversation) = self.conversation.take() else {
            return;
        };
        // It counts as running until it has stopped.
        let ticket = self.ticket.take();
        task::spawn("a turn whose client left", async move {
            conversation.command(AgentCommand::Interrupt);
            while let Some(update) = conversation.next_update().await {
                if matches!(
                    update,
                    ConversationUpdate::Rejected(_)
                        | ConversationUpdate::Event(AgentEvent::TurnFinished { .. })
                ) {
                    break;
                }
            }
            drop(ticket);
        });
    }
}

/// Drains old updates and waits for a turn that started by itself (finished background work): its
/// answer is not for this client.
async fn catch_up(conversation: &mut PooledConversation) -> Result<(), HostError> {
    let mut running = false;
    loop {
        let update = match conversation.next_update().now_or_never() {
            Some(update) => update,
            None if running => conversation.next_update().await,
            None => return Ok(()),
        };
        match update {
            None | Some(ConversationUpdate::Event(AgentEvent::Closed)) => return Err(ended()),
            Some(ConversationUpdate::Event(AgentEvent::TurnStarted { .. })) => running = true,
            Some(ConversationUpdate::Event(AgentEvent::TurnFinished { .. })) => running = false,
            Some(_) => {}
        }
    }
}

fn ended() -> HostError {
    HostError::new(
        hermes_app::HostErrorKind::Failed,
        "the conversation ended before it answered",
    )
}

/// Reports a turn that did not start as failed.
fn broken(refusal: HostError) -> TurnSummary {
    TurnSummary {
        exit: TurnExit::NoAnswer {
            why: refusal.message,
        },
        text: String::new(),
        usage: Usage::default(),
        cost: hermes_core::usage::Cost::Unknown,
        calls: 0,
        tool_calls: 0,
        millis: 0,
        pending_steer: None,
    }
}
