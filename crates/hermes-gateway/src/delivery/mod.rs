//! Durable delivery: stores incoming messages, sends stored replies.
//!
//! A message is stored before it is acknowledged to its platform; a reply is stored as the chunks
//! to send, in the transaction that ends its turn, and only then sent. After a crash at any point
//! the next process continues from the stored state. A chunk that was being sent is looked up on
//! its platform if possible, or sent again with a visible mark.

mod heartbeat;
mod inbox;
mod lanes;
mod outbox;

pub use heartbeat::keep_ownership;
pub use inbox::MessageInbox;
pub use outbox::{ChunkExtras, DUPLICATE_MARK, Outbox, OutboxPolicy};
