//! Building a client from a target and a key.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hermes_config::Config;
use hermes_config::env::Env;
use hermes_core::model::{ModelInfo, Route, RouteError, WireFormat};
use hermes_http::HttpSettings;
use secrecy::ExposeSecret as _;

use super::target::RouteTarget;
use super::{Router, built_in};
use crate::catalogue;
use crate::context::{DEFAULT_CONTEXT, DEFAULT_SOURCE, ProbeRequest};
use crate::credentials::Credential;
use crate::live::{self, LocalProbe};
use crate::optional::other_format;
use crate::providers::custom::{TimeoutOverride, set};
use crate::providers::{LocalServer, endpoint, profile};
use crate::quirks::{CacheLayout, CacheTtl, Quirks};

/// HTTP clients, one per trust configuration, each built when first needed.
pub(super) struct RouteHttpClients {
    settings: HttpSettings,
    built: Mutex<HashMap<(Option<PathBuf>, bool), reqwest::Client>>,
}

impl RouteHttpClients {
    pub(super) fn new(config: &Config, env: &Env) -> Self {
        let mut settings = HttpSettings::from_env(|name| env.get(name).map(str::to_owned));
        if let Some(file) = config.network.ca_bundle.as_deref().and_then(set) {
            settings.ca_file = Some(PathBuf::from(file));
        }
        if let Some(proxy) = config.network.proxy.as_deref().and_then(set) {
            settings.proxy.all = Some(proxy);
        }
        Self {
            settings,
            built: Mutex::default(),
        }
    }

    pub(super) fn settings(&self, target: &RouteTarget) -> HttpSettings {
        let mut settings = self.settings.clone();
        if let Some(own) = &target.own {
            if let Some(file) = &own.ca_cert {
                settings.ca_file = Some(PathBuf::from(file));
            }
            settings.accept_any_certificate = !own.tls_verify;
        }
        settings
    }

    pub(super) fn get(&self, target: &RouteTarget) -> Result<reqwest::Client, RouteError> {
        let settings = self.settings(target);
        let key = (settings.ca_file.clone(), settings.accept_any_certificate);
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = built.get(&key) {
            return Ok(client.clone());
        }
        let client = hermes_http::client(&settings)
            .map_err(|error| RouteError::Invalid(error.to_string()))?;
        built.insert(key, client.clone());
        Ok(client)
    }
}

impl Router {
    pub(super) fn info(
        &self,
        target: &RouteTarget,
        route: &Route,
        credential: Option<&Credential>,
    ) -> ModelInfo {
        if built_in::is(target) {
            return self.built_in_info(target);
        }
        let known = self.known.of(route);
        let (local, listed) = (known.local, known.listed.as_ref());
        let (window, probe) = self.window(target, route, credential, listed);
        let set_here = target.model_override();
        let model = &self.deps.config.model;
        let images = set_here
            .and_then(|model| model.images)
            .or_else(|| {
                model
                    .supports_vision
                    .filter(|_| self.is_configured_model(target))
            })
            .or_else(|| probe.and_then(|probe| probe.images))
            .or_else(|| listed.map(|entry| entry.images))
            .unwrap_or(false);
        let tools = set_here
            .and_then(|model| model.tools)
            .or_else(|| probe.and_then(|probe| probe.tools))
            .or_else(|| listed.map(|entry| entry.tools))
            .unwrap_or(true);
        let own_limit = target.own.as_ref().and_then(|own| own.max_output);
        ModelInfo {
            context_length: window.0,
            context_source: window.1,
            max_output: set_here
                .and_then(|model| model.max_output)
                .or(own_limit)
                .or_else(|| listed.and_then(|entry| entry.max_output)),
            images,
            tools,
            prices: set_here
                .and_then(|model| model.prices)
                .or_else(|| Some(known.price?.prices)),
            local,
            small: false,
        }
    }

