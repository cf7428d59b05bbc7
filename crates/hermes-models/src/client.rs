//! The model client: one streaming path over HTTP.
//!
//! Nothing is sent before the stream is polled, and bytes are read only as events are pulled.
//! Dropping the stream, or cancelling, ends the request at once.

mod bound;
mod images;
mod stream;
#[cfg(test)]
mod tests;
mod timeouts;
mod unpack;
mod wire;

use std::borrow::Cow;
use std::sync::Arc;

use hermes_core::clock::Clock;
use hermes_core::message::{Content, Message};
use hermes_core::model::{
    ErrorClass, ModelClient, ModelError, ModelInfo, ModelRequest, ModelStream, Route,
};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;

use crate::classify::{CallContext, ErrorVerdict, TransportError, TransportErrorKind};
use crate::codec::{self, AnswerDecoder, AnswerReader, EncodedRequest};
use crate::context::{ContextCache, DEFAULT_SOURCE};
use crate::optional::{self, FieldRuleCache, FieldRules, RuleCertainty};
use crate::quirks::{AuthStyle, Quirks, ReasoningEcho, SchemaDialect, ToolIds};

pub use timeouts::PhaseTimeouts;
use wire::{HttpTransport, OutgoingRequest};

/// Estimated tokens per image.
const IMAGE_TOKENS: usize = 1_500;

/// The parts a client is built from.
#[derive(Clone)]
pub struct ClientParts {
    pub route: Route,
    pub info: ModelInfo,
    /// Already refined by [`Quirks::for_model`].
    pub quirks: Quirks,
    /// The same for the wire format that is used if the endpoint refuses this one.
    pub other: Option<Quirks>,
    pub credential: Option<SecretString>,
    /// From [`hermes_http::client`].
    pub http: reqwest::Client,
    pub timeouts: PhaseTimeouts,
    pub clock: Arc<dyn Clock>,
    /// What endpoints refused before.
    pub fields: Arc<FieldRuleCache>,
    /// Receives context windows stated in errors. `None`: they are not kept.
    pub windows: Option<Arc<ContextCache>>,
}

/// An HTTP client for the model of one route.
pub struct HttpModelClient {
    shared: Arc<ClientShared>,
    /// The same model in the other wire format.
    other: Option<Arc<ClientShared>>,
}

struct ClientShared {
    route: Route,
    info: ModelInfo,
    quirks: Quirks,
    credential: Option<SecretString>,
    timeouts: PhaseTimeouts,
    clock: Arc<dyn Clock>,
    fields: Arc<FieldRuleCache>,
    windows: Option<Arc<ContextCache>>,
    wire: Arc<dyn HttpTransport>,
}

impl HttpModelClient {
    pub fn new(parts: ClientParts) -> Self {
        let wire: Arc<dyn HttpTransport> = Arc::new(parts.http.clone());
        Self::with_wire(parts, &wire)
    }

    fn with_wire(parts: ClientParts, wire: &Arc<dyn HttpTransport>) -> Self {
        let shared = |route: Route, quirks: Quirks| {
            Arc::new(ClientShared {
                route,
                info: parts.info.clone(),
                quirks,
                credential: parts.credential.clone(),
                timeouts: parts.timeouts,
                clock: Arc::clone(&parts.clock),
                fields: Arc::clone(&parts.fields),
                windows: parts.windows.clone(),
                wire: Arc::clone(wire),
            })
        };
        let other = parts.other.map(|quirks| {
            let format = quirks.format;
            let route = parts.route.clone();
            shared(Route { format, ..route }, quirks)
        });
        Self {
            shared: shared(parts.route.clone(), parts.quirks),
            other,
        }
    }

    /// The wire format that calls begin with, and the remaining one. A learned refusal counts,
    /// unless the other format was refused as well.
    fn formats(&self) -> (Arc<ClientShared>, Option<Arc<ClientShared>>) {
        let usual = Arc::clone(&self.shared);
        let Some(other) = self.other.clone() else {
            return (usual, None);
        };
        let leads_to = |from: &ClientShared, to: &ClientShared| {
            from.known_rules().format() == Some(to.route.format)
        };
        if leads_to(&usual, &other) && !leads_to(&other, &usual) {
            (other, Some(usual))
        } else {
            (usual, Some(other))
        }
    }
}

