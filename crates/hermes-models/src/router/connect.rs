//! Builds the client of a route and records what its errors reveal.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use hermes_core::model::{
    ErrorClass, ModelClient, ModelInfo, ModelRequest, ModelStream, Route, RouteError,
};
use tokio_util::sync::CancellationToken;

use super::build::{limits, route};
use super::target::RouteTarget;
use super::{Router, built_in};
use crate::client::{ClientParts, HttpModelClient, PhaseTimeouts};
use crate::context::ContextCache;
use crate::credentials::Credential;
use crate::providers::custom::TimeoutOverride;

impl Router {
    /// A client for the target with this key. `within` limits the whole call.
    pub(super) fn connect(
        &self,
        target: &RouteTarget,
        credential: Option<&Credential>,
        within: Option<Duration>,
    ) -> Result<Arc<dyn ModelClient>, RouteError> {
        let route = route(target, credential);
        let info = self.info(target, &route, credential);
        let parts = ClientParts {
            quirks: self.quirks(target, &route, &info),
            other: self.other_quirks(target, &route, &info),
            credential: credential.map(|credential| credential.secret.clone()),
            http: self.http.get(target)?,
            timeouts: self.timeouts(&info, &route.model, limits(target, within)),
            clock: Arc::clone(&self.deps.clock),
            fields: Arc::clone(&self.fields),
            windows: Some(Arc::clone(&self.book)),
            route: route.clone(),
            info,
        };
        self.state().remember(route, target.clone());
        let client: Arc<dyn ModelClient> = if built_in::is(target) {
            self.built_in_client(target, parts)?
        } else {
            Arc::new(HttpModelClient::new(parts))
        };
        Ok(Arc::new(LearningClient {
            client,
            book: Arc::clone(&self.book),
        }))
    }

    /// The default timeouts, overridden by the config.
    fn timeouts(&self, info: &ModelInfo, model: &str, set: TimeoutOverride) -> PhaseTimeouts {
        let mut timeouts = PhaseTimeouts::for_model(info.local, model);
        let local_silence = self.deps.config.agent.local_stream_stale_timeout;
        if info.local && local_silence > 0 {
            timeouts.idle = Duration::from_secs(local_silence);
        }
        if let Some(total) = set.request {
            timeouts.total = total;
            timeouts.first_byte = timeouts.first_byte.min(total);
            timeouts.idle = timeouts.idle.min(total);
        }
        if let Some(stale) = set.stale {
            timeouts.first_byte = stale;
            timeouts.idle = stale;
            timeouts.fixed = true;
        }
        timeouts
    }
}

/// A client that stores the limits stated in errors.
struct LearningClient {
    client: Arc<dyn ModelClient>,
    book: Arc<ContextCache>,
}

impl ModelClient for LearningClient {
    fn route(&self) -> &Route {
        self.client.route()
    }

    fn info(&self) -> &ModelInfo {
        self.client.info()
    }

    fn sees_tool_images(&self) -> bool {
        self.client.sees_tool_images()
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let book = Arc::clone(&self.book);
        let (model, base_url) = (self.route().model.clone(), self.route().base_url.clone());
        let assumed = self.info().context_length;
        let stream = self.client.stream(request, cancel);
        Box::pin(stream.inspect(move |event| {
            if let Err(error) = event
                && error.class == ErrorClass::ContextOverflow
                && let Some(stated) = error.limit
            {
                book.learn_limit(&model, &base_url, assumed, stated);
            }
        }))
    }
}
