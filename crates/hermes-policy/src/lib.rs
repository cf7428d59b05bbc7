//! Decides what a command may do: one [`Gate`] for the terminal, background processes, `execute_code`, cron
//! scripts, subagents and programs spawned for a server.
//!
//! | module | what it does |
//! |---|---|
//! | `gate` | decides: hardline, deny globs, rules, class, mode; asks the user; remembers answers |
//! | `config` | the configuration of approvals |
//! | `request` | a command and where it would run |
//! | `assessment` | classes, findings, categories |
//! | [`judge`] | a model's opinion in smart mode |
//! | [`rules`] | stored permissions: exact commands, prefixes, and what older homes hold |

mod assess;
mod assessment;
mod classify;
mod config;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gate;
pub mod judge;
mod live;
mod memory;
mod proof;
mod request;
pub mod rules;
mod shell;

pub use assess::is_invisible;
pub use assessment::{Assessment, Category, CommandClass, FindingWeight, PolicyFinding};
pub use config::{ApprovalMode, PolicyConfig, UnattendedMode};
pub use gate::{Gate, Permit, PermitReason, Refusal, RefusalKind};
pub use judge::{Judge, JudgeOpinion, JudgeQuestion, ModelJudge};
pub use request::{CommandRequest, ConfinementLevel, RequestKind};
