//! Providers as data: address, wire format, source of the key.
//!
//! [`table::PROVIDERS`] is the built-in list; [`custom`] adds and overrides entries from
//! config.yaml; [`endpoint`] holds the rules that follow from a URL alone.

pub(crate) mod custom;
pub mod endpoint;
pub(crate) mod names;
pub(crate) mod profile;
mod table;

use hermes_core::model::WireFormat;

pub use table::{PROVIDERS, UNSUPPORTED};

/// A built-in provider.
#[derive(Debug)]
pub struct Provider {
    pub id: &'static str,
    /// Display name.
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub format: WireFormat,
    /// Empty: there is no common address, the config must set one.
    pub base_url: &'static str,
    /// Variables that may hold the key, in order of preference.
    pub key_envs: &'static [&'static str],
    /// The variable that overrides the endpoint.
    pub url_env: Option<&'static str>,
    pub auth: Auth,
    /// Whether a key in the environment is enough to choose this provider.
    pub auto: bool,
    /// Resells models of others under `vendor/model` names.
    pub aggregator: bool,
    /// The model used if only a key is known.
    pub default_model: Option<&'static str>,
    /// The cheap model for auxiliary calls.
    pub aux_model: Option<&'static str>,
    /// Whether `GET /models` works with a valid key.
    pub lists_models: bool,
    pub local: Option<LocalServer>,
}

/// How a provider authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// A key is needed.
    Key,
    /// A key is sent when there is one (servers on the own network).
    OptionalKey,
    /// The provider's own login, stored in auth.json by the provider's own flow, or a key.
    Login,
}

/// A kind of self-hosted model server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalServer {
    Ollama,
    LmStudio,
    LlamaCpp,
    Vllm,
    /// The bundled program ([`crate::local`]).
    BuiltIn,
}

/// A provider of the Python original that is deliberately absent here.
#[derive(Debug)]
pub struct Unsupported {
    pub id: &'static str,
    pub aliases: &'static [&'static str],
    /// Why, and what to use instead.
    pub reason: &'static str,
}

/// The built-in provider of that id or alias, any case.
pub fn find(name: &str) -> Option<&'static Provider> {
    let name = name.trim();
    by_id(name).or_else(|| {
        PROVIDERS
            .iter()
            .find(|provider| contains(provider.aliases, name))
    })
}

/// The built-in provider of exactly that id.
pub fn by_id(id: &str) -> Option<&'static Provider> {
    PROVIDERS
        .iter()
        .find(|provider| provider.id.eq_ignore_ascii_case(id.trim()))
}

/// Why a provider known to the Python original is not offered.
pub fn unsupported(name: &str) -> Option<&'static Unsupported> {
    let name = name.trim();
    UNSUPPORTED
        .iter()
        .find(|entry| entry.id.eq_ignore_ascii_case(name) || contains(entry.aliases, name))
}

fn contains(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_and_aliases_are_unique_and_lower_case() {
        let mut seen = HashSet::new();
        let supported = PROVIDERS
            .iter()
            .flat_map(|p| std::iter::once(p.id).chain(p.aliases.iter().copied()));
        let absent = UNSUPPORTED
            .iter()
            .flat_map(|p| std::iter::once(p.id).chain(p.aliases.iter().copied()));
        for name in supported.chain(absent) {
            assert_eq!(name, name.to_lowercase());
            assert!(seen.insert(name), "{name} is listed twice");
        }
    }

    #[test]
    fn every_entry_is_complete() {
        for provider in PROVIDERS {
            let id = provider.id;
            if !provider.base_url.is_empty() {
                let url = url::Url::parse(provider.base_url).expect(id);
                assert!(!provider.base_url.ends_with('/'), "{id}");
                assert_eq!(url.scheme() == "http", provider.local.is_some(), "{id}");
            }
            if provider.auth == Auth::Key {
                assert!(!provider.key_envs.is_empty(), "{id} has no key variable");
            }
            if provider.auto {
                assert!(!provider.key_envs.is_empty(), "{id} cannot be auto-chosen");
                assert!(
                    provider.default_model.is_some(),
                    "{id} needs a default model"
                );
            }
        }
    }

    #[test]
    fn names_resolve_in_any_case() {
        for (name, id) in [
            ("OR", "openrouter"),
            ("glm", "zai"),
            ("z.ai", "zai"),
            ("Kimi", "kimi-coding"),
            ("moonshot-cn", "kimi-coding-cn"),
            ("hf", "huggingface"),
            ("claude", "anthropic"),
            ("openai", "openai-api"),
            ("google", "gemini"),
            ("grok", "xai"),
            ("mimo", "xiaomi"),
            ("nim", "nvidia"),
            ("lm-studio", "lmstudio"),
            ("llama.cpp", "llamacpp"),
            ("local", "local"),
            ("hermes-local", "local"),
            ("dashscope", "alibaba"),
        ] {
            assert_eq!(find(name).map(|p| p.id), Some(id), "{name}");
        }
        assert!(find("nosuch").is_none());
        assert!(unsupported("codex").is_some());
    }
}
