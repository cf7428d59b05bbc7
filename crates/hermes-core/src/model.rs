//! Model calls: requests, events and errors.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::ids::SessionId;
use crate::message::{AssistantMessage, FinishReason, Message, ToolCall, WireBlob};
use crate::tool::ToolSpec;
use crate::usage::{Prices, Usage};

/// The destination of a call: provider, model and credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// Provider id, e.g. `openrouter`; `custom` for a custom endpoint.
    pub provider: String,
    pub model: String,
    pub base_url: String,
    pub format: WireFormat,
    /// Names the credential without revealing it (`env:OPENROUTER_API_KEY`).
    pub credential: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireFormat {
    ChatCompletions,
    AnthropicMessages,
    Responses,
}

/// Properties of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Tokens of prompt and answer together.
    pub context_length: u32,
    /// The source of the value: `config`, `endpoint`, `catalogue`, `default`, …
    pub context_source: &'static str,
    pub max_output: Option<u32>,
    pub images: bool,
    /// `false`: the model cannot call tools; none are offered.
    pub tools: bool,
    pub prices: Option<Prices>,
    /// Runs on this machine or network: slow first byte, no cost.
    pub local: bool,
    /// So few parameters that long instructions confuse it: it gets a short prompt and only the
    /// most important tools, if any.
    pub small: bool,
}

/// One model call. Messages are shared, so that building a request for a long conversation copies
/// pointers, not text.
#[derive(Clone)]
pub struct ModelRequest {
    pub session: SessionId,
    pub system: Arc<str>,
    pub messages: Vec<Arc<Message>>,
    pub tools: Arc<[ToolSpec]>,
    pub tool_choice: ToolChoice,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f32>,
    pub reasoning: Option<ReasoningEffort>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    /// Tools stay in the request (the prefix must not change) but may not be called.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningEffort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
    Ultra,
}

/// Events of a model call, normalized across providers (repeated names, reused indexes).
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// Activity before the answer can begin, for display: a server is started.
    Preparing(String),
    /// The first byte of the answer arrived.
    Started,
    Text(String),
    Reasoning(String),
    /// A tool call begins. `slot` is unique within the answer and counts from 0. Repeated for the
    /// same slot if id or name turned out to be longer: the last one counts.
    ToolStarted {
        slot: usize,
        id: String,
        name: String,
    },
    ToolArguments {
        slot: usize,
        delta: String,
    },
    /// Further fields of a call that are known only later.
    ToolExtra {
        slot: usize,
        response_item_id: Option<String>,
        extra: Option<serde_json::Value>,
    },
    Blob(WireBlob),
    /// Cumulative for the call: a later one replaces an earlier one.
    Usage(Usage),
    /// Always the last event of a stream that did not fail.
    Finished(FinishReason),
}

pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// A model behind one route.
pub trait ModelClient: Send + Sync {
    fn route(&self) -> &Route;
    fn info(&self) -> &ModelInfo;
    /// Whether images in tool results reach the model. Many endpoints accept them in user messages
    /// only.
    fn sees_tool_images(&self) -> bool {
        self.info().images
    }
    /// Starts the call. The stream ends at once when `cancel` fires.
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream;
}

/// Chooses clients: the primary route, other credentials, the fallback chain, auxiliary models.
pub trait ModelRouter: Send + Sync {
    /// The route a turn starts on: the primary, unless it is cooling down and a fallback is not.
    fn primary(&self) -> Result<Arc<dyn ModelClient>, RouteError>;
    /// The same provider and model with another credential. `None`: no other one is usable.
    fn rotate(&self, failed: &Route, error: &ModelError) -> Option<Arc<dyn ModelClient>>;
    /// The next entry of the fallback chain after `failed`. `None`: the chain is exhausted.
    fn fallback(&self, failed: &Route, error: &ModelError) -> Option<Arc<dyn ModelClient>>;
    /// A client for auxiliary calls (`compression`, `title_generation`, …).
    fn auxiliary(&self, task: &str) -> Result<Arc<dyn ModelClient>, RouteError>;
    /// Makes another model the primary one: `model` alone or with a provider.
    fn switch(
        &self,
        model: &str,
        provider: Option<&str>,
    ) -> Result<Arc<dyn ModelClient>, RouteError>;
}

