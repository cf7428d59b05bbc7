//! Chooses the client of a call: the primary route, other keys, the fallback chain, auxiliary
//! models.
//!
//! Nothing here waits for the network, except for one short query to a local server whose window is
//! unknown (see [`crate::context`]).

mod auxiliary;
mod build;
mod built_in;
mod connect;
mod keys;
mod known;
mod lists;
mod resolve;
mod state;
mod target;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::TimeDelta;
use hermes_config::Config;
use hermes_config::env::Env;
use hermes_config::home::Home;
use hermes_core::clock::{Clock, Rng};
use hermes_core::model::{ErrorClass, ModelClient, ModelError, ModelRouter, Route, RouteError};
use secrecy::SecretString;

use crate::context::ContextCache;
use crate::credentials::store::AuthStore;
use crate::credentials::{Credential, KeyFailure};
use crate::optional::FieldRuleCache;
use crate::providers::custom::{CustomProviders, set};
use crate::providers::{Auth, endpoint};
use resolve::Resolver;
use state::RouterState;
use target::{ExplicitRoute, RequestExtras, RouteTarget};

pub use lists::{LiveError, ProviderStatus};

/// How long the primary route is paused after a rate limit or billing error.
const COOLDOWN: TimeDelta = TimeDelta::seconds(60);
/// How long it is paused if the whole chain failed.
const CHAIN_COOLDOWN: TimeDelta = TimeDelta::seconds(5);
/// How long auxiliary calls avoid a provider with billing problems.
const BILLING_COOLDOWN: TimeDelta = TimeDelta::seconds(600);

/// Dependencies of a router.
pub struct RouterDeps {
    pub config: Arc<Config>,
    pub env: Arc<Env>,
    pub home: Home,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
}

/// Overrides from the command line.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `model` or `provider/model`.
    pub model: Option<String>,
    pub provider: Option<String>,
    pub base_url: Option<String>,
    pub api_key: Option<SecretString>,
}

/// The router of one process.
pub struct Router {
    deps: RouterDeps,
    overrides: Overrides,
    custom: CustomProviders,
    store: AuthStore,
    book: Arc<ContextCache>,
    fields: Arc<FieldRuleCache>,
    http: build::RouteHttpClients,
    built_in: built_in::BuiltInModels,
    known: known::RouteFactsCache,
    state: Mutex<RouterState>,
}

impl Router {
    /// Cheap: reads no file and opens no connection.
    pub fn new(deps: RouterDeps, overrides: Overrides) -> Self {
        Self {
            custom: CustomProviders::read(&deps.config),
            store: AuthStore::new(&deps.home),
            book: Arc::new(ContextCache::new(&deps.home)),
            fields: Arc::new(FieldRuleCache::new(&deps.home)),
            http: build::RouteHttpClients::new(&deps.config, &deps.env),
            built_in: built_in::BuiltInModels::default(),
            known: known::RouteFactsCache::default(),
            state: Mutex::default(),
            deps,
            overrides,
        }
    }

    /// Entries of `providers` and `custom_providers` that were not understood.
    pub fn problems(&self) -> &[String] {
        &self.custom.problems
    }

    /// The route a turn would start on. Fails as the turn would if nothing is configured or the key
    /// is missing; no key is chosen yet.
    pub fn describe(&self) -> Result<Route, RouteError> {
        let target = self.primary_target()?;
        let no_key = {
            let mut state = self.state();
            state
                .slot(&target.slot_key(), || self.open_pool(&target))
                .pool
                .is_empty()
        };
        if no_key && needs_key(&target) {
            return Err(self.unless_unreadable(missing_key(&target)));
        }
        Ok(build::route(&target, None))
    }

    /// `error`, unless the stored keys cannot be read, which is then the real problem.
    fn unless_unreadable(&self, error: RouteError) -> RouteError {
        match self.store.active_provider() {
            Ok(_) => error,
            Err(broken) => RouteError::Invalid(format!("the stored keys are not used: {broken}")),
        }
    }

