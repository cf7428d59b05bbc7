//! Wire formats: requests to bytes, bytes to events. No network here.
//!
//! Encoding is a pure function of its arguments: the same request gives the same bytes, and a
//! longer conversation begins with the bytes of the shorter one (cache markers aside). Provider
//! caches and the KV caches of local servers depend on that.

mod anthropic;
mod body;
mod canonical;
mod chat;
mod content;
mod fields;
mod finish;
mod ids;
mod json;
mod offered;
mod reader;
mod reasoning;
mod responses;
mod schema;
mod usage;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod replay;
#[cfg(test)]
pub(crate) mod samples;

use std::sync::Arc;

use hermes_core::message::{AssistantMessage, BlobKind, WireBlob};
use hermes_core::model::{ModelEvent, ModelInfo, ModelRequest, Route, WireFormat};
use hermes_http::sse::SseEvent;
use serde_json::Value;

use crate::quirks::Quirks;

pub(crate) use reader::AnswerReader;

/// A request ready to be sent. The client adds the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedRequest {
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Encodes `request` for the endpoint. Fails only when a value has no JSON form.
pub(crate) fn encode(
    request: &ModelRequest,
    quirks: &Quirks,
    route: &Route,
    info: &ModelInfo,
) -> Result<EncodedRequest, serde_json::Error> {
    let scope = EncodeScope {
        request,
        quirks,
        route,
        info,
    };
    let body = match quirks.format {
        WireFormat::ChatCompletions => chat::encode(&scope)?,
        WireFormat::AnthropicMessages => anthropic::encode(&scope)?,
        WireFormat::Responses => responses::encode(&scope)?,
    };
    Ok(EncodedRequest {
        headers: fields::headers(&scope),
        body,
    })
}

/// The URL that a request of this format goes to. Query parameters of the base URL are kept.
pub(crate) fn endpoint(base_url: &str, format: WireFormat) -> String {
    let (base, query) = match base_url.split_once('?') {
        Some((base, query)) => (base, Some(query)),
        None => (base_url, None),
    };
    let base = base.trim_end_matches('/');
    let path = match format {
        WireFormat::ChatCompletions => "/chat/completions",
        WireFormat::AnthropicMessages if base.ends_with("/v1") => "/messages",
        WireFormat::AnthropicMessages => "/v1/messages",
        WireFormat::Responses => "/responses",
    };
    // An address that names a format may be that of the other one.
    let known = [path, "/chat/completions", "/responses"];
    let base = known
        .iter()
        .find_map(|path| base.strip_suffix(path))
        .unwrap_or(base);
    match query {
        Some(query) => format!("{base}{path}?{query}"),
        None => format!("{base}{path}"),
    }
}

/// The input of an encoder.
#[derive(Clone, Copy)]
struct EncodeScope<'a> {
    request: &'a ModelRequest,
    quirks: &'a Quirks,
    route: &'a Route,
    info: &'a ModelInfo,
}

impl<'a> EncodeScope<'a> {
    /// The blob of that kind, if this model may receive it. A blob without issuer was accepted by
    /// the code that built the request. Plain text may go to any model of its provider; encrypted
    /// or signed content only to the model that made it.
    fn own_blob(&self, message: &'a AssistantMessage, kind: BlobKind) -> Option<&'a Value> {
        let own = |blob: &&WireBlob| {
            blob.kind == kind
                && blob
                    .issuer
                    .as_ref()
                    .is_none_or(|issuer| *issuer == self.route.provider)
        };
        let plain = kind == BlobKind::ReasoningContent;
        if !plain && !self.is_own_model(message) {
            return None;
        }
        message.blobs.iter().find(own).map(|blob| &blob.value)
    }

    /// Whether the model of this route wrote the message, as far as known.
    fn is_own_model(&self, message: &AssistantMessage) -> bool {
        message.written_by.as_ref().is_none_or(|by| {
            by.provider == self.route.provider && by.model.eq_ignore_ascii_case(&self.route.model)
        })
    }

    /// Whether a model of this provider wrote it, as far as known.
    fn is_own_provider(&self, message: &AssistantMessage) -> bool {
        let own = |id: &str| id == self.route.provider;
        if let Some(by) = &message.written_by {
            return own(&by.provider);
        }
        let mut issuers = message
            .blobs
            .iter()
            .filter_map(|blob| blob.issuer.as_deref());
        issuers.all(own)
    }

    /// Whether the ids of the message's calls were issued by this endpoint.
    fn issued_ids(&self, message: &AssistantMessage) -> bool {
        let by = message.written_by.as_ref();
        by.is_some_and(|by| by.provider == self.route.provider)
    }

    /// Whether images may be sent at all.
    fn images(&self) -> bool {
        self.quirks.images && self.info.images
    }

    fn tools(&self) -> &'a [hermes_core::tool::ToolSpec] {
        if self.info.tools {
            &self.request.tools
        } else {
            &[]
        }
    }

