//! Models that follow a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use hermes_core::message::{FinishReason, Message};
use hermes_core::model::{
    ErrorClass, ModelClient, ModelError, ModelEvent, ModelInfo, ModelRequest, ModelRouter,
    ModelStream, Route, RouteError, WireFormat,
};
use hermes_core::usage::Usage;
use tokio_util::sync::CancellationToken;

/// One scripted answer: events, each after a pause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    steps: Vec<(Duration, Result<ModelEvent, ModelError>)>,
    pause: Duration,
    usage: Option<Usage>,
}

impl Reply {
    pub(crate) fn new() -> Self {
        Self {
            usage: Some(Usage {
                input: 100,
                output: 10,
                ..Usage::default()
            }),
            ..Self::default()
        }
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::new().say(text).finish(FinishReason::Stop)
    }

    pub(crate) fn empty() -> Self {
        Self::new().finish(FinishReason::Stop)
    }

    pub(crate) fn call(name: &str, arguments: &str) -> Self {
        Self::calls(&[(name, arguments)])
    }

    pub(crate) fn calls(calls: &[(&str, &str)]) -> Self {
        let mut reply = Self::new();
        for (slot, (name, arguments)) in calls.iter().enumerate() {
            reply = reply.start_call(slot, name, arguments);
        }
        reply.finish(FinishReason::ToolCalls)
    }

    pub(crate) fn error(class: ErrorClass) -> Self {
        Self::failing(error(class))
    }

    pub(crate) fn failing(error: ModelError) -> Self {
        let mut reply = Self::default();
        reply.steps.push((Duration::ZERO, Err(error)));
        reply
    }

    pub(crate) fn say(self, text: &str) -> Self {
        self.event(ModelEvent::Text(text.into()))
    }

    pub(crate) fn think(self, text: &str) -> Self {
        self.event(ModelEvent::Reasoning(text.into()))
    }

    pub(crate) fn start_call(self, slot: usize, name: &str, arguments: &str) -> Self {
        self.event(ModelEvent::ToolStarted {
            slot,
            id: String::new(),
            name: name.into(),
        })
        .event(ModelEvent::ToolArguments {
            slot,
            delta: arguments.into(),
        })
    }

    pub(crate) fn event(mut self, event: ModelEvent) -> Self {
        self.steps.push((self.pause, Ok(event)));
        self.pause = Duration::ZERO;
        self
    }

    /// The next event comes after this long.
    pub(crate) fn after(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    pub(crate) fn finish(mut self, reason: FinishReason) -> Self {
        if let Some(usage) = self.usage {
            self = self.event(ModelEvent::Usage(usage));
        }
        self.event(ModelEvent::Finished(reason))
    }

    pub(crate) fn breaks(mut self, class: ErrorClass) -> Self {
        self.steps.push((self.pause, Err(error(class))));
        self
    }

    /// Before `finish`: what the provider reports.
    pub(crate) fn usage(mut self, usage: Option<Usage>) -> Self {
        self.usage = usage;
        self
    }
}

pub(crate) fn error(class: ErrorClass) -> ModelError {
    ModelError {
        class,
        provider: "test".into(),
        model: "main".into(),
        status: None,
        message: format!("{class:?}"),
        retry_after: None,
        limit: None,
    }
}

type Answering = Box<dyn Fn(&ModelRequest) -> Reply + Send + Sync>;

pub(crate) struct ScriptedClient {
    route: Route,
    info: ModelInfo,
    script: Mutex<VecDeque<Reply>>,
    answering: Option<Answering>,
    pub(crate) requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl ScriptedClient {
    pub(crate) fn new(model: &str, replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            route: Route {
                provider: "test".into(),
                model: model.into(),
                base_url: "http://test".into(),
                format: WireFormat::ChatCompletions,
                credential: Some("key 1".into()),
            },
            info: ModelInfo {
                context_length: 200_000,
                context_source: "config",
                max_output: None,
                images: true,
                tools: true,
                prices: None,
                local: true,
                small: false,
            },
            script: Mutex::new(replies.into_iter().collect()),
            answering: None,
            requests: Arc::default(),
        }
    }

