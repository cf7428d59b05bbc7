//! The built-in model: what is known of it before its server runs, and its client.

use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::model::{ModelClient, ModelInfo, RouteError};
use hermes_http::HttpSettings;

use super::Router;
use super::target::{ExplicitRoute, RouteTarget};
use crate::client::ClientParts;
use crate::local::client::LocalClient;
use crate::local::server::LocalService;
use crate::local::table;
use crate::local::weights::{NamedWeights, WeightsInfo};
use crate::local::{self, LocalModelSettings};

/// Built-in models that one process uses at the same time; rarely more than one.
const MAX_KEPT: usize = 4;

/// The servers shared by this router's clients, and what their files contain.
#[derive(Default)]
pub(super) struct BuiltInModels {
    services: Mutex<Vec<(NamedWeights, Arc<LocalService>)>>,
    facts: Mutex<Vec<(NamedWeights, Option<WeightsInfo>)>>,
}

/// Whether the target is the built-in model.
pub(super) fn is(target: &RouteTarget) -> bool {
    !target.moved
        && target
            .builtin
            .is_some_and(|provider| provider.id == local::PROVIDER)
}

impl Router {
    /// What the home says about the built-in model.
    pub fn local_settings(&self) -> LocalModelSettings {
        LocalModelSettings::new(&self.deps.home, &self.deps.config)
    }

    /// Proxies and trusted roots for fetching weights, as for every other call.
    pub fn web_settings(&self) -> Result<HttpSettings, RouteError> {
        let explicit = ExplicitRoute {
            provider: Some(local::PROVIDER.to_owned()),
            ..ExplicitRoute::default()
        };
        let target = self.resolver().choose(Some("-"), &explicit)?;
        Ok(self.http.settings(&target))
    }

    /// From the file, or from the table if there is no file yet.
    pub(super) fn built_in_info(&self, target: &RouteTarget) -> ModelInfo {
        let settings = self.local_settings();
        let weights = weights_of(&settings, target).ok();
        let facts = weights.as_ref().and_then(|weights| self.facts(weights));
        let model = weights.as_ref().and_then(|weights| weights.model);
        let parameters = facts
            .as_ref()
            .map(|facts| facts.parameters)
            .or(model.map(|model| model.parameters))
            .unwrap_or_default();
        let trained = facts
            .map(|facts| facts.context)
            .or(model.map(|model| model.context))
            .unwrap_or(settings.context);
        let tools = weights
            .as_ref()
            .and_then(|weights| settings.offers_tools(weights));
        ModelInfo {
            context_length: trained.min(settings.context),
            context_source: "local",
            max_output: None,
            images: false,
            // Untested capabilities are not promised.
            tools: tools.unwrap_or(false),
            prices: None,
            local: true,
            small: parameters < table::SMALL_MODEL_PARAMETERS,
        }
    }

    fn facts(&self, weights: &NamedWeights) -> Option<WeightsInfo> {
        let lock = || {
            let facts = self.built_in.facts.lock();
            facts.unwrap_or_else(PoisonError::into_inner)
        };
        if let Some((_, known)) = lock().iter().find(|(of, _)| of == weights) {
            return known.clone();
        }
        let read = weights.facts().ok();
        // A missing file may be downloaded later.
        if read.is_some() {
            let mut all = lock();
            if all.len() >= MAX_KEPT {
                all.clear();
            }
            all.push((weights.clone(), read.clone()));
        }
        read
    }

    pub(super) fn built_in_client(
        &self,
        target: &RouteTarget,
        parts: ClientParts,
    ) -> Result<Arc<dyn ModelClient>, RouteError> {
        let settings = self.local_settings();
        let weights = weights_of(&settings, target)?;
        let services = self.built_in.services.lock();
        let mut services = services.unwrap_or_else(PoisonError::into_inner);
        let known = services.iter().find(|(of, _)| *of == weights);
        let service = if let Some((_, service)) = known {
            Arc::clone(service)
        } else {
            if services.len() >= MAX_KEPT {
                services.clear();
            }
            let service = LocalService::new(settings, weights.clone())
                .map_err(|error| RouteError::Invalid(error.to_string()))?;
            let service = Arc::new(service);
            services.push((weights, Arc::clone(&service)));
            service
        };
        Ok(Arc::new(LocalClient::new(parts, service)))
    }
}

fn weights_of(
    settings: &LocalModelSettings,
    target: &RouteTarget,
) -> Result<NamedWeights, RouteError> {
    settings
        .weights(&target.model)
        .map_err(|unknown| RouteError::Invalid(unknown.to_string()))
}
