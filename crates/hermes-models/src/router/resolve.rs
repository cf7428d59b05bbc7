//! From names and settings to a [`RouteTarget`]: which provider, which model, at which address,
//! with which keys. Nothing here accesses the network.

use hermes_config::Config;
use hermes_config::env::Env;
use hermes_core::model::{RouteError, WireFormat};
use secrecy::{ExposeSecret as _, SecretString};

use super::target::{ExplicitRoute, RouteTarget};
use crate::credentials::store::AuthStore;
use crate::credentials::{Credential, is_usable_for};
use crate::local;
use crate::providers::custom::{CustomProvider, CustomProviders, comparable, set};
use crate::providers::{self, Auth, LocalServer, PROVIDERS, Provider, endpoint, names};

/// Everything a choice depends on.
pub(super) struct Resolver<'a> {
    pub(super) config: &'a Config,
    pub(super) env: &'a Env,
    pub(super) custom: &'a CustomProviders,
    pub(super) store: &'a AuthStore,
    pub(super) now: chrono::DateTime<chrono::Utc>,
}

/// A provider as named: built in, from the config, or both.
#[derive(Clone, Copy)]
struct FoundProvider<'a> {
    builtin: Option<&'static Provider>,
    own: Option<&'a CustomProvider>,
}

impl FoundProvider<'_> {
    fn same(self, other: FoundProvider<'_>) -> bool {
        match (self.builtin, other.builtin) {
            (Some(a), Some(b)) => a.id == b.id,
            (None, None) => self.own.map(|own| &own.key) == other.own.map(|own| &own.key),
            _ => false,
        }
    }

    /// Model names at this provider may contain slashes.
    fn keeps_slashes(self) -> bool {
        self.builtin
            .is_none_or(|provider| provider.aggregator || provider.auth == Auth::OptionalKey)
    }

    fn is(self, name: &str) -> bool {
        let own = self.own.is_some_and(|own| own.key == comparable(name));
        own || self.builtin.is_some_and(|provider| {
            providers::find(name).is_some_and(|other| other.id == provider.id)
        })
    }
}

impl<'a> Resolver<'a> {
    /// The target for a model and a provider as a person names them; either may be missing.
    pub(super) fn choose(
        &self,
        model: Option<&str>,
        explicit: &ExplicitRoute,
    ) -> Result<RouteTarget, RouteError> {
        self.choose_through(model, explicit, 0)
    }

    /// `aliases`: how many aliases were expanded so far.
    fn choose_through(
        &self,
        model: Option<&str>,
        explicit: &ExplicitRoute,
        aliases: usize,
    ) -> Result<RouteTarget, RouteError> {
        let model = model.map(str::trim).filter(|model| !model.is_empty());
        if let Some(name) = explicit.provider.as_deref().filter(|name| !is_auto(name)) {
            let name = match explicit.base_url {
                Some(_) if name.trim().eq_ignore_ascii_case(local::PROVIDER) => "custom",
                _ => name,
            };
            return self.at(self.find(name)?, model.map(|m| strip(m, name)), explicit);
        }
        if explicit.base_url.is_some() {
            return self.at(self.find("custom")?, model, explicit);
        }
        if let Some(target) = model.and_then(|model| self.alias(model, aliases)) {
            return target;
        }
        let current = self.current()?;
        // Without a separate provider, the configured name may contain one, too.
        let written = set(&self.config.model.default)
            .filter(|_| current.is_some() && is_auto(&self.config.model.provider));
        let model = model.or(written.as_deref());
        if let Some((prefix, rest)) = model.and_then(|model| model.split_once('/'))
            && let Some(found) = self.by_prefix(prefix, rest, current)
        {
            return self.at(found, Some(rest), explicit);
        }
        match current {
            Some(found) => {
                let model = model.map(|model| match model.split_once('/') {
                    Some((prefix, rest))
                        if found.is(prefix) && (!found.keeps_slashes() || rest.contains('/')) =>
                    {
                        rest
                    }
                    _ => model,
                });
                self.at(found, model, explicit)
            }
            None => Err(RouteError::NothingConfigured),
        }
    }

