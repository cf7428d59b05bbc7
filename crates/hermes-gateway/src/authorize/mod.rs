//! Who may talk to the agent.
//!
//! Variable names and the order of the checks are the original's; so are the files of [`pairing`].
//! Missing configuration never admits anyone.

pub mod admin;
pub mod limits;
pub mod pairing;

use std::collections::HashMap;

use hermes_platforms::{MessageSource, PlatformSettings, StrangerRules, definition};

/// Reads a variable of the home; an empty value counts as not set.
pub trait VariableSource {
    fn var(&self, name: &str) -> Option<String>;
}

impl<F: Fn(&str) -> Option<String>> VariableSource for F {
    fn var(&self, name: &str) -> Option<String> {
        self(name)
    }
}

/// The variables of a home. If a variable of a platform is not set, the configuration key of the
/// same name is used: `TELEGRAM_ALLOWED_USERS`, else `telegram: allowed_users` and the original's
/// name for the same, `allow_from`.
#[derive(Clone, Copy, Debug)]
pub struct AccessVariables<'a> {
    pub env: &'a HashMap<String, String>,
    pub platform: Option<&'a PlatformSettings>,
}

impl VariableSource for AccessVariables<'_> {
    fn var(&self, name: &str) -> Option<String> {
        let set = self.env.get(name).filter(|value| !value.trim().is_empty());
        if set.is_some() {
            return set.cloned();
        }
        let platform = self.platform?;
        let key = name.strip_prefix(&prefix(&platform.name))?;
        let key = key.strip_prefix('_')?.to_ascii_lowercase();
        let also = match key.as_str() {
            "allowed_users" => "allow_from",
            "group_allowed_users" => "group_allow_from",
            _ => return platform.written(&key),
        };
        let both = [key.as_str(), also].map(|key| platform.written(key));
        let both: Vec<String> = both.into_iter().flatten().collect();
        Some(both.join(",")).filter(|list| !list.is_empty())
    }
}

/// Who may write, by the platform's own settings (`dm_policy`, `group_policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SenderPolicy {
    /// Not set: unknown people may request pairing.
    #[default]
    Pairing,
    /// Only people on a list; without a list, no one.
    AllowList,
    Disabled,
    /// Messages of everyone arrive here, but this alone admits no one.
    Open,
}

impl SenderPolicy {
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "" | "pairing" => Some(Self::Pairing),
            "allowlist" => Some(Self::AllowList),
            "disabled" => Some(Self::Disabled),
            "open" => Some(Self::Open),
            _ => None,
        }
    }
}

/// The sender of a message, as far as authorization is concerned.
#[derive(Clone, Copy, Debug)]
pub struct SenderIdentity<'a> {
    pub source: &'a MessageSource,
    pub is_bot: bool,
    /// The sender has an allowed role on the platform.
    pub has_role: bool,
    /// The policy of the platform for this kind of chat.
    pub policy: SenderPolicy,
    /// Other ids of the same person.
    pub aliases: &'a [String],
    /// [`pairing::Pairing::is_approved`].
    pub paired: bool,
}

/// Why the sender is admitted; `None`: not admitted.
pub fn admit(visitor: &SenderIdentity<'_>, vars: &impl VariableSource) -> Option<&'static str> {
    let source = visitor.source;
    let platform = source.platform.as_str();
    let rules = stranger_rules(platform);
    if rules.checked_by_platform {
        return Some("the platform checks who sends");
    }
    let prefix = prefix(platform);
    let list = |name: &str| NameList::read(vars, &format!("{prefix}_{name}"));
    let group = matches!(source.chat_type.as_str(), "group" | "forum" | "channel");
    let chats = rules.group_list.map_or_else(NameList::default, list);
    if group && !source.chat_id.is_empty() && chats.has(&source.chat_id) {
        return Some("the chat is on the list");
    }
    if visitor.is_bot
        && rules.bots
        && vars
            .var(&format!("{prefix}_ALLOW_BOTS"))
            .is_some_and(|mode| {
                matches!(
                    mode.trim().to_ascii_lowercase().as_str(),
                    "mentions" | "all"
                )
            })
    {
        return Some("bots are allowed");
    }
    let user = source.user_id.as_deref().filter(|id| !id.is_empty())?;
    if is_on(vars, &format!("{prefix}_ALLOW_ALL_USERS")) {
        return Some("the platform is open to all");
    }
    if visitor.has_role {
        return Some("has a role that is allowed");
    }
    if visitor.paired {
        return Some("paired");
    }
    let mut users = list("ALLOWED_USERS");
    users.extend(NameList::read(vars, "GATEWAY_ALLOWED_USERS"));
    let scoped = matches!(source.chat_type.as_str(), "group" | "forum");
    // On this platform the list contains chats.
    if source.chat_type != "dm" && platform != "qqbot" {
        let on_platform = list("GROUP_ALLOWED_USERS");
        // This list used to contain chats, whose ids begin with a minus.
        let chat = rules.chats_among_users && scoped && source.chat_id.starts_with('-');
        if chat && on_platform.0.contains(&source.chat_id) {
            return Some("the chat is on the list");
        }
        users.extend(on_platform);
    }
    if users.0.is_empty() && (chats.0.is_empty() || !scoped) {
        if visitor.policy == SenderPolicy::AllowList {
            return None;
        }
        return is_on(vars, "GATEWAY_ALLOW_ALL_USERS").then_some("the gateway is open to all");
    }
    let local = user.split('@').next().unwrap_or(user);
    let mut ids = [user, local]
        .into_iter()
        .chain(visitor.aliases.iter().map(String::as_str));
    ids.any(|id| users.has(id)).then_some("on the list")
}

/// The reaction to a direct message of an unknown person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrangerAction {
    /// Reply with a pairing code.
    Pair,
    /// No reply.
    Ignore,
}

