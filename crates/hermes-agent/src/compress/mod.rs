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

mod assemble;
mod call;
mod compactor;
mod digest;
mod groups;
pub mod plan;
mod prune;
mod request;
pub mod summary;
mod window;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::model::{ModelClient, Route};
use hermes_core::store::SessionUpdate;
use hermes_core::usage::Usage;

pub use compactor::Compactor;
pub use window::{CompressionSettings, ContextWindow};

/// Why a compaction is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionCause {
    /// The prompt passed the threshold.
    Automatic,
    /// The provider refused the prompt as too long.
    Overflow,
    /// A person asked for it.
    Manual,
}

/// One compaction.
pub struct CompactionJob<'a> {
    pub session: SessionId,
    /// The rows the model sees now, without the system prompt.
    pub view: &'a [Arc<Message>],
    /// Those of them that the engine wrote for the moment (nudges and the like). They are never
    /// taken for the user's request, and are dropped rather than summarised.
    pub scaffolding: Vec<Arc<Message>>,
    /// Raw estimate of the system prompt and the tools array.
    pub overhead: u64,
    pub cause: CompactionCause,
    /// What the person wants the summary to dwell on.
    pub focus: Option<&'a str>,
    /// Turns that stay word for word, where the person says how many.
    pub keep: Option<usize>,
    /// The task list as it stands, to be carried over.
    pub todo: Option<&'a str>,
    /// Who may write the summary, in order: the helper model, then the main one.
    pub clients: Vec<Arc<dyn ModelClient>>,
}

/// Whether a model call may go out as it is.
#[derive(Clone, Debug, PartialEq)]
pub enum CompactionDecision {
    Fits,
    /// Compact first. The figure is the expected prompt size.
    Compact {
        prompt_tokens: u64,
    },
    /// It should be compacted, but may not: send it as it is. A text is for the person; each is
    /// given once.
    Blocked {
        why: Option<String>,
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
pub struct CompactionOutcome {
    pub result: Result<CompactionResult, SkippedCompaction>,
    pub updates: Vec<SessionUpdate>,
    pub usage: Vec<(Route, Usage)>,
    /// For the person.
    pub notices: Vec<String>,
}

#[derive(Debug)]
pub struct CompactionResult {
    /// What the model sees from now on.
    pub view: Vec<Arc<Message>>,
    /// Expected prompt sizes.
    pub before_tokens: u64,
    pub after_tokens: u64,
    pub summary: Summary,
}

/// Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkippedCompaction {
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
