//! Options of the interface, and how it ends.

use std::path::PathBuf;
use std::time::Duration;

use hermes_config::schema::Tui;
use hermes_core::event::TurnExit;
use hermes_core::front_end::TranscriptEntry;
use hermes_core::message::Part;
use hermes_core::model::Route;

use crate::composer::CompletionCommand;
use crate::port::SessionStatus;
use crate::prompt::approval::CheckRule;

/// Everything [`super::run`] needs to start.
#[derive(Clone)]
pub struct AppOptions {
    /// Of the program, for the banner.
    pub version: String,
    /// Directory of the composer's history and drafts; `None`: they are not saved.
    pub keep: Option<PathBuf>,
    /// Histories of the line chat and of the original, imported into a project that has none yet.
    pub seeds: Vec<PathBuf>,
    /// Commands in addition to the built-in table: skills.
    pub commands: Vec<CompletionCommand>,
    /// Where stderr is redirected while the interface owns the terminal.
    pub log: Option<PathBuf>,
    /// [`Tui::from_config`].
    pub tui: Tui,
    /// Whether colours are wanted (`--color`, `NO_COLOR`).
    pub colour: bool,
    pub status: SessionStatus,
    /// A conversation that is resumed.
    pub entries: Vec<TranscriptEntry>,
    /// Initial text of the composer; otherwise the saved draft is restored.
    pub draft: Option<String>,
    /// Sent with the first message.
    pub images: Vec<Part>,
    /// `display.show_reasoning`.
    pub reasoning: bool,
    /// Show complete tool results.
    pub verbose: bool,
    /// `display.timestamps`.
    pub timestamps: bool,
    /// Shown below the banner: configuration warnings, a hint on the first run.
    pub notices: Vec<String>,
    /// Explains why a turn ended and how to fix it. `None`: nothing to explain.
    pub explain: fn(&TurnExit, Option<&Route>) -> Option<Explanation>,
    /// How long until an unanswered approval is denied; `None`: it waits.
    pub approval_limit: Option<Duration>,
    /// Checks whether a rule edited by the person may be stored for a request.
    pub check_rule: CheckRule,
}

impl AppOptions {
    /// Options with defaults for everything that is not required.
    pub fn new(version: impl Into<String>, status: SessionStatus) -> Self {
        Self {
            version: version.into(),
            keep: None,
            seeds: Vec::new(),
            commands: Vec::new(),
            log: None,
            tui: Tui::default(),
            colour: true,
            status,
            entries: Vec::new(),
            draft: None,
            images: Vec::new(),
            reasoning: false,
            verbose: false,
            timestamps: false,
            notices: Vec::new(),
            explain: |_, _| None,
            approval_limit: None,
            check_rule: |request, rule| match &request.rule {
                Some(offered) if offered.0 == rule => Ok(offered.clone()),
                _ => Err("this rule cannot be changed".to_owned()),
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub cause: String,
    pub fix: Option<String>,
}

/// How the interface ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The person left.
    UserLeft,
    /// The program closed its end of the channel.
    Disconnected,
    /// The terminal is gone, or a signal requested the end.
    TerminalGone,
}

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("the terminal: {0}")]
    Terminal(#[from] std::io::Error),
}
