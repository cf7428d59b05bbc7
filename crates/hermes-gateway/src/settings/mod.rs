//! Settings of the gateway and its platforms.
//!
//! Environment, then config.yaml (top level, then under `gateway:`), then the old gateway.json,
//! then defaults.

mod access;
mod blocks;
mod gateway;
#[cfg(test)]
mod tests;

use std::time::Duration;

use hermes_config::Config;

pub use access::AccessSummary;
pub(crate) use blocks::home_var;
pub use gateway::GatewaySettings;
pub(crate) use gateway::{BusyMode, StreamTransport, StreamingSettings};
pub(crate) use hermes_app::{QuickCommand, QuickKind, read_quick_commands};

/// Platforms of the original that this program cannot run.
pub(crate) const FOREIGN: [&str; 22] = [
    "whatsapp",
    "whatsapp_cloud",
    "signal",
    "mattermost",
    "matrix",
    "homeassistant",
    "sms",
    "dingtalk",
    "msgraph_webhook",
    "feishu",
    "wecom",
    "wecom_callback",
    "weixin",
    "bluebubbles",
    "qqbot",
    "yuanbao",
    "relay",
    "irc",
    "ntfy",
    "teams",
    "google_chat",
    "line",
];

/// How long a person has to allow something: `approvals.gateway_timeout`.
pub fn approval_wait(config: &Config) -> Duration {
    let seconds = config.approvals.gateway_timeout.unwrap_or(300);
    Duration::from_secs(seconds.max(1))
}

/// A random key of 256 bits, as text.
pub fn fresh_secret() -> String {
    let (one, two) = (rand::random::<u128>(), rand::random::<u128>());
    format!("{one:032x}{two:032x}")
}