    fn resolver(&self) -> Resolver<'_> {
        Resolver {
            config: &self.deps.config,
            env: &self.deps.env,
            custom: &self.custom,
            store: &self.store,
            now: self.deps.clock.now(),
        }
    }

    fn state(&self) -> MutexGuard<'_, RouterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolved once; `switch` replaces it.
    fn primary_target(&self) -> Result<RouteTarget, RouteError> {
        if let Some(target) = &self.state().primary {
            return Ok(target.clone());
        }
        let overrides = &self.overrides;
        let explicit = ExplicitRoute {
            provider: overrides.provider.clone(),
            base_url: overrides.base_url.clone(),
            api_key: overrides.api_key.clone(),
            ..ExplicitRoute::default()
        };
        let from_env = self.deps.env.get("HERMES_INFERENCE_MODEL").and_then(set);
        let model = overrides.model.clone().or(from_env);
        let target = self
            .resolver()
            .choose(model.as_deref(), &explicit)
            .map_err(|error| match error {
                RouteError::NothingConfigured => self.unless_unreadable(error),
                other => other,
            })?;
        self.state().primary = Some(target.clone());
        Ok(target)
    }

    /// The usable steps of the fallback chain. A step that cannot be resolved is reported once per
    /// call and skipped.
    fn chain(&self) -> Vec<RouteTarget> {
        let resolver = self.resolver();
        let resolve = |step: &hermes_config::schema::Fallback| {
            let key = step.api_key.expose();
            let explicit = ExplicitRoute {
                provider: set(&step.provider),
                base_url: set(&step.base_url),
                api_key: (!key.is_empty()).then(|| SecretString::from(key.to_owned())),
                key_env: set(&step.key_env),
                api_mode: set(&step.api_mode),
                extras: RequestExtras {
                    context_length: step.context_length,
                    max_tokens: step.max_tokens,
                    headers: step
                        .extra_headers
                        .iter()
                        .flat_map(hermes_config::schema::Named::iter)
                        .map(|(name, value)| (name.to_owned(), value.clone()))
                        .collect(),
                    body: step.extra_body.clone().unwrap_or_default(),
                },
            };
            resolver.choose(Some(&step.model), &explicit)
        };
        self.deps
            .config
            .fallbacks()
            .iter()
            .filter_map(|step| match resolve(step) {
                Ok(target) => Some(target),
                Err(error) => {
                    tracing::warn!(provider = step.provider, model = step.model, %error, "fallback left out");
                    None
                }
            })
            .collect()
    }

    /// A client for the target with the next key.
    fn client(&self, target: &RouteTarget) -> Result<Arc<dyn ModelClient>, RouteError> {
        self.client_within(target, None)
    }

    /// The same with a limit on the whole call.
    fn client_within(
        &self,
        target: &RouteTarget,
        within: Option<Duration>,
    ) -> Result<Arc<dyn ModelClient>, RouteError> {
        let credential = self.credential(target)?;
        self.connect(target, credential.as_ref(), within)
    }

    /// The next key of the target's pool. `Ok(None)`: it works without one.
    fn credential(&self, target: &RouteTarget) -> Result<Option<Credential>, RouteError> {
        let now = self.deps.clock.now();
        let mut state = self.state();
        let slot = state.slot(&target.slot_key(), || self.open_pool(target));
        match slot.pool.select(now, &*self.deps.rng) {
            Some(credential) => Ok(Some(credential)),
            None if !slot.pool.is_empty() => Err(RouteError::Invalid(format!(
                "every key of {} was revoked; add a new one",
                target.provider
            ))),
            None if needs_key(target) => Err(self.unless_unreadable(missing_key(target))),
            None => Ok(None),
        }
    }

    /// Pauses the key that failed, here and in auth.json.
    fn mark(&self, target: &RouteTarget, label: &str, failure: &KeyFailure) {
        let now = self.deps.clock.now();
        let (credential, path) = {
            let mut state = self.state();
            let slot = state.slot(&target.slot_key(), || self.open_pool(target));
            let Some(credential) = slot.pool.mark(label, failure, now) else {
                return;
            };
            (credential.clone(), slot.path.clone())
        };
        let Some(path) = path.filter(|_| credential.stored) else {
            return;
        };
        let saved =
            self.store
                .save_state(&path, &target.pool_key(), &credential, Some(failure), now);
        if let Err(error) = saved {
            tracing::warn!(%error, "the state of a key was not stored");
        }
    }

    /// The target a route came from.
    fn target_of(&self, route: &Route) -> Option<RouteTarget> {
        self.state().used(route)
    }

    fn note_failure(&self, target: &RouteTarget, error: &ModelError) {
        let now = self.deps.clock.now();
        let mut state = self.state();
        if matches!(error.class, ErrorClass::RateLimit | ErrorClass::Billing) {
            state.rest(target, now + COOLDOWN);
        }
        if error.class == ErrorClass::Billing {
            state.avoid(&target.provider, now + BILLING_COOLDOWN);
        }
    }
}

