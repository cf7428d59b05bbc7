//! Options for opening a conversation.

use std::path::PathBuf;

/// Options of a conversation's turns. The default is a new session with the home's configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnOptions {
    pub model: Option<String>,
    pub provider: Option<String>,
    /// Only these toolsets; `None`: as configured.
    pub toolsets: Option<Vec<String>>,
    /// Skills that are loaded into the system prompt.
    pub skills: Vec<String>,
    /// A session to resume: id, prefix of an id, title or first words.
    pub resume: Option<String>,
    /// Resumes the latest session with this title; empty: the latest of this source.
    pub resume_latest: Option<String>,
    /// A resumed session does not return to the directory it was held in.
    pub no_restore_cwd: bool,
    /// Dangerous actions are approved without asking.
    pub yolo: bool,
    /// Snapshots are taken even if `checkpoints.enabled` is off.
    pub checkpoints: bool,
    /// The prompt contains the session id.
    pub pass_session_id: bool,
    pub ignore_user_config: bool,
    /// Project files such as AGENTS.md are ignored.
    pub ignore_rules: bool,
    /// Both of the above, and no memory or skills in the prompt.
    pub safe_mode: bool,
    /// Model calls per turn.
    pub max_turns: Option<u32>,
    /// The source recorded for the session; `None`: `cli`.
    pub source: Option<String>,
    /// Image files for the first message.
    pub images: Vec<PathBuf>,
    /// Reasoning and tool results are shown.
    pub verbose: bool,
    /// Where tools run; `None`: where the process is.
    pub cwd: Option<PathBuf>,
}

impl TurnOptions {
    /// Whether config.yaml is ignored.
    pub fn ignores_config(&self) -> bool {
        self.ignore_user_config || self.safe_mode
    }

    pub(crate) fn source(&self) -> &str {
        self.source.as_deref().unwrap_or("cli")
    }
}
