//! Settings for Slack.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::http::HttpError;
use crate::settings::PlatformSettings;

/// Where the Web API is.
const BASE_URL: &str = "https://slack.com/api/";

/// Invalid settings.
#[derive(Debug, thiserror::Error)]
pub enum SlackSettingsError {
    #[error(
        "Slack needs two tokens: SLACK_APP_TOKEN (xapp-…, with connections:write) is missing. Create it at https://api.slack.com/apps under Basic Information, App-Level Tokens"
    )]
    NoAppToken,
    #[error(
        "Slack needs two tokens: SLACK_BOT_TOKEN (xoxb-…) is missing. It is at https://api.slack.com/apps under OAuth & Permissions"
    )]
    NoBotToken,
    #[error("{name} of Slack begins with {found:?}, expected {expected}")]
    WrongToken {
        name: &'static str,
        expected: &'static str,
        found: String,
    },
    #[error("{path}: {why}")]
    TokenFile { path: String, why: String },
    #[error("mention_patterns of Slack: {0}")]
    Pattern(#[from] regex::Error),
    #[error("base_url of Slack ({url:?}) is not an address: {why}")]
    BaseUrl { url: String, why: String },
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// Which messages of other programs are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlackBots {
    #[default]
    None,
    /// Those that mention us.
    Mentions,
    All,
}

#[derive(Clone, Debug)]
pub struct SlackSettings {
    pub app_token: String,
    /// One for each workspace.
    pub bot_tokens: Vec<String>,
    /// Ends with a slash.
    pub base_url: String,
    /// Empty: all.
    pub allowed_channels: HashSet<String>,
    /// Where no mention is needed.
    pub free_channels: HashSet<String>,
    pub require_mention: bool,
    /// Also in threads in which we were mentioned before.
    pub strict_mention: bool,
    pub mention_patterns: Vec<Regex>,
    pub bots: SlackBots,
    pub reactions: bool,
    /// Answers start a thread; otherwise only existing threads are used.
    pub reply_in_thread: bool,
    /// Each message of a direct conversation starts its own session.
    pub dm_threads: bool,
    /// Answers in threads appear in the conversation too.
    pub broadcast: bool,
    /// Shown while an answer is being written.
    pub status: String,
    /// For proxies and roots.
    pub env: HashMap<String, String>,
}

impl SlackSettings {
    /// `None`: not configured.
    pub fn read(
        settings: &PlatformSettings,
        home: &Path,
    ) -> Result<Option<Self>, SlackSettingsError> {
        if settings.enabled == Some(false) {
            return Ok(None);
        }
        let bot = settings
            .var("SLACK_BOT_TOKEN")
            .or(settings.token.as_deref());
        let mut bot_tokens = split(bot.unwrap_or_default());
        for token in saved_tokens(home)? {
            if !bot_tokens.contains(&token) {
                bot_tokens.push(token);
            }
        }
        let app_token = settings.text("app_token");
        let wanted = settings.enabled == Some(true) || app_token.is_some();
        let app_token = match (bot_tokens.is_empty(), app_token, wanted) {
            (true, _, false) => return Ok(None),
            (true, _, true) => return Err(SlackSettingsError::NoBotToken),
            (false, None, _) => return Err(SlackSettingsError::NoAppToken),
            (false, Some(token), _) => token,
        };
        check("SLACK_APP_TOKEN", "xapp-", &app_token)?;
        for token in &bot_tokens {
            check("SLACK_BOT_TOKEN", "xox", token)?;
        }
        Ok(Some(Self {
            app_token,
            bot_tokens,
            base_url: base_url(settings)?,
            allowed_channels: settings.list("allowed_channels").into_iter().collect(),
            free_channels: settings
                .list("free_response_channels")
                .into_iter()
                .collect(),
            // Unreadable values deny access.
            require_mention: settings.flag("require_mention") != Some(false),
            strict_mention: settings.flag("strict_mention") == Some(true),
            mention_patterns: patterns(settings)?,
            bots: match settings.text("allow_bots").as_deref() {
                Some("mentions") => SlackBots::Mentions,
                Some("all") => SlackBots::All,
                _ => SlackBots::None,
            },
            reactions: settings.flag("reactions") != Some(false),
            reply_in_thread: settings.flag("reply_in_thread") != Some(false),
            dm_threads: settings.flag("dm_top_level_threads_as_sessions") != Some(false),
            broadcast: settings.flag("reply_broadcast") == Some(true),
            status: settings
                .text("typing_status_text")
                .unwrap_or_else(|| "is thinking…".to_owned()),
            env: settings.env.clone(),
        }))
    }
}