fn needs_key(target: &RouteTarget) -> bool {
    target.builtin.is_some_and(|provider| {
        provider.auth != Auth::OptionalKey && !endpoint::is_local(&target.base_url)
    })
}

fn missing_key(target: &RouteTarget) -> RouteError {
    let builtin = target
        .builtin
        .and_then(|provider| provider.key_envs.first());
    let env = match (&target.explicit_key_env, builtin) {
        (Some(name), _) => name.clone(),
        (None, Some(name)) => (*name).to_owned(),
        (None, None) => "an API key".to_owned(),
    };
    RouteError::MissingKey {
        provider: target.provider.clone(),
        env,
    }
}

impl ModelRouter for Router {
    fn primary(&self) -> Result<Arc<dyn ModelClient>, RouteError> {
        let target = self.primary_target()?;
        let now = self.deps.clock.now();
        if self.state().is_cooling_down(&target, now) {
            let awake = self
                .chain()
                .into_iter()
                .filter(|step| !self.state().is_cooling_down(step, now));
            for step in awake {
                if let Ok(client) = self.client(&step) {
                    return Ok(client);
                }
            }
        }
        self.client(&target)
    }

    fn rotate(&self, failed: &Route, error: &ModelError) -> Option<Arc<dyn ModelClient>> {
        let target = self.target_of(failed)?;
        let now = self.deps.clock.now();
        let failure = KeyFailure::from_error(error, now)?;
        let label = failed.credential.as_deref()?;
        if error.class == ErrorClass::Billing {
            self.state().avoid(&target.provider, now + BILLING_COOLDOWN);
        }
        self.mark(&target, label, &failure);
        let next = {
            let mut state = self.state();
            let slot = state.slot(&target.slot_key(), || self.open_pool(&target));
            slot.pool.rotate(label, now, &*self.deps.rng)?
        };
        tracing::info!(
            provider = target.provider,
            from = label,
            to = next.label,
            "another key takes over"
        );
        self.connect(&target, Some(&next), None).ok()
    }

    fn fallback(&self, failed: &Route, error: &ModelError) -> Option<Arc<dyn ModelClient>> {
        let target = self.target_of(failed)?;
        self.note_failure(&target, error);
        let now = self.deps.clock.now();
        let chain = self.chain();
        let is_failed =
            |step: &RouteTarget| step.is_same(&target.provider, &target.model, &target.base_url);
        let from = chain
            .iter()
            .position(is_failed)
            .map_or(0, |index| index + 1);
        let primary = self.state().primary.clone();
        for step in &chain[from..] {
            let is_primary = primary.as_ref().is_some_and(|primary| {
                primary.is_same(&step.provider, &step.model, &step.base_url)
            });
            if is_failed(step) || is_primary || self.state().is_cooling_down(step, now) {
                continue;
            }
            match self.client(step) {
                Ok(client) => {
                    tracing::info!(provider = step.provider, model = step.model, "falling back");
                    return Some(client);
                }
                Err(error) => tracing::warn!(provider = step.provider, %error, "fallback left out"),
            }
        }
        if let (Some(primary), false) = (primary, chain.is_empty()) {
            self.state().rest(&primary, now + CHAIN_COOLDOWN);
        }
        None
    }

    fn auxiliary(&self, task: &str) -> Result<Arc<dyn ModelClient>, RouteError> {
        self.helper(task)
    }

    fn switch(
        &self,
        model: &str,
        provider: Option<&str>,
    ) -> Result<Arc<dyn ModelClient>, RouteError> {
        let explicit = ExplicitRoute {
            provider: provider.map(str::to_owned),
            ..ExplicitRoute::default()
        };
        let target = self.resolver().choose(Some(model), &explicit)?;
        let client = self.client(&target)?;
        let mut state = self.state();
        state.end_cooldown(&target);
        state.primary = Some(target);
        Ok(client)
    }
}
