//! The model as a server on loopback: OpenAI's chat completions, for the processes of one person.

mod chat;
mod completion;
mod error;
mod guard;
mod life;
mod listen;
mod program;
mod queue;
mod request;
mod run_file;
mod stats;
mod worker;

pub use life::Reason;
pub use program::{Exit, Settings, serve};
