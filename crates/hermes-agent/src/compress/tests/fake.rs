//! A summarising model, a clock and conversations made to measure.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::StreamExt;
use hermes_core::clock::Clock;
use hermes_core::message::{AssistantMessage, FinishReason, Message, ToolCall};
use hermes_core::model::{
    ErrorClass, ModelClient, ModelError, ModelEvent, ModelInfo, ModelRequest, ModelStream, Route,
    WireFormat,
};
use hermes_core::usage::Usage;
use tokio_util::sync::CancellationToken;

/// What the model does when it is called.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Text(String),
    Fail(ErrorClass),
    Hang,
}

pub(crate) struct FakeModel {
    route: Route,
    info: ModelInfo,
    replies: Mutex<VecDeque<Reply>>,
    /// Used when the scripted replies are gone.
    default: Reply,
    pub requests: Mutex<Vec<String>>,
}

impl FakeModel {
    pub(crate) fn new(name: &str, default: Reply) -> Arc<Self> {
        Self::with_context(name, default, 200_000)
    }

    pub(crate) fn with_context(name: &str, default: Reply, context_length: u32) -> Arc<Self> {
        Arc::new(Self {
            route: Route {
                provider: "test".into(),
                model: name.into(),
                base_url: "http://test".into(),
                format: WireFormat::ChatCompletions,
                credential: None,
            },
            info: ModelInfo {
                context_length,
                context_source: "config",
                max_output: None,
                images: false,
                tools: true,
                prices: None,
                local: true,
                small: false,
            },
            replies: Mutex::default(),
            default,
            requests: Mutex::default(),
        })
    }

    pub(crate) fn next(&self, reply: Reply) {
        self.replies.lock().unwrap().push_back(reply);
    }

    pub(crate) fn calls(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub(crate) fn last_request(&self) -> String {
        self.requests.lock().unwrap().last().cloned().unwrap()
    }
}

impl ModelClient for FakeModel {
    fn route(&self) -> &Route {
        &self.route
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn stream(&self, request: ModelRequest, _cancel: CancellationToken) -> ModelStream {
        let Message::User(user) = request.messages[0].as_ref() else {
            panic!("the request is one user message");
        };
        self.requests
            .lock()
            .unwrap()
            .push(user.content.text().into_owned());
        let scripted = self.replies.lock().unwrap().pop_front();
        match scripted.unwrap_or_else(|| self.default.clone()) {
            Reply::Text(text) => {
                let usage = Usage {
                    input: 10,
                    output: 5,
                    ..Usage::default()
                };
                let events = [
                    ModelEvent::Started,
                    ModelEvent::Text(text),
                    ModelEvent::Usage(usage),
                    ModelEvent::Finished(FinishReason::Stop),
                ];
                futures_util::stream::iter(events.map(Ok)).boxed()
            }
            Reply::Fail(class) => {
                let error = ModelError {
                    class,
                    provider: "test".into(),
                    model: self.route.model.clone(),
                    status: None,
                    message: "as scripted".into(),
                    retry_after: None,
                    limit: None,
                };
                futures_util::stream::iter([Err(error)]).boxed()
            }
            Reply::Hang => futures_util::stream::pending().boxed(),
        }
    }
}

#[derive(Default)]
pub(crate) struct FakeClock(Mutex<Duration>);

impl FakeClock {
    pub(crate) fn advance(&self, seconds: u64) {
        *self.0.lock().unwrap() += Duration::from_secs(seconds);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> DateTime<Utc> {
        let start = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        start + *self.0.lock().unwrap()
    }
}

/// Text of about so many raw tokens, different for each `seed`.
pub(crate) fn filler(seed: usize, tokens: usize) -> String {
    let mut text = format!("#{seed} ");
    while text.len() < tokens * 4 {
        text.push_str(["lorem ", "ipsum ", "dolor ", "sit\n"][(seed + text.len()) % 4]);
    }
    text.truncate((tokens * 4).max(4));
    text
}

pub(crate) fn user(text: impl Into<String>) -> Arc<Message> {
    Arc::new(Message::user(text))
}

pub(crate) fn answer(text: impl Into<String>) -> Arc<Message> {
    Arc::new(Message::assistant(text))
}

/// An answer with calls, and their results.
pub(crate) fn step(id: usize, argument: &str, outputs: &[String]) -> Vec<Arc<Message>> {
    let calls: Vec<ToolCall> = (0..outputs.len())
        .map(|n| ToolCall {
            id: format!("call_{id}_{n}"),
            name: "read_file".into(),
            arguments: serde_json::json!({"path": format!("f{id}_{n}.rs"), "note": argument})
                .to_string(),
            ..ToolCall::default()
        })
        .collect();
    let results: Vec<Arc<Message>> = calls
        .iter()
        .zip(outputs)
        .map(|(call, output)| Arc::new(Message::tool(call, output.clone())))
        .collect();
    let mut rows = vec![Arc::new(Message::Assistant(AssistantMessage {
        text: format!("step {id}"),
        tool_calls: calls,
        ..AssistantMessage::default()
    }))];
    rows.extend(results);
    rows
}

/// What a summary row's user wrote, or the row's text.
pub(crate) fn own_text(row: &Message) -> String {
    match row {
        Message::User(user) => crate::compress::summary::visible(&user.content.text()).to_owned(),
        _ => String::new(),
    }
}

/// Fails unless every call has its result right after it, every result its call, and no two user
/// rows touch.
pub(crate) fn assert_well_formed(view: &[Arc<Message>]) {
    let mut open: Vec<String> = Vec::new();
    let mut last_user = false;
    for row in view {
        match row.as_ref() {
            Message::User(_) => {
                assert!(open.is_empty(), "calls without result: {open:?}");
                assert!(!last_user, "two user rows in a row");
            }
            Message::Assistant(assistant) => {
                assert!(open.is_empty(), "calls without result: {open:?}");
                open = assistant
                    .tool_calls
                    .iter()
                    .map(|call| call.id.clone())
                    .collect();
            }
            Message::Tool(tool) => {
                let at = open.iter().position(|id| *id == tool.call_id);
                open.remove(at.expect("a result without its call"));
            }
        }
        last_user = matches!(row.as_ref(), Message::User(_));
    }
    assert!(open.is_empty(), "calls without result: {open:?}");
    assert!(
        matches!(view.first().map(AsRef::as_ref), Some(Message::User(_))),
        "a conversation begins with the user"
    );
}

pub(crate) fn assert_arguments_are_json(view: &[Arc<Message>]) {
    for row in view {
        if let Message::Assistant(assistant) = row.as_ref() {
            for call in &assistant.tool_calls {
                serde_json::from_str::<serde_json::Value>(&call.arguments).unwrap();
            }
        }
    }
}
