//! Sessions and turns: prompt, projection, tool planning, recovery, compression.
//!
//! One turn: `session` receives a command and starts a [`turn`]; the turn commits the person's
//! message, sends the projection (`project`) of the `log` to a model, plans the calls that come
//! back (`plan`), runs them, and repeats this until there is an answer. Errors are handled by a
//! table (`recover`) under one budget (`budget`).
//!
//! Modules without a link are private.
//!
//! | module | what it does |
//! |---|---|
//! | `session`, [`turn`] | the session actor; one turn from message to answer |
//! | `events` | events of a session |
//! | `log`, `project` | the append-only log; what the model sees of it |
//! | [`prompt`], [`context_files`] | the system prompt; AGENTS.md and other instruction files |
//! | `plan`, `repair` | which calls run in parallel; repair of tool names and arguments |
//! | `recover`, `budget`, `guard` | what to do after errors; limits of a turn; detection of loops |
//! | [`compress`], [`tokens`], [`lean`] | compression; size estimates; less text for small context windows |
//! | [`spill`], `scrub`, `fence` | large results; reasoning tags in answers; marks around untrusted text |
//! | [`subagent`], [`tools`] | `delegate_task`; tools that need only the session |
//! | [`deferred`] | tools that the model searches for instead of seeing them all |
//! | `settings` | settings of a session |
//! | `title`, `weight` | session titles; memory that an open conversation uses |

mod budget;
pub mod compress;
pub mod context_files;
pub mod deferred;
mod events;
mod fence;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod guard;
pub mod lean;
mod log;
mod plan;
mod project;
pub mod prompt;
mod recover;
mod repair;
mod scrub;
mod session;
mod settings;
pub mod spill;
pub mod subagent;
mod title;
pub mod tokens;
mod tool_lists;
pub mod tools;
pub mod turn;
mod weight;

pub use events::EventReceiver;
pub use session::{
    PromptContext, PromptSource, PromptText, RepositoryPart, RepositoryReader, Session,
    SessionClosed, SessionDeps, SessionHandle, SessionStart, ToolSource, WeakSession,
};
pub use settings::{
    AgentSettings, GuardLimits, GuardSettings, IntentNudges, ToolSettings, parse_effort,
};
pub use weight::ConversationMemory;
