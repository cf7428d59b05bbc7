//! What the configuration says about commands.

use std::path::PathBuf;
use std::time::Duration;

use hermes_config::{Config, Home};

/// `approvals.mode`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Ask the person.
    #[default]
    Manual,
    /// A model judges first; the person is asked where it does not approve.
    Smart,
    /// Ask nothing.
    Off,
}

impl Mode {
    /// Words nobody knows ask.
    pub fn parse(word: &str) -> Self {
        match word.trim().to_lowercase().as_str() {
            "smart" => Self::Smart,
            "off" | "false" => Self::Off,
            _ => Self::Manual,
        }
    }
}

/// `approvals.unattended`: what happens to a command that needs asking when nobody is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unattended {
    #[default]
    Deny,
    /// Programs and scripts may run as they would in a sandbox, even without one. Nothing else.
    AllowWorkspace,
    /// What the judge of smart mode approves may run.
    Smart,
    /// Everything but the forbidden and the denied may run.
    Allow,
}

impl Unattended {
    /// Words nobody knows deny.
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
    pub mode: Mode,
    pub unattended: Unattended,
    /// `approvals.cron_mode` lets cron scripts run.
    pub cron_allowed: bool,
    /// How long a person has to answer; `None`: for ever.
    pub timeout: Option<Duration>,
    /// `approvals.deny`
    pub deny: Vec<String>,
    /// `command_allowlist`
    pub rules: Vec<String>,
    /// config.yaml, where rules are kept. `None`: they last as long as the process.
    pub file: Option<PathBuf>,
    /// What `~` means.
    pub user_home: PathBuf,
    /// Where Hermes keeps its own files.
    pub hermes_home: PathBuf,
}

impl PolicyConfig {
    pub fn from_config(home: &Home, config: &Config) -> Self {
        let approvals = &config.approvals;
        Self {
            mode: Mode::parse(&approvals.mode),
            unattended: approvals
                .unattended
                .as_deref()
                .map_or(Unattended::Deny, Unattended::parse),
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