/// No route could be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    #[error("no model is configured")]
    NothingConfigured,
    #[error("unknown provider {name:?}{}", hint(.close.as_deref()))]
    UnknownProvider { name: String, close: Option<String> },
    #[error("{provider} needs a key: set {env} in the home's .env (hermes config set {env} …)")]
    MissingKey { provider: String, env: String },
    #[error("{0}")]
    Invalid(String),
}

fn hint(close: Option<&str>) -> String {
    close
        .map(|name| format!("; did you mean {name:?}?"))
        .unwrap_or_default()
}

/// A failed model call. `class` determines the recovery.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.headline())]
pub struct ModelError {
    pub class: ErrorClass,
    pub provider: String,
    pub model: String,
    pub status: Option<u16>,
    /// The provider's message, shortened and without secrets.
    pub message: String,
    pub retry_after: Option<Duration>,
    /// A token limit stated in the error: window or output cap, by class.
    pub limit: Option<u32>,
}

impl ModelError {
    fn headline(&self) -> String {
        let status = self
            .status
            .map(|code| format!("{code} from "))
            .unwrap_or_default();
        format!(
            "{status}{} ({}): {}",
            self.provider, self.model, self.message
        )
    }
}

/// Kinds of failure, each with its own recovery (a row of the agent's recovery table).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    Auth,
    Billing,
    RateLimit,
    UpstreamRateLimit,
    Overloaded,
    Server,
    /// Connect, first byte, idle stream, broken connection.
    Timeout,
    /// The provider cannot be reached at all (refused, DNS).
    Unreachable,
    TlsCertificate,
    ContextOverflow,
    OutputCap,
    PayloadTooLarge,
    ImageTooLarge,
    ImagesUnsupported,
    ToolContentRejected,
    ReasoningRejected,
    SchemaRejected,
    LongContextTier,
    ModelNotFound,
    AccountPolicy,
    ContentPolicy,
    Format,
    /// The answer could not be parsed.
    BadResponse,
    /// The stream ended without content.
    EmptyStream,
    Cancelled,
    Unknown,
}

/// Collects a stream into a message.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    message: AssistantMessage,
    reasoning: String,
    usage: Option<Usage>,
    started: bool,
}

impl Collector {
    pub fn push(&mut self, event: &ModelEvent) {
        self.started |= !matches!(event, ModelEvent::Preparing(_));
        match event {
            ModelEvent::Preparing(_) | ModelEvent::Started => {}
            ModelEvent::Text(delta) => self.message.text.push_str(delta),
            ModelEvent::Reasoning(delta) => self.reasoning.push_str(delta),
            ModelEvent::ToolStarted { slot, id, name } => {
                let call = self.slot(*slot);
                call.id.clone_from(id);
                call.name.clone_from(name);
            }
            ModelEvent::ToolArguments { slot, delta } => {
                self.slot(*slot).arguments.push_str(delta);
            }
            ModelEvent::ToolExtra {
                slot,
                response_item_id,
                extra,
            } => {
                let call = self.slot(*slot);
                if response_item_id.is_some() {
                    call.response_item_id.clone_from(response_item_id);
                }
                if extra.is_some() {
                    call.extra.clone_from(extra);
                }
            }
            ModelEvent::Blob(blob) => self.message.blobs.push(blob.clone()),
            ModelEvent::Usage(usage) => self.usage = Some(*usage),
            ModelEvent::Finished(reason) => self.message.finish = Some(reason.clone()),
        }
    }

    fn slot(&mut self, slot: usize) -> &mut ToolCall {
        let calls = &mut self.message.tool_calls;
        if calls.len() <= slot {
            calls.resize_with(slot + 1, ToolCall::default);
        }
        &mut calls[slot]
    }

    pub fn text(&self) -> &str {
        &self.message.text
    }

    /// Whether anything arrived.
    pub fn started(&self) -> bool {
        self.started
    }

    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    pub fn finish(mut self) -> (AssistantMessage, Option<Usage>) {
        if !self.reasoning.is_empty() {
            self.message.reasoning = Some(self.reasoning);
        }
        (self.message, self.usage)
    }
}