impl ModelClient for HttpModelClient {
    fn route(&self) -> &Route {
        &self.shared.route
    }

    fn info(&self) -> &ModelInfo {
        &self.shared.info
    }

    fn sees_tool_images(&self) -> bool {
        let quirks = &self.shared.quirks;
        self.shared.info.images && quirks.images && quirks.list_tool_content
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let (shared, other) = self.formats();
        stream::start(shared, other, request, cancel)
    }
}

impl ClientShared {
    /// What is known of the endpoint from its refusals.
    fn known_rules(&self) -> FieldRules {
        self.fields.recall(&self.route, self.clock.now())
    }

    /// Keeps the rules that made a call succeed, and logs them.
    fn learn(&self, rules: &FieldRules, certainty: RuleCertainty) {
        for rule in rules.iter() {
            let what = match certainty {
                RuleCertainty::Named => "the provider refused a field of the request; from now on",
                RuleCertainty::Guessed => {
                    "the provider accepted the request only without its optional fields; for a day"
                }
            };
            tracing::warn!(
                provider = self.route.provider,
                model = self.route.model,
                "{what} {}",
                rule.describe()
            );
        }
        let now = self.clock.now();
        self.fields.learn(&self.route, rules, certainty, now);
    }

    /// The request as JSON, adapted to this endpoint.
    fn encoded(
        &self,
        request: &ModelRequest,
        rules: &FieldRules,
    ) -> Result<EncodedRequest, ModelError> {
        let failed = |error: serde_json::Error| {
            let message = format!("the request cannot be encoded: {error}");
            self.error(ErrorClass::Format, message)
        };
        let mut quirks = Cow::Borrowed(&self.quirks);
        if rules.requires(optional::REASONING_CONTENT) {
            quirks.to_mut().echo = ReasoningEcho::Required;
        }
        if rules.requires(optional::CALL_SIGNATURES) {
            quirks.to_mut().thought_signatures = true;
            quirks.to_mut().needs_signatures = true;
        }
        if rules.drops(optional::TOOL_IDS) {
            quirks.to_mut().tool_ids = ToolIds::Nine;
        }
        if rules.drops(optional::SYSTEM_ROLE) {
            quirks.to_mut().system_in_user = true;
        }
        if rules.drops(optional::IMAGES) {
            quirks.to_mut().images = false;
        }
        if rules.drops(optional::RESULT_PARTS) {
            quirks.to_mut().list_tool_content = false;
        }
        if rules.drops(optional::SCHEMA_WORDS) {
            quirks.to_mut().schema = SchemaDialect::Plain;
        }
        let limit = images::ImageLimit::of(rules);
        let request = images::fit(request, limit);
        let encoded = codec::encode(&request, &quirks, &self.route, &self.info).map_err(failed)?;
        rules.apply(encoded).map_err(failed)
    }

