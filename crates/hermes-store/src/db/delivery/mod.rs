//! What the gateway owes: messages taken in and not yet answered, replies written and not yet
//! delivered.
//!
//! - **Inbox**: a message is stored before the platform hears that we have it, once per platform
//!   id. `received → claimed(turn) → done`.
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
//! - **Owner**: one process at a time. Every write checks that it still is the owner, so one that
//!   slept through its lease can change nothing when it wakes.
//!
//! - **Questions** to a person: `open → answered → closed`, so that a button still works after a
//!   restart, and once.
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

/// Delivery on one home, owned by this process until another takes over.
#[derive(Clone)]
pub struct Delivery {
    store: Store,
    owner: Owner,
    hook: Option<Arc<dyn DeliveryHook>>,
}

/// A message from a platform, as it is stored before it is acknowledged.
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
    /// It came before, perhaps in an earlier life of the process.
    Seen(i64),
}

/// A message that waits for its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    pub id: i64,
    pub message: Inbound,
    /// The turn that took it. After a restart such a turn was cut.
    pub turn: Option<String>,
    /// How often a turn took it.
    pub claims: u32,
    /// Seconds since the epoch.
    pub received_at: f64,
}

/// Where a reply goes.
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
    /// What else the platform needs: a file, the message that this one completes, …
    pub extra: Option<Value>,
}

/// A reply to one place, in the chunks in which it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub session_key: String,
    pub target: Target,
    pub chunks: Vec<NewChunk>,
}

/// The end of a turn: everything in it is committed together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Final {
    /// Unique for ever: it makes the ids of the chunks.
    pub turn: String,
    /// The messages answered, which the turn has claimed. None for a job.
    pub answers: Vec<i64>,
    /// Rows for the transcript that belong to this end.
    pub transcript: Option<(SessionId, Vec<NewItem>)>,
    pub replies: Vec<Reply>,
    /// A question to a person that the replies put.
    pub asks: Option<NewQuestion>,
    /// Questions that are over with this.
    pub closes: Vec<String>,
}

/// A question to a person, as it is stored with the message that puts it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewQuestion {
    /// Unique for ever.
    pub id: String,
    pub session_key: String,
    /// The message whose turn asks. When that is answered, nobody waits for an answer.
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
    /// The turn of its message has not ended: it is asked again.
    pub awaited: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum QuestionState {
    Open,
    /// Somebody answered, and nobody has taken the answer yet.
    Answered(Value),
    Closed,
}

/// What can be sent now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// The next chunk of each chat.
    pub chunks: Vec<Chunk>,
    /// When the first of the others may be sent. `None`: there are no others.
    pub next_at: Option<f64>,
}

/// A chunk that is the next one of its chat.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    pub seq: i64,
    /// 24 hex digits, the same for every attempt: the key for platforms that take one.
    pub key: String,
    pub session_key: String,
    pub target: Target,
    pub turn: String,
    pub part: u32,
    pub text: String,
    pub extra: Option<Value>,
    pub phase: Phase,
    /// Attempts so far.
    pub tries: u32,
    /// How many of them ended without anybody knowing whether it arrived.
    pub unclear: u32,
    pub first_attempt_at: Option<f64>,
    pub last_attempt_at: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// To be sent. `marked`: perhaps the person has it already, and the text must say so.
    Pending { marked: bool },
    /// It was being sent, and nobody knows whether it arrived.
    Ambiguous,
}

/// What became of a chunk.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It arrived; the platform's id of it, where there is one.
    Sent { id: Option<String> },
    /// It certainly did not arrive: again at `at` (seconds since the epoch).
    Retry { error: String, at: f64 },
    /// It certainly did not arrive and never will.
    GiveUp { error: String },
    /// Perhaps it arrived: to be looked into at `at`.
    Ambiguous { error: String, at: f64 },
    /// Looked into. Not there, or safe to repeat (`marked: false`), or still unknown (`true`).
    Resend { marked: bool },
}

/// What an earlier life left, found when delivery was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Messages without an answer, cut turns included.
    pub waiting: usize,
    /// Chunks not sent yet.
    pub pending: usize,
    /// Chunks that were being sent.
    pub ambiguous: usize,
}

/// How far the transcript got with a message whose turn did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The message is not in it: the turn can begin anew.
    Untouched,
    /// The turn was cut: what tools did is done.
    Cut,
    /// The answer is there and only has to be sent.
    Answered(String),
}

/// A reply that the original stored and did not deliver. It is whole, not in chunks.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreign {
    pub obligation_id: String,
    pub session_key: String,
    pub target: Target,
    pub text: String,
    /// Perhaps the person has it already.
    pub marked: bool,
}
