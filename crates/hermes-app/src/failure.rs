//! Failures and their exit codes (see docs/exit-codes.md).

use std::fmt::Write as _;
use std::process::ExitCode;

use hermes_core::event::TurnExit;
use hermes_core::model::{ErrorClass, RouteError};
use hermes_core::store::StoreError;
use hermes_store::skills::SkillError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    /// The command failed, or found problems.
    Failed = 1,
    /// The agent's turn failed, or ended without a full answer.
    TurnFailed = 2,
    /// No model is configured; nothing was called.
    NotConfigured = 3,
    NotFound = 4,
    /// Refused by policy: an administrator's setting, or an approval that was not given.
    Refused = 5,
    Usage = 64,
    Unreachable = 69,
    /// A resource is in use; retrying may help.
    Busy = 75,
    /// A service cannot run as it is configured; trying again is pointless.
    Config = 78,
    Interrupted = 130,
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// The failure of a command: exit code and message for stderr.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// Empty: the error was reported already.
    pub message: String,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, message)
    }

    /// The error was reported already; only the code matters.
    pub fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }
}

/// The result of every command.
pub type Outcome = Result<(), Failure>;

impl From<std::io::Error> for Failure {
    /// Writing results failed. A closed pipe is not an error.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::silent(Exit::Ok)
        } else {
            Self::failed(format!("writing the output: {error}"))
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::NotFound(_) => Exit::NotFound,
            StoreError::Busy { .. } => Exit::Busy,
            StoreError::Invalid(_)
            | StoreError::TitleTaken { .. }
            | StoreError::Ambiguous { .. } => Exit::Usage,
            _ => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<RouteError> for Failure {
    fn from(error: RouteError) -> Self {
        match &error {
            RouteError::NothingConfigured => Self::new(Exit::NotConfigured, NOTHING_CONFIGURED),
            RouteError::UnknownProvider { .. } => {
                Self::usage(format!("{error}; hermes model list shows all"))
            }
            other => Self::new(Exit::NotConfigured, other.to_string()),
        }
    }
}

/// What to do without a model, in four lines.
pub(crate) const NOTHING_CONFIGURED: &str = "\
no model is configured yet. Choose one:
  a key:              hermes config set OPENROUTER_API_KEY <key>   (any provider: hermes model list)
  your own server:    hermes model set <model> --base-url http://127.0.0.1:11434/v1
  no account needed:  hermes --local   (a small model that runs here: it chats, it has no tools)";

/// The code a finished turn leaves the process with.
pub fn exit_of_turn(exit: &TurnExit) -> Exit {
    match exit {
        TurnExit::Answered => Exit::Ok,
        TurnExit::Interrupted => Exit::Interrupted,
        TurnExit::Failed {
            class: ErrorClass::Unreachable,
            ..
        } => Exit::Unreachable,
        TurnExit::StoreFailed { .. } => Exit::Failed,
        _ => Exit::TurnFailed,
    }
}

/// A skill that cannot be loaded.
pub fn skill_failure(error: &SkillError) -> Failure {
    let exit = match error {
        SkillError::NotFound { .. } | SkillError::NoFile { .. } => Exit::NotFound,
        SkillError::Invalid(_) | SkillError::Ambiguous { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    let mut text = match error {
        SkillError::NotFound { name, .. } => format!("no skill {name:?}; see: hermes skills list"),
        other => other.to_string(),
    };
    if let SkillError::Ambiguous { matches, .. } = error {
        for path in matches {
            // Writing to a string does not fail.
            let _ = write!(text, "\n  {}", path.display());
        }
    }
    Failure::new(exit, text)
}
