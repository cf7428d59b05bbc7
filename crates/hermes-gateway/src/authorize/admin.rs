//! Which commands a person may use: `allow_admin_from` lists the admins of a platform, the others
//! have `user_allowed_commands`. Without a list of admins nothing is restricted.

use hermes_platforms::{MessageSource, PlatformSettings};

/// Commands that are always allowed.
const FLOOR: [&str; 5] = ["help", "commands", "whoami", "start", "stop"];

/// The rights of a person on a platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tier {
    /// No admins are configured.
    Ungated,
    Admin,
    /// Restricted to these commands.
    User(Vec<String>),
}

impl Tier {
    pub fn new(platform: Option<&PlatformSettings>, source: &MessageSource) -> Self {
        let Some(platform) = platform else {
            return Self::Ungated;
        };
        let private = source.chat_type == "dm";
        let list = |name: &str| {
            let group = platform.list(&format!("group_{name}"));
            if private || group.is_empty() {
                platform.list(name)
            } else {
                group
            }
        };
        let admins = list("allow_admin_from");
        if admins.is_empty() {
            return Self::Ungated;
        }
        let ids = [&source.user_id, &source.user_id_alt];
        let mut ids = ids.into_iter().flatten();
        if ids.any(|id| admins.iter().any(|one| one == id || one == "*")) {
            return Self::Admin;
        }
        let names = list("user_allowed_commands").into_iter();
        let names = names.map(|name| spelled(name.trim_start_matches('/')));
        Self::User(names.collect())
    }

    pub fn may(&self, command: &str) -> bool {
        match self {
            Self::Ungated | Self::Admin => true,
            Self::User(allowed) => {
                let command = spelled(command);
                FLOOR.contains(&command.as_str())
                    || allowed.iter().any(|one| *one == command || one == "*")
            }
        }
    }

    /// Whether the person may make decisions that are reserved to admins.
    pub fn is_admin(&self) -> bool {
        !matches!(self, Self::User(_))
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Ungated => "everyone with access may use every command",
            Self::Admin => "admin",
            Self::User(_) => "user",
        }
    }
}

/// Command menus do not allow dashes.
fn spelled(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn users_have_what_they_were_given() {
        let extra = json!({
            "allow_admin_from": ["1"], "user_allowed_commands": ["/model", "reload_mcp"],
            "group_allow_admin_from": "2",
        });
        let platform = PlatformSettings {
            name: "telegram".to_owned(),
            extra: extra.as_object().cloned().unwrap(),
            ..PlatformSettings::default()
        };
        let of = |user: &str, kind: &str| {
            let source = MessageSource {
                chat_type: kind.to_owned(),
                user_id: Some(user.to_owned()),
                ..MessageSource::default()
            };
            Tier::new(Some(&platform), &source)
        };
        assert_eq!(of("1", "dm"), Tier::Admin);
        assert!(of("1", "dm").may("restart"));
        let user = of("2", "dm");
        assert!(user.may("model") && user.may("help") && user.may("stop"));
        assert!(user.may("reload-mcp") && user.may("Reload_MCP"));
        assert!(!user.may("restart") && !user.is_admin());
        assert_eq!(of("2", "group"), Tier::Admin);
        assert!(!of("1", "group").may("restart"));
        assert_eq!(Tier::new(None, &MessageSource::default()), Tier::Ungated);
    }
}