    /// Whether `prefix/…` names a provider rather than being part of the model's name.
    fn by_prefix(
        &self,
        prefix: &str,
        rest: &str,
        current: Option<FoundProvider<'a>>,
    ) -> Option<FoundProvider<'a>> {
        if let Some(own) = self
            .custom
            .find(prefix)
            .filter(|own| own.base_url.is_some())
        {
            return Some(FoundProvider {
                builtin: providers::by_id(prefix).filter(|found| found.id != local::PROVIDER),
                own: Some(own),
            });
        }
        let builtin = providers::find(prefix)?;
        let found = FoundProvider {
            builtin: Some(builtin),
            own: self.custom.find(builtin.id),
        };
        let Some(current) = current else {
            return Some(found);
        };
        if current.is(prefix) {
            return None;
        }
        // `openai/gpt-oss-20b` is a model's full name at a reseller and on many custom servers.
        let part_of_name = names::is_vendor(prefix)
            && current.keeps_slashes()
            && !(builtin.aggregator && rest.contains('/'));
        let usable = builtin.auth == Auth::OptionalKey || self.has_key(builtin);
        (!part_of_name && usable).then_some(found)
    }

    /// A name of `model.aliases`.
    fn alias(&self, model: &str, passed: usize) -> Option<Result<RouteTarget, RouteError>> {
        let aliases = self.config.model.aliases.as_ref()?;
        let (_, value) = aliases
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(model))?;
        let text = |key: &str| {
            value
                .get(key)
                .and_then(serde_json::Value::as_str)
                .and_then(set)
        };
        let (named, explicit) = match value.as_str() {
            Some(name) => (name.to_owned(), ExplicitRoute::default()),
            None => (
                text("model")?,
                ExplicitRoute {
                    provider: text("provider"),
                    base_url: text("base_url"),
                    ..ExplicitRoute::default()
                },
            ),
        };
        // Without a provider, an alias that names itself is ignored.
        let placed = explicit.provider.is_some() || explicit.base_url.is_some();
        if named.eq_ignore_ascii_case(model) && !placed {
            return None;
        }
        if passed >= aliases.iter().count() {
            return Some(Err(RouteError::Invalid(format!(
                "model.aliases goes round in circles at {model:?}"
            ))));
        }
        Some(self.choose_through(Some(&named), &explicit, passed + 1))
    }

    /// The provider used if none is named. `None`: nothing is configured.
    fn current(&self) -> Result<Option<FoundProvider<'a>>, RouteError> {
        let configured = set(&self.config.model.provider)
            .or_else(|| self.env.get("HERMES_INFERENCE_PROVIDER").and_then(set))
            .filter(|name| !is_auto(name));
        if let Some(name) = configured {
            return self.find(&name).map(Some);
        }
        if set(&self.config.model.base_url).is_some() {
            return self.find("custom").map(Some);
        }
        Ok(self.automatic())
    }

    /// What the available keys suggest, in the order of the original.
    fn automatic(&self) -> Option<FoundProvider<'a>> {
        let builtin = |provider: &'static Provider| FoundProvider {
            builtin: Some(provider),
            own: self.custom.find(provider.id),
        };
        let with_key =
            |id: &str| providers::by_id(id).filter(|p| !self.env_keys(p, p.base_url).is_empty());
        let from_env = with_key("openrouter").or_else(|| with_key("openai-api"));
        let in_store = || {
            let pool = self.store.pool("openrouter", self.now).unwrap_or_default();
            (!pool.credentials.is_empty())
                .then(|| providers::by_id("openrouter"))
                .flatten()
        };
        let other = || {
            PROVIDERS
                .iter()
                .filter(|provider| provider.auto)
                .find(|provider| !self.env_keys(provider, provider.base_url).is_empty())
        };
        let login = || {
            let active = self.store.active_provider().ok().flatten();
            active
                .into_iter()
                .chain(self.store.providers().unwrap_or_default())
                .filter_map(|name| providers::find(&name))
                .find(|provider| provider.auto && self.has_key(provider))
        };
        from_env
            .or_else(in_store)
            .or_else(other)
            .or_else(login)
            .map(builtin)
            .or_else(|| self.only_custom_endpoint())
    }

    /// The only configured endpoint that is ready to use.
    fn only_custom_endpoint(&self) -> Option<FoundProvider<'a>> {
        let mut ready = self
            .custom
            .entries
            .iter()
            .filter(|own| own.base_url.is_some() && own.model.is_some());
        let own = ready.next()?;
        ready.next().is_none().then_some(FoundProvider {
            builtin: None,
            own: Some(own),
        })
    }

    fn find(&self, name: &str) -> Result<FoundProvider<'a>, RouteError> {
        let bare = name.trim();
        let own = self.custom.find(bare);
        if self.means_own_endpoint(bare) {
            let own = own.filter(|own| own.base_url.is_some());
            return Ok(FoundProvider {
                builtin: own.is_none().then(|| providers::by_id("custom")).flatten(),
                own,
            });
        }
        if let Some(builtin) = providers::by_id(bare) {
            return Ok(FoundProvider {
                builtin: Some(builtin),
                own,
            });
        }
        // A custom entry overrides an alias: an endpoint named "kimi" means that endpoint.
        if let Some(own) = own.filter(|own| own.base_url.is_some()) {
            return Ok(FoundProvider {
                builtin: None,
                own: Some(own),
            });
        }
        if let Some(builtin) = providers::find(bare) {
            return Ok(FoundProvider {
                builtin: Some(builtin),
                own: self.custom.find(builtin.id),
            });
        }
        if let Some(entry) = providers::unsupported(bare) {
            return Err(RouteError::Invalid(format!(
                "provider {} is not offered: {}",
                entry.id, entry.reason
            )));
        }
        Err(RouteError::UnknownProvider {
            name: bare.to_owned(),
            close: names::closest(bare, self.custom.names()),
        })
    }

    /// In the original `local` is another name for a custom endpoint. With an address it still
    /// means that.
    fn means_own_endpoint(&self, name: &str) -> bool {
        let names_local = |text: &str| text.trim().eq_ignore_ascii_case(local::PROVIDER);
        let entry = || self.custom.find(name)?.base_url.as_ref();
        let section = &self.config.model;
        names_local(name)
            && (entry().is_some()
                || (names_local(&section.provider) && set(&section.base_url).is_some()))
    }

    /// Combines a provider and a model.
    fn at(
        &self,
        found: FoundProvider<'a>,
        model: Option<&str>,
        explicit: &ExplicitRoute,
    ) -> Result<RouteTarget, RouteError> {
        let (provider, default_url) = match (found.builtin, found.own) {
            (Some(builtin), _) => (builtin.id.to_owned(), builtin.base_url),
            (None, Some(own)) => (format!("custom:{}", own.key), ""),
            (None, None) => ("custom".to_owned(), ""),
        };
        let in_model_section = self.is_configured(found);
        let (base_url, moved) = self.base_url(found, explicit, in_model_section, default_url)?;
        let own = found.own.or_else(|| self.custom.at_url(&base_url));
        let format = self.format(found, own, explicit, in_model_section, &base_url)?;
        let model = self.model(found, own, model, in_model_section)?;
        Ok(RouteTarget {
            provider,
            builtin: found.builtin,
            own: own.cloned(),
            model,
            base_url,
            moved,
            format,
            from_model_section: in_model_section && explicit.base_url.is_none(),
            explicit_key: explicit.api_key.clone(),
            explicit_key_env: explicit.key_env.clone(),
            extras: explicit.extras.clone(),
        })
    }

    /// Whether this is the provider of the `model` section, whose other fields then apply to it.
    fn is_configured(&self, found: FoundProvider<'_>) -> bool {
        match set(&self.config.model.provider).filter(|name| !is_auto(name)) {
            Some(name) => self.find(&name).is_ok_and(|named| named.same(found)),
            // The section then belongs to whatever is chosen by default.
            None if set(&self.config.model.base_url).is_some() => found
                .builtin
                .is_some_and(|provider| provider.id == "custom"),
            None => self.automatic().is_some_and(|chosen| chosen.same(found)),
        }
    }

    /// The address, and whether it differs from the provider's own.
    fn base_url(
        &self,
        found: FoundProvider<'_>,
        explicit: &ExplicitRoute,
        in_model_section: bool,
        default_url: &str,
    ) -> Result<(String, bool), RouteError> {
        let configured = || {
            in_model_section
                .then(|| set(&self.config.model.base_url))
                .flatten()
                .filter(|url| !is_stale(url, found))
        };
        let from_env = || {
            let name = found.builtin?.url_env?;
            self.env.get(name).and_then(set)
        };
        let moved = explicit
            .base_url
            .clone()
            .or_else(|| found.own.and_then(|own| own.base_url.clone()))
            .or_else(configured)
            .or_else(from_env)
            .or_else(|| self.local_url(found.builtin));
        let url = match &moved {
            Some(url) => endpoint::tidy(url).to_owned(),
            None => default_url.to_owned(),
        };
        if url.is_empty() {
            return Err(RouteError::Invalid(
                "provider custom needs an address: set model.base_url (hermes config set model.base_url http://…)".to_owned(),
            ));
        }
        endpoint::validate(&url).map_err(RouteError::Invalid)?;
        let is_moved = moved.is_some() && url != default_url;
        Ok((compatible_path(found.builtin, url), is_moved))
    }

    fn local_url(&self, builtin: Option<&Provider>) -> Option<String> {
        match builtin?.id {
            "ollama" => self.ollama_host(),
            "custom" => self.env.get("CUSTOM_BASE_URL").and_then(set),
            _ => None,
        }
    }

    fn format(
        &self,
        found: FoundProvider<'_>,
        own: Option<&CustomProvider>,
        explicit: &ExplicitRoute,
        in_model_section: bool,
        base_url: &str,
    ) -> Result<WireFormat, RouteError> {
        let setting = explicit.api_mode.clone().or_else(|| {
            in_model_section
                .then(|| set(&self.config.model.api_mode))
                .flatten()
        });
        let implied = endpoint::format_of(base_url);
        let chosen = match setting {
            None => None,
            Some(text) => Some(endpoint::parse_format(&text).ok_or_else(|| {
                RouteError::Invalid(format!(
                    "model.api_mode {text:?} is unknown; use chat_completions, anthropic_messages or codex_responses"
                ))
            })?),
        };
        // The original writes this value for its own logins and leaves it behind after a switch.
        let left_behind = chosen == Some(WireFormat::Responses)
            && implied != Some(WireFormat::Responses)
            && own.is_none()
            && !endpoint::is_local(base_url)
            && found
                .builtin
                .is_none_or(|p| p.format != WireFormat::Responses);
        // Few servers support the responses format; a server set by a variable uses chat
        // completions.
        let of_provider = found.builtin.map(|builtin| {
            let elsewhere = builtin.format == WireFormat::Responses
                && !endpoint::accepts_key_of(base_url, builtin);
            if elsewhere {
                WireFormat::ChatCompletions
            } else {
                builtin.format
            }
        });
        Ok(own
            .and_then(|own| own.format)
            .or(chosen.filter(|_| !left_behind))
            .or(implied)
            .or(of_provider)
            .unwrap_or(WireFormat::ChatCompletions))
    }

    fn model(
        &self,
        found: FoundProvider<'_>,
        own: Option<&CustomProvider>,
        model: Option<&str>,
        in_model_section: bool,
    ) -> Result<String, RouteError> {
        let written = |own: Option<&CustomProvider>| own.and_then(|own| own.model.clone());
        let configured = in_model_section
            .then(|| set(&self.config.model.default))
            .flatten();
        let built_in = || {
            let section = self.config.local.as_ref()?;
            let names_local = found.builtin.is_some_and(|p| p.id == local::PROVIDER);
            set(&section.model).filter(|_| names_local)
        };
        let name = model
            .map(str::to_owned)
            .or_else(built_in)
            .or(configured)
            .or_else(|| written(found.own))
            .or_else(|| written(own))
            .or_else(|| Some(found.builtin?.default_model?.to_owned()))
            .ok_or_else(|| {
                RouteError::Invalid(
                    "no model is named: pass -m MODEL or set model.default (hermes model list --live shows what is there)"
                        .to_owned(),
                )
            })?;
        Ok(match found.builtin {
            Some(builtin) => names::native(builtin, &name),
            None => name,
        })
    }

    /// Whether a key for the provider exists anywhere.
    pub(super) fn has_key(&self, provider: &Provider) -> bool {
        self.any_key(provider).is_some()
    }

    /// The label of a key for the provider, wherever it is.
    pub(super) fn any_key(&self, provider: &Provider) -> Option<String> {
        let own = || {
            let entry = self.custom.find(provider.id)?;
            self.own_keys(entry).into_iter().next()
        };
        let stored = || {
            let pool = self.store.pool(provider.id, self.now).ok()?;
            pool.credentials.into_iter().next()
        };
        self.env_keys(provider, provider.base_url)
            .into_iter()
            .next()
            .or_else(own)
            .or_else(stored)
            .map(|key| key.label)
    }

    /// The address that `OLLAMA_HOST` means.
    pub(super) fn ollama_host(&self) -> Option<String> {
        self.env.get("OLLAMA_HOST").and_then(ollama_url)
    }

    /// The keys in the provider's variables that may be sent to `url`.
    pub(super) fn env_keys(&self, provider: &Provider, url: &str) -> Vec<Credential> {
        if !url.is_empty() && provider.local.is_none() && !endpoint::accepts_key_of(url, provider) {
            return Vec::new();
        }
        let mut keys: Vec<Credential> = provider
            .key_envs
            .iter()
            .filter_map(|name| self.env_key(provider.id, name))
            .filter(|key| provider.id != "openai-api" || !is_openrouter_key(&key.secret))
            .collect();
        // Older setups store an OpenRouter key under the name of OpenAI's.
        if provider.id == "openrouter" {
            keys.extend(
                self.env_key("openrouter", "OPENAI_API_KEY")
                    .filter(|key| is_openrouter_key(&key.secret)),
            );
        }
        keys
    }

    pub(super) fn env_key(&self, provider: &str, name: &str) -> Option<Credential> {
        let (secret, _) = self.env.credential(name)?;
        let label = format!("env:{name}");
        // A source that the person removed stays disabled, even if it is still set.
        let usable = is_usable_for(provider, secret.expose_secret())
            && !self.store.suppressed(provider).contains(&label);
        usable.then(|| Credential::new(label, secret))
    }

    /// The keys of a config entry.
    pub(super) fn own_keys(&self, own: &CustomProvider) -> Vec<Credential> {
        let written = own.api_key.expose();
        let inline = is_usable_for(&own.key, written).then(|| {
            Credential::new(
                format!("config:{}", own.key),
                SecretString::from(written.to_owned()),
            )
        });
        let named = own
            .key_env
            .as_deref()
            .and_then(|name| self.env_key(&own.key, name));
        named.into_iter().chain(inline).collect()
    }
}

