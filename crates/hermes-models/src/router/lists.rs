//! Available choices: providers with their keys, models of a provider, servers on this machine.

use std::time::Duration;

use hermes_core::model::{Route, RouteError};
use hermes_http::HttpSettings;
use secrecy::SecretString;

use super::Router;
use super::build::route;
use super::target::{ExplicitRoute, RouteTarget};
use crate::live::{
    self, CONNECT_TIMEOUT, ListError, ListedModel, LocalProbe, LocalServerInfo, ModelEndpoint,
    PROBE_TIMEOUT,
};
use crate::providers::{self, Auth, LocalServer, PROVIDERS};

/// A provider and whether it can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderStatus {
    /// The value for `--provider`.
    pub id: String,
    pub name: String,
    pub base_url: String,
    /// The label of its key, if it has one.
    pub key: Option<String>,
    /// The variable to set for a key, if one is needed.
    pub key_env: Option<&'static str>,
    pub default_model: Option<String>,
    /// A self-hosted server; no key is needed.
    pub own: bool,
    /// The one in use.
    pub current: bool,
}

/// No list of models is available.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error(transparent)]
    List(#[from] ListError),
    #[error(
        "{provider} refuses to list its models even to valid keys; hermes model list --provider {provider} shows those known here"
    )]
    NotListed { provider: &'static str },
}

impl Router {
    /// The route of a model and a provider, whether there is a key or not.
    pub fn resolve(
        &self,
        model: Option<&str>,
        provider: Option<&str>,
        base_url: Option<&str>,
    ) -> Result<Route, RouteError> {
        let explicit = ExplicitRoute {
            provider: provider.map(str::to_owned),
            base_url: base_url.map(str::to_owned),
            ..ExplicitRoute::default()
        };
        let target = self.resolver().choose(model, &explicit)?;
        Ok(route(&target, None))
    }

    /// Every provider: those of the config first, then the built-in ones.
    pub fn providers(&self) -> Vec<ProviderStatus> {
        let current = self
            .primary_target()
            .map(|target| target.provider)
            .unwrap_or_default();
        let resolver = self.resolver();
        let own = self.custom.entries.iter().filter_map(|entry| {
            let base_url = entry.base_url.clone()?;
            let id = match providers::by_id(&entry.key) {
                Some(known) if known.id != crate::local::PROVIDER => return None,
                _ => format!("custom:{}", entry.key),
            };
            Some(ProviderStatus {
                current: id == current,
                name: entry.name.clone(),
                base_url,
                key: resolver
                    .own_keys(entry)
                    .first()
                    .map(|key| key.label.clone()),
                key_env: None,
                default_model: entry.model.clone(),
                own: true,
                id,
            })
        });
        let builtin = PROVIDERS.iter().map(|provider| {
            let settings = self.custom.find(provider.id);
            let moved = settings.and_then(|entry| entry.base_url.clone());
            ProviderStatus {
                id: provider.id.to_owned(),
                name: provider.name.to_owned(),
                base_url: moved.unwrap_or_else(|| provider.base_url.to_owned()),
                key: resolver.any_key(provider),
                key_env: (provider.auth != Auth::OptionalKey)
                    .then(|| provider.key_envs.first().copied())
                    .flatten(),
                default_model: provider.default_model.map(str::to_owned),
                own: provider.auth == Auth::OptionalKey,
                current: provider.id == current,
            }
        });
        own.chain(builtin).collect()
    }

    /// Queries a provider (the current one by default) for its models.
    pub async fn live_models(
        &self,
        provider: Option<&str>,
        within: Duration,
    ) -> Result<Vec<ListedModel>, LiveError> {
        let explicit = ExplicitRoute {
            provider: provider.map(str::to_owned),
            ..ExplicitRoute::default()
        };
        // The list does not depend on a model, so a missing model name must not prevent it.
        let target = match provider {
            None => self.primary_target()?,
            Some(_) => self.resolver().choose(Some("-"), &explicit)?,
        };
        if let Some(provider) = target.builtin.filter(|p| !p.lists_models && !target.moved) {
            return Err(LiveError::NotListed {
                provider: provider.id,
            });
        }
        self.list_of(target, within).await
    }

    /// Queries a provider for its models with this key, to check whether the key is accepted. A
    /// custom address is used with the provider's format.
    pub async fn models_with_key(
        &self,
        provider: &str,
        base_url: Option<&str>,
        key: SecretString,
        within: Duration,
    ) -> Result<Vec<ListedModel>, LiveError> {
        let explicit = ExplicitRoute {
            provider: Some(provider.to_owned()),
            base_url: base_url.map(str::to_owned),
            api_key: Some(key),
            ..ExplicitRoute::default()
        };
        let target = self.resolver().choose(Some("-"), &explicit)?;
        if let Some(provider) = target.builtin.filter(|p| !p.lists_models && !target.moved) {
            return Err(LiveError::NotListed {
                provider: provider.id,
            });
        }
        self.list_of(target, within).await
    }

    /// Where auth.json keeps the keys of a provider, and the address they are for.
    pub fn pool_of(&self, provider: &str) -> Result<(String, String), RouteError> {
        let explicit = ExplicitRoute {
            provider: Some(provider.to_owned()),
            ..ExplicitRoute::default()
        };
        let target = self.resolver().choose(Some("-"), &explicit)?;
        Ok((target.pool_key(), target.base_url))
    }

    async fn list_of(
        &self,
        target: RouteTarget,
        within: Duration,
    ) -> Result<Vec<ListedModel>, LiveError> {
        let credential = self.credential(&target)?;
        let route = route(&target, credential.as_ref());
        let quirks = providers::profile::quirks(
            &target.provider,
            &route.base_url,
            &target.model,
            route.format,
        );
        let endpoint = ModelEndpoint {
            base_url: route.base_url,
            format: route.format,
            auth: quirks.auth,
            key: credential.map(|credential| credential.secret),
            headers: quirks.headers,
        };
        let http = self.http.get(&target)?;
        Ok(live::models(&http, &endpoint, within).await?)
    }

    /// Model servers that answer on this machine.
    pub async fn local_servers(&self) -> Vec<LocalServerInfo> {
        self.local_servers_within(PROBE_TIMEOUT).await
    }

    /// Model servers that answer on this machine within this time.
    pub async fn local_servers_within(&self, within: Duration) -> Vec<LocalServerInfo> {
        let settings = HttpSettings {
            connect_timeout: CONNECT_TIMEOUT,
            ..HttpSettings::default()
        };
        let Ok(client) = hermes_http::client(&settings) else {
            return Vec::new();
        };
        live::discover(&client, self.local_candidates(), within).await
    }

    /// The addresses of such servers.
    pub fn local_candidates(&self) -> Vec<(LocalServer, String)> {
        live::candidates(self.resolver().ollama_host().as_deref())
    }

    /// What a server on this machine says of one of its models.
    pub async fn local_probe(
        &self,
        server: LocalServer,
        base_url: &str,
        model: &str,
    ) -> Option<LocalProbe> {
        let settings = HttpSettings {
            connect_timeout: CONNECT_TIMEOUT,
            ..HttpSettings::default()
        };
        let client = hermes_http::client(&settings).ok()?;
        live::probe(&client, Some(server), base_url, model, None).await
    }
}
