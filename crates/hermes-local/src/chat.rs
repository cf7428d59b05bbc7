//! From messages to a prompt: the chat template of the model's file, and tools in it.

mod error;
mod message;
mod own;
mod protect;
mod template;

pub use error::ChatError;
pub use message::{Call, Message, Role, Tool};
pub use protect::Protect;
pub use template::{Template, Thinking};
