//! Serves editors: the Agent Client Protocol over a pair of byte streams, mapped to conversations.
//!
//! Conversations belong to the [`ConversationHost`](hermes_app::ConversationHost); this crate
//! turns its updates into protocol messages and the editor's messages into requests. One task per
//! conversation; nothing but JSON-RPC is written.

mod calls;
mod editor_texts;
mod edits;
mod mode;
mod permission;
mod prompt;
mod question;
mod server;
mod session;
mod terminals;
mod updates;
mod wire;

pub use edits::{Edits, ProposedChange};
pub use mode::EditorMode;
pub use server::serve;
