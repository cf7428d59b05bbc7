//! Sessions and turns: prompt, projection, tool planning, recovery, compression.
//!
//! The way of one turn: [`session`] receives a command and starts a [`turn`]; the turn commits
//! the person's message, sends the projection ([`project`]) of the [`log`] to a model, plans the
//! calls that come back ([`plan`]), runs them, and goes round until there is an answer. What goes
//! wrong on the way is met by a table ([`recover`]) under one budget ([`budget`]).

pub mod budget;
pub mod compress;
pub mod context_files;
pub mod events;
pub mod fence;
pub mod front;
pub mod guard;
pub mod home;
pub mod lean;
pub mod log;
pub mod plan;
pub mod project;
pub mod prompt;
pub mod recover;
pub mod repair;
pub mod scrub;
pub mod session;
pub mod settings;
pub mod spill;
pub mod subagent;
pub mod title;
pub mod tokens;
mod told;
pub mod tools;
pub mod turn;
pub mod weight;