/// `on_platform` and `anywhere`: `unauthorized_dm_behavior` of the platform and of the gateway.
pub fn stranger_action(
    platform: &str,
    on_platform: Option<StrangerAction>,
    anywhere: Option<StrangerAction>,
    policy: Option<SenderPolicy>,
    vars: &impl VariableSource,
) -> StrangerAction {
    if let Some(on_platform) = on_platform {
        return on_platform;
    }
    if !stranger_rules(platform).pairs {
        return StrangerAction::Ignore;
    }
    if anywhere == Some(StrangerAction::Ignore) {
        return StrangerAction::Ignore;
    }
    match policy {
        Some(SenderPolicy::Pairing) => return StrangerAction::Pair,
        Some(SenderPolicy::AllowList | SenderPolicy::Disabled) => return StrangerAction::Ignore,
        Some(SenderPolicy::Open) | None => {}
    }
    let prefix = prefix(platform);
    let lists = [
        "ALLOWED_USERS",
        "GROUP_ALLOWED_USERS",
        "GROUP_ALLOWED_CHATS",
    ]
    .map(|name| format!("{prefix}_{name}"));
    let listed = lists
        .iter()
        .map(String::as_str)
        .chain(["GATEWAY_ALLOWED_USERS"])
        .any(|name| !NameList::read(vars, name).0.is_empty());
    if listed {
        StrangerAction::Ignore
    } else {
        StrangerAction::Pair
    }
}

/// The variable that lists the allowed users of a platform.
pub fn allow_list_var(platform: &str) -> String {
    format!("{}_ALLOWED_USERS", prefix(platform))
}

/// An allow-list with one person added or removed; `None`: nothing to change. A missing list is not
/// created, because that would exclude everyone who is admitted in another way.
pub fn list_with(list: &str, user: &str, listed: bool) -> Option<String> {
    let mut users = NameList::parse(list).0;
    let there = users.iter().any(|one| one == user);
    if users.is_empty() || there == listed || users.iter().any(|one| one == "*") {
        return None;
    }
    if listed {
        users.push(user.to_owned());
    } else {
        users.retain(|one| one != user);
    }
    Some(users.join(","))
}

/// The rules of a platform, including known platforms of the original.
fn stranger_rules(platform: &str) -> StrangerRules {
    if let Some(definition) = definition(platform) {
        return definition.strangers;
    }
    StrangerRules {
        checked_by_platform: platform == "homeassistant",
        group_list: (platform == "qqbot").then_some("GROUP_ALLOWED_USERS"),
        chats_among_users: false,
        bots: platform == "feishu",
        pairs: true,
    }
}

fn prefix(platform: &str) -> String {
    match platform {
        "qqbot" => "QQ".to_owned(),
        name => name.to_ascii_uppercase().replace('-', "_"),
    }
}

fn is_on(vars: &impl VariableSource, name: &str) -> bool {
    vars.var(name).is_some_and(|value| {
        matches!(
            value.trim().to_ascii_lowercase().as_str(),
            "true" | "1" | "yes"
        )
    })
}

#[derive(Default)]
struct NameList(Vec<String>);