    /// Answers by looking at the request, once the script is used up.
    pub(crate) fn answering(
        mut self,
        reply: impl Fn(&ModelRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        self.answering = Some(Box::new(reply));
        self
    }

    pub(crate) fn info(mut self, change: impl FnOnce(&mut ModelInfo)) -> Self {
        change(&mut self.info);
        self
    }

    pub(crate) fn route(mut self, change: impl FnOnce(&mut Route)) -> Self {
        change(&mut self.route);
        self
    }
}

impl ModelClient for ScriptedClient {
    fn route(&self) -> &Route {
        &self.route
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn stream(&self, request: ModelRequest, _cancel: CancellationToken) -> ModelStream {
        let scripted = self.script.lock().unwrap().pop_front();
        let reply = scripted
            .or_else(|| self.answering.as_ref().map(|reply| reply(&request)))
            .unwrap_or_else(|| {
                panic!(
                    "{}: an unexpected call: {:?}",
                    self.route.model,
                    request.messages.last()
                )
            });
        self.requests.lock().unwrap().push(request);
        Box::pin(stream::iter(reply.steps).then(|(pause, event)| async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            event
        }))
    }
}

pub(crate) struct ScriptedRouter {
    primary: Mutex<Arc<ScriptedClient>>,
    pub(crate) rotations: Mutex<VecDeque<Arc<ScriptedClient>>>,
    pub(crate) fallbacks: Mutex<VecDeque<Arc<ScriptedClient>>>,
    pub(crate) helper: Option<Arc<ScriptedClient>>,
}

impl ScriptedRouter {
    pub(crate) fn new(primary: ScriptedClient) -> Self {
        Self {
            primary: Mutex::new(Arc::new(primary)),
            rotations: Mutex::default(),
            fallbacks: Mutex::default(),
            helper: None,
        }
    }

    pub(crate) fn rotation(self, client: ScriptedClient) -> Self {
        self.rotations.lock().unwrap().push_back(Arc::new(client));
        self
    }

    pub(crate) fn fallback(self, client: ScriptedClient) -> Self {
        self.fallbacks.lock().unwrap().push_back(Arc::new(client));
        self
    }

    pub(crate) fn helper(mut self, client: ScriptedClient) -> Self {
        self.helper = Some(Arc::new(client));
        self
    }

    pub(crate) fn main(&self) -> Arc<ScriptedClient> {
        self.primary.lock().unwrap().clone()
    }

    /// The requests that reached the primary model.
    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.main().requests.lock().unwrap().clone()
    }

    /// The roles and texts of the nth request.
    pub(crate) fn request(&self, nth: usize) -> Vec<String> {
        self.requests()[nth]
            .messages
            .iter()
            .map(|message| {
                let text = match &**message {
                    Message::User(user) => user
                        .wire_text
                        .clone()
                        .unwrap_or_else(|| user.content.text().into_owned()),
                    Message::Assistant(answer) => {
                        let calls: Vec<String> = answer
                            .tool_calls
                            .iter()
                            .map(|call| format!("{}({})", call.name, call.arguments))
                            .collect();
                        format!("{}{}", answer.text, calls.join(" "))
                    }
                    Message::Tool(tool) => tool.content.text().into_owned(),
                };
                format!("{}: {text}", message.role())
            })
            .collect()
    }
}

impl ModelRouter for ScriptedRouter {
    fn primary(&self) -> Result<Arc<dyn ModelClient>, RouteError> {
        Ok(self.main())
    }

    fn rotate(&self, _failed: &Route, _error: &ModelError) -> Option<Arc<dyn ModelClient>> {
        let client = self.rotations.lock().unwrap().pop_front()?;
        Some(client)
    }

    fn fallback(&self, _failed: &Route, _error: &ModelError) -> Option<Arc<dyn ModelClient>> {
        let client = self.fallbacks.lock().unwrap().pop_front()?;
        Some(client)
    }

    fn auxiliary(&self, _task: &str) -> Result<Arc<dyn ModelClient>, RouteError> {
        match &self.helper {
            Some(client) => Ok(client.clone()),
            None => Err(RouteError::NothingConfigured),
        }
    }

    fn switch(
        &self,
        model: &str,
        _provider: Option<&str>,
    ) -> Result<Arc<dyn ModelClient>, RouteError> {
        let next = self.fallbacks.lock().unwrap().pop_front();
        match next {
            Some(client) => {
                *self.primary.lock().unwrap() = client.clone();
                Ok(client)
            }
            None => Err(RouteError::Invalid(format!("no model {model}"))),
        }
    }
}
