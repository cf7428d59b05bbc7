//! Which client a call goes through: the primary route, other keys, the fallback chain, helpers.
//!
//! Nothing here waits for the network, except for one short question to a local server whose
//! window nobody knows (see [`crate::context`]).

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

use crate::context::ContextBook;
use crate::credentials::store::AuthStore;
use crate::credentials::{Credential, Failure};
use crate::optional::FieldBook;
use crate::providers::custom::{CustomProviders, set};
use crate::providers::{Auth, endpoint};
use resolve::Resolver;
use state::State;
use target::{Explicit, Extras, Target};

pub use lists::{LiveError, ProviderStatus};

/// How long the primary route rests after it was refused for its rate or its bill.
const COOLDOWN: TimeDelta = TimeDelta::seconds(60);
/// How long it rests when the whole chain failed.
const CHAIN_COOLDOWN: TimeDelta = TimeDelta::seconds(5);
/// How long helpers avoid a provider that wants money.
const SHUN: TimeDelta = TimeDelta::seconds(600);

/// What a router is made of.
pub struct RouterDeps {
    pub config: Arc<Config>,
    pub env: Arc<Env>,
    pub home: Home,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
}

/// What the command line fixed.
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
    book: Arc<ContextBook>,
    fields: Arc<FieldBook>,
    http: build::Clients,
    built_in: built_in::BuiltIn,
    known: known::Book,
    state: Mutex<State>,
}

impl Router {
    /// Cheap: reads no file and opens no connection.
    pub fn new(deps: RouterDeps, overrides: Overrides) -> Self {
        Self {
            custom: CustomProviders::read(&deps.config),
            store: AuthStore::new(&deps.home),
            book: Arc::new(ContextBook::new(&deps.home)),
            fields: Arc::new(FieldBook::new(&deps.home)),
            http: build::Clients::new(&deps.config, &deps.env),
            built_in: built_in::BuiltIn::default(),
            known: known::Book::default(),
            state: Mutex::default(),
            deps,
            overrides,
        }
    }

    /// Entries of `providers` and `custom_providers` that were not understood.
    pub fn problems(&self) -> &[String] {
        &self.custom.problems
    }

    /// The route a turn would start on. Fails as the turn would when nothing is configured or the
    /// key is missing; no key is chosen yet.
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

    /// `error`, unless the stored keys cannot be read: then that is what is wrong.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolved once; `switch` replaces it.
    fn primary_target(&self) -> Result<Target, RouteError> {
        if let Some(target) = &self.state().primary {
            return Ok(target.clone());
        }
        let overrides = &self.overrides;
        let explicit = Explicit {
            provider: overrides.provider.clone(),
            base_url: overrides.base_url.clone(),
            api_key: overrides.api_key.clone(),
            ..Explicit::default()
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
    /// call and left out.
    fn chain(&self) -> Vec<Target> {
        let resolver = self.resolver();
        let resolve = |step: &hermes_config::schema::Fallback| {
            let key = step.api_key.expose();
            let explicit = Explicit {
                provider: set(&step.provider),
                base_url: set(&step.base_url),
                api_key: (!key.is_empty()).then(|| SecretString::from(key.to_owned())),
                key_env: set(&step.key_env),
                api_mode: set(&step.api_mode),
                extras: Extras {
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

    /// A client for the target with the key that is its turn.
    fn client(&self, target: &Target) -> Result<Arc<dyn ModelClient>, RouteError> {
        self.client_within(target, None)
    }

    /// The same with a limit on the whole call.
    fn client_within(
        &self,
        target: &Target,
        within: Option<Duration>,
    ) -> Result<Arc<dyn ModelClient>, RouteError> {
        let credential = self.credential(target)?;
        self.connect(target, credential.as_ref(), within)
    }

    /// The next key of the target's pool. `Ok(None)`: it works without one.
    fn credential(&self, target: &Target) -> Result<Option<Credential>, RouteError> {
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

    /// Rests the key that failed, here and in auth.json.
    fn mark(&self, target: &Target, label: &str, failure: &Failure) {
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
    fn target_of(&self, route: &Route) -> Option<Target> {
        self.state().used(route)
    }

    fn note_failure(&self, target: &Target, error: &ModelError) {
        let now = self.deps.clock.now();
        let mut state = self.state();
        if matches!(error.class, ErrorClass::RateLimit | ErrorClass::Billing) {
            state.rest(target, now + COOLDOWN);
        }
        if error.class == ErrorClass::Billing {
            state.shun(&target.provider, now + SHUN);
        }
    }
}

fn needs_key(target: &Target) -> bool {
    target.builtin.is_some_and(|provider| {
        provider.auth != Auth::OptionalKey && !endpoint::is_local(&target.base_url)
    })
}

fn missing_key(target: &Target) -> RouteError {
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
        if self.state().rests(&target, now) {
            let awake = self
                .chain()
                .into_iter()
                .filter(|step| !self.state().rests(step, now));
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
        let failure = Failure::of(error, now)?;
        let label = failed.credential.as_deref()?;
        if error.class == ErrorClass::Billing {
            self.state().shun(&target.provider, now + SHUN);
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
            |step: &Target| step.is_same(&target.provider, &target.model, &target.base_url);
        let from = chain
            .iter()
            .position(is_failed)
            .map_or(0, |index| index + 1);
        let primary = self.state().primary.clone();
        for step in &chain[from..] {
            let is_primary = primary.as_ref().is_some_and(|primary| {
                primary.is_same(&step.provider, &step.model, &step.base_url)
            });
            if is_failed(step) || is_primary || self.state().rests(step, now) {
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
        let explicit = Explicit {
            provider: provider.map(str::to_owned),
            ..Explicit::default()
        };
        let target = self.resolver().choose(Some(model), &explicit)?;
        let client = self.client(&target)?;
        let mut state = self.state();
        state.wake(&target);
        state.primary = Some(target);
        Ok(client)
    }
}
