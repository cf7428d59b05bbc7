//! Merges the settings of one platform from all places.

use std::collections::HashMap;

use hermes_config::env::is_usable_secret;
use hermes_platforms::{
    HomeChannel, PlatformSettings, ReplyMode, SwitchedOn, definition, is_on, setting_text,
};
use serde_json::{Map, Value};

/// config.yaml, merged and expanded and as it is, and the old file.
pub(super) struct ConfigSources<'a> {
    pub(super) tree: &'a Value,
    pub(super) file: &'a Value,
    pub(super) old: &'a Value,
}

impl ConfigSources<'_> {
    /// The settings of `name` on one level: `extra:` is flattened.
    fn block(&self, name: &str) -> Map<String, Value> {
        let mut all = Map::new();
        let old = self.old.pointer(&format!("/platforms/{name}"));
        open(old, old, &mut all);
        for pointer in [
            format!("/gateway/platforms/{name}"),
            format!("/platforms/{name}"),
            format!("/{name}"),
        ] {
            open(
                self.file.pointer(&pointer),
                self.tree.pointer(&pointer),
                &mut all,
            );
        }
        all
    }

    /// `None`: it is not configured anywhere.
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
        let given = extra.remove("enabled");
        let enabled = match given.as_ref().map(|value| (value, flag(value))) {
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
            None => ReplyMode::default(),
            Some(word) => ReplyMode::parse(&word).unwrap_or_else(|| {
                problems.push(format!(
                    "{name}.reply_to_mode is {word:?}: off, first or all"
                ));
                ReplyMode::default()
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

/// Copies explicit settings. Values come from the expanded tree, whose defaults are not copied.
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
    let text = setting_text(value)?.to_ascii_lowercase();
    match text.as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn text(extra: &mut Map<String, Value>, key: &str) -> Option<String> {
    setting_text(&extra.remove(key)?)
}

/// The variable that holds the token.
pub(super) fn token_var(name: &str) -> Option<&'static str> {
    match name {
        "mattermost" => Some("MATTERMOST_TOKEN"),
        "matrix" => Some("MATRIX_ACCESS_TOKEN"),
        _ => definition(name)?.token_var,
    }
}

/// Whether the environment alone switches it on.
fn credentials<'a>(name: &str, lit: &impl Fn(&str) -> &'a str) -> bool {
    let set = |var: &str| !lit(var).is_empty();
    let Some(definition) = definition(name) else {
        return foreign_credentials(name, lit);
    };
    match definition.switched_on {
        SwitchedOn::ByToken => definition.token_var.is_some_and(set),
        SwitchedOn::ByAll(all) => all.iter().all(|var| set(var)),
        SwitchedOn::ByFlag(flag) => is_on(lit(flag)),
        SwitchedOn::ByFlagOrKey(flag, key) => is_on(lit(flag)) || set(key),
    }
}

/// The same for platforms of the original that this program does not support, to report them.
fn foreign_credentials<'a>(name: &str, lit: &impl Fn(&str) -> &'a str) -> bool {
    let set = |var: &str| !lit(var).is_empty();
    match name {
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

/// The variable with the home channel.
pub(crate) fn home_var(name: &str) -> String {
    match (definition(name), name) {
        (Some(definition), _) => definition.home_var.to_owned(),
        (None, "matrix") => "MATRIX_HOME_ROOM".to_owned(),
        (None, other) => format!("{}_HOME_CHANNEL", other.to_uppercase().replace('-', "_")),
    }
}

fn home_channel<'a>(
    name: &str,
    extra: &mut Map<String, Value>,
    lit: &impl Fn(&str) -> &'a str,
) -> Option<HomeChannel> {
    let base = home_var(name);
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
            chat_id: setting_text(map.get("chat_id")?)?,
            thread_id: map.get("thread_id").and_then(setting_text),
            name: map.get("name").and_then(setting_text),
        }),
        other => Some(HomeChannel {
            chat_id: setting_text(&other)?,
            thread_id: None,
            name: None,
        }),
    }
}
