//! The user's model for sampling requests of MCP servers (`sampling:` of a server).

use std::sync::Arc;

use futures_util::StreamExt as _;
use hermes_config::{Config, Env, Home};
use hermes_core::BoxFuture;
use hermes_core::clock::{SystemClock, SystemRng};
use hermes_core::ids::SessionId;
use hermes_core::model::{Collector, ModelClient, ModelRequest, ModelRouter as _, ToolChoice};
use hermes_mcp::{SampleRequest, Sampled, Sampler};
use hermes_models::{Overrides, Router, RouterDeps};
use tokio_util::sync::CancellationToken;

/// The helper task whose model answers: `auxiliary.mcp` of the config.
const TASK: &str = "mcp";

pub(crate) struct RouterSampler {
    pub(crate) config: Arc<Config>,
    pub(crate) env: Arc<Env>,
    pub(crate) home: Home,
    pub(crate) overrides: Overrides,
}

impl RouterSampler {
    /// Created on demand: most servers never need it.
    fn client(&self, model: Option<&str>) -> Result<Arc<dyn ModelClient>, String> {
        let mut overrides = self.overrides.clone();
        if let Some(model) = model {
            overrides.model = Some(model.to_owned());
        }
        let deps = RouterDeps {
            config: Arc::clone(&self.config),
            env: Arc::clone(&self.env),
            home: self.home.clone(),
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
        };
        let router = Router::new(deps, overrides);
        let client = match model {
            Some(_) => router.primary(),
            None => router.auxiliary(TASK),
        };
        client.map_err(|error| error.to_string())
    }
}

impl Sampler for RouterSampler {
    fn default_model(&self) -> Result<String, String> {
        Ok(self.client(None)?.route().model.clone())
    }

    fn sample(&self, request: SampleRequest) -> BoxFuture<'_, Result<Sampled, String>> {
        Box::pin(async move {
            let client = self.client(request.model.as_deref())?;
            let cancel = CancellationToken::new();
            let _stop = cancel.clone().drop_guard();
            let asked = ModelRequest {
                session: SessionId::from(format!("mcp-sampling-{}", request.server).as_str()),
                system: request.system.into(),
                messages: request.messages.into_iter().map(Arc::new).collect(),
                tools: request.tools.into(),
                tool_choice: if request.may_call_tools {
                    ToolChoice::Auto
                } else {
                    ToolChoice::None
                },
                max_tokens: Some(request.max_tokens),
                temperature: request.temperature,
                reasoning: None,
            };
            let mut stream = client.stream(asked, cancel.clone());
            let mut collector = Collector::default();
            while let Some(event) = stream.next().await {
                collector.push(&event.map_err(|error| error.to_string())?);
            }
            let (message, usage) = collector.finish();
            Ok(Sampled {
                message,
                model: client.route().model.clone(),
                usage,
            })
        })
    }
}
