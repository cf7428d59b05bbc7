//! What the interface is started with, and how it ends.

use std::path::PathBuf;
use std::time::Duration;

use hermes_config::schema::Tui;
use hermes_core::event::TurnExit;
use hermes_core::front_end::TranscriptEntry;
use hermes_core::message::Part;
use hermes_core::model::Route;

use crate::composer::Command;
use crate::port::Status;
use crate::prompt::approval::CheckRule;

/// Everything [`super::run`] needs to know beforehand.
#[derive(Clone)]
pub struct Options {
    /// Of the program, for the banner.
    pub version: String,
    /// Where the history of the composer and drafts are kept; `None`: they are not.
    pub keep: Option<PathBuf>,
    /// Histories of the line chat and of the original, for a project that has none yet.
    pub seeds: Vec<PathBuf>,
    /// Commands beside those of the table: skills.
    pub commands: Vec<Command>,
    /// Where stderr goes while the interface has the terminal.
    pub log: Option<PathBuf>,
    /// [`Tui::of`].
    pub tui: Tui,
    /// Whether colours are wanted (`--color`, `NO_COLOR`).
    pub colour: bool,
    pub status: Status,
    /// A conversation that is gone on with.
    pub entries: Vec<TranscriptEntry>,
    /// Text that stands in the composer at first; otherwise the draft of the last time does.
    pub draft: Option<String>,
    /// They go with the first message.
    pub images: Vec<Part>,
    /// `display.show_reasoning`.
    pub reasoning: bool,
    /// Results of tools, whole.
    pub verbose: bool,
    /// `display.timestamps`.
    pub timestamps: bool,
    /// Said below the banner: warnings of the configuration, a hint of the first run.
    pub notices: Vec<String>,
    /// Why a turn ended as it did, and what helps. `None`: nothing is to be said.
    pub explain: fn(&TurnExit, Option<&Route>) -> Option<Explanation>,
    /// After how long an approval that nobody answers is denied; `None`: it waits.
    pub approval_limit: Option<Duration>,
    /// Whether a rule that a person edited may be stored for a request.
    pub check_rule: CheckRule,
}

impl Options {
    /// With nothing but what must be known.
    pub fn new(version: impl Into<String>, status: Status) -> Self {
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
pub enum Farewell {
    /// The person left.
    Left,
    /// The program closed its end.
    Ended,
    /// The terminal is gone, or a signal asked for the end.
    Hung,
}

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("the terminal: {0}")]
    Terminal(#[from] std::io::Error),
}
