//! The configuration of approvals.

use std::path::PathBuf;
use std::time::Duration;

use hermes_config::{Config, Home};

/// `approvals.mode`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalMode {
    /// Ask the user.
    #[default]
    Manual,
    /// A model judges first; the user is asked if it does not approve.
    Smart,
    /// Never ask.
    Off,
}

impl ApprovalMode {
    /// Unknown values mean ask.
    pub fn parse(word: &str) -> Self {
        match word.trim().to_lowercase().as_str() {
            "smart" => Self::Smart,
            "off" | "false" => Self::Off,
            _ => Self::Manual,
        }
    }
}

/// `approvals.unattended`: what happens to a command that needs approval when no user is present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnattendedMode {
    #[default]
    Deny,
    /// Programs and scripts may run as they would in a sandbox, even without one. Nothing else.
    AllowWorkspace,
    /// What the judge of smart mode approves may run.
    Smart,
    /// Everything except forbidden and denied commands may run.
    Allow,
}

impl UnattendedMode {
    /// Unknown values mean deny.
    pub fn parse(word: &str) -> Self {
        match word.trim().to_lowercase().as_str() {
            "allow_workspace" => Self::AllowWorkspace,
            "smart" => Self::Smart,
            "allow" => Self::Allow,
            _ => Self::Deny,
        }
    }
}

#[derive(Clone, Debug)]
pub struct PolicyConfig {
    pub mode: ApprovalMode,
    pub unattended: UnattendedMode,
    /// `approvals.cron_mode` allows cron scripts.
    pub cron_allowed: bool,
    /// How long a user has to answer; `None`: forever.
    pub timeout: Option<Duration>,
    /// `approvals.deny`
    pub deny: Vec<String>,
    /// `command_allowlist`
    pub rules: Vec<String>,
    /// The config.yaml in which rules are stored. `None`: they last as long as the process.
    pub file: Option<PathBuf>,
    /// The expansion of `~`.
    pub user_home: PathBuf,
    /// The Hermes home.
    pub hermes_home: PathBuf,
}

impl PolicyConfig {
    pub fn from_config(home: &Home, config: &Config) -> Self {
        let approvals = &config.approvals;
        Self {
            mode: ApprovalMode::parse(&approvals.mode),
            unattended: approvals
                .unattended
                .as_deref()
                .map_or(UnattendedMode::Deny, UnattendedMode::parse),
            cron_allowed: matches!(approvals.cron_mode.as_str(), "approve" | "allow"),
            timeout: (approvals.timeout > 0).then(|| Duration::from_secs(approvals.timeout)),
            deny: approvals.deny.clone(),
            rules: config.command_allowlist.clone(),
            file: Some(home.config_path()),
            user_home: home.expand_user("~"),
            hermes_home: home.root().to_path_buf(),
        }
    }
}
