//! One actor per conversation: commands in, events out.
//!
//! ```text
//! let (handle, mut events) = Session::start(deps, SessionStart::New(new))?;
//! handle.send(AgentCommand::Submit("hello".into())).await?;
//! while let Some(event) = events.recv().await { … }
//! ```
//!
//! A message submitted while a turn runs waits in a queue that the reader of events can see.
//! A steering text that came too late for its turn is submitted as the next turn by the session
//! itself, unless the turn was interrupted; the turn's summary names it in both cases.

pub mod deps;
pub mod steer;

pub use deps::{PromptContext, PromptSource, PromptText, SessionDeps, SessionStart, ToolSource};
