//! The model as a server on loopback: OpenAI's chat completions for the processes of one user.

mod chat;
mod completion;
mod error;
mod guard;
mod lifetime;
mod listen;
mod program;
mod queue;
mod request;
mod run_file;
mod stats;
mod worker;

pub use lifetime::ShutdownReason;
pub use program::{LocalServerSettings, ServerExit, serve};