/// A `model.base_url` left over from another provider must not receive this one's key.
fn is_stale(url: &str, found: FoundProvider<'_>) -> bool {
    let Some(builtin) = found
        .builtin
        .filter(|p| p.local.is_none() && p.id != "custom")
    else {
        return false;
    };
    let foreign = !endpoint::accepts_key_of(url, builtin)
        && PROVIDERS.iter().any(|other| {
            other.local.is_none()
                && !other.base_url.is_empty()
                && endpoint::accepts_key_of(url, other)
        });
    if foreign {
        tracing::warn!(
            provider = builtin.id,
            url,
            "model.base_url belongs to another provider; the provider's own address is used"
        );
    }
    foreign
}

fn is_auto(name: &str) -> bool {
    name.trim().is_empty() || name.trim().eq_ignore_ascii_case("auto")
}

fn is_openrouter_key(secret: &SecretString) -> bool {
    secret.expose_secret().starts_with("sk-or-")
}

/// `provider/model` together with the same provider named explicitly.
fn strip<'m>(model: &'m str, provider: &str) -> &'m str {
    match (model.split_once('/'), providers::find(provider)) {
        (Some((prefix, rest)), Some(builtin))
            if builtin.id.eq_ignore_ascii_case(prefix)
                && (rest.contains('/') || !builtin.aggregator) =>
        {
            rest
        }
        _ => model,
    }
}

