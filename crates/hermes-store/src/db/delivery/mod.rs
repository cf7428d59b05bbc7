//! The gateway's delivery state: messages received and not yet answered, replies written and not
//! yet delivered.
//!
//! - **Inbox**: a message is stored before it is acknowledged to the platform, once per
//!   platform id. `received → claimed(turn) → done`.
//! - **Outbox**: a reply is stored in chunks, in the transaction that ends its turn.
//!   `pending → sending → sent | ambiguous`. The rows are those of the original's
//!   `delivery_obligations`, in its states, so that either program finishes what the other left:
//!
//!   | chunk | state in the table | the original, after a crash |
//!   |---|---|---|
//!   | pending | `pending` | sends it |
//!   | pending, to be marked as perhaps seen | `failed` | sends it marked |
//!   | sending, ambiguous | `attempting` | sends it marked |
//!   | sent | `delivered` | – |
//!   | given up | `abandoned` | – |
//!
//! - **Owner**: one process at a time. Every write checks that the process is still the owner, so
//!   one that was suspended past its lease can change nothing when it resumes.
//!
//! - **Questions** to a person: `open → answered → closed`, so that a button still works after a
//!   restart, but only once.
//!
//! Within one chat and thread the chunks leave in order: a later one waits until the earlier one
//! is settled.

mod hook;
mod inbox;
mod open;
mod outbox;
mod owner;
mod questions;
mod tables;

use std::sync::Arc;

use hermes_core::ids::SessionId;
use hermes_core::store::NewItem;
use serde_json::Value;

pub use hook::{DeliveryAccess, DeliveryHook};
pub use open::Spoken;
pub use owner::{Owner, Processes};

use super::Store;

/// Delivery on one home, owned by this process until another one takes over.
#[derive(Clone)]
pub struct Delivery {
    store: Store,
    owner: Owner,
    hook: Option<Arc<dyn DeliveryHook>>,
}

/// A platform message as stored before it is acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct Inbound {
    pub platform: String,
    /// Which of several accounts on the platform; empty where there is one.
    pub account: String,
    pub chat_id: String,
    /// The platform's id of the message.
    pub message_id: String,
    pub session_key: String,
    pub payload: Value,
}

/// Whether a message was new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    New(i64),
    /// Received before, perhaps in an earlier process run.
    Seen(i64),
}

/// A message that has not been answered yet.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingMessage {
    pub id: i64,
    pub message: Inbound,
    /// The turn that claimed it. After a restart that turn was interrupted.
    pub turn: Option<String>,
    /// How many turns have claimed it.
    pub claims: u32,
    /// Seconds since the epoch.
    pub received_at: f64,
}

/// Where a reply is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub platform: String,
    pub account: String,
    pub chat_id: String,
    pub thread_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewChunk {
    pub text: String,
    /// Platform-specific data: a file, the message that this one completes, …
    pub extra: Option<Value>,
}

/// A reply to one chat, split into the chunks in which it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct NewReply {
    pub session_key: String,
    pub target: Target,
    pub chunks: Vec<NewChunk>,
}

/// The end of a turn: everything in it is committed together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Final {
    /// Globally unique: chunk ids are derived from it.
    pub turn: String,
    /// The claimed messages that this turn answers. Empty for a job.
    pub answers: Vec<i64>,
    /// Transcript rows committed together with the end of the turn.
    pub transcript: Option<(SessionId, Vec<NewItem>)>,
    pub replies: Vec<NewReply>,
    /// A question to a person that is asked in the replies.
    pub asks: Option<NewQuestion>,
    /// Questions closed by the end of this turn.
    pub closes: Vec<String>,
}

/// A question to a person, stored with the message that asks it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewQuestion {
    /// Globally unique.
    pub id: String,
    pub session_key: String,
    /// The message whose turn asks. Once that is answered, the question is obsolete.
    pub message: i64,
    pub target: Target,
    pub asked: Value,
    /// Seconds since the epoch.
    pub expires_at: f64,
}

/// A question as it was stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredQuestion {
    pub question: NewQuestion,
    pub state: QuestionState,
    /// The turn of its message has not ended, so the question will be asked again.
    pub awaited: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum QuestionState {
    Open,
    /// Answered, but the answer has not been consumed yet.
    Answered(Value),
    Closed,
}

/// Chunks that can be sent now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// The next chunk of each chat.
    pub chunks: Vec<Chunk>,
    /// When the first of the other chunks may be sent. `None` if there are no others.
    pub next_at: Option<f64>,
}

/// A chunk that is the next one of its chat.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    pub seq: i64,
    /// 24 hex digits, the same for every attempt: the idempotency key for platforms that accept
    /// one.
    pub key: String,
    pub session_key: String,
    pub target: Target,
    pub turn: String,
    pub part: u32,
    pub text: String,
    pub extra: Option<Value>,
    pub phase: ChunkPhase,
    /// Attempts so far.
    pub tries: u32,
    /// How many attempts ended without knowing whether the chunk arrived.
    pub unclear: u32,
    pub first_attempt_at: Option<f64>,
    pub last_attempt_at: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkPhase {
    /// To be sent. `marked`: the person may have received it already, and the text must say so.
    Pending { marked: bool },
    /// It was being sent, and it is unknown whether it arrived.
    Ambiguous,
}

/// The result of an attempt to send a chunk.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// Delivered; with the platform's message id, if it has one.
    Sent { id: Option<String> },
    /// Certainly not delivered: retry at `at` (seconds since the epoch).
    Retry { error: String, at: f64 },
    /// Certainly not delivered, and never will be.
    GiveUp { error: String },
    /// Possibly delivered: to be verified at `at`.
    Ambiguous { error: String, at: f64 },
    /// Verified: not delivered or safe to repeat (`marked: false`), or still unknown (`true`).
    Resend { marked: bool },
}

/// What the previous process run left unfinished, found when delivery was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveredWork {
    /// Unanswered messages, including those of interrupted turns.
    pub waiting: usize,
    /// Chunks not sent yet.
    pub pending: usize,
    /// Chunks that were being sent.
    pub ambiguous: usize,
}

/// How far the transcript got with a message whose turn did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The message is not in the transcript: the turn can start from the beginning.
    Untouched,
    /// The turn was interrupted: tools may have had effects.
    Cut,
    /// The answer is complete and only has to be sent.
    Answered(String),
}

/// A reply that the original stored but did not deliver. It is not split into chunks.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreign {
    pub obligation_id: String,
    pub session_key: String,
    pub target: Target,
    pub text: String,
    /// The person may have received it already.
    pub marked: bool,
}
