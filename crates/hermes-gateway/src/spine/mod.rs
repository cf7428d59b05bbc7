//! The durable middle between platforms and conversations.
//!
//! A message is stored before its platform is told so; a reply is stored, in the chunks in which
//! it will leave, in the transaction that ends its turn; only then is anything sent. After a crash
//! at any instant the next life goes on from what is stored. A chunk that was being sent is
//! looked into by the means of its platform, or sent again with a visible mark.

mod heartbeat;
mod inbox;
mod lanes;
mod outbox;

pub use heartbeat::beat;
pub use inbox::MessageInbox;
pub use lanes::LaneRound;
pub use outbox::{ChunkExtras, MARK, Outbox, OutboxPolicy};