    /// The context window and its source, and the server's answer if it was queried.
    fn window(
        &self,
        target: &RouteTarget,
        route: &Route,
        credential: Option<&Credential>,
        listed: Option<&catalogue::CatalogueEntry>,
    ) -> ((u32, &'static str), Option<LocalProbe>) {
        let model = &self.deps.config.model;
        let of_section = model
            .context_length
            .filter(|tokens| *tokens > 0 && self.is_configured_model(target));
        let configured = target
            .extras
            .context_length
            .filter(|tokens| *tokens > 0)
            .or(of_section)
            .or_else(|| target.model_override()?.context_length)
            .or_else(|| target.own.as_ref()?.context_length);
        if let Some(tokens) = configured {
            return ((tokens, "config"), None);
        }
        let server = target.builtin.and_then(|provider| provider.local);
        let server = server.or_else(|| live::by_port(&route.base_url));
        let local = endpoint::is_local(&route.base_url);
        // What Ollama allocates is a setting of the server, which may have changed since.
        let settable = local && server == Some(LocalServer::Ollama);
        let recalled = self.book.recall(&target.model, &route.base_url);
        if let Some(tokens) = recalled
            && !settable
        {
            return ((tokens, "cache"), None);
        }
        let from_list = listed.map(|entry| (entry.context_length, "catalogue"));
        // A local server may be started with a smaller window than the model was trained for, so
        // its own value takes precedence over the catalogue's.
        let ask = local || (from_list.is_none() && is_own(target));
        let probe = ask
            .then(|| {
                self.book.ask(&ProbeRequest {
                    base_url: &route.base_url,
                    model: &target.model,
                    server: target.builtin.and_then(|provider| provider.local),
                    key: credential.map(|credential| &credential.secret),
                    http: &self.http.settings(target),
                    load: local && recalled.is_none(),
                })
            })
            .flatten();
        if let Some(tokens) = recalled
            && probe.is_none_or(|probe| probe.may_shrink)
        {
            return ((tokens, "cache"), probe);
        }
        let window = probe
            .and_then(|probe| probe.context_length)
            .map(|tokens| (tokens, "endpoint"))
            .or(from_list)
            .unwrap_or((DEFAULT_CONTEXT, DEFAULT_SOURCE));
        (window, probe)
    }

    /// Whether settings of the `model` section that describe the model apply.
    fn is_configured_model(&self, target: &RouteTarget) -> bool {
        let default = set(&self.deps.config.model.default);
        target.from_model_section
            && default.is_none_or(|name| {
                let same = |a: &str| a.eq_ignore_ascii_case(&target.model);
                same(&name)
                    || name.split_once('/').is_some_and(|(_, rest)| same(rest))
                    || target.builtin.is_some_and(|builtin| {
                        same(&crate::providers::names::native(builtin, &name))
                    })
            })
    }

    pub(super) fn quirks(&self, target: &RouteTarget, route: &Route, info: &ModelInfo) -> Quirks {
        self.as_configured(self.known.of(route).quirks.clone(), target, info)
    }

    /// The quirks of the wire format used if the endpoint refuses the usual one.
    pub(super) fn other_quirks(
        &self,
        target: &RouteTarget,
        route: &Route,
        info: &ModelInfo,
    ) -> Option<Quirks> {
        let format = other_format(route.format).filter(|_| !built_in::is(target))?;
        let route = Route {
            format,
            ..route.clone()
        };
        let (provider, base_url) = (&route.provider, &route.base_url);
        let quirks = profile::quirks(provider, base_url, &route.model, format).for_model(&route);
        Some(self.as_configured(quirks, target, info))
    }

    /// `quirks` with the config applied.
    fn as_configured(&self, mut quirks: Quirks, target: &RouteTarget, info: &ModelInfo) -> Quirks {
        let config = &self.deps.config;
        if matches!(target.provider.as_str(), "openrouter" | "nous") {
            quirks.provider_preferences = config
                .provider_routing
                .clone()
                .filter(|routing| !routing.is_empty())
                .map(serde_json::Value::Object);
        }
        if config.prompt_caching.cache_ttl.trim() == "1h" {
            quirks.cache_ttl = CacheTtl::OneHour;
        }
        if config.prompt_caching.enabled == Some(false) {
            quirks.cache = CacheLayout::None;
        }
        let server = target.builtin.and_then(|provider| provider.local);
        let wanted = config
            .model
            .ollama_num_ctx
            .filter(|_| target.from_model_section);
        let detected = (server == Some(LocalServer::Ollama)
            && info.context_source != DEFAULT_SOURCE)
            .then_some(info.context_length);
        quirks.ollama_num_ctx = wanted.or(detected);
        let of_section = config
            .model
            .max_tokens
            .filter(|_| self.is_configured_model(target));
        if let Some(tokens) = target.extras.max_tokens.or(of_section).filter(|n| *n > 0) {
            quirks.max_tokens.default = Some(tokens);
            quirks.max_tokens.floor = None;
        }
        self.user_fields(target, &mut quirks);
        quirks
    }

    /// Headers and body fields from the config, which override our own.
    fn user_fields(&self, target: &RouteTarget, quirks: &mut Quirks) {
        let model = &self.deps.config.model;
        let mut headers: Vec<(String, String)> = Vec::new();
        if target.from_model_section {
            let both = [&model.default_headers, &model.extra_headers];
            for named in both.into_iter().flatten() {
                headers.extend(
                    named
                        .iter()
                        .map(|(name, value)| (name.to_owned(), value.clone())),
                );
            }
        }
        if let Some(own) = &target.own {
            headers.extend(own.headers.iter().cloned());
            for (key, value) in &own.extra_body {
                quirks.set_by_person.insert(key.clone());
                quirks.extra_body.insert(key.clone(), value.clone());
            }
        }
        headers.extend(target.extras.headers.iter().cloned());
        for (key, value) in &target.extras.body {
            quirks.set_by_person.insert(key.clone());
            quirks.extra_body.insert(key.clone(), value.clone());
        }
        for (name, value) in headers {
            quirks
                .headers
                .retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
            quirks.headers.push((name, value));
        }
    }
}

/// The route for this key: some keys work at one address only.
pub(super) fn route(target: &RouteTarget, credential: Option<&Credential>) -> Route {
    let (base_url, format) = address(target, credential);
    Route {
        provider: target.provider.clone(),
        model: target.model.clone(),
        base_url,
        format,
        credential: credential.map(|credential| credential.label.clone()),
    }
}

/// Limits from the config; those of the model before those of the provider.
pub(super) fn limits(target: &RouteTarget, within: Option<Duration>) -> TimeoutOverride {
    let provider = target.own.as_ref().map(|own| own.timeouts);
    let provider = provider.unwrap_or_default();
    let model = target.model_override().map(|model| model.timeouts);
    let model = model.unwrap_or_default();
    TimeoutOverride {
        request: within.or(model.request).or(provider.request),
        stale: model.stale.or(provider.stale),
    }
}

/// Custom endpoints: what they serve is unknown.
fn is_own(target: &RouteTarget) -> bool {
    target
        .builtin
        .is_none_or(|provider| provider.id == "custom" || provider.local.is_some())
}

fn address(target: &RouteTarget, credential: Option<&Credential>) -> (String, WireFormat) {
    let client_key = (target.base_url.clone(), target.format);
    let (Some(credential), false) = (credential, target.moved) else {
        return client_key;
    };
    if target.provider == "kimi-coding" && credential.secret.expose_secret().starts_with("sk-kimi-")
    {
        return (
            endpoint::KIMI_CODE_URL.to_owned(),
            WireFormat::AnthropicMessages,
        );
    }
    match &credential.base_url {
        Some(url)
            if target.builtin.is_some_and(|p| p.id != "gemini")
                && endpoint::validate(url).is_ok() =>
        {
            let format = endpoint::format_of(url).unwrap_or(target.format);
            (url.clone(), format)
        }
        _ => client_key,
    }
}
