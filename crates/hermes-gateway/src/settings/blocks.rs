//! Where the settings of one platform are written, put together.

use std::collections::HashMap;

use hermes_config::env::is_usable_secret;
use serde_json::{Map, Value};

use super::platform::{as_text, is_on};
use super::{HomeChannel, PlatformSettings, ReplyTo};

/// config.yaml, merged and expanded and as it is, and the old file.
pub(super) struct Sources<'a> {
    pub(super) tree: &'a Value,
    pub(super) file: &'a Value,
    pub(super) old: &'a Value,
}

impl Sources<'_> {
    /// What is written about `name`, everything at one level: `extra:` is opened.
    fn block(&self, name: &str) -> Map<String, Value> {
        let mut all = Map::new();
        let old = self.old.pointer(&format!("/platforms/{name}"));
        open(old, old, &mut all);
        for place in [
            format!("/gateway/platforms/{name}"),
            format!("/platforms/{name}"),
            format!("/{name}"),
        ] {
            open(
                self.file.pointer(&place),
                self.tree.pointer(&place),
                &mut all,
            );
        }
        all
    }

    /// `None`: nothing is said about it anywhere.
    pub(super) fn platform(
        &self,
        name: &str,
        env: &HashMap<String, String>,
        problems: &mut Vec<String>,
    ) -> Option<PlatformSettings> {
        let mut extra = self.block(name);
        let lit = |key: &str| env.get(key).map(|value| value.trim()).unwrap_or_default();
        let credentials = credentials(name, &lit);
        if extra.is_empty() && !credentials {
            return None;
        }
        let said = extra.remove("enabled");
        let enabled = match said.as_ref().map(|value| (value, flag(value))) {
            None => None,
            Some((_, Some(flag))) => Some(flag),
            Some((value, None)) => {
                problems.push(format!(
                    "{name}.enabled is {value}: neither true nor false, so it is left out"
                ));
                None
            }
        };
        let mut token = text(&mut extra, "token");
        if let Some(var) = token_var(name)
            && !lit(var).is_empty()
        {
            token = Some(lit(var).to_owned());
        }
        if let Some(value) = &token
            && !is_usable_secret(value)
        {
            problems.push(format!(
                "{name} is not started: its token is a placeholder; hermes gateway setup {name}"
            ));
            return None;
        }
        let written = text(&mut extra, "reply_to_mode");
        let var = format!("{}_REPLY_TO_MODE", name.to_uppercase());
        let var = Some(lit(&var).to_owned()).filter(|value| !value.is_empty());
        let reply_to = match var.or(written) {
            None => ReplyTo::default(),
            Some(word) => ReplyTo::parse(&word).unwrap_or_else(|| {
                problems.push(format!(
                    "{name}.reply_to_mode is {word:?}: off, first or all"
                ));
                ReplyTo::default()
            }),
        };
        Some(PlatformSettings {
            name: name.to_owned(),
            enabled: enabled.or(credentials.then_some(true)),
            token,
            api_key: text(&mut extra, "api_key"),
            home_channel: home_channel(name, &mut extra, &lit),
            reply_to,
            extra,
            env: env.clone(),
        })
    }
}

/// Takes over what is written. Values come from the expanded tree, which has defaults as well:
/// those are not written.
pub(super) fn open(
    written: Option<&Value>,
    expanded: Option<&Value>,
    all: &mut Map<String, Value>,
) {
    let Some(written) = written.and_then(Value::as_object) else {
        return;
    };
    for (key, value) in written {
        let expanded = expanded.and_then(|block| block.get(key));
        if key == "extra" && value.is_object() {
            open(Some(value), expanded, all);
        } else {
            all.insert(key.clone(), expanded.unwrap_or(value).clone());
        }
    }
}

fn flag(value: &Value) -> Option<bool> {
    let text = as_text(value)?.to_ascii_lowercase();
    match text.as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn text(extra: &mut Map<String, Value>, key: &str) -> Option<String> {
    as_text(&extra.remove(key)?)
}

/// The variable that holds the token.
pub(super) fn token_var(name: &str) -> Option<&'static str> {
    match name {
        "telegram" => Some("TELEGRAM_BOT_TOKEN"),
        "discord" => Some("DISCORD_BOT_TOKEN"),
        "slack" => Some("SLACK_BOT_TOKEN"),
        "mattermost" => Some("MATTERMOST_TOKEN"),
        "matrix" => Some("MATRIX_ACCESS_TOKEN"),
        _ => None,
    }
}

/// Whether the environment alone switches it on.
fn credentials<'a>(name: &str, lit: &impl Fn(&str) -> &'a str) -> bool {
    let set = |var: &str| !lit(var).is_empty();
    match name {
        "email" => ["ADDRESS", "PASSWORD", "IMAP_HOST", "SMTP_HOST"]
            .iter()
            .all(|part| set(&format!("EMAIL_{part}"))),
        "api_server" => is_on(lit("API_SERVER_ENABLED")) || set("API_SERVER_KEY"),
        "webhook" => is_on(lit("WEBHOOK_ENABLED")),
        "whatsapp" => is_on(lit("WHATSAPP_ENABLED")),
        "whatsapp_cloud" => {
            set("WHATSAPP_CLOUD_PHONE_NUMBER_ID") && set("WHATSAPP_CLOUD_ACCESS_TOKEN")
        }
        "signal" => set("SIGNAL_HTTP_URL") && set("SIGNAL_ACCOUNT"),
        "homeassistant" => set("HASS_TOKEN"),
        "sms" => set("TWILIO_ACCOUNT_SID"),
        _ => token_var(name).is_some_and(set),
    }
}

fn home_channel<'a>(
    name: &str,
    extra: &mut Map<String, Value>,
    lit: &impl Fn(&str) -> &'a str,
) -> Option<HomeChannel> {
    let base = match name {
        "email" => "EMAIL_HOME_ADDRESS".to_owned(),
        "matrix" => "MATRIX_HOME_ROOM".to_owned(),
        other => format!("{}_HOME_CHANNEL", other.to_uppercase()),
    };
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let written = extra.remove("home_channel");
    if let Some(chat_id) = some(lit(&base)) {
        return Some(HomeChannel {
            chat_id,
            thread_id: some(lit(&format!("{base}_THREAD_ID"))),
            name: some(lit(&format!("{base}_NAME"))),
        });
    }
    match written? {
        Value::Object(map) => Some(HomeChannel {
            chat_id: as_text(map.get("chat_id")?)?,
            thread_id: map.get("thread_id").and_then(as_text),
            name: map.get("name").and_then(as_text),
        }),
        other => Some(HomeChannel {
            chat_id: as_text(&other)?,
            thread_id: None,
            name: None,
        }),
    }
}
