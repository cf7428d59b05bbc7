//! What a session takes from a home: settings, system prompt, tools. Every front end starts here.

pub(crate) mod prompt;
pub(crate) mod settings;
pub(crate) mod store_tools;
pub(crate) mod tools;
pub mod toolsets;

pub(crate) use prompt::{HomePrompt, PromptOptions};
pub(crate) use tools::{FedToolset, HomeTools, ToolFeed, ToolsetChoice};
