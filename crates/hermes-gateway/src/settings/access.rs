//! Checks at startup whether any user could be admitted.

use hermes_platforms::{is_for_programs, is_on};

use super::GatewaySettings;
use crate::authorize::SenderPolicy;

/// A summary of the configured access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSummary {
    /// Platforms open to everyone without explicit confirmation: the gateway refuses to start.
    pub unconfirmed_open: Vec<String>,
    /// All lists are empty: people are admitted by pairing only.
    pub only_pairing: bool,
    /// Platforms that are deliberately open to everyone.
    pub open_to_all: Vec<String>,
}

impl GatewaySettings {
    pub fn access_summary(&self) -> AccessSummary {
        let mut access = AccessSummary {
            only_pairing: true,
            ..AccessSummary::default()
        };
        let on = |name: &str| self.var(name).is_some_and(is_on);
        let all = on("GATEWAY_ALLOW_ALL_USERS");
        if self.var("GATEWAY_ALLOWED_USERS").is_some() {
            access.only_pairing = false;
        }
        let mut people = false;
        for platform in self.enabled() {
            if is_for_programs(&platform.name) {
                continue;
            }
            people = true;
            let own = platform.flag("allow_all_users") == Some(true);
            let policy = |key: &str| {
                platform
                    .text(key)
                    .and_then(|word| SenderPolicy::parse(&word))
            };
            let open =
                [policy("dm_policy"), policy("group_policy")].contains(&Some(SenderPolicy::Open));
            if open && !own && !all {
                access.unconfirmed_open.push(platform.name.clone());
            }
            if own || all {
                access.open_to_all.push(platform.name.clone());
            }
            let lists = [
                "allowed_users",
                "allow_from",
                "group_allowed_users",
                "group_allow_from",
                "group_allowed_chats",
                "allowed_roles",
            ];
            access.only_pairing &= lists.iter().all(|list| platform.list(list).is_empty());
        }
        access.only_pairing &= people && access.open_to_all.is_empty();
        access
    }
}
