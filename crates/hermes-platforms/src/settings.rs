//! The settings of one platform, from all places.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// One platform's settings. The environment takes precedence over `extra`; adapters look up values
/// by both names.
#[derive(Clone, Debug, Default)]
pub struct PlatformSettings {
    /// `telegram`, `slack`, …
    pub name: String,
    /// `None`: not set; a credential enables it.
    pub enabled: Option<bool>,
    pub token: Option<String>,
    pub api_key: Option<String>,
    pub home_channel: Option<HomeChannel>,
    pub reply_to: ReplyMode,
    /// Everything else in its block, `extra:` included.
    pub extra: Map<String, Value>,
    /// The environment of the home (`.env` and the process).
    pub env: HashMap<String, String>,
}

/// The default target of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeChannel {
    pub chat_id: String,
    pub thread_id: Option<String>,
    pub name: Option<String>,
}

/// Which messages of an answer are sent as replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    Off,
    #[default]
    First,
    All,
}

impl ReplyMode {
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "off" | "false" => Some(Self::Off),
            "first" => Some(Self::First),
            "all" => Some(Self::All),
            _ => None,
        }
    }
}

impl PlatformSettings {
    /// A variable, unless it is empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        let value = self.env.get(name).map(|value| value.trim());
        value.filter(|value| !value.is_empty())
    }

    /// `<PLATFORM>_<NAME>` of the environment, else `name` of the configuration, as text. Numbers
    /// and switches count as their text, lists as values with commas.
    pub fn text(&self, name: &str) -> Option<String> {
        let var = format!("{}_{}", self.name, name).to_uppercase();
        if let Some(value) = self.var(&var) {
            return Some(value.to_owned());
        }
        self.written(name)
    }

    /// The configured value, ignoring the environment.
    pub fn written(&self, name: &str) -> Option<String> {
        setting_text(self.extra.get(name)?)
    }

    /// A boolean in common spellings. `None`: not set or not recognised.
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.text(name)?.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Some(true),
            "0" | "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Values with commas between them.
    pub fn list(&self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        let values = text.split(',').map(str::trim);
        values
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

/// A switch in the environment.
pub fn is_on(text: &str) -> bool {
    matches!(
        text.trim().to_ascii_lowercase().as_str(),
        "1" | "true" | "yes" | "on"
    )
}

/// A value of the configuration as text; a list with commas between its values.
pub fn setting_text(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Object(_) => None,
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().filter_map(setting_text).collect();
            Some(values.join(",")).filter(|text| !text.is_empty())
        }
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_environment_wins_and_every_form_is_read() {
        let mut settings = PlatformSettings {
            name: "telegram".to_owned(),
            ..PlatformSettings::default()
        };
        settings.extra = json!({"allowed_chats": [1, "-2"], "require_mention": true, "empty": ""})
            .as_object()
            .cloned()
            .unwrap_or_default();
        assert_eq!(settings.list("allowed_chats"), ["1", "-2"]);
        assert_eq!(settings.flag("require_mention"), Some(true));
        assert_eq!(settings.text("empty"), None);
        let var = ("TELEGRAM_REQUIRE_MENTION".to_owned(), " off ".to_owned());
        settings.env.extend([var]);
        assert_eq!(settings.flag("require_mention"), Some(false));
    }
}