    /// The tools array, encoded for this endpoint by `shape`.
    fn written_tools<T: serde::Serialize>(
        &self,
        shape: impl FnOnce() -> T,
    ) -> Result<Arc<[u8]>, serde_json::Error> {
        let style = offered::ToolsStyle {
            format: self.quirks.format,
            schema: self.quirks.schema,
        };
        offered::written(&self.request.tools, style, shape)
    }
}

/// The answer cannot be read further.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WireFault {
    /// The provider reported an error inside the answer: the JSON that contains it.
    Provider(Value),
    /// The answer violates the format.
    Malformed(String),
}

/// Turns events of the stream into [`ModelEvent`]s.
#[derive(Debug)]
pub(crate) struct AnswerDecoder {
    inner: FormatDecoder,
    stray: Option<String>,
}

#[derive(Debug)]
enum FormatDecoder {
    Chat(Box<chat::ChatDecoder>),
    Anthropic(Box<anthropic::AnthropicDecoder>),
    Responses(Box<responses::ResponsesDecoder>),
}

impl AnswerDecoder {
    /// A decoder for the answer to `request`.
    pub(crate) fn new(request: &ModelRequest, quirks: &Quirks, route: &Route) -> Self {
        let issuer = route.provider.as_str();
        let salt = request.messages.len();
        let inner = match quirks.format {
            WireFormat::ChatCompletions => {
                let offered = Arc::clone(&request.tools);
                FormatDecoder::Chat(Box::new(chat::ChatDecoder::new(
                    issuer,
                    quirks.echo,
                    salt,
                    offered,
                )))
            }
            WireFormat::AnthropicMessages => {
                FormatDecoder::Anthropic(Box::new(anthropic::AnthropicDecoder::new(issuer, salt)))
            }
            WireFormat::Responses => {
                FormatDecoder::Responses(Box::new(responses::ResponsesDecoder::new(issuer, salt)))
            }
        };
        Self { inner, stray: None }
    }

    /// Takes one event of the stream.
    pub(crate) fn push(&mut self, event: &SseEvent) -> Result<Vec<ModelEvent>, WireFault> {
        let name = event.name.as_deref().unwrap_or_default();
        let data = event.data.as_deref().unwrap_or_default().trim();
        if data.is_empty() {
            return Ok(Vec::new());
        }
        if data.trim_matches('"').eq_ignore_ascii_case("[done]") {
            self.done();
            return Ok(Vec::new());
        }
        if name == "error" && !data.starts_with(['{', '[']) {
            return Err(WireFault::Provider(Value::String(data.to_owned())));
        }
        // Text between the events ("heartbeat") is no reason to discard an answer.
        if !data.starts_with(['{', '[']) {
            self.note(data);
            return Ok(Vec::new());
        }
        let mut value: Value = json::lenient(data).map_err(|error| {
            WireFault::Malformed(format!(
                "an event of the stream is not JSON ({error}): {}",
                hermes_core::text::shorten(data, 200)
            ))
        })?;
        if let Some(fault) = json::fault(&value, name) {
            return Err(fault);
        }
        self.name(&mut value, name);
        let known = match self.inner {
            FormatDecoder::Chat(_) => chat::is_event(&value),
            FormatDecoder::Anthropic(_) => value.get("type").is_some(),
            FormatDecoder::Responses(_) => {
                value.get("type").is_some() || value.get("object").is_some()
            }
        };
        if !known {
            self.note(data);
            return Ok(Vec::new());
        }
        match &mut self.inner {
            FormatDecoder::Chat(decoder) => decoder.push(&value),
            FormatDecoder::Anthropic(decoder) => decoder.push(&value),
            FormatDecoder::Responses(decoder) => decoder.push(&value),
        }
    }

