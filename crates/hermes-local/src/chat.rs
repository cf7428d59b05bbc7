//! Converts messages to a prompt with the chat template of the model's file, including tools.

mod default_template;
mod error;
mod message;
mod protect;
mod template;

pub use error::ChatError;
pub use message::{ChatRole, PromptCall, PromptMessage, PromptTool};
pub use protect::ControlTextGuard;
pub use template::{Template, Thinking};
