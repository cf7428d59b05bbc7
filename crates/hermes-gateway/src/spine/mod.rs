//! The durable middle between platforms and conversations.
//!
//! A message is stored before its platform is told so; a reply is stored, in the chunks in which
//! it will leave, in the transaction that ends its turn; only then is anything sent. After a crash
//! at any instant the next life goes on from what is stored. A chunk that was being sent is
//! looked into by the means of its platform, or sent again with a visible mark.

mod heart;
mod inbox;
mod lanes;
mod outbox;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use hermes_core::ids::SessionId;
use hermes_core::store::StoreError;
use hermes_store::db::delivery::{
    Accepted, Delivery, Due, Final, Foreign, Inbound as Stored, NewChunk, Processes, Progress,
    Settled, Spoken, StoredQuestion, Target, Waiting,
};
use serde_json::Value;

pub use heart::beat;
pub use inbox::Inbox;
pub use lanes::Pumped;
pub use outbox::{Extra, MARK, Outbox, Policy};

/// What the spine writes to and reads from. [`Delivery`] is the real one; tests kill theirs.
pub trait Ledger: Send + Sync {
    fn accept(&self, message: Stored) -> impl Future<Output = Result<Accepted, StoreError>> + Send;
    fn waiting(
        &self,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Waiting>, StoreError>> + Send;
    fn claim(
        &self,
        messages: &[i64],
        turn: &str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
    fn finish(&self, end: Final) -> impl Future<Output = Result<usize, StoreError>> + Send;
    fn due(
        &self,
        reachable: Vec<(String, String)>,
        limit: usize,
    ) -> impl Future<Output = Result<Due, StoreError>> + Send;
    fn begin_send(&self, seq: i64) -> impl Future<Output = Result<(), StoreError>> + Send;
    fn settle(
        &self,
        seq: i64,
        settled: Settled,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
    fn open_after(
        &self,
        after: i64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(i64, String)>, StoreError>> + Send;
    fn waiting_of(
        &self,
        key: &str,
        after: i64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Waiting>, StoreError>> + Send;
    fn open_messages(&self) -> impl Future<Output = Result<usize, StoreError>> + Send;
    fn note(
        &self,
        message: i64,
        name: &str,
        value: Option<&str>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
    fn notes(
        &self,
        message: i64,
    ) -> impl Future<Output = Result<HashMap<String, String>, StoreError>> + Send;
    fn progress(
        &self,
        session: &SessionId,
        message_id: &str,
    ) -> impl Future<Output = Result<Progress, StoreError>> + Send;
    fn progress_of(
        &self,
        session: &SessionId,
        words: &str,
        since: f64,
    ) -> impl Future<Output = Result<Progress, StoreError>> + Send;
    fn spoken_after(
        &self,
        session: &SessionId,
        message_id: &str,
    ) -> impl Future<Output = Result<Vec<Spoken>, StoreError>> + Send;
    fn spoken_after_words(
        &self,
        session: &SessionId,
        words: &str,
        since: f64,
    ) -> impl Future<Output = Result<Vec<Spoken>, StoreError>> + Send;
    /// Whether a chat waits for a chunk.
    fn is_owed(&self, target: &Target) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = target;
        std::future::ready(Ok(false))
    }
    fn sent(&self, turn: &str) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;
    fn question(
        &self,
        id: &str,
    ) -> impl Future<Output = Result<Option<StoredQuestion>, StoreError>> + Send;
    fn questions_of(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Vec<StoredQuestion>, StoreError>> + Send;
    fn answer_question(
        &self,
        id: &str,
        answer: &Value,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
    fn reopen_question(&self, id: &str) -> impl Future<Output = Result<(), StoreError>> + Send;
    fn foreign(
        &self,
        alive: Arc<dyn Processes>,
    ) -> impl Future<Output = Result<Vec<Foreign>, StoreError>> + Send;
    fn adopt(
        &self,
        foreign: Foreign,
        chunks: Vec<NewChunk>,
    ) -> impl Future<Output = Result<usize, StoreError>> + Send;
    fn heartbeat(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
    fn prune(&self) -> impl Future<Output = Result<usize, StoreError>> + Send;
}

impl Ledger for Delivery {
    async fn accept(&self, message: Stored) -> Result<Accepted, StoreError> {
        Delivery::accept(self, message).await
    }

    async fn waiting(&self, limit: usize) -> Result<Vec<Waiting>, StoreError> {
        Delivery::waiting(self, limit).await
    }

    async fn claim(&self, messages: &[i64], turn: &str) -> Result<(), StoreError> {
        Delivery::claim(self, messages, turn).await
    }

    async fn finish(&self, end: Final) -> Result<usize, StoreError> {
        Delivery::finish(self, end).await
    }

    async fn due(&self, reachable: Vec<(String, String)>, limit: usize) -> Result<Due, StoreError> {
        Delivery::due(self, reachable, limit).await
    }

    async fn begin_send(&self, seq: i64) -> Result<(), StoreError> {
        Delivery::begin_send(self, seq).await
    }

    async fn settle(&self, seq: i64, settled: Settled) -> Result<(), StoreError> {
        Delivery::settle(self, seq, settled).await
    }

    async fn open_after(&self, after: i64, limit: usize) -> Result<Vec<(i64, String)>, StoreError> {
        Delivery::open_after(self, after, limit).await
    }

    async fn waiting_of(
        &self,
        key: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Waiting>, StoreError> {
        Delivery::waiting_of(self, key, after, limit).await
    }

    async fn open_messages(&self) -> Result<usize, StoreError> {
        Delivery::open_messages(self).await
    }

    async fn note(&self, message: i64, name: &str, value: Option<&str>) -> Result<(), StoreError> {
        Delivery::note(self, message, name, value).await
    }

    async fn notes(&self, message: i64) -> Result<HashMap<String, String>, StoreError> {
        Delivery::notes(self, message).await
    }

    async fn progress(
        &self,
        session: &SessionId,
        message_id: &str,
    ) -> Result<Progress, StoreError> {
        Delivery::progress(self, session, message_id).await
    }

    async fn progress_of(
        &self,
        session: &SessionId,
        words: &str,
        since: f64,
    ) -> Result<Progress, StoreError> {
        Delivery::progress_of(self, session, words, since).await
    }

    async fn spoken_after(
        &self,
        session: &SessionId,
        message_id: &str,
    ) -> Result<Vec<Spoken>, StoreError> {
        Delivery::spoken_after(self, session, message_id).await
    }

    async fn spoken_after_words(
        &self,
        session: &SessionId,
        words: &str,
        since: f64,
    ) -> Result<Vec<Spoken>, StoreError> {
        Delivery::spoken_after_words(self, session, words, since).await
    }

    async fn is_owed(&self, target: &Target) -> Result<bool, StoreError> {
        Delivery::is_owed(self, target).await
    }

    async fn sent(&self, turn: &str) -> Result<Vec<String>, StoreError> {
        Delivery::sent(self, turn).await
    }

    async fn question(&self, id: &str) -> Result<Option<StoredQuestion>, StoreError> {
        Delivery::question(self, id).await
    }

    async fn questions_of(&self, key: &str) -> Result<Vec<StoredQuestion>, StoreError> {
        Delivery::questions_of(self, key).await
    }

    async fn answer_question(&self, id: &str, answer: &Value) -> Result<bool, StoreError> {
        Delivery::answer_question(self, id, answer).await
    }

    async fn reopen_question(&self, id: &str) -> Result<(), StoreError> {
        Delivery::reopen_question(self, id).await
    }

    async fn foreign(&self, alive: Arc<dyn Processes>) -> Result<Vec<Foreign>, StoreError> {
        Delivery::foreign(self, alive).await
    }

    async fn adopt(&self, foreign: Foreign, chunks: Vec<NewChunk>) -> Result<usize, StoreError> {
        Delivery::adopt(self, foreign, chunks).await
    }

    async fn heartbeat(&self) -> Result<(), StoreError> {
        Delivery::heartbeat(self).await
    }

    async fn prune(&self) -> Result<usize, StoreError> {
        Delivery::prune(self).await
    }
}