    /// Sets the kind of an event that only its `event:` line names.
    fn name(&self, value: &mut Value, name: &str) {
        let kind = match self.inner {
            FormatDecoder::Chat(_) => false,
            FormatDecoder::Anthropic(_) => {
                name.starts_with("message_") || name.starts_with("content_")
            }
            FormatDecoder::Responses(_) => {
                name.starts_with("response.") && value.get("object").is_none()
            }
        };
        if let (true, Some(fields)) = (kind, value.as_object_mut()) {
            fields.entry("type").or_insert_with(|| name.into());
        }
    }

    /// Takes an answer that arrived in one piece although a stream was requested.
    pub(crate) fn whole(&mut self, value: &Value) -> Result<Vec<ModelEvent>, WireFault> {
        if let Some(fault) = json::fault(value, "") {
            return Err(fault);
        }
        match &mut self.inner {
            FormatDecoder::Chat(decoder) => decoder.whole(value),
            FormatDecoder::Anthropic(decoder) => decoder.whole(value),
            FormatDecoder::Responses(decoder) => decoder.whole(value),
        }
    }

    /// The stream reported its end.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.inner {
            FormatDecoder::Chat(decoder) => decoder.is_complete(),
            FormatDecoder::Anthropic(decoder) => decoder.is_complete(),
            FormatDecoder::Responses(decoder) => decoder.is_complete(),
        }
    }

    /// The stream ended: returns what was held back and the finish reason. Empty if nothing had
    /// arrived.
    pub(crate) fn finish(self) -> Vec<ModelEvent> {
        match self.inner {
            FormatDecoder::Chat(decoder) => decoder.finish(),
            FormatDecoder::Anthropic(decoder) => decoder.finish(),
            FormatDecoder::Responses(decoder) => decoder.finish(),
        }
    }

    /// Data that is not an event of the format. It matters only if nothing else arrived.
    pub(crate) fn stray(&self) -> Option<&str> {
        self.stray.as_deref()
    }

    fn note(&mut self, text: &str) {
        self.stray
            .get_or_insert_with(|| hermes_core::text::shorten(text, 200));
    }

    /// The stream reported that it is complete; a missing finish reason is then not a truncation.
    fn done(&mut self) {
        if let FormatDecoder::Chat(decoder) = &mut self.inner {
            decoder.done();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let chat = WireFormat::ChatCompletions;
        let anthropic = WireFormat::AnthropicMessages;
        let cases = [
            (
                "https://x.test/v1",
                chat,
                "https://x.test/v1/chat/completions",
            ),
            (
                "https://x.test/v1/",
                chat,
                "https://x.test/v1/chat/completions",
            ),
            (
                "https://x.test/v1/chat/completions",
                chat,
                "https://x.test/v1/chat/completions",
            ),
            (
                "https://x.test/openai?api-version=1",
                chat,
                "https://x.test/openai/chat/completions?api-version=1",
            ),
            ("https://x.test", anthropic, "https://x.test/v1/messages"),
            ("https://x.test/v1", anthropic, "https://x.test/v1/messages"),
            (
                "https://x.test/anthropic",
                anthropic,
                "https://x.test/anthropic/v1/messages",
            ),
            (
                "https://x.test/v1",
                WireFormat::Responses,
                "https://x.test/v1/responses",
            ),
            (
                "https://x.test/v1/chat/completions",
                WireFormat::Responses,
                "https://x.test/v1/responses",
            ),
        ];
        for (base, format, url) in cases {
            assert_eq!(endpoint(base, format), url);
        }
    }
}
