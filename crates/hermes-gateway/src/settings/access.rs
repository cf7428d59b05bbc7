//! Whether the gateway may start as it is configured: who would be let in.

use hermes_platforms::{Writers, definition, is_on};

use super::GatewaySettings;
use crate::authorize::SenderPolicy;

/// What is found at the door before anybody comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSummary {
    /// Platforms that are open to everybody though nobody said that this is meant: the gateway
    /// does not start.
    pub open: Vec<String>,
    /// Nobody is on any list: only pairing lets people in.
    pub nobody: bool,
    /// Everybody is let in, on purpose.
    pub everybody: Vec<String>,
}

impl GatewaySettings {
    pub fn door(&self) -> AccessSummary {
        let mut door = AccessSummary {
            nobody: true,
            ..AccessSummary::default()
        };
        let on = |name: &str| self.var(name).is_some_and(is_on);
        let all = on("GATEWAY_ALLOW_ALL_USERS");
        if self.var("GATEWAY_ALLOWED_USERS").is_some() {
            door.nobody = false;
        }
        let mut people = false;
        for platform in self.enabled() {
            if definition(&platform.name).is_some_and(|one| one.writers == Writers::Programs) {
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
                door.open.push(platform.name.clone());
            }
            if own || all {
                door.everybody.push(platform.name.clone());
            }
            let lists = [
                "allowed_users",
                "allow_from",
                "group_allowed_users",
                "group_allow_from",
                "group_allowed_chats",
                "allowed_roles",
            ];
            door.nobody &= lists.iter().all(|list| platform.list(list).is_empty());
        }
        door.nobody &= people && door.everybody.is_empty();
        door
    }
}
