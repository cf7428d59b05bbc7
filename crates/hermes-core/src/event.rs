//! Events of a session and commands to it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::{ApprovalRequest, Verdict};
use crate::ask::{Answer, Question};
use crate::ids::{SessionId, TurnId};
use crate::message::Part;
use crate::model::{ErrorClass, ReasoningEffort, Route};
use crate::store::UsageEntry;
use crate::tool::ToolErrorKind;
use crate::usage::{Cost, Usage};

/// An event with its sequence number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequencedEvent {
    pub seq: u64,
    pub turn: Option<TurnId>,
    #[serde(flatten)]
    pub event: AgentEvent,
}

/// Everything that happens in a session, for front ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEvent {
    TurnStarted {
        session: SessionId,
        route: Route,
    },
    TextDelta {
        text: String,
    },
    ReasoningDelta {
        text: String,
    },
    /// The text streamed so far in this step is not the answer: it is discarded and sent again.
    StepDiscarded {
        why: String,
    },
    ToolStarted {
        call_id: String,
        name: String,
        arguments: String,
    },
    ToolProgress {
        call_id: String,
        text: String,
    },
    ToolFinished {
        call_id: String,
        name: String,
        error: Option<ToolErrorKind>,
        /// The result as the model reads it, shortened for display.
        preview: String,
        millis: u64,
    },
    ApprovalNeeded {
        request: ApprovalRequest,
    },
    /// A question to the person; [`AgentCommand::Reply`] answers.
    QuestionAsked {
        question: Question,
    },
    /// A question is closed, answered or not.
    QuestionClosed {
        question: String,
    },
    /// Waiting before a retry.
    Retrying {
        class: ErrorClass,
        message: String,
        attempt: u32,
        delay_ms: u64,
    },
    RouteChanged {
        from: Route,
        to: Route,
        why: String,
    },
    CompactionStarted {
        prompt_tokens: u64,
    },
    Compacted {
        before_tokens: u64,
        after_tokens: u64,
        summary: bool,
    },
    UsageUpdated {
        usage: Usage,
        cost: Cost,
        context_used: u64,
        context_length: u32,
    },
    /// A steering message reached the model.
    Steered {
        text: String,
    },
    TitleChanged {
        title: String,
    },
    QueueChanged {
        waiting: usize,
    },
    Notice {
        level: NoticeLevel,
        text: String,
    },
    TurnFinished {
        summary: TurnSummary,
    },
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeLevel {
    Info,
    Warning,
    Error,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnSummary {
    pub exit: TurnExit,
    /// The final answer, possibly partial or empty.
    pub text: String,
    pub usage: Usage,
    pub cost: Cost,
    /// Model calls made.
    pub calls: u32,
    pub tool_calls: u32,
    pub millis: u64,
    /// A steering text that came too late for this turn.
    pub pending_steer: Option<String>,
}

/// Why a turn ended. Anything but `Answered` is explained to the person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum TurnExit {
    Answered,
    Interrupted,
    /// The iteration budget ran out; the text is the closing summary.
    BudgetExhausted {
        calls: u32,
    },
    /// The cost limit was reached.
    CostCapReached {
        usd: f64,
    },
    /// The answer was truncated and could not be completed.
    Partial {
        why: String,
    },
    /// The model returned nothing usable.
    NoAnswer {
        why: String,
    },
    /// The provider failed permanently.
    Failed {
        class: ErrorClass,
        message: String,
    },
    /// The conversation does not fit and cannot be reduced.
    ContextFull {
        message: String,
    },
    /// The provider refused on policy grounds.
    Refused {
        message: String,
    },
    /// The store failed: the turn stopped, because nothing could be recorded.
    StoreFailed {
        message: String,
    },
    /// A loop guard stopped the turn.
    LoopStopped {
        message: String,
    },
}

/// Input of a person.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserInput {
    pub text: String,
    pub images: Vec<Part>,
    /// Text for the model only (piped stdin, prefetched memory): sent, not shown.
    pub context: Option<String>,
    pub platform_message_id: Option<String>,
}

impl From<&str> for UserInput {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::default()
        }
    }
}

/// A command to a session.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentCommand {
    /// Starts a turn; while one runs, it is queued.
    Submit(UserInput),
    /// Reaches the model at the next tool result; with no turn running it starts one.
    Steer(String),
    /// Runs after the current turn.
    Queue(UserInput),
    /// Stops the current turn. What was streamed is kept.
    Interrupt,
    Answer {
        request: String,
        verdict: Verdict,
    },
    /// To [`AgentEvent::QuestionAsked`].
    Reply {
        question: String,
        answer: Answer,
    },
    /// Something ended or happened in the background. The person sees the headline at once, the
    /// model reads the text with the next tool result or before the next message.
    Inform {
        headline: String,
        text: String,
        /// Starts a turn if none runs, or if the running one ends before the model has read it.
        wakes: bool,
    },
    Compact {
        focus: Option<String>,
        /// How many of the newest user messages, with what followed them, are kept verbatim;
        /// `None`: as many as fit.
        keep: Option<usize>,
    },
    SwitchRoute {
        model: String,
        provider: Option<String>,
    },
    /// Hides the last `turns` turns of the person.
    Rewind {
        turns: usize,
    },
    /// Restores what the last rewind hid, if nothing was sent since.
    Restore,
    /// Takes effect from the next turn on.
    Set(Setting),
    Close,
}

/// A setting that can be changed during a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `None`: the model's default.
    Reasoning(Option<ReasoningEffort>),
    /// Whether dangerous actions are approved without asking.
    ApproveAll(bool),
}

/// Where a tool reports progress, notices for the person, and cost. Cheap to clone; progress may be
/// dropped under load, cost never.
#[derive(Clone)]
pub struct ProgressSink {
    report: Arc<dyn Fn(String) + Send + Sync>,
    notice: Option<Arc<dyn Fn(String) + Send + Sync>>,
    spent: Option<Arc<dyn Fn(Spent) + Send + Sync>>,
}

/// A model call that a tool made.
#[derive(Clone, Debug, PartialEq)]
pub struct Spent {
    pub entry: UsageEntry,
    /// Already recorded in another session (a subagent's own).
    pub recorded: bool,
}

impl ProgressSink {
    pub fn new(report: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self {
            report: Arc::new(report),
            notice: None,
            spent: None,
        }
    }

    /// With a receiver of notices.
    #[must_use]
    pub fn noticing(self, notice: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self {
            notice: Some(Arc::new(notice)),
            ..self
        }
    }

    /// With a receiver that counts the cost of tools.
    #[must_use]
    pub fn counting(self, spent: impl Fn(Spent) + Send + Sync + 'static) -> Self {
        Self {
            spent: Some(Arc::new(spent)),
            ..self
        }
    }

    /// Progress is dropped from now on; notices and cost are still received.
    #[must_use]
    pub fn unseen(&self) -> Self {
        Self {
            notice: self.notice.clone(),
            spent: self.spent.clone(),
            ..Self::none()
        }
    }

    pub fn none() -> Self {
        Self::new(|_| {})
    }

    pub fn report(&self, text: impl Into<String>) {
        (self.report)(text.into());
    }

    /// A warning that the person should see, whatever the model does with the result.
    pub fn notice(&self, text: impl Into<String>) {
        if let Some(notice) = &self.notice {
            notice(text.into());
        }
    }

    /// Counts a model call that the tool made.
    pub fn spent(&self, spent: Spent) {
        if let Some(count) = &self.spent {
            count(spent);
        }
    }
}
