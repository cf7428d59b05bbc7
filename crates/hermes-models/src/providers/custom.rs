//! Providers from config.yaml: the `providers` mapping and the older `custom_providers` list.
//!
//! An entry with a new name adds a provider; one named like a built-in provider changes it.

use std::collections::BTreeMap;

use hermes_core::model::WireFormat;
use hermes_core::usage::{PriceSource, Prices};
use serde_json::{Map, Value};

use super::endpoint;

/// One entry of the user's config.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CustomProvider {
    /// The name in comparable form: lower case, spaces as hyphens.
    pub key: String,
    pub name: String,
    pub base_url: Option<String>,
    pub api_key: Option<String>,
    pub key_env: Option<String>,
    pub format: Option<WireFormat>,
    pub model: Option<String>,
    pub models: BTreeMap<String, ModelOverride>,
    pub context_length: Option<u32>,
    pub max_output: Option<u32>,
    pub headers: Vec<(String, String)>,
    pub extra_body: Map<String, Value>,
    /// A PEM file with the authorities to trust.
    pub ca_cert: Option<String>,
    pub tls_verify: Option<bool>,
    pub timeouts: TimeoutOverride,
}

/// What the config says of one model of a provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOverride {
    pub context_length: Option<u32>,
    pub max_output: Option<u32>,
    pub images: Option<bool>,
    pub tools: Option<bool>,
    pub prices: Option<Prices>,
    pub timeouts: TimeoutOverride,
}

/// Seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeoutOverride {
    /// The whole call.
    pub request: Option<f64>,
    /// Without any byte.
    pub stale: Option<f64>,
}

/// The entries, and what in them was not understood (for `doctor` and the log).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CustomProviders {
    pub entries: Vec<CustomProvider>,
    pub problems: Vec<String>,
}

impl CustomProviders {
    /// Reads both sections. Where both name a provider, the mapping wins.
    pub fn read(providers: Option<&Value>, custom_providers: Option<&Value>) -> Self {
        let mut all = Self::default();
        match providers {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                for (key, entry) in map {
                    all.add(key, &format!("providers.{key}"), entry);
                }
            }
            Some(_) => all
                .problems
                .push("providers: expected a mapping of names to settings; ignored".to_owned()),
        }
        match custom_providers {
            None | Some(Value::Null) => {}
            Some(Value::Array(list)) => {
                for (index, entry) in list.iter().enumerate() {
                    all.add("", &format!("custom_providers[{index}]"), entry);
                }
            }
            Some(_) => all.problems.push(
                "custom_providers: expected a list, each entry starting with '- '; ignored"
                    .to_owned(),
            ),
        }
        all
    }

    fn add(&mut self, key: &str, at: &str, entry: &Value) {
        let Value::Object(raw) = entry else {
            self.problems.push(format!(
                "{at}: expected settings, found a plain value; ignored"
            ));
            return;
        };
        if raw.get("enabled") == Some(&Value::Bool(false)) {
            return;
        }
        let mut reader = Reader {
            raw,
            at,
            problems: &mut self.problems,
        };
        let provider = reader.provider(key);
        if provider.key.is_empty() {
            self.problems.push(format!("{at}: has no name; ignored"));
        } else if !self.entries.iter().any(|known| known.key == provider.key) {
            self.entries.push(provider);
        }
    }

    /// The entry of that name, with or without the prefix `custom:`.
    pub fn find(&self, name: &str) -> Option<&CustomProvider> {
        let wanted = comparable(name);
        let wanted = wanted.strip_prefix("custom:").unwrap_or(&wanted);
        self.entries
            .iter()
            .find(|entry| entry.key == wanted)
            .or_else(|| {
                self.entries
                    .iter()
                    .find(|entry| comparable(&entry.name) == wanted)
            })
    }

    /// The first entry at that address.
    pub fn at_url(&self, url: &str) -> Option<&CustomProvider> {
        let url = endpoint::tidy(url);
        self.entries.iter().find(|entry| {
            entry
                .base_url
                .as_deref()
                .is_some_and(|own| own.eq_ignore_ascii_case(url))
        })
    }
}

/// A name in comparable form.
pub fn comparable(name: &str) -> String {
    name.trim().to_lowercase().replace(' ', "-")
}

struct Reader<'a> {
    raw: &'a Map<String, Value>,
    at: &'a str,
    problems: &'a mut Vec<String>,
}