impl NameList {
    fn read(vars: &impl VariableSource, name: &str) -> Self {
        vars.var(name)
            .map_or_else(Self::default, |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        Self(
            text.split(',')
                .map(str::trim)
                .filter(|id| !id.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }

    fn has(&self, id: &str) -> bool {
        self.0.iter().any(|one| one == "*" || one == id)
    }

    fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(text: &str) -> impl VariableSource {
        let pairs: Vec<(String, String)> = text
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        move |name: &str| {
            let found = pairs.iter().find(|(one, _)| one == name);
            found.map(|(_, value)| value.clone())
        }
    }

    #[test]
    fn other_rights_count() {
        let source = MessageSource {
            platform: "discord".to_owned(),
            chat_id: "1".to_owned(),
            chat_type: "group".to_owned(),
            user_id: Some("7".to_owned()),
            ..MessageSource::default()
        };
        let nobody = SenderIdentity {
            source: &source,
            is_bot: false,
            has_role: false,
            policy: SenderPolicy::default(),
            aliases: &[],
            paired: false,
        };
        let env = vars("DISCORD_ALLOWED_USERS=x");
        assert_eq!(admit(&nobody, &env), None);
        assert!(
            admit(
                &SenderIdentity {
                    paired: true,
                    ..nobody
                },
                &env
            )
            .is_some()
        );
        assert!(
            admit(
                &SenderIdentity {
                    has_role: true,
                    ..nobody
                },
                &env
            )
            .is_some()
        );
        assert!(
            admit(
                &SenderIdentity {
                    aliases: &["x".to_owned()],
                    ..nobody
                },
                &env
            )
            .is_some()
        );
        let bot = SenderIdentity {
            is_bot: true,
            ..nobody
        };
        assert_eq!(admit(&bot, &env), None);
        assert!(admit(&bot, &vars("DISCORD_ALLOW_BOTS=mentions")).is_some());
        for policy in [SenderPolicy::AllowList, SenderPolicy::Open] {
            assert_eq!(admit(&SenderIdentity { policy, ..nobody }, &vars("")), None);
        }
    }

    fn person(platform: &str, kind: &str, user: &str) -> MessageSource {
        MessageSource {
            platform: platform.to_owned(),
            chat_id: "-1".to_owned(),
            chat_type: kind.to_owned(),
            user_id: Some(user.to_owned()),
            ..MessageSource::default()
        }
    }

    #[test]
    fn an_allow_list_lets_in_whom_it_names_and_without_one_nobody_comes() {
        let extra = |value: serde_json::Value| PlatformSettings {
            name: "telegram".to_owned(),
            extra: value.as_object().cloned().unwrap(),
            ..PlatformSettings::default()
        };
        let written = extra(serde_json::json!({
            "allow_from": [5], "allowed_users": "6", "group_allow_from": ["7"],
        }));
        let none = extra(serde_json::json!({}));
        let all = HashMap::from([("GATEWAY_ALLOW_ALL_USERS".to_owned(), "true".to_owned())]);
        let set = HashMap::from([("TELEGRAM_ALLOWED_USERS".to_owned(), "9".to_owned())]);
        let empty = HashMap::new();
        let cases = [
            (&written, &empty, "dm", "5", true),
            (&written, &empty, "dm", "6", true),
            (&written, &empty, "dm", "7", false),
            (&written, &empty, "dm", "8", false),
            (&written, &empty, "group", "7", true),
            (&written, &empty, "group", "8", false),
            (&none, &empty, "dm", "5", false),
            (&none, &all, "dm", "5", false),
            // The variable takes precedence.
            (&written, &set, "dm", "9", true),
            (&written, &set, "dm", "5", false),
        ];
        for (platform, env, kind, user, expected) in cases {
            let source = person("telegram", kind, user);
            let visitor = SenderIdentity {
                source: &source,
                is_bot: false,
                has_role: false,
                policy: SenderPolicy::AllowList,
                aliases: &[],
                paired: false,
            };
            let platform = Some(platform);
            let admitted = admit(&visitor, &AccessVariables { env, platform });
            assert_eq!(admitted.is_some(), expected, "{kind} {user} {env:?}");
        }
    }

    #[test]
    fn strangers_get_codes_only_where_nobody_was_listed() {
        use StrangerAction::{Ignore, Pair};
        let cases = [
            ("telegram", None, None, None, "", Pair),
            (
                "telegram",
                None,
                None,
                None,
                "TELEGRAM_ALLOWED_USERS=5",
                Ignore,
            ),
            (
                "telegram",
                None,
                None,
                None,
                "GATEWAY_ALLOWED_USERS=5",
                Ignore,
            ),
            (
                "telegram",
                Some(Pair),
                None,
                None,
                "TELEGRAM_ALLOWED_USERS=5",
                Pair,
            ),
            ("telegram", None, Some(Ignore), None, "", Ignore),
            (
                "telegram",
                None,
                None,
                Some(SenderPolicy::AllowList),
                "",
                Ignore,
            ),
            ("email", None, Some(Pair), None, "", Ignore),
            ("email", Some(Pair), None, None, "", Pair),
        ];
        for (platform, on_platform, anywhere, policy, env, expected) in cases {
            assert_eq!(
                stranger_action(platform, on_platform, anywhere, policy, &vars(env)),
                expected
            );
        }
    }

    #[test]
    fn lists_are_edited_only_where_there_is_one() {
        for list in ["", "*", "5, 7"] {
            assert_eq!(list_with(list, "7", true), None);
        }
        assert_eq!(list_with("5, 6", "7", true).as_deref(), Some("5,6,7"));
        assert_eq!(list_with("5, 7", "7", false).as_deref(), Some("5"));
        assert_eq!(list_with("5", "7", false), None);
        assert_eq!(allow_list_var("qqbot"), "QQ_ALLOWED_USERS");
    }
}