fn split(text: &str) -> Vec<String> {
    let tokens = text.split(',').map(str::trim);
    tokens
        .filter(|token| !token.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Tokens of workspaces that were added by OAuth: `{team id: {token, team_name}}`.
fn saved_tokens(home: &Path) -> Result<Vec<String>, SlackSettingsError> {
    let path = home.join("slack_tokens.json");
    let wrong = |why: String| SlackSettingsError::TokenFile {
        path: path.display().to_string(),
        why,
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let saved: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let Some(teams) = saved.as_object() else {
        return Err(wrong("expected an object of workspaces".to_owned()));
    };
    let tokens = teams.values().filter_map(|team| team["token"].as_str());
    Ok(tokens
        .filter(|token| !token.is_empty())
        .map(str::to_owned)
        .collect())
}

fn check(
    name: &'static str,
    expected: &'static str,
    token: &str,
) -> Result<(), SlackSettingsError> {
    if token.starts_with(expected) {
        return Ok(());
    }
    Err(SlackSettingsError::WrongToken {
        name,
        expected,
        found: token.chars().take(5).collect(),
    })
}

fn base_url(settings: &PlatformSettings) -> Result<String, SlackSettingsError> {
    let url = settings.text("base_url");
    let mut url = url.unwrap_or_else(|| BASE_URL.to_owned());
    if !url.ends_with('/') {
        url.push('/');
    }
    match url::Url::parse(&url) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => Ok(url),
        Ok(parsed) => Err(SlackSettingsError::BaseUrl {
            why: format!("{:?} is not http or https", parsed.scheme()),
            url,
        }),
        Err(error) => Err(SlackSettingsError::BaseUrl {
            why: error.to_string(),
            url,
        }),
    }
}

/// A list, or text with a JSON list, or text with commas or lines.
fn patterns(settings: &PlatformSettings) -> Result<Vec<Regex>, SlackSettingsError> {
    let written = match settings.var("SLACK_MENTION_PATTERNS") {
        Some(text) => serde_json::from_str(text).unwrap_or_else(|_| {
            let parts = text.split(['\n', ',']).map(str::trim);
            parts.filter(|part| !part.is_empty()).collect()
        }),
        None => settings
            .extra
            .get("mention_patterns")
            .cloned()
            .unwrap_or_default(),
    };
    let texts: Vec<&str> = match &written {
        Value::String(text) => vec![text.as_str()],
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let built = texts.into_iter().map(|text| {
        RegexBuilder::new(text)
            .case_insensitive(true)
            .size_limit(1 << 20)
            .build()
    });
    Ok(built.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(vars: &[(&str, &str)]) -> PlatformSettings {
        PlatformSettings {
            name: "slack".to_owned(),
            env: vars
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..PlatformSettings::default()
        }
    }

    #[test]
    fn tokens_come_from_the_environment_and_from_the_file() {
        let home = tempfile::tempdir().unwrap();
        let none = SlackSettings::read(&settings(&[]), home.path()).unwrap();
        assert!(none.is_none());
        let both = [
            ("SLACK_BOT_TOKEN", "xoxb-1, xoxb-2"),
            ("SLACK_APP_TOKEN", "xapp-1"),
        ];
        let saved =
            json!({"T3": {"token": "xoxb-3", "team_name": "Three"}, "T1": {"token": "xoxb-1"}});
        std::fs::write(home.path().join("slack_tokens.json"), saved.to_string()).unwrap();
        let read = SlackSettings::read(&settings(&both), home.path())
            .unwrap()
            .unwrap();
        assert_eq!(read.bot_tokens, ["xoxb-1", "xoxb-2", "xoxb-3"]);
        assert_eq!(read.base_url, BASE_URL);
        assert!(read.require_mention && !read.strict_mention && read.dm_threads);
        std::fs::write(home.path().join("slack_tokens.json"), "[").unwrap();
        let error = SlackSettings::read(&settings(&both), home.path()).unwrap_err();
        assert!(error.to_string().contains("slack_tokens.json"), "{error}");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let home = tempfile::tempdir().unwrap();
        let read = |vars: &[(&str, &str)]| {
            let read = SlackSettings::read(&settings(vars), home.path());
            read.unwrap_err().to_string()
        };
        assert!(read(&[("SLACK_BOT_TOKEN", "xoxb-1")]).contains("SLACK_APP_TOKEN"));
        assert!(read(&[("SLACK_APP_TOKEN", "xapp-1")]).contains("SLACK_BOT_TOKEN"));
        let swapped = [
            ("SLACK_BOT_TOKEN", "xoxb-1"),
            ("SLACK_APP_TOKEN", "xoxb-secret"),
        ];
        let error = read(&swapped);
        assert!(
            error.contains("xapp-") && !error.contains("secret"),
            "{error}"
        );
    }

    #[test]
    fn patterns_are_read_in_every_form() {
        let home = tempfile::tempdir().unwrap();
        for text in [
            r#"["hey hermes", "^bot"]"#,
            "hey hermes,^bot",
            "hey hermes\n^bot",
        ] {
            let vars = [
                ("SLACK_BOT_TOKEN", "xoxb-1"),
                ("SLACK_APP_TOKEN", "xapp-1"),
                ("SLACK_MENTION_PATTERNS", text),
            ];
            let read = SlackSettings::read(&settings(&vars), home.path())
                .unwrap()
                .unwrap();
            assert_eq!(read.mention_patterns.len(), 2, "{text}");
            assert!(read.mention_patterns[1].is_match("BOT, do"), "{text}");
        }
    }
}
