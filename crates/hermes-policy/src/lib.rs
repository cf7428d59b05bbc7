//! What a command may do: one [`Gate`] for the terminal, background processes, `execute_code`, cron
//! scripts, subagents and programs that are spawned for a server.
//!
//! | module | what it does |
//! |---|---|
//! | [`gate`] | decides: hardline, deny globs, rules, class, mode; asks the person; remembers answers |
//! | [`config`] | what the configuration says about it |
//! | [`request`] | a command and where it would run |
//! | [`assessment`] | classes, findings, categories |
//! | [`judge`] | a model's opinion in smart mode |
//! | [`rules`] | stored permissions: exact commands, prefixes, and what older homes hold |

mod assess;
pub mod assessment;
mod classify;
pub mod config;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod gate;
pub mod judge;
mod live;
mod memory;
mod proof;
pub mod request;
pub mod rules;
mod shell;

pub use assess::is_hidden;
pub use assessment::{Assessment, Category, Class, Finding, Weight};
pub use config::{Mode, PolicyConfig, Unattended};
pub use gate::{Gate, How, Permit, Refusal, RefusalKind};
pub use judge::{Judge, JudgeQuestion, ModelJudge, Opinion};
pub use request::{CommandRequest, Confinement, Kind};
