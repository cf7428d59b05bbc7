//! What a session takes from a home: settings, system prompt, tools. Every front end starts here.

pub mod prompt;
pub mod settings;
pub mod store_tools;
pub mod tools;
pub mod toolsets;

pub use prompt::{HomePrompt, PromptOptions};
pub use tools::{FedToolset, HomeTools, ToolFeed, ToolsetChoice};