    /// The request in the form that is sent.
    fn outgoing(&self, encoded: &EncodedRequest) -> Result<OutgoingRequest, ModelError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &encoded.headers {
            let (Ok(name), Ok(value)) = (
                HeaderName::try_from(name.as_str()),
                HeaderValue::from_str(value),
            ) else {
                let message =
                    format!("the header {name:?} cannot be sent; check the configured headers");
                return Err(self.error(ErrorClass::Format, message));
            };
            headers.insert(name, value);
        }
        self.authorize(&mut headers)?;
        Ok(OutgoingRequest {
            url: codec::endpoint(&self.route.base_url, self.quirks.format),
            headers,
            body: encoded.body.clone().into(),
        })
    }

    fn authorize(&self, headers: &mut HeaderMap) -> Result<(), ModelError> {
        let Some(credential) = &self.credential else {
            return Ok(());
        };
        let secret = credential.expose_secret().trim();
        let (name, value) = match self.quirks.auth {
            AuthStyle::Bearer => ("authorization", format!("Bearer {secret}")),
            AuthStyle::XApiKey => ("x-api-key", secret.to_owned()),
            AuthStyle::ApiKey => ("api-key", secret.to_owned()),
            AuthStyle::None => return Ok(()),
        };
        // A manually configured header wins.
        if headers.contains_key(name) {
            return Ok(());
        }
        let mut value = HeaderValue::from_str(&value).map_err(|_| {
            let message = "the key holds characters that cannot be sent; enter it again";
            self.error(ErrorClass::Auth, message.to_owned())
        })?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
        Ok(())
    }

    fn reader(&self, request: &ModelRequest) -> AnswerReader {
        AnswerReader::new(AnswerDecoder::new(request, &self.quirks, &self.route))
    }

    fn situation(&self, request: &ModelRequest) -> CallContext {
        CallContext {
            prompt_tokens: u32::try_from(estimate(request)).unwrap_or(u32::MAX),
            context_length: self.info.context_length,
            window_assumed: self.info.context_source == DEFAULT_SOURCE,
            answer_tokens: request
                .max_tokens
                .or(self.quirks.max_tokens.default)
                .unwrap_or(0),
            shown_images: request.messages.iter().any(|message| {
                matches!(&**message, Message::User(user) if user.content.image_count() > 0)
            }),
            slow_reasoner: timeouts::is_slow_reasoner(&self.route.model),
        }
    }

    fn error(&self, class: ErrorClass, message: String) -> ModelError {
        ModelError {
            class,
            provider: self.route.provider.clone(),
            model: self.route.model.clone(),
            status: None,
            message: self.hide(message),
            retry_after: None,
            limit: None,
        }
    }

    fn judged(&self, verdict: ErrorVerdict, status: Option<u16>) -> ModelError {
        if let (Some(book), Some(window)) = (&self.windows, verdict.window) {
            let assumed = self.info.context_length;
            book.learn_limit(&self.route.model, &self.route.base_url, assumed, window);
        }
        ModelError {
            status,
            retry_after: verdict.retry_after,
            limit: verdict.limit,
            ..self.error(verdict.class, verdict.message)
        }
    }

    fn broken(&self, failure: &TransportError, situation: &CallContext) -> ModelError {
        let cause = &failure.message;
        let message = match failure.kind {
            TransportErrorKind::Unreachable => {
                format!("cannot connect to {}: {cause}", self.host())
            }
            TransportErrorKind::Certificate => format!(
                "the certificate of {} is not accepted ({cause}); behind a proxy that inspects TLS, \
                 name its root certificate in SSL_CERT_FILE",
                self.host()
            ),
            TransportErrorKind::Broken => format!("the connection broke: {cause}"),
            TransportErrorKind::Timeout => format!("the connection to {} timed out", self.host()),
            TransportErrorKind::Request | TransportErrorKind::Protocol => cause.clone(),
        };
        self.error(failure.class(situation), message)
    }

    /// Host and port of the endpoint, for messages.
    fn host(&self) -> String {
        let url = url::Url::parse(&self.route.base_url).ok();
        let host = url.as_ref().and_then(|url| {
            let host = url.host_str()?;
            Some(match url.port() {
                Some(port) => format!("{host}:{port}"),
                None => host.to_owned(),
            })
        });
        host.unwrap_or_else(|| self.route.provider.clone())
    }

    /// `message` without the credential of this route.
    fn hide(&self, message: String) -> String {
        let secret = self
            .credential
            .as_ref()
            .map(|secret| secret.expose_secret().trim())
            .filter(|secret| secret.len() >= 8);
        match secret {
            Some(secret) if message.contains(secret) => message.replace(secret, "[key]"),
            _ => message,
        }
    }
}

/// A rough token count of a request: four characters each.
fn estimate(request: &ModelRequest) -> usize {
    let content = |content: &Content| match content {
        Content::Text(text) => text.len(),
        Content::Parts(_) => content.text().len() + content.image_count() * IMAGE_TOKENS * 4,
    };
    let message = |message: &Message| match message {
        Message::User(user) => {
            content(&user.content).max(user.wire_text.as_ref().map_or(0, String::len))
        }
        Message::Assistant(assistant) => {
            let calls = assistant.tool_calls.iter();
            assistant.text.len()
                + calls
                    .map(|c| c.name.len() + c.arguments.len())
                    .sum::<usize>()
        }
        Message::Tool(tool) => content(&tool.content),
    };
    let log: usize = request.messages.iter().map(|entry| message(entry)).sum();
    // Schemas are rarely larger than this and not worth serializing for an estimate.
    let tools: usize = request
        .tools
        .iter()
        .map(|tool| tool.description.len() + 400)
        .sum();
    (request.system.len() + log + tools) / 4
}
