//! The keys of a target, from all sources.

use secrecy::{ExposeSecret as _, SecretString};

use super::Router;
use super::resolve::Resolver;
use super::state::KeySlot;
use super::target::RouteTarget;
use crate::credentials::store::StoredPool;
use crate::credentials::{Credential, KeyPool, RotationStrategy, is_usable_for};
use crate::providers::{PROVIDERS, Provider, endpoint};

impl Router {
    /// Collects the keys: given for this target, from the config, from auth.json, from the
    /// environment. Each secret once.
    pub(super) fn open_pool(&self, target: &RouteTarget) -> KeySlot {
        let resolver = self.resolver();
        let stored = self
            .store
            .pool(&target.pool_key(), resolver.now)
            .unwrap_or_else(|error| {
                tracing::warn!(%error, "stored keys are not used");
                StoredPool::default()
            });
        let path = (!stored.path.as_os_str().is_empty()).then(|| stored.path.clone());
        let mut keys = Vec::new();
        let given = given(target, &resolver);
        let only_given = !given.is_empty();
        add(&mut keys, given);
        if !only_given {
            add(&mut keys, self.configured_keys(target, &resolver));
            add(&mut keys, stored.credentials.clone());
            add(&mut keys, environment(target, &resolver));
        }
        for key in &mut keys {
            if let Some(state) = stored.state_of(&key.label, key.secret.expose_secret()) {
                key.id.clone_from(&state.id);
                key.status = state.status;
                key.request_count = state.request_count;
                key.stored = true;
            }
        }
        KeySlot {
            pool: KeyPool::new(self.strategy(&target.pool_key()), keys),
            path,
        }
    }

    fn strategy(&self, pool: &str) -> RotationStrategy {
        let strategies = &self.deps.config.credential_pool_strategies;
        let Some(word) = strategies.get(pool) else {
            return RotationStrategy::default();
        };
        RotationStrategy::parse(word).unwrap_or_else(|| {
            tracing::warn!(
                provider = pool,
                strategy = word.as_str(),
                "unknown strategy for keys; fill_first is used"
            );
            RotationStrategy::default()
        })
    }

    /// Keys of the `model` section and of the provider's own entry.
    fn configured_keys(&self, target: &RouteTarget, resolver: &Resolver<'_>) -> Vec<Credential> {
        let mut keys = Vec::new();
        let model = &self.deps.config.model;
        if target.from_model_section {
            let written = model.api_key.expose();
            if is_usable_for(&target.provider, written) {
                keys.push(Credential::new(
                    "model_config",
                    SecretString::from(written.to_owned()),
                ));
            }
            let named = model
                .key_env
                .as_deref()
                .filter(|name| !name.trim().is_empty());
            keys.extend(named.and_then(|name| resolver.env_key(&target.provider, name.trim())));
        }
        if let Some(own) = &target.own {
            keys.extend(resolver.own_keys(own));
        }
        keys
    }
}

fn given(target: &RouteTarget, resolver: &Resolver<'_>) -> Vec<Credential> {
    let key = target
        .explicit_key
        .as_ref()
        .filter(|key| is_usable_for(&target.provider, key.expose_secret()))
        .map(|key| Credential::new("given", key.clone()));
    let named = target
        .explicit_key_env
        .as_deref()
        .and_then(|name| resolver.env_key(&target.provider, name));
    key.into_iter().chain(named).collect()
}

/// A provider's key is sent to its own hosts, and to an address that the user configured for this
/// provider, unless that address belongs to another one. A custom endpoint only gets keys of its
/// host.
fn environment(target: &RouteTarget, resolver: &Resolver<'_>) -> Vec<Credential> {
    let url = &target.base_url;
    let takes = |provider: &Provider| {
        provider.local.is_none()
            && !provider.base_url.is_empty()
            && endpoint::accepts_key_of(url, provider)
    };
    if let Some(provider) = target.builtin.filter(|provider| provider.id != "custom") {
        let own = takes(provider) || provider.local.is_some();
        let foreign = PROVIDERS.iter().any(takes);
        return if own || !foreign {
            resolver.env_keys(provider, provider.base_url)
        } else {
            Vec::new()
        };
    }
    let mut keys: Vec<Credential> = PROVIDERS
        .iter()
        .filter(|provider| takes(provider))
        .flat_map(|provider| resolver.env_keys(provider, url))
        .collect();
    let conventional = endpoint::conventional_key_env(url);
    keys.extend(conventional.and_then(|name| resolver.env_key(&target.provider, &name)));
    keys
}

fn add(keys: &mut Vec<Credential>, more: Vec<Credential>) {
    for mut key in more {
        if keys.iter().any(|known| known.same_secret(&key.secret)) {
            continue;
        }
        // A label identifies its key in routes, so it must be unique.
        if keys.iter().any(|known| known.label == key.label) {
            key.label = format!("{}#{}", key.label, key.id);
        }
        keys.push(key);
    }
}