/// `OLLAMA_HOST` as Ollama reads it: host, host:port or URL.
fn ollama_url(text: &str) -> Option<String> {
    let text = set(text)?;
    let with_scheme = if text.contains("://") {
        text
    } else {
        format!("http://{text}")
    };
    let mut url = url::Url::parse(&with_scheme).ok()?;
    if url.port().is_none() && url.scheme() == "http" {
        url.set_port(Some(11434)).ok()?;
    }
    if url.host_str() == Some("0.0.0.0") {
        url.set_host(Some("127.0.0.1")).ok()?;
    }
    if url.path() == "/" {
        url.set_path("/v1");
    }
    Some(url.as_str().trim_end_matches('/').to_owned())
}

/// Some providers have their OpenAI-compatible interface under a path of its own.
fn compatible_path(builtin: Option<&Provider>, url: String) -> String {
    let Some(builtin) = builtin else {
        return url;
    };
    let bare = builtin.local == Some(LocalServer::Ollama)
        && url::Url::parse(&url).is_ok_and(|u| u.path() == "/");
    if bare {
        return format!("{url}/v1");
    }
    let native_gemini = builtin.id == "gemini"
        && endpoint::host_is_under(&url, "googleapis.com")
        && !url.contains("/openai");
    if native_gemini {
        format!("{url}/openai")
    } else {
        url
    }
}
