//! Messages become turns, turns become replies.
//!
//! [`runner`] checks the database and wakes one [`chat`] per conversation key; a chat reads its own
//! messages from the database, so that only the database has to survive. Every permanent message to
//! a person is stored in the transaction that answers the message; typing, reactions and previews
//! are not stored, and nothing depends on them.

mod admission;
mod background;
mod chat;
mod location;
mod media_in;
mod media_out;
mod message;
mod messages;
mod operator;
mod post;
mod preview;
pub(crate) mod runner;
mod session;
mod shared;
pub(crate) mod shutdown;
mod side_work;
mod style;
mod tool;
mod voice_mode;

pub use operator::{DecisionError, OpenPermission, OwnerDecision};
pub use post::{KnownChat, MessagePoster};
pub(crate) use shared::GatewayShared;
