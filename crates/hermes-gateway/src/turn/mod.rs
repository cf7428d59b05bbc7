//! Messages become turns, turns become replies.
//!
//! [`runner`] looks into the database and wakes one [`chat`] per conversation key; a chat reads its own
//! messages from the database, so that nothing but the database has to survive. Everything a person
//! reads for good is an obligation in the database, written in the transaction that answers the
//! message; typing, reactions and previews are not, and nothing depends on them.

mod background;
mod beside;
mod chat;
mod door;
mod hub;
pub(crate) mod leaving;
mod media_in;
mod media_out;
mod message;
mod operator;
mod place;
mod post;
pub(crate) mod runner;
mod session;
mod show;
mod style;
mod tool;
mod voice_mode;
mod words;

pub(crate) use hub::Hub;
pub use operator::{DecisionError, OpenPermission, OwnerDecision};
pub use post::{KnownChat, MessagePoster};
