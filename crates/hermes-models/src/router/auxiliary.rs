//! Routes for auxiliary calls: titles, summaries, approvals.

use std::sync::Arc;
use std::time::Duration;

use hermes_config::schema::AuxTask;
use hermes_core::model::{ModelClient, RouteError};
use secrecy::SecretString;

use super::Router;
use super::target::{ExplicitRoute, RequestExtras, RouteTarget};
use crate::providers::custom::set;
use crate::providers::{self, PROVIDERS, Provider};

/// Tried in this order if the main model's provider has billing problems.
const PREFERRED: &[&str] = &["openrouter", "nous", "anthropic"];

/// The task of describing images.
const VISION: &str = "vision";

impl Router {
    /// The client for `task`: as configured, else the main model, else a provider with a key.
    pub(super) fn helper(&self, task: &str) -> Result<Arc<dyn ModelClient>, RouteError> {
        let settings = self.deps.config.auxiliary.task(task);
        let within = Duration::from_secs(settings.timeout.max(1));
        if let Some(target) = self.configured(&settings) {
            match target.and_then(|target| self.client_within(&target, Some(within))) {
                Ok(client) => return Ok(client),
                Err(error) => {
                    tracing::warn!(task, %error, "the configured helper cannot be used; choosing another");
                }
            }
        }
        let main = self
            .primary_target()
            .map(|target| with_model(target, &settings));
        let now = self.deps.clock.now();
        // Describing an image requires a model with vision.
        let fits = |client: &Arc<dyn ModelClient>| task != VISION || client.info().images;
        if let Ok(target) = &main
            && !self.state().is_avoided(&target.provider, now)
            && let Ok(client) = self.client_within(target, Some(within))
            && fits(&client)
        {
            return Ok(client);
        }
        for provider in preferred() {
            if self.state().is_avoided(provider.id, now) || !self.resolver().has_key(provider) {
                continue;
            }
            let explicit = ExplicitRoute {
                provider: Some(provider.id.to_owned()),
                ..ExplicitRoute::default()
            };
            let target = self.resolver().choose(provider.aux_model, &explicit);
            if let Ok(client) = target.and_then(|target| self.client_within(&target, Some(within)))
                && fits(&client)
            {
                return Ok(client);
            }
        }
        // Nothing better: the main model, with its own error if there is none.
        self.client_within(&main?, Some(within))
    }

    fn configured(&self, settings: &AuxTask) -> Option<Result<RouteTarget, RouteError>> {
        let provider = set(&settings.provider).filter(|name| {
            !name.eq_ignore_ascii_case("auto") && !name.eq_ignore_ascii_case("main")
        });
        let base_url = set(&settings.base_url);
        if provider.is_none() && base_url.is_none() {
            return None;
        }
        let key = settings.api_key.expose();
        let named = provider.as_deref().and_then(providers::find);
        let explicit = ExplicitRoute {
            provider,
            base_url,
            api_key: (!key.is_empty()).then(|| SecretString::from(key.to_owned())),
            key_env: settings.key_env.as_deref().and_then(set),
            api_mode: settings.api_mode.as_deref().and_then(set),
            ..ExplicitRoute::default()
        };
        let model = set(&settings.model).or_else(|| named?.aux_model.map(str::to_owned));
        let target = self.resolver().choose(model.as_deref(), &explicit);
        Some(target.map(|target| with_extras(target, settings)))
    }
}

/// The main provider with the helper's own model.
fn with_model(mut target: RouteTarget, settings: &AuxTask) -> RouteTarget {
    if let Some(model) = set(&settings.model) {
        target.model = match target.builtin {
            Some(builtin) => providers::names::native(builtin, &model),
            None => model,
        };
    }
    with_extras(target, settings)
}

fn with_extras(mut target: RouteTarget, settings: &AuxTask) -> RouteTarget {
    target.extras = RequestExtras {
        context_length: settings.context_length,
        max_tokens: settings.max_tokens,
        headers: Vec::new(),
        body: settings.extra_body.clone(),
    };
    target
}

fn preferred() -> impl Iterator<Item = &'static Provider> {
    let first = PREFERRED.iter().filter_map(|id| providers::by_id(id));
    let rest = PROVIDERS
        .iter()
        .filter(|provider| provider.auto && !PREFERRED.contains(&provider.id));
    first.chain(rest)
}
