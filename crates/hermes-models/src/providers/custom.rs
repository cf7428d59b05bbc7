//! Providers from config.yaml: the `providers` mapping and the older `custom_providers` list.
//!
//! An entry with a new name adds a provider; one named like a built-in provider changes it.

use std::collections::BTreeMap;
use std::time::Duration;

use hermes_config::Config;
use hermes_config::schema::{Endpoint, EndpointModel, Secret};
use hermes_core::model::WireFormat;
use hermes_core::usage::{PriceSource, Prices};
use serde_json::{Map, Value};

use super::endpoint;

/// One entry of the user's config.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CustomProvider {
    /// The normalized name: lower case, spaces as hyphens.
    pub key: String,
    pub name: String,
    /// Missing in an entry that only adjusts a built-in provider.
    pub base_url: Option<String>,
    pub api_key: Secret,
    pub key_env: Option<String>,
    pub format: Option<WireFormat>,
    pub model: Option<String>,
    pub models: BTreeMap<String, ModelOverride>,
    pub context_length: Option<u32>,
    pub max_output: Option<u32>,
    pub headers: Vec<(String, String)>,
    pub extra_body: Map<String, Value>,
    /// A PEM file with the trusted authorities.
    pub ca_cert: Option<String>,
    pub tls_verify: bool,
    pub timeouts: TimeoutOverride,
}

/// The configured values of one model of a provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelOverride {
    pub context_length: Option<u32>,
    pub max_output: Option<u32>,
    pub images: Option<bool>,
    pub tools: Option<bool>,
    pub prices: Option<Prices>,
    pub timeouts: TimeoutOverride,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeoutOverride {
    /// The whole call.
    pub request: Option<Duration>,
    /// Without any byte.
    pub stale: Option<Duration>,
}

/// The entries, and errors in them (for `doctor` and the log).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CustomProviders {
    pub entries: Vec<CustomProvider>,
    pub problems: Vec<String>,
}

impl CustomProviders {
    /// Reads both sections. If both name a provider, the mapping wins.
    pub(crate) fn read(config: &Config) -> Self {
        let mut all = Self::default();
        for (key, entry) in config.providers.iter() {
            all.add(key, &format!("providers.{key}"), entry);
        }
        for (index, entry) in config.custom_providers.iter().flatten().enumerate() {
            all.add(&entry.name, &format!("custom_providers.{index}"), entry);
        }
        all
    }

    fn add(&mut self, key: &str, at: &str, entry: &Endpoint) {
        if !entry.enabled {
            return;
        }
        let key = comparable(key);
        if key.is_empty() {
            self.problems.push(format!("{at}: has no name; ignored"));
        } else if !self.entries.iter().any(|known| known.key == key) {
            let provider = read(key, at, entry, &mut self.problems);
            self.entries.push(provider);
        }
    }

    /// The entry of that name, with or without the prefix `custom:`.
    pub(crate) fn find(&self, name: &str) -> Option<&CustomProvider> {
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
    pub(crate) fn at_url(&self, url: &str) -> Option<&CustomProvider> {
        let url = endpoint::tidy(url);
        self.entries.iter().find(|entry| {
            entry
                .base_url
                .as_deref()
                .is_some_and(|own| own.eq_ignore_ascii_case(url))
        })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.key.as_str())
    }
}

/// A normalized name.
pub(crate) fn comparable(name: &str) -> String {
    name.trim().to_lowercase().replace(' ', "-")
}