impl Reader<'_> {
    /// The first of the spellings that is set.
    fn any(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter()
            .find_map(|key| self.raw.get(*key))
            .filter(|value| !value.is_null())
    }

    fn text(&self, keys: &[&str]) -> Option<String> {
        let text = match self.any(keys)? {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        (!text.is_empty()).then_some(text)
    }

    fn number(&mut self, keys: &[&str]) -> Option<f64> {
        let number = match self.any(keys)? {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().replace('_', "").parse().ok(),
            _ => None,
        };
        let valid = number.filter(|number| number.is_finite() && *number > 0.0);
        if valid.is_none() {
            self.problems.push(format!(
                "{}.{}: expected a positive number; ignored",
                self.at, keys[0]
            ));
        }
        valid
    }

    fn tokens(&mut self, keys: &[&str]) -> Option<u32> {
        self.number(keys)
            .map(|number| number.min(f64::from(u32::MAX)) as u32)
    }

    fn flag(&self, keys: &[&str]) -> Option<bool> {
        self.any(keys)?.as_bool()
    }

    fn provider(&mut self, key: &str) -> CustomProvider {
        let name = self
            .text(&["name"])
            .unwrap_or_else(|| key.trim().to_owned());
        CustomProvider {
            key: comparable(if key.is_empty() { &name } else { key }),
            base_url: self.url(),
            api_key: self.text(&["api_key", "apiKey"]),
            key_env: self.text(&["key_env", "api_key_env", "keyEnv", "apiKeyEnv"]),
            format: self.format(),
            model: self.text(&["default_model", "model", "defaultModel"]),
            models: self.models(),
            context_length: self.tokens(&["context_length", "contextLength"]),
            max_output: self.tokens(&["max_output_tokens", "max_tokens", "maxOutputTokens"]),
            headers: self.headers(),
            extra_body: match self.any(&["extra_body", "extraBody"]) {
                Some(Value::Object(map)) => map.clone(),
                _ => Map::new(),
            },
            ca_cert: self.text(&["ssl_ca_cert", "sslCaCert"]),
            tls_verify: self.flag(&["ssl_verify", "sslVerify"]),
            timeouts: self.timeouts(),
            name,
        }
    }

    fn url(&mut self) -> Option<String> {
        let url = self.text(&["base_url", "url", "api", "baseUrl"])?;
        let tidy = endpoint::tidy(&url).to_owned();
        if let Err(reason) = endpoint::validate(&tidy) {
            self.problems
                .push(format!("{}.base_url: {reason}; ignored", self.at));
            return None;
        }
        Some(tidy)
    }

    fn format(&mut self) -> Option<WireFormat> {
        let text = self.text(&["api_mode", "transport", "apiMode"])?;
        let format = endpoint::parse_format(&text);
        if format.is_none() {
            self.problems.push(format!(
                "{}.api_mode: {text:?} is not chat_completions, anthropic_messages or codex_responses; ignored",
                self.at
            ));
        }
        format
    }

    fn timeouts(&mut self) -> TimeoutOverride {
        TimeoutOverride {
            request: self.number(&[
                "timeout_seconds",
                "request_timeout_seconds",
                "requestTimeoutSeconds",
            ]),
            stale: self.number(&["stale_timeout_seconds", "staleTimeoutSeconds"]),
        }
    }

    fn headers(&self) -> Vec<(String, String)> {
        let Some(Value::Object(map)) = self.any(&["extra_headers", "extraHeaders"]) else {
            return Vec::new();
        };
        map.iter()
            .filter_map(|(name, value)| match value {
                Value::String(text) => Some((name.clone(), text.clone())),
                Value::Number(number) => Some((name.clone(), number.to_string())),
                _ => None,
            })
            .collect()
    }

    /// A mapping of ids to settings, or a list of ids or of `{id, …}`.
    fn models(&mut self) -> BTreeMap<String, ModelOverride> {
        let listed: Vec<(String, Option<&Map<String, Value>>)> = match self.raw.get("models") {
            Some(Value::Object(map)) => map
                .iter()
                .map(|(id, entry)| (id.clone(), entry.as_object()))
                .collect(),
            Some(Value::Array(list)) => list
                .iter()
                .filter_map(|item| match item {
                    Value::String(id) => Some((id.trim().to_owned(), None)),
                    Value::Object(map) => {
                        let id = map.get("id").or_else(|| map.get("name"))?.as_str()?;
                        Some((id.trim().to_owned(), Some(map)))
                    }
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        let mut models = BTreeMap::new();
        for (id, raw) in listed {
            let entry = raw.map_or_else(ModelOverride::default, |raw| {
                let at = format!("{}.models.{id}", self.at);
                Reader {
                    raw,
                    at: &at,
                    problems: self.problems,
                }
                .model()
            });
            models.insert(id, entry);
        }
        models
    }

    fn model(&mut self) -> ModelOverride {
        ModelOverride {
            context_length: self.tokens(&["context_length", "contextLength"]),
            max_output: self.tokens(&["max_output_tokens", "max_tokens", "maxOutputTokens"]),
            images: self.flag(&["vision", "supports_vision"]),
            tools: self.flag(&["tools", "supports_tools"]),
            prices: self.prices(),
            timeouts: self.timeouts(),
        }
    }

    /// `pricing: {input, output, cache_read, cache_write}` in dollars per million tokens.
    fn prices(&mut self) -> Option<Prices> {
        let Some(Value::Object(map)) = self.raw.get("pricing") else {
            return None;
        };
        let amount = |key: &str| {
            map.get(key)
                .and_then(Value::as_f64)
                .filter(|usd| *usd >= 0.0)
        };
        let (Some(input), Some(output)) = (amount("input"), amount("output")) else {
            self.problems.push(format!(
                "{}.pricing: needs input and output in dollars per million tokens; ignored",
                self.at
            ));
            return None;
        };
        Some(Prices {
            input,
            output,
            cache_read: amount("cache_read"),
            cache_write: amount("cache_write"),
            source: PriceSource::UserOverride,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_sections_and_both_spellings() {
        let providers = json!({
            "my-server": {
                "api": "http://10.0.0.5:8000/v1/",
                "keyEnv": "MY_KEY",
                "transport": "anthropic_messages",
                "defaultModel": "big",
                "models": {"big": {"context_length": 65536, "pricing": {"input": 1, "output": 2}}},
                "extra_headers": {"X-Team": "blue"},
                "request_timeout_seconds": 30,
            },
            "off": {"base_url": "http://x.test", "enabled": false},
            "openrouter": {"stale_timeout_seconds": "45"},
        });
        let list = json!([
            {"name": "Local Mock", "base_url": "http://127.0.0.1:1/v1", "api_key": "k", "model": "m",
             "models": ["a", {"id": "b", "context_length": 9000}]},
            {"name": "my-server", "base_url": "http://other.test"},
        ]);
        let all = CustomProviders::read(Some(&providers), Some(&list));
        assert_eq!(all.problems, Vec::<String>::new());
        let mine = all.find("custom:my-server").unwrap();
        assert_eq!(mine.base_url.as_deref(), Some("http://10.0.0.5:8000/v1"));
        assert_eq!(mine.format, Some(WireFormat::AnthropicMessages));
        assert_eq!(mine.key_env.as_deref(), Some("MY_KEY"));
        assert_eq!(mine.model.as_deref(), Some("big"));
        assert_eq!(mine.models["big"].context_length, Some(65_536));
        assert!((mine.models["big"].prices.unwrap().output - 2.0).abs() < 1e-9);
        assert_eq!(mine.headers, [("X-Team".to_owned(), "blue".to_owned())]);
        assert_eq!(mine.timeouts.request, Some(30.0));
        let mock = all.find("local mock").unwrap();
        assert_eq!((mock.key.as_str(), mock.models.len()), ("local-mock", 2));
        assert_eq!(mock.models["b"].context_length, Some(9000));
        assert_eq!(
            all.at_url("http://127.0.0.1:1/v1/").map(|p| &*p.key),
            Some("local-mock")
        );
        assert!(all.find("off").is_none());
        assert_eq!(all.find("openrouter").unwrap().timeouts.stale, Some(45.0));
    }

    #[test]
    fn bad_entries_are_named_and_left_out() {
        let providers = json!({"a": "text", "b": {"base_url": "localhost:8000"},
            "c": {"base_url": "http://c.test", "api_mode": "smoke-signals", "context_length": "many"}});
        let all = CustomProviders::read(Some(&providers), Some(&json!({"name": "x"})));
        assert_eq!(all.problems.len(), 5, "{:#?}", all.problems);
        assert!(
            all.problems
                .iter()
                .any(|p| p.contains("providers.b.base_url"))
        );
        assert!(all.problems.iter().any(|p| p.contains("smoke-signals")));
        assert!(all.find("b").unwrap().base_url.is_none());
    }
}
