//! Sections `model`, `local`, `providers`, `custom_providers`, `fallback_providers`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::field::{ConfigField as _, ConfigWord, Named, Secret, as_mapping, section};

section! {
    /// `model`: the primary model. May be written as the bare name.
    struct Model via model_mapping {
        default: String = String::new(),
        provider: String = String::new(),
        base_url: String = String::new(),
        api_key: Secret = Secret::default(),
        /// The wire format, when it is not the provider's usual one.
        api_mode: String = String::new(),
    }
    optional {
        context_length: u32,
        max_tokens: u32,
        /// Headers for every request.
        extra_headers: Named<String>,
        default_headers: Named<String>,
        supports_vision: bool,
        ollama_num_ctx: u32,
        /// Short names for models: alias → `provider/model` or a mapping.
        aliases: Map<String, Value>,
        persist_switch_by_default: bool,
        auth_mode: String,
        openai_runtime: String,
        lmstudio_load_mode: String,
        service_tier: String,
        entra: Map<String, Value>,
        key_env: String,
    }
}

/// The defaults of the original do not show a mapping here, but `""`.
fn model_mapping(value: &Value) -> Option<Cow<'_, Map<String, Value>>> {
    match value {
        Value::String(name) => Some(Cow::Owned(Map::from_iter([(
            "default".to_owned(),
            Value::String(name.clone()),
        )]))),
        other => as_mapping(other),
    }
}

section! {
    /// `local`: the built-in model.
    struct Local {
        /// A name of `hermes model local list`, or the path of a GGUF file.
        model: String = String::new(),
        /// 0: one per core.
        threads: u32 = 0,
        /// Tokens of a conversation, as far as the model has them.
        context: u32 = 8_192,
        /// `auto` (as trying the model showed), `on` or `off`.
        tools: ConfigWord = ConfigWord::from("auto"),
        /// Without a question for so long, its server ends.
        idle_seconds: u64 = 600,
        /// When nobody uses it any more, its server ends so much later.
        grace_seconds: u64 = 30,
    }
}

section! {
    /// An entry of `providers` or `custom_providers`: an own endpoint, or settings for a known
    /// provider (then without `base_url`).
    struct Endpoint via endpoint_mapping {
        name: String = String::new(),
        base_url: String = String::new(),
        api_key: Secret = Secret::default(),
        /// The variable that holds the key.
        key_env: String = String::new(),
        api_mode: String = String::new(),
        model: String = String::new(),
        models: Named<EndpointModel> = Named::default(),
        enabled: bool = true,
        extra_headers: Named<String> = Named::default(),
        extra_body: Map<String, Value> = Map::new(),
        ssl_ca_cert: String = String::new(),
    }
    optional {
        context_length: u32,
        rate_limit_delay: f64,
        request_timeout_seconds: f64,
        stale_timeout_seconds: f64,
        discover_models: bool,
        /// `false` turns checking off; a path names the CA file.
        ssl_verify: Value,
        provider: String,
        max_tokens: u32,
    }
}

section! {
    /// What is known of one model of an endpoint.
    struct EndpointModel {
    }
    optional {
        context_length: u32,
        max_tokens: u32,
        timeout_seconds: f64,
        stale_timeout_seconds: f64,
        supports_vision: bool,
        api_mode: String,
        supports_tools: bool,
        /// Dollars per million tokens: `input`, `output`, `cache_read`, `cache_write`.
        pricing: Map<String, Value>,
    }
}

section! {
    /// One step of the fallback chain.
    struct Fallback [alone] {
        provider: String = String::new(),
        model: String = String::new(),
        base_url: String = String::new(),
        api_key: Secret = Secret::default(),
        key_env: String = String::new(),
        api_key_env: String = String::new(),
        api_mode: String = String::new(),
    }
    optional {
        context_length: u32,
        extra_headers: Named<String>,
        extra_body: Map<String, Value>,
        max_tokens: u32,
        reasoning_effort: ConfigWord,
    }
}

/// Other names under which an endpoint's fields are accepted.
const ENDPOINT_ALIASES: [(&str, &str); 15] = [
    ("url", "base_url"),
    ("api", "base_url"),
    ("baseUrl", "base_url"),
    ("api_base", "base_url"),
    ("apiKey", "api_key"),
    ("api_key_env", "key_env"),
    ("keyEnv", "key_env"),
    ("apiKeyEnv", "key_env"),
    ("transport", "api_mode"),
    ("apiMode", "api_mode"),
    ("default_model", "model"),
    ("defaultModel", "model"),
    ("contextLength", "context_length"),
    ("rateLimitDelay", "rate_limit_delay"),
    ("headers", "extra_headers"),
];

