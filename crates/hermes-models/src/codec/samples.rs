//! Requests and routes for the tests of the codecs.

use std::sync::Arc;

use hermes_core::message::{
    AssistantMessage, BlobKind, Content, Message, Part, ToolCall, WireBlob,
};
use hermes_core::model::{
    Collector, ModelEvent, ModelInfo, ModelRequest, Route, ToolChoice, WireFormat,
};
use hermes_core::tool::{Effects, ToolSpec};
use hermes_core::usage::Usage;
use hermes_http::sse::SseEvent;
use serde_json::{Value, json};

use super::{AnswerDecoder, EncodeScope, WireFault};
use crate::quirks::Quirks;

pub(crate) struct Sample {
    pub(crate) request: ModelRequest,
    pub(crate) quirks: Quirks,
    pub(crate) route: Route,
    pub(crate) info: ModelInfo,
}

impl Sample {
    pub(crate) fn new(format: WireFormat) -> Self {
        Self {
            request: ModelRequest {
                session: "s-1".into(),
                system: " You are here. \n".into(),
                messages: log().into_iter().map(Arc::new).collect(),
                tools: vec![tool("read"), tool("write")].into(),
                tool_choice: ToolChoice::Auto,
                max_tokens: None,
                temperature: None,
                reasoning: None,
            },
            quirks: Quirks::new(format),
            route: Route {
                provider: "prov".into(),
                model: "m".into(),
                base_url: "https://x.test/v1".into(),
                format,
                credential: None,
            },
            info: ModelInfo {
                context_length: 200_000,
                context_source: "config",
                max_output: Some(8_000),
                images: true,
                tools: true,
                prices: None,
                local: false,
                small: false,
            },
        }
    }

    pub(crate) fn chat() -> Self {
        Self::new(WireFormat::ChatCompletions)
    }

    pub(super) fn scope(&self) -> EncodeScope<'_> {
        EncodeScope {
            request: &self.request,
            quirks: &self.quirks,
            route: &self.route,
            info: &self.info,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        super::encode(&self.request, &self.quirks, &self.route, &self.info)
            .unwrap()
            .body
    }

    pub(crate) fn body(&self) -> Value {
        serde_json::from_slice(&self.bytes()).unwrap()
    }

    pub(crate) fn set_log(&mut self, log: impl IntoIterator<Item = Message>) {
        self.request.messages = log.into_iter().map(Arc::new).collect();
    }
}

pub(crate) fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: format!("To {name}."),
        parameters: Arc::new(json!({"type": "object", "properties": {"path": {"type": "string"}}})),
        toolset: "files",
        effects: Effects::ReadOnly,
        untrusted: false,
    }
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
        ..ToolCall::default()
    }
}

/// A user message with an image, two parallel calls, their results, an answer, a question.
pub(crate) fn log() -> Vec<Message> {
    let first = call("c1", "read", "{ \"path\": \"b\",\n \"at\": 1 }");
    let second = call("c2", "write", "");
    vec![
        Message::User(hermes_core::message::UserMessage {
            content: Content::Parts(vec![
                Part::text(" look "),
                Part::image("data:image/png;base64,AAAA"),
            ]),
            wire_text: None,
        }),
        Message::Assistant(AssistantMessage {
            text: "  ".into(),
            reasoning: Some("hm".into()),
            tool_calls: vec![first.clone(), second.clone()],
            ..AssistantMessage::default()
        }),
        Message::tool(&first, " one \n"),
        Message::tool(&second, "two"),
        Message::assistant("done \n"),
        Message::user("thanks"),
    ]
}

/// Decodes a stream given as the JSON of its events.
pub(crate) fn decode(
    sample: &Sample,
    events: &[Value],
    done: bool,
) -> Result<Vec<ModelEvent>, WireFault> {
    let mut decoder = AnswerDecoder::new(&sample.request, &sample.quirks, &sample.route);
    let mut out = Vec::new();
    for event in events {
        out.extend(decoder.push(&sse(&event.to_string()))?);
    }
    if done {
        out.extend(decoder.push(&sse("[DONE]"))?);
    }
    out.extend(decoder.finish());
    Ok(out)
}

fn sse(data: &str) -> SseEvent {
    SseEvent {
        data: Some(data.to_owned()),
        ..SseEvent::default()
    }
}

/// Decodes a stream into the message that it spells.
pub(crate) fn collect(
    sample: &Sample,
    events: &[Value],
    done: bool,
) -> (AssistantMessage, Option<Usage>) {
    let mut collector = Collector::default();
    for event in decode(sample, events, done).unwrap() {
        collector.push(&event);
    }
    collector.finish()
}

pub(crate) fn blob(kind: BlobKind, issuer: &str, value: Value) -> WireBlob {
    WireBlob {
        kind,
        issuer: Some(issuer.into()),
        value,
    }
}
