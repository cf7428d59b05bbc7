//! The persistence a session needs. `hermes-store` implements it over state.db.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::BoxFuture;
use crate::ids::{RowId, SessionId};
use crate::message::Message;
use crate::model::Route;
use crate::usage::{Cost, Usage};

/// The persistent data of a session. Every method returns after the data is committed.
pub trait SessionStore: Send + Sync {
    /// Creates the session row, or completes and reopens an existing one.
    fn begin(&self, session: NewSession) -> BoxFuture<'_, Result<(), StoreError>>;
    /// Appends to the log.
    fn append<'a>(
        &'a self,
        id: &'a SessionId,
        items: Vec<NewItem>,
    ) -> BoxFuture<'a, Result<Vec<RowId>, StoreError>>;
    /// Both at once: the row and the first messages. In one transaction if the store supports it.
    fn begin_with(
        &self,
        session: NewSession,
        items: Vec<NewItem>,
    ) -> BoxFuture<'_, Result<Vec<RowId>, StoreError>> {
        Box::pin(async move {
            let id = session.id.clone().unwrap_or_else(|| SessionId::new(""));
            self.begin(session).await?;
            self.append(&id, items).await
        })
    }
    /// Appends an answer and its cost. In one transaction if the store supports it.
    fn append_with<'a>(
        &'a self,
        id: &'a SessionId,
        items: Vec<NewItem>,
        usage: UsageEntry,
    ) -> BoxFuture<'a, Result<Vec<RowId>, StoreError>> {
        Box::pin(async move {
            self.update(id, SessionUpdate::Usage(usage)).await?;
            self.append(id, items).await
        })
    }
    /// The session and the part of its log that the model sees. `None`: no such session.
    fn load<'a>(
        &'a self,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<StoredSession>, StoreError>>;
    /// Marks the visible log up to `upto` as compacted (kept, searchable) and appends `view`, which
    /// the model sees from now on. Rows that another process added after `upto` stay visible. One
    /// transaction.
    fn compact<'a>(
        &'a self,
        id: &'a SessionId,
        upto: RowId,
        view: Vec<NewItem>,
    ) -> BoxFuture<'a, Result<Vec<RowId>, StoreError>>;
    /// Hides every visible row from `from` on (undo). Returns how many.
    fn rewind<'a>(
        &'a self,
        id: &'a SessionId,
        from: RowId,
    ) -> BoxFuture<'a, Result<usize, StoreError>>;
    fn update<'a>(
        &'a self,
        id: &'a SessionId,
        update: SessionUpdate,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Sets the title; `auto` titles that are already used get ` #2`, ` #3`, … Returns the title
    /// set.
    fn set_title<'a>(
        &'a self,
        id: &'a SessionId,
        title: &'a str,
        auto: bool,
    ) -> BoxFuture<'a, Result<String, StoreError>>;
    /// Takes the cross-process compaction lock. `false`: another process holds it.
    fn lock_compaction<'a>(
        &'a self,
        id: &'a SessionId,
        holder: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewSession {
    pub id: Option<SessionId>,
    /// `cli`, `cron`, `subagent`, a platform name, …
    pub source: String,
    pub model: Option<String>,
    pub model_config: Option<Value>,
    pub system_prompt: Option<String>,
    pub parent: Option<SessionId>,
    pub user_id: Option<String>,
    pub cwd: Option<PathBuf>,
    pub git_branch: Option<String>,
    pub git_repo_root: Option<PathBuf>,
    pub profile: Option<String>,
    /// Seconds since the epoch.
    pub started_at: f64,
}

/// A message to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewItem {
    pub message: Message,
    /// Seconds since the epoch.
    pub at: f64,
    pub token_count: Option<u32>,
    pub platform_message_id: Option<String>,
}

/// A stored message.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredItem {
    pub id: RowId,
    pub message: Message,
    pub at: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StoredSession {
    pub id: SessionId,
    pub source: String,
    pub model: Option<String>,
    pub billing_provider: Option<String>,
    pub model_config: Option<Value>,
    pub system_prompt: Option<String>,
    pub title: Option<String>,
    pub cwd: Option<PathBuf>,
    pub parent: Option<SessionId>,
    pub ended: bool,
    /// Whether earlier rows were summarised.
    pub compacted_before: bool,
    pub compaction_cooldown_until: Option<f64>,
    pub items: Vec<StoredItem>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SessionUpdate {
    SystemPrompt(String),
    /// The first end wins.
    End {
        reason: String,
        at: f64,
    },
    Reopen,
    Model {
        model: String,
        config: Option<Value>,
    },
    Usage(UsageEntry),
    /// Automatic compaction failed: do not retry before `until`. `None` clears it.
    CompactionCooldown {
        until: Option<f64>,
        error: Option<String>,
    },
    ReleaseCompaction {
        holder: String,
    },
    /// Restores rows that a rewind hid.
    Restore {
        rows: Vec<RowId>,
    },
    /// The text so far of an answer that is still streamed. It replaces the previous text, and is
    /// replaced by the next appended row; after a crash it stays. `None`: remove it.
    Unfinished {
        text: Option<String>,
        at: f64,
    },
    /// The text that was actually sent for the newest user row.
    WireText {
        row: RowId,
        text: String,
    },
}

/// The usage of one model call.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageEntry {
    pub route: Route,
    /// Empty for the conversation itself, else the name of the auxiliary task.
    pub task: String,
    pub usage: Usage,
    pub cost: Cost,
    pub at: f64,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("no session {0}")]
    NotFound(String),
    #[error("the database is busy: another process held it for {waited:?}; try again")]
    Busy { waited: Duration },
    #[error(
        "{path}: the database is damaged ({detail}); nothing more is written to it. Run: hermes sessions repair"
    )]
    Corrupt { path: PathBuf, detail: String },
    #[error(
        "{path}: the disk is full ({free} free); nothing can be stored. Make room (delete or move other files; hermes checkpoints prune deletes old snapshots), then try again. The database is intact"
    )]
    DiskFull { path: PathBuf, free: String },
    #[error("{path}: {detail}")]
    Unsupported { path: PathBuf, detail: String },
    #[error("title {title:?} is used by session {holder}")]
    TitleTaken { title: String, holder: String },
    #[error("{query:?} fits several sessions: {}; give more of the id", candidates.join(", "))]
    Ambiguous {
        query: String,
        candidates: Vec<String>,
    },
    #[error(
        "delivery on this home belongs to another gateway ({holder}); stop that one or wait until it ends"
    )]
    NotOwner { holder: String },
    #[error("turn {0} ended before")]
    Ended(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    #[error("{what}: {detail}")]
    Database { what: String, detail: String },
    #[error("the store was closed")]
    Closed,
}