/// Whether `key` may stand in an entry of `providers` or `custom_providers`.
pub(crate) fn is_endpoint_key(key: &str) -> bool {
    let defaults = Endpoint::default().write();
    defaults.get(key).is_some()
        || Endpoint::OPTIONAL.contains(&key)
        || ENDPOINT_ALIASES.iter().any(|(alias, _)| *alias == key)
}

pub(crate) fn endpoint_keys() -> impl Iterator<Item = String> {
    let defaults = Endpoint::default().write();
    let names: Vec<String> = defaults
        .as_object()
        .map(|map| map.keys().cloned().collect())
        .unwrap_or_default();
    names
        .into_iter()
        .chain(Endpoint::OPTIONAL.iter().map(|&name| name.to_owned()))
}

fn endpoint_mapping(value: &Value) -> Option<Cow<'_, Map<String, Value>>> {
    let map = value.as_object()?;
    let aliased = ENDPOINT_ALIASES
        .iter()
        .any(|(alias, _)| map.contains_key(*alias));
    if !aliased && !map.get("models").is_some_and(Value::is_array) {
        return Some(Cow::Borrowed(map));
    }
    let mut map = map.clone();
    for (alias, name) in ENDPOINT_ALIASES {
        let empty = map.get(name).is_none_or(is_blank);
        if empty && let Some(value) = map.get(alias).filter(|value| !is_blank(value)).cloned() {
            map.insert(name.to_owned(), value);
        }
    }
    if let Some(Value::Array(models)) = map.get("models") {
        let named = models.iter().filter_map(listed_model).collect();
        map.insert("models".to_owned(), Value::Object(named));
    }
    Some(Cow::Owned(map))
}

/// `models` may be a list of ids, or of mappings with `id` or `name`.
fn listed_model(item: &Value) -> Option<(String, Value)> {
    match item {
        Value::String(id) => Some((id.trim().to_owned(), Value::Object(Map::new()))),
        Value::Object(map) => {
            let id = ["id", "name"]
                .iter()
                .find_map(|key| map.get(*key)?.as_str())?;
            Some((id.trim().to_owned(), item.clone()))
        }
        _ => None,
    }
    .filter(|(id, _)| !id.is_empty())
}

fn is_blank(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty())
}

impl super::Config {
    /// Every configured endpoint with its key: the entries of `custom_providers`, then those of
    /// `providers`, without repetitions. The key is the one under `providers`, else the name.
    ///
    /// Entries without `base_url` adjust a known provider.
    pub fn endpoints(&self) -> Vec<(String, Endpoint)> {
        let listed = self
            .custom_providers
            .iter()
            .flatten()
            .map(|entry| (entry.name.trim().to_owned(), entry.clone()));
        let named = self.providers.iter().map(|(key, entry)| {
            let mut entry = entry.clone();
            if entry.name.trim().is_empty() {
                key.clone_into(&mut entry.name);
            }
            (key.to_owned(), entry)
        });
        let mut all: Vec<(String, Endpoint)> = Vec::new();
        for (key, entry) in listed.chain(named) {
            let same = |(_, other): &(String, Endpoint)| {
                let url = |entry: &Endpoint| entry.base_url.trim_end_matches('/').to_lowercase();
                other.name.eq_ignore_ascii_case(&entry.name)
                    && url(other) == url(&entry)
                    && other.model.eq_ignore_ascii_case(&entry.model)
            };
            if !all.iter().any(same) {
                all.push((key, entry));
            }
        }
        all
    }

    /// The fallback chain: `fallback_providers`, then `fallback_model`. Steps without provider or
    /// model, and repetitions, are left out.
    pub fn fallbacks(&self) -> Vec<Fallback> {
        let mut chain: Vec<Fallback> = Vec::new();
        let steps = self
            .fallback_providers
            .iter()
            .chain(self.fallback_model.iter().flatten());
        for step in steps {
            let mut step = Fallback {
                provider: step.provider.trim().to_owned(),
                model: step.model.trim().to_owned(),
                base_url: step.base_url.trim().trim_end_matches('/').to_owned(),
                ..step.clone()
            };
            if step.key_env.is_empty() {
                step.key_env.clone_from(&step.api_key_env);
            }
            let usable = !step.provider.is_empty() && !step.model.is_empty();
            let known = chain.iter().any(|other| {
                other.provider.eq_ignore_ascii_case(&step.provider)
                    && other.model.eq_ignore_ascii_case(&step.model)
                    && other.base_url.eq_ignore_ascii_case(&step.base_url)
            });
            if usable && !known {
                chain.push(step);
            }
        }
        chain
    }
}
