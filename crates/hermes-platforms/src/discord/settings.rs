//! Settings for Discord.

use std::collections::HashSet;
use std::time::Duration;

use url::Url;

use crate::settings::{PlatformSettings, ReplyMode};

const API: &str = "https://discord.com/api/v10";

/// The settings of the adapter.
#[derive(Clone, Debug)]
pub struct DiscordSettings {
    pub token: String,
    /// Address of REST, without the last slash.
    pub base: String,
    pub proxy: Option<String>,
    /// All settings of the platform, for authorization.
    pub written: PlatformSettings,
    pub rules: DiscordRules,
    pub missed: CatchUpSettings,
    /// Maximum number of earlier messages added to a mention; 0: none.
    pub history: usize,
    pub reactions: bool,
    pub reply_to: ReplyMode,
    pub mentions: AllowedMentions,
    pub commands: CommandSync,
    /// Maximum size of received files.
    pub max_attachment: u64,
    /// Invalid settings, for display.
    pub problems: Vec<String>,
}

/// Which messages are addressed to us.
#[derive(Clone, Debug, Default)]
pub struct DiscordRules {
    pub require_mention: bool,
    /// Also in threads in which we participate.
    pub thread_require_mention: bool,
    /// A message that mentions only others is ignored everywhere.
    pub ignore_no_mention: bool,
    /// Empty: all. Ids or names.
    pub allowed_channels: HashSet<String>,
    pub ignored_channels: HashSet<String>,
    pub free_channels: HashSet<String>,
    pub no_thread_channels: HashSet<String>,
    pub auto_thread: bool,
    pub bots: DiscordBots,
    /// Bots must mention us; a reply is not enough.
    pub bots_inline: bool,
    /// Roles whose members are admitted.
    pub roles: HashSet<String>,
    /// The server whose roles count in direct messages.
    pub dm_role_guild: Option<String>,
    /// Names (not ids) on the list of people.
    pub names: HashSet<String>,
    /// Whether any users or roles are configured.
    pub anybody_listed: bool,
}

/// Messages of other bots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiscordBots {
    #[default]
    Ignored,
    Mentions,
    All,
}

/// Settings for messages missed during an outage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUpSettings {
    pub on: bool,
    pub window: Duration,
    /// Messages that are read, per channel.
    pub limit: usize,
    /// Maximum number of messages in total.
    pub take: usize,
    /// Empty: all.
    pub channels: HashSet<String>,
}

/// Which mentions in our messages are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedMentions {
    pub everyone: bool,
    pub roles: bool,
    pub users: bool,
    pub replied: bool,
}

/// How the command menu is synchronized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandSync {
    /// Written when it differs.
    #[default]
    Safe,
    /// Written at every start.
    Bulk,
    Off,
}

impl DiscordSettings {
    /// `Err`: Discord cannot be started like this, and why.
    pub fn from_settings(from: &PlatformSettings) -> Result<Self, String> {
        let token = from
            .token
            .as_deref()
            .map(|token| token.trim().trim_start_matches("Bot ").to_owned())
            .filter(|token| !token.is_empty())
            .ok_or(
                "Discord has no token: make a bot at https://discord.com/developers/applications \
                 and set DISCORD_BOT_TOKEN",
            )?;
        let base = from.text("base_url").unwrap_or_else(|| API.to_owned());
        let base = base.trim_end_matches('/').to_owned();
        let usable = Url::parse(&base).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !usable {
            return Err(format!(
                "discord.base_url is {base:?}: an address with http:// or https://"
            ));
        }
        let mut problems = Vec::new();
        let configured = from.text("reply_to_mode");
        let reply_to = configured.as_deref().and_then(ReplyMode::parse);
        if let (Some(word), None) = (&configured, reply_to) {
            problems.push(format!(
                "DISCORD_REPLY_TO_MODE is {word:?}: off, first or all; using first"
            ));
        }
        Ok(Self {
            token,
            base,
            proxy: from.text("proxy").or_else(|| from.text("proxy_url")),
            written: from.clone(),
            rules: rules(from, &mut problems),
            missed: missed(from),
            history: history(from),
            reactions: from.flag("reactions").unwrap_or(true),
            reply_to: reply_to.unwrap_or(from.reply_to),
            mentions: mentions(from),
            commands: command_sync(from, &mut problems),
            max_attachment: match from.number("max_attachment_bytes") {
                Some(0) => u64::MAX,
                Some(bytes) => bytes,
                None => 32 << 20,
            },
            problems,
        })
    }
}

fn set(from: &PlatformSettings, name: &str) -> HashSet<String> {
    let values = from.list(name).into_iter();
    // People write channels as they see them.
    values
        .map(|value| value.trim_start_matches('#').to_owned())
        .collect()
}

fn rules(from: &PlatformSettings, problems: &mut Vec<String>) -> DiscordRules {
    let bots = match from
        .text("allow_bots")
        .map(|word| word.to_ascii_lowercase())
    {
        None => DiscordBots::Ignored,
        Some(word) => match word.as_str() {
            "none" | "false" | "off" | "no" => DiscordBots::Ignored,
            "mentions" => DiscordBots::Mentions,
            "all" | "true" => DiscordBots::All,
            other => {
                problems.push(format!(
                    "DISCORD_ALLOW_BOTS is {other:?}: none, mentions or all; using none"
                ));
                DiscordBots::Ignored
            }
        },
    };
    let users = from.list("allowed_users");
    let roles = set(from, "allowed_roles");
    let is_id = |text: &str| text == "*" || text.bytes().all(|byte| byte.is_ascii_digit());
    DiscordRules {
        require_mention: from.flag("require_mention").unwrap_or(true),
        thread_require_mention: from.flag("thread_require_mention").unwrap_or(false),
        ignore_no_mention: from.flag("ignore_no_mention").unwrap_or(true),
        allowed_channels: set(from, "allowed_channels"),
        ignored_channels: set(from, "ignored_channels"),
        free_channels: set(from, "free_response_channels"),
        no_thread_channels: set(from, "no_thread_channels"),
        auto_thread: from.flag("auto_thread").unwrap_or(true),
        bots,
        bots_inline: from.flag("bots_require_inline_mention").unwrap_or(false),
        anybody_listed: !users.is_empty() || !roles.is_empty(),
        names: users
            .iter()
            .filter(|user| !is_id(user))
            .map(|user| user.trim_start_matches('@').to_lowercase())
            .collect(),
        roles,
        dm_role_guild: from.text("dm_role_auth_guild"),
    }
}

