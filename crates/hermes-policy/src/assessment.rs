//! Classes and findings.

pub mod category;

use std::fmt;
use std::ops::Range;

use hermes_core::approval::Rule;
use serde::Serialize;

pub use category::Category;

/// What a command is, from harmless to never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Proven to change nothing.
    ReadOnly,
    /// Changes nothing outside the workspace.
    WorkspaceWrite,
    /// A person decides.
    Ask,
    /// Never, whatever is configured.
    Forbidden,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::WorkspaceWrite => "workspace_write",
            Self::Ask => "ask",
            Self::Forbidden => "forbidden",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much a finding counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// A sandbox makes it harmless; without one it asks.
    Soft,
    /// Asks, sandbox or not.
    Firm,
    /// Hardline.
    Forbidden,
}

/// One thing that speaks against a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Finding {
    pub category: Category,
    pub weight: Weight,
    /// For people, and for the model.
    pub why: String,
    /// The part of the command it is about.
    pub excerpt: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// What a command is and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assessment {
    pub class: Class,
    pub findings: Vec<Finding>,
    /// What "always" would store. `None`: the command means something else each time.
    pub rule: Option<Rule>,
    /// Shown to use no network: every program in it is known, and none of them does.
    #[serde(skip)]
    pub offline: bool,
    /// The simple commands, for rules that cover them one by one.
    #[serde(skip)]
    pub(crate) parts: Vec<Part>,
    /// The text and every program in it, in lower case, for deny globs.
    #[serde(skip)]
    pub(crate) texts: Vec<String>,
}

/// A simple command of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its words, when they are all known and nothing else (redirection, assignment) belongs to it.
    pub argv: Option<Vec<String>>,
    /// Findings of its own: indices into [`Assessment::findings`].
    pub findings: Range<usize>,
}

impl Assessment {
    /// Findings as lines for people, each once.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        for finding in &self.findings {
            if !reasons.contains(&finding.why) {
                reasons.push(finding.why.clone());
            }
        }
        reasons
    }

    /// Findings that ask whether or not there is a sandbox.
    pub fn firm(&self) -> impl Iterator<Item = &Finding> {
        self.asking(false).map(|(_, finding)| finding)
    }

    /// Findings that make the command ask: all of them, or without a sandbox's.
    pub(crate) fn asking(&self, soft: bool) -> impl Iterator<Item = (usize, &Finding)> {
        self.findings
            .iter()
            .enumerate()
            .filter(move |(_, finding)| soft || finding.weight > Weight::Soft)
    }
}
