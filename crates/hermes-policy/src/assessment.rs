//! Classes and findings.

pub(crate) mod category;

use std::fmt;
use std::ops::Range;

use hermes_core::approval::Rule;
use serde::Serialize;

pub use category::Category;

/// The class of a command, from harmless to forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandClass {
    /// Proven to change nothing.
    ReadOnly,
    /// Changes nothing outside the workspace.
    WorkspaceWrite,
    /// The user decides.
    Ask,
    /// Never, whatever is configured.
    Forbidden,
}

impl CommandClass {
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::WorkspaceWrite => "workspace_write",
            Self::Ask => "ask",
            Self::Forbidden => "forbidden",
        }
    }
}

impl fmt::Display for CommandClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingWeight {
    /// A sandbox makes it harmless; without one it asks.
    Soft,
    /// Asks, with or without a sandbox.
    Firm,
    /// Hardline.
    Forbidden,
}

/// A reason against a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct PolicyFinding {
    pub category: Category,
    pub weight: FindingWeight,
    /// For users and for the model.
    pub why: String,
    /// The affected part of the command.
    pub excerpt: String,
}

impl fmt::Display for PolicyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// The class of a command and the reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assessment {
    pub class: CommandClass,
    pub findings: Vec<PolicyFinding>,
    /// The rule that "always" would store. `None`: the command means something else each time.
    pub rule: Option<Rule>,
    /// Proven to use no network: every program in it is known, and none does.
    #[serde(skip)]
    pub offline: bool,
    /// The simple commands, for rules that cover them one by one.
    #[serde(skip)]
    pub(crate) parts: Vec<CommandPart>,
    /// The text and every program in it, in lower case, for deny globs.
    #[serde(skip)]
    pub(crate) texts: Vec<String>,
}

/// A simple command of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandPart {
    /// Its words, if they are all known and nothing else (redirection, assignment) belongs to it.
    pub argv: Option<Vec<String>>,
    /// Its findings: indices into [`Assessment::findings`].
    pub findings: Range<usize>,
}

impl Assessment {
    /// Findings as lines for users, without duplicates.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        for finding in &self.findings {
            if !reasons.contains(&finding.why) {
                reasons.push(finding.why.clone());
            }
        }
        reasons
    }

    /// Findings that ask with or without a sandbox.
    pub fn firm(&self) -> impl Iterator<Item = &PolicyFinding> {
        self.asking(false).map(|(_, finding)| finding)
    }

    /// Findings that make the command ask: all of them, or those that a sandbox does not settle.
    pub(crate) fn asking(&self, soft: bool) -> impl Iterator<Item = (usize, &PolicyFinding)> {
        self.findings
            .iter()
            .enumerate()
            .filter(move |(_, finding)| soft || finding.weight > FindingWeight::Soft)
    }
}