fn missed(from: &PlatformSettings) -> CatchUpSettings {
    // A switch, or a block of its own.
    let block = from.extra.get("missed_message_backfill");
    let inner = |name: &str| block.and_then(|block| block.get(name)).cloned();
    let number = |var: &str, name: &str| {
        let configured = from.number(&format!("missed_message_backfill_{var}"));
        configured.or_else(|| inner(name)?.as_u64())
    };
    let on = from.flag("missed_message_backfill");
    let on = on.or_else(|| inner("enabled")?.as_bool());
    CatchUpSettings {
        on: on.unwrap_or(true),
        window: Duration::from_secs(
            number("window_seconds", "window_seconds").unwrap_or(24 * 60 * 60),
        ),
        limit: number("limit", "limit").unwrap_or(100) as usize,
        take: number("max_dispatches", "max_dispatches").unwrap_or(100) as usize,
        channels: set(from, "missed_message_backfill_channels"),
    }
}

fn history(from: &PlatformSettings) -> usize {
    if from.flag("history_backfill") == Some(false) {
        return 0;
    }
    let limit = from.number("history_backfill_limit");
    // Messages per request.
    limit.unwrap_or(50).min(100) as usize
}

fn mentions(from: &PlatformSettings) -> AllowedMentions {
    let block = from.extra.get("allow_mentions");
    let flag = |name: &str, default: bool| {
        let configured = from.flag(&format!("allow_mention_{name}"));
        let inner = || block?.get(name)?.as_bool();
        configured.or_else(inner).unwrap_or(default)
    };
    AllowedMentions {
        everyone: flag("everyone", false),
        roles: flag("roles", false),
        users: flag("users", true),
        replied: flag("replied_user", true),
    }
}

fn command_sync(from: &PlatformSettings, problems: &mut Vec<String>) -> CommandSync {
    if from.flag("slash_commands") == Some(false) {
        return CommandSync::Off;
    }
    let word = from.text("command_sync_policy").unwrap_or_default();
    match word.to_ascii_lowercase().as_str() {
        "" | "safe" => CommandSync::Safe,
        "bulk" => CommandSync::Bulk,
        "off" => CommandSync::Off,
        other => {
            problems.push(format!(
                "DISCORD_COMMAND_SYNC_POLICY is {other:?}: safe, bulk or off; using safe"
            ));
            CommandSync::Safe
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(extra: &serde_json::Value, env: &[(&str, &str)]) -> DiscordSettings {
        let mut from = PlatformSettings {
            name: "discord".to_owned(),
            token: Some("Bot t".to_owned()),
            ..PlatformSettings::default()
        };
        from.extra = extra.as_object().cloned().unwrap_or_default();
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        from.env = env.collect();
        DiscordSettings::from_settings(&from).unwrap()
    }

    #[test]
    fn everything_has_a_default_and_the_environment_wins() {
        let plain = read(&json!({}), &[]);
        assert_eq!(plain.token, "t");
        assert!(plain.rules.require_mention && plain.rules.auto_thread && plain.missed.on);
        assert_eq!((plain.history, plain.max_attachment), (50, 32 << 20));
        assert!(!plain.mentions.everyone && plain.mentions.users);

        let set = read(
            &json!({
                "free_response_channels": 123, "allow_bots": "mentions",
                "missed_message_backfill": {"enabled": true, "limit": 7},
                "allow_mentions": {"everyone": true},
            }),
            &[
                ("DISCORD_REQUIRE_MENTION", "false"),
                ("DISCORD_ALLOWED_USERS", "42, @Ann,*"),
                ("DISCORD_IGNORED_CHANNELS", "#noise, 9"),
                ("DISCORD_MISSED_MESSAGE_BACKFILL", "false"),
                ("DISCORD_HISTORY_BACKFILL_LIMIT", "900"),
            ],
        );
        assert!(!set.rules.require_mention && !set.missed.on && set.mentions.everyone);
        assert_eq!((set.missed.limit, set.history), (7, 100));
        assert!(set.rules.free_channels.contains("123"));
        assert!(set.rules.ignored_channels.contains("noise"));
        assert_eq!(set.rules.bots, DiscordBots::Mentions);
        assert_eq!(set.rules.names, HashSet::from(["ann".to_owned()]));
    }

    #[test]
    fn words_without_a_meaning_are_told() {
        let odd = read(
            &json!({"allow_bots": "some", "command_sync_policy": "never", "reply_to_mode": "x"}),
            &[],
        );
        assert_eq!(odd.problems.len(), 3, "{:?}", odd.problems);
        let mut from = PlatformSettings::default();
        assert!(
            DiscordSettings::from_settings(&from)
                .unwrap_err()
                .contains("DISCORD_BOT_TOKEN")
        );
        from.token = Some("t".to_owned());
        from.extra.insert("base_url".to_owned(), json!("ftp://x"));
        assert!(
            DiscordSettings::from_settings(&from)
                .unwrap_err()
                .contains("base_url")
        );
    }
}
