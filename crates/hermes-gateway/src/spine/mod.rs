//! The durable middle between platforms and conversations.
//!
//! A message is stored before its platform is told so; a reply is stored, in the chunks in which
//! it will leave, in the transaction that ends its turn; only then is anything sent. After a crash
//! at any instant the next life goes on from what is stored. A chunk that was being sent is
//! looked into by the means of its platform, or sent again with a visible mark.

mod heart;
mod inbox;
mod outbox;

use std::future::Future;

use hermes_core::store::StoreError;
use hermes_store::db::delivery::{
    Accepted, Delivery, Due, Final, Inbound as Stored, Settled, Waiting,
};

pub use heart::beat;
pub use inbox::Inbox;
pub use outbox::{Extra, MARK, Outbox, Policy, Pumped};

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
}
