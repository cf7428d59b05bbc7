//! A chat without a model: it opens, and reports what is missing when a message is sent.

use std::sync::Arc;

use hermes_core::model::{
    ErrorClass, ModelClient, ModelError, ModelInfo, ModelRequest, ModelRouter, ModelStream, Route,
    RouteError, WireFormat,
};
use tokio_util::sync::CancellationToken;

/// Whether a person can fix it inside the chat.
pub(super) fn can_wait(error: &RouteError) -> bool {
    matches!(
        error,
        RouteError::NothingConfigured | RouteError::MissingKey { .. }
    )
}

/// No model.
pub(super) fn route() -> Route {
    Route {
        provider: String::new(),
        model: String::new(),
        base_url: String::new(),
        format: WireFormat::ChatCompletions,
        credential: None,
    }
}

/// The router, or one without a primary model until [`ModelRouter::switch`] selects one.
pub(super) fn or_missing(
    router: Arc<dyn ModelRouter>,
    missing: Option<&RouteError>,
) -> Arc<dyn ModelRouter> {
    match missing {
        None => router,
        Some(why) => Arc::new(RouterOrMissing {
            router,
            nobody: Arc::new(MissingModel {
                route: route(),
                info: ModelInfo {
                    context_length: 200_000,
                    context_source: "default",
                    max_output: None,
                    images: false,
                    tools: true,
                    prices: None,
                    local: false,
                    small: false,
                },
                why: why.to_string(),
            }),
        }),
    }
}

struct RouterOrMissing {
    router: Arc<dyn ModelRouter>,
    nobody: Arc<MissingModel>,
}

impl ModelRouter for RouterOrMissing {
    fn primary(&self) -> Result<Arc<dyn ModelClient>, RouteError> {
        let nobody = || Arc::clone(&self.nobody) as Arc<dyn ModelClient>;
        Ok(self.router.primary().unwrap_or_else(|_| nobody()))
    }

    fn rotate(&self, failed: &Route, error: &ModelError) -> Option<Arc<dyn ModelClient>> {
        self.router.rotate(failed, error)
    }

    fn fallback(&self, failed: &Route, error: &ModelError) -> Option<Arc<dyn ModelClient>> {
        self.router.fallback(failed, error)
    }

    fn auxiliary(&self, task: &str) -> Result<Arc<dyn ModelClient>, RouteError> {
        self.router.auxiliary(task)
    }

    fn switch(
        &self,
        model: &str,
        provider: Option<&str>,
    ) -> Result<Arc<dyn ModelClient>, RouteError> {
        self.router.switch(model, provider)
    }
}

struct MissingModel {
    route: Route,
    info: ModelInfo,
    why: String,
}

impl ModelClient for MissingModel {
    fn route(&self) -> &Route {
        &self.route
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn stream(&self, _: ModelRequest, _: CancellationToken) -> ModelStream {
        let error = ModelError {
            class: ErrorClass::Auth,
            provider: String::new(),
            model: String::new(),
            status: None,
            message: self.why.clone(),
            retry_after: None,
            limit: None,
        };
        Box::pin(futures_util::stream::once(std::future::ready(Err(error))))
    }
}
