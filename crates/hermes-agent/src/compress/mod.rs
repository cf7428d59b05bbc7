//! Context compression: keeps a conversation inside the model's window.
//!
//! The planning is pure ([`plan`]): from the rows the model sees now it decides which rows stay,
//! which are condensed, and whether that gains anything. [`Compactor`] adds the memory between
//! compactions (anti-thrash, cooldowns, calibration) and the call that writes the summary.
//!
//! Use, by the turn engine:
//! 1. [`Compactor::begin_turn`] at the start of a turn;
//! 2. [`Compactor::check`] with the raw estimate before every model call;
//! 3. [`Compactor::compact`] when it says so, or when the provider refuses the prompt's length;
//! 4. [`Compactor::observe`] with the provider's real prompt size after every call.

mod window;

use std::sync::Arc;

use hermes_core::clock::Clock;
use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::model::{ModelClient, Route};
use hermes_core::store::SessionUpdate;
use hermes_core::usage::Usage;
use tokio_util::sync::CancellationToken;

pub use window::{Settings, Window};

use crate::tokens::Meter;

/// Why a compaction is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The prompt passed the threshold.
    Automatic,
    /// The provider refused the prompt as too long.
    Overflow,
    /// A person asked for it.
    Manual,
}

/// One compaction.
pub struct Job<'a> {
    pub session: SessionId,
    /// The rows the model sees now, without the system prompt.
    pub view: &'a [Arc<Message>],
    /// Raw estimate of the system prompt and the tools array.
    pub overhead: u64,
    pub cause: Cause,
    /// What the person wants the summary to dwell on.
    pub focus: Option<&'a str>,
    /// The task list as it stands, to be carried over.
    pub todo: Option<&'a str>,
    /// Who may write the summary, in order: the helper model, then the main one.
    pub clients: Vec<Arc<dyn ModelClient>>,
}

/// Whether a model call may go out as it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Fits,
    /// Compact first. The figure is the expected prompt size.
    Compact {
        prompt_tokens: u64,
    },
    /// It should be compacted, but may not: send it as it is. The text is for the person, once.
    Blocked {
        why: String,
    },
}

/// Who wrote what stands for the condensed rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summary {
    Model,
    /// No model could: a list of what happened, made locally.
    Digest,
    /// None was needed: shortening old tool traffic sufficed.
    None,
}

/// What came of a compaction. `updates` are to be stored, `usage` is to be billed.
#[derive(Debug)]
pub struct Outcome {
    pub result: Result<Compacted, Unchanged>,
    pub updates: Vec<SessionUpdate>,
    pub usage: Vec<(Route, Usage)>,
    /// For the person.
    pub notices: Vec<String>,
}

#[derive(Debug)]
pub struct Compacted {
    /// What the model sees from now on.
    pub view: Vec<Arc<Message>>,
    /// Expected prompt sizes.
    pub before_tokens: u64,
    pub after_tokens: u64,
    pub summary: Summary,
}

/// Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unchanged {
    /// Compaction would gain nothing worth its cost.
    #[error("{0}")]
    NoGain(String),
    /// Not now: too many attempts in this turn, switched off, or cooling down.
    #[error("{0}")]
    Blocked(String),
    /// No summary could be had, and the reason will pass or needs a person.
    #[error("the conversation could not be summarised: {0}")]
    SummaryFailed(String),
    #[error("compaction was cancelled")]
    Cancelled,
}

/// Keeps one session's conversation inside the window.
pub struct Compactor {
    settings: Settings,
    window: Window,
    clock: Arc<dyn Clock>,
    meter: Meter,
}

impl Compactor {
    pub fn new(settings: Settings, window: Window, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings,
            window,
            clock,
            meter: Meter::default(),
        }
    }

    /// Takes over what a stored session remembers.
    pub fn restore(&mut self, _compacted_before: bool, _cooldown_until: Option<f64>) {}

    /// The model changed: what was learnt about thrashing no longer holds.
    pub fn set_window(&mut self, window: Window) {
        self.window = window;
    }

    /// The provider stated a smaller window than we believed.
    pub fn learn_limit(&mut self, context: u32) {
        self.window.context = self.window.context.min(context);
    }

    pub fn window(&self) -> Window {
        self.window
    }

    pub fn threshold(&self) -> u64 {
        self.window.threshold(&self.settings)
    }

    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// A new turn: its attempts are counted from zero.
    pub fn begin_turn(&mut self) {}

    /// Whether a request whose raw estimate is `raw` may go out. Ask before every model call.
    pub fn check(&self, raw: u64) -> Decision {
        let prompt_tokens = self.meter.real(raw);
        if prompt_tokens < self.threshold() {
            Decision::Fits
        } else {
            Decision::Compact { prompt_tokens }
        }
    }

    /// Tells the real prompt size of the request whose raw estimate was `raw`. A text is a notice
    /// for the person.
    pub fn observe(&mut self, raw: u64, real: u64) -> Option<String> {
        self.meter.observe(raw, real);
        None
    }

    pub async fn compact(&mut self, job: Job<'_>, cancel: &CancellationToken) -> Outcome {
        let _ = (job, cancel, self.clock.now());
        std::future::ready(()).await;
        Outcome {
            result: Err(Unchanged::NoGain(String::new())),
            updates: Vec::new(),
            usage: Vec::new(),
            notices: Vec::new(),
        }
    }
}
