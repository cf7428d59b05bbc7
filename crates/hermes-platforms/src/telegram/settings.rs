//! Settings for Telegram.

use std::collections::{HashMap, HashSet};

use regex::{Regex, RegexBuilder};
use serde_json::Value;
use url::Url;

use crate::settings::PlatformSettings;

const API: &str = "https://api.telegram.org/bot";

/// The settings of the adapter.
#[derive(Clone, Debug)]
pub(crate) struct TelegramSettings {
    pub token: String,
    /// Address of methods, token included, without the last slash.
    pub base: String,
    /// The same for files.
    pub files: String,
    /// Not the public service.
    pub own_server: bool,
    /// A local Bot API server: files are read from its disk.
    pub local: bool,
    pub receive: ReceiveMode,
    pub proxy: Option<String>,
    pub env: HashMap<String, String>,
    pub groups: GroupRules,
    pub reactions: bool,
    pub link_previews: bool,
    /// Commands in the menu, at most.
    pub menu: usize,
    /// Invalid settings, for display.
    pub problems: Vec<String>,
}

/// How updates are received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveMode {
    Polling,
    Webhook(WebhookSettings),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookSettings {
    /// The public URL.
    pub url: String,
    /// The address to listen on.
    pub host: String,
    pub port: u16,
    pub path: String,
    pub secret: String,
}

/// Which messages of groups are answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupRules {
    pub require_mention: bool,
    /// Empty: all.
    pub allowed_chats: HashSet<String>,
    /// Empty: all. Topic ids; 1 is the general one.
    pub allowed_topics: HashSet<String>,
    pub ignored_threads: HashSet<String>,
    pub free_chats: HashSet<String>,
    /// `chat:topic`.
    pub free_topics: HashSet<String>,
    pub patterns: Vec<Regex>,
    /// Mentions are accepted in chats that are not on the list.
    pub guests: bool,
    /// A message that mentions only other bots is ignored.
    pub exclusive: bool,
    /// Messages of others become context of the next message to us.
    pub observe: bool,
    pub bots: TelegramBots,
}

/// Messages of other bots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TelegramBots {
    #[default]
    Ignored,
    Mentions,
    All,
}

impl TelegramSettings {
    /// `Err`: Telegram cannot be started like this, and why.
    pub(crate) fn from_settings(from: &PlatformSettings) -> Result<Self, String> {
        let token =
            from.token.clone().filter(|token| !token.is_empty()).ok_or(
                "Telegram has no token: get one from @BotFather and set TELEGRAM_BOT_TOKEN",
            )?;
        let mut problems = Vec::new();
        let base = from.text("base_url");
        let base = base.as_deref().unwrap_or(API).trim_end_matches('/');
        let root = base.strip_suffix("/bot").unwrap_or(base);
        let address = |text: &str| {
            let known = Url::parse(text)
                .ok()
                .filter(|url| matches!(url.scheme(), "http" | "https"));
            known.map(|_| ()).ok_or_else(|| {
                format!("telegram.base_url is {text:?}: an address with http:// or https://")
            })
        };
        address(root)?;
        let files = match from.text("base_file_url") {
            Some(given) => {
                address(&given)?;
                let given = given.trim_end_matches('/');
                format!("{}/file/bot{token}", given.trim_end_matches("/file/bot"))
            }
            None => format!("{root}/file/bot{token}"),
        };
        Ok(Self {
            base: format!("{root}/bot{token}"),
            files,
            own_server: base != API,
            local: from.flag("local_mode").unwrap_or(false),
            receive: receive(from)?,
            proxy: from.text("proxy").or_else(|| from.text("proxy_url")),
            env: from.env.clone(),
            groups: groups(from, &mut problems),
            reactions: from.flag("reactions").unwrap_or(false),
            link_previews: !from.flag("disable_link_previews").unwrap_or(false),
            menu: menu(from),
            token,
            problems,
        })
    }
}

fn receive(from: &PlatformSettings) -> Result<ReceiveMode, String> {
    let Some(url) = from.text("webhook_url") else {
        return Ok(ReceiveMode::Polling);
    };
    let parsed =
        Url::parse(&url).map_err(|error| format!("TELEGRAM_WEBHOOK_URL is {url:?}: {error}"))?;
    let secret = from.text("webhook_secret").ok_or(
        "TELEGRAM_WEBHOOK_SECRET is not set. Without it, anyone could send updates in Telegram's \
         name; set it to a long random text (for instance of `openssl rand -hex 32`)",
    )?;
    let fits = secret.len() <= 256
        && secret
            .chars()
            .all(|ch| ch.is_ascii_alphanumeric() || "_-".contains(ch));
    if !fits {
        return Err(
            "TELEGRAM_WEBHOOK_SECRET may hold letters, digits, _ and -, at most 256 of them"
                .to_owned(),
        );
    }
    let port = match from.text("webhook_port") {
        None => 8443,
        Some(text) => text
            .parse()
            .map_err(|_| format!("TELEGRAM_WEBHOOK_PORT is {text:?}: not a port"))?,
    };
    let path = match parsed.path() {
        "" | "/" => "/telegram",
        path => path,
    };
    Ok(ReceiveMode::Webhook(WebhookSettings {
        host: from
            .text("webhook_host")
            .unwrap_or_else(|| "0.0.0.0".to_owned()),
        port,
        path: path.to_owned(),
        secret,
        url,
    }))
}