/// A setting that exists and is not blank.
pub(crate) fn set(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn read(key: String, at: &str, entry: &Endpoint, problems: &mut Vec<String>) -> CustomProvider {
    let base_url = set(&entry.base_url)
        .map(|url| endpoint::tidy(&url).to_owned())
        .filter(|url| match endpoint::validate(url) {
            Ok(()) => true,
            Err(reason) => {
                problems.push(format!("{at}.base_url: {reason}; ignored"));
                false
            }
        });
    let format = set(&entry.api_mode).and_then(|text| {
        let format = endpoint::parse_format(&text);
        if format.is_none() {
            problems.push(format!(
                "{at}.api_mode: {text:?} is not chat_completions, anthropic_messages or codex_responses; ignored"
            ));
        }
        format
    });
    let (tls_verify, verify_file) = match &entry.ssl_verify {
        Some(Value::Bool(flag)) => (*flag, None),
        Some(Value::String(path)) => (true, set(path)),
        _ => (true, None),
    };
    CustomProvider {
        key,
        name: entry.name.clone(),
        base_url,
        api_key: entry.api_key.clone(),
        key_env: set(&entry.key_env),
        format,
        model: set(&entry.model),
        models: entry
            .models
            .iter()
            .map(|(id, model)| {
                (
                    id.to_owned(),
                    model_override(&format!("{at}.models.{id}"), model, problems),
                )
            })
            .collect(),
        context_length: entry.context_length.filter(|tokens| *tokens > 0),
        max_output: entry.max_tokens.filter(|tokens| *tokens > 0),
        headers: entry
            .extra_headers
            .iter()
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect(),
        extra_body: entry.extra_body.clone(),
        ca_cert: set(&entry.ssl_ca_cert).or(verify_file),
        tls_verify,
        timeouts: TimeoutOverride {
            request: seconds(entry.request_timeout_seconds),
            stale: seconds(entry.stale_timeout_seconds),
        },
    }
}

fn model_override(at: &str, model: &EndpointModel, problems: &mut Vec<String>) -> ModelOverride {
    ModelOverride {
        context_length: model.context_length.filter(|tokens| *tokens > 0),
        max_output: model.max_tokens.filter(|tokens| *tokens > 0),
        images: model.supports_vision,
        tools: model.supports_tools,
        prices: model
            .pricing
            .as_ref()
            .and_then(|pricing| prices(at, pricing, problems)),
        timeouts: TimeoutOverride {
            request: seconds(model.timeout_seconds),
            stale: seconds(model.stale_timeout_seconds),
        },
    }
}

fn prices(at: &str, pricing: &Map<String, Value>, problems: &mut Vec<String>) -> Option<Prices> {
    let amount = |key: &str| {
        pricing
            .get(key)
            .and_then(Value::as_f64)
            .filter(|usd| *usd >= 0.0)
    };
    let (Some(input), Some(output)) = (amount("input"), amount("output")) else {
        problems.push(format!(
            "{at}.pricing: needs input and output in dollars per million tokens; ignored"
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

fn seconds(value: Option<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(value?)
        .ok()
        .filter(|time| !time.is_zero())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoint(name: &str, base_url: &str) -> Endpoint {
        Endpoint {
            name: name.to_owned(),
            base_url: base_url.to_owned(),
            ..Endpoint::default()
        }
    }

    fn priced(pricing: &Value) -> EndpointModel {
        EndpointModel {
            context_length: Some(65_536),
            pricing: pricing.as_object().cloned(),
            ..EndpointModel::default()
        }
    }

    #[test]
    fn both_sections_are_read_and_the_mapping_wins() {
        let mut mine = endpoint("", "http://10.0.0.5:8000/v1/");
        mine.api_mode = "anthropic_messages".into();
        mine.models = [("big".to_owned(), priced(&json!({"input": 1, "output": 2})))]
            .into_iter()
            .collect();
        mine.request_timeout_seconds = Some(30.0);
        let mut off = endpoint("off", "http://x.test");
        off.enabled = false;
        let config = Config {
            providers: [("my-server".to_owned(), mine), ("off".to_owned(), off)]
                .into_iter()
                .collect(),
            custom_providers: Some(vec![
                endpoint("Local Mock", "http://127.0.0.1:1/v1"),
                endpoint("my-server", "http://other.test"),
            ]),
            ..Config::default()
        };
        let all = CustomProviders::read(&config);
        assert_eq!(all.problems, Vec::<String>::new());
        let mine = all.find("custom:my-server").unwrap();
        assert_eq!(mine.base_url.as_deref(), Some("http://10.0.0.5:8000/v1"));
        assert_eq!(mine.format, Some(WireFormat::AnthropicMessages));
        assert_eq!(mine.timeouts.request, Some(Duration::from_secs(30)));
        let big = &mine.models["big"];
        assert_eq!(big.context_length, Some(65_536));
        assert_eq!(
            big.prices.map(|p| p.source),
            Some(PriceSource::UserOverride)
        );
        assert_eq!(all.find("local mock").unwrap().key, "local-mock");
        let found = all.at_url("http://127.0.0.1:1/v1/").unwrap();
        assert_eq!(found.key, "local-mock");
        assert!(all.find("off").is_none());
    }

    #[test]
    fn what_cannot_work_is_named_and_left_out() {
        let mut odd = endpoint("odd", "localhost:8000");
        odd.api_mode = "smoke-signals".into();
        odd.models = [("m".to_owned(), priced(&json!({"input": 1})))]
            .into_iter()
            .collect();
        let config = Config {
            custom_providers: Some(vec![odd, endpoint(" ", "http://x.test")]),
            ..Config::default()
        };
        let all = CustomProviders::read(&config);
        assert_eq!(all.problems.len(), 4, "{:#?}", all.problems);
        assert!(all.problems[0].contains("custom_providers.0.base_url"));
        let odd = all.find("odd").unwrap();
        assert_eq!((odd.base_url.as_deref(), odd.format), (None, None));
    }
}
