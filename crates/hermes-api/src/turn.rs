//! One turn for a client: said, followed, and interrupted when the client goes away.

use futures_util::FutureExt as _;
use hermes_app::front::{ConversationRequest, ConversationUpdate, HostError};
use hermes_core::approval::ApprovalRequest;
use hermes_core::ask::Answer;
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit, TurnSummary, UserInput};
use hermes_core::task;
use hermes_core::usage::Usage;
use hermes_gateway::conversation_pool::PooledConversation;
use hermes_gateway::program::OpeningRequest;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ApiState;
use super::admit::TurnPermit;
use super::error::ApiError;
use super::repeat_filter::RepeatFilter;

/// What happens in a turn, as far as clients are told.
#[derive(Debug)]
pub(super) enum TurnStep {
    /// Text of the answer, never taken back.
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

/// A permission that a person may give.
#[derive(Debug)]
pub(super) enum ApprovalEvent {
    Needed(ApprovalRequest),
    /// The request of this id is not waited for any more: it was answered, or what it was for has
    /// ended.
    Closed(String),
}

/// What a turn came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TurnResult {
    /// The session that it took place in.
    pub(super) session: String,
    /// The final answer.
    pub(super) text: String,
    /// What of it did not come as [`TurnStep::Text`].
    pub(super) untold: String,
    pub(super) usage: Usage,
    pub(super) exit: TurnExit,
}

/// A turn that runs. Dropping it before it is done interrupts it.
pub(super) struct ApiTurn {
    /// `None`: done.
    seat: Option<PooledConversation>,
    ticket: Option<TurnPermit>,
    session: String,
    begun: bool,
    interrupted: bool,
    teller: RepeatFilter,
    cancel: CancellationToken,
}

impl ApiTurn {
    /// Takes the conversation and says something in it.
    pub(super) async fn begin(
        state: &ApiState,
        ticket: TurnPermit,
        opening: OpeningRequest,
        input: UserInput,
    ) -> Result<Self, ApiError> {
        let mut seat = state.deps.seats.acquire(opening).await?;
        catch_up(&mut seat).await?;
        let session = seat.id().to_owned();
        if !seat.wish(ConversationRequest::Input(input)).await {
            return Err(ended().into());
        }
        Ok(Self {
            seat: Some(seat),
            ticket: Some(ticket),
            session,
            begun: false,
            interrupted: false,
            teller: RepeatFilter::default(),
            cancel: state.cancel.clone(),
        })
    }

    /// The session, as far as it is known.
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// For whoever answers or stops the turn while another follows it.
    pub(super) fn wishes(&self) -> Option<mpsc::Sender<ConversationRequest>> {
        self.seat.as_ref().and_then(PooledConversation::wishes)
    }

    /// What happens next; nothing after [`TurnStep::Done`]. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Option<TurnStep> {
        loop {
            let seat = self.seat.as_mut()?;
            if let Some(text) = self.teller.take() {
                return Some(TurnStep::Text(text));
            }
            let news = if self.interrupted {
                seat.news().await
            } else {
                tokio::select! {
                    biased;
                    news = seat.news() => news,
                    () = self.cancel.cancelled() => {
                        self.interrupted = true;
                        seat.wish(ConversationRequest::Agent(AgentCommand::Interrupt)).await;
                        continue;
                    }
                }
            };
            let step = match news {
                None => Some(self.done(broken(ended()))),
                Some(ConversationUpdate::Rejected(refusal)) => Some(self.done(broken(refusal))),
                Some(ConversationUpdate::Moved { id, .. }) => {
                    self.session = id;
                    None
                }
                Some(ConversationUpdate::Text { .. } | ConversationUpdate::CommandEnded(_)) => None,
                Some(ConversationUpdate::Event(event)) => self.event(event).await,
            };
            if let Some(step) = step {
                return Some(step);
            }
        }
    }

    /// What is next, if it is there already.
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

    async fn event(&mut self, event: AgentEvent) -> Option<TurnStep> {
        match event {
            AgentEvent::TurnStarted { session, .. } => {
                self.begun = true;
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
                if let Some(seat) = &self.seat {
                    seat.wish(ConversationRequest::Agent(reply)).await;
                }
                None
            }
            AgentEvent::TurnFinished { summary } if self.begun => Some(self.done(summary)),
            AgentEvent::Closed => Some(self.done(broken(ended()))),
            _ => None,
        }
    }

    fn done(&mut self, summary: TurnSummary) -> TurnStep {
        // The next one may sit down.
        self.seat = None;
        self.ticket = None;
        TurnStep::Done(Box::new(self.outcome(summary)))
    }

    fn outcome(&self, summary: TurnSummary) -> TurnResult {
        TurnResult {
            session: self.session.clone(),
            untold: self.teller.untold(&summary.text).to_owned(),
            text: summary.text,
            usage: summary.usage,
            exit: summary.exit,
        }
    }
}

impl Drop for ApiTurn {
    fn drop(&mut self) {
        let Some(mut seat) = self.seat.take() else {
            return;
        };
        // It counts as running until it has stopped.
        let ticket = self.ticket.take();
        task::spawn("a turn whose client left", async move {
            seat.wish(ConversationRequest::Agent(AgentCommand::Interrupt))
                .await;
            while let Some(news) = seat.news().await {
                if matches!(
                    news,
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

/// Reads what nobody has read, and waits for a turn that began by itself (something ended in the
/// background): its answer is not this client's.
async fn catch_up(seat: &mut PooledConversation) -> Result<(), HostError> {
    let mut running = false;
    loop {
        let news = match seat.news().now_or_never() {
            Some(news) => news,
            None if running => seat.news().await,
            None => return Ok(()),
        };
        match news {
            None | Some(ConversationUpdate::Event(AgentEvent::Closed)) => return Err(ended()),
            Some(ConversationUpdate::Event(AgentEvent::TurnStarted { .. })) => running = true,
            Some(ConversationUpdate::Event(AgentEvent::TurnFinished { .. })) => running = false,
            Some(_) => {}
        }
    }
}

fn ended() -> HostError {
    HostError::new(
        hermes_app::front::HostErrorKind::Failed,
        "the conversation ended before it answered",
    )
}

/// A turn that never was, as one that failed.
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