fn groups(from: &PlatformSettings, problems: &mut Vec<String>) -> GroupRules {
    let set = |name: &str| from.list(name).into_iter().collect::<HashSet<String>>();
    GroupRules {
        require_mention: from.flag("require_mention").unwrap_or(false),
        allowed_chats: set("allowed_chats"),
        allowed_topics: set("allowed_topics"),
        ignored_threads: set("ignored_threads"),
        free_chats: set("free_response_chats"),
        free_topics: set("free_response_topics"),
        patterns: patterns(from, problems),
        guests: from.flag("guest_mode").unwrap_or(false),
        exclusive: from.flag("exclusive_bot_mentions").unwrap_or(true),
        observe: from
            .flag("observe_unmentioned_group_messages")
            .or_else(|| from.flag("ingest_unmentioned_group_messages"))
            .unwrap_or(false),
        bots: match from.text("allow_bots").as_deref() {
            Some("all") => TelegramBots::All,
            Some("mentions") => TelegramBots::Mentions,
            _ => TelegramBots::Ignored,
        },
    }
}

/// Patterns may contain commas: a list in the configuration, or JSON or lines in the variable.
fn patterns(from: &PlatformSettings, problems: &mut Vec<String>) -> Vec<Regex> {
    let words = |values: &[Value]| -> Vec<String> {
        let texts = values.iter().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    let list = match (
        from.var("TELEGRAM_MENTION_PATTERNS"),
        from.extra.get("mention_patterns"),
    ) {
        (Some(text), _) => match serde_json::from_str(text) {
            Ok(Value::Array(values)) => words(&values),
            Ok(Value::String(one)) => vec![one],
            _ if text.contains('\n') => text.lines().map(str::to_owned).collect(),
            _ => text.split(',').map(str::to_owned).collect(),
        },
        (None, Some(Value::Array(values))) => words(values),
        (None, Some(Value::String(one))) => vec![one.clone()],
        (None, _) => Vec::new(),
    };
    let given = list
        .iter()
        .map(|one| one.trim())
        .filter(|one| !one.is_empty());
    given
        .filter_map(|one| {
            let made = RegexBuilder::new(one).case_insensitive(true).build();
            made.map_err(|error| problems.push(format!("telegram.mention_patterns: {error}")))
                .ok()
        })
        .collect()
}

fn menu(from: &PlatformSettings) -> usize {
    let given = from
        .extra
        .get("command_menu")
        .and_then(|menu| menu.get("max_commands"));
    let given = given.and_then(Value::as_u64).unwrap_or(60);
    (given as usize).clamp(1, 100)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(extra: &Value, env: &[(&str, &str)]) -> PlatformSettings {
        PlatformSettings {
            name: "telegram".to_owned(),
            token: Some("1:abc".to_owned()),
            extra: extra.as_object().cloned().unwrap_or_default(),
            env: env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..PlatformSettings::default()
        }
    }

    #[test]
    fn addresses_are_those_of_the_service_or_of_a_server_of_ones_own() {
        let read = |extra| TelegramSettings::from_settings(&settings(&extra, &[])).unwrap();
        let usual = read(json!({}));
        assert_eq!(usual.base, "https://api.telegram.org/bot1:abc");
        assert_eq!(usual.files, "https://api.telegram.org/file/bot1:abc");
        for own in ["http://box:8081", "http://box:8081/", "http://box:8081/bot"] {
            let own = read(json!({ "base_url": own }));
            assert_eq!(own.base, "http://box:8081/bot1:abc");
            assert_eq!(own.files, "http://box:8081/file/bot1:abc");
        }
        let both = read(json!({"base_url": "http://a", "base_file_url": "http://b/file/bot"}));
        assert_eq!(both.files, "http://b/file/bot1:abc");
        let wrong = settings(&json!({"base_url": "box:8081"}), &[]);
        let error = TelegramSettings::from_settings(&wrong).unwrap_err();
        assert!(error.contains("base_url"), "{error}");
    }

    #[test]
    fn a_webhook_needs_its_secret() {
        let url = ("TELEGRAM_WEBHOOK_URL", "https://me.test/hook");
        let error = TelegramSettings::from_settings(&settings(&json!({}), &[url])).unwrap_err();
        assert!(error.contains("TELEGRAM_WEBHOOK_SECRET"), "{error}");
        let secret = ("TELEGRAM_WEBHOOK_SECRET", "s3cret");
        let read = TelegramSettings::from_settings(&settings(&json!({}), &[url, secret])).unwrap();
        let ReceiveMode::Webhook(hook) = read.receive else {
            panic!("a webhook was set");
        };
        assert_eq!((hook.port, hook.path.as_str()), (8443, "/hook"));
    }

    #[test]
    fn rules_come_from_both_places() {
        let read = TelegramSettings::from_settings(&settings(
            &json!({"require_mention": true, "allowed_chats": [-1, "-2"],
                    "mention_patterns": ["^hey, bot", "(broken"]}),
            &[
                ("TELEGRAM_ALLOW_BOTS", "mentions"),
                ("TELEGRAM_REACTIONS", "true"),
            ],
        ))
        .unwrap();
        assert!(read.groups.require_mention && read.groups.exclusive && read.reactions);
        assert!(read.groups.allowed_chats.contains("-2"));
        assert_eq!(read.groups.bots, TelegramBots::Mentions);
        assert!(read.groups.patterns[0].is_match("Hey, Bot!"));
        assert_eq!(read.problems.len(), 1);
        let read = TelegramSettings::from_settings(&settings(
            &json!({}),
            &[("TELEGRAM_MENTION_PATTERNS", r#"["a,b"]"#)],
        ));
        assert!(read.unwrap().groups.patterns[0].is_match("A,B"));
    }
}
