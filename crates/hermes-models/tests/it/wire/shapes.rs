//! Endpoints that refuse the way a conversation is written: ids, roles, schemas, images, sizes. The
//! call succeeds with one more request, and the next one needs none.

use std::sync::Arc;

use futures_util::StreamExt;
use hermes_config::home::Home;
use hermes_core::message::{AssistantMessage, Content, Message, Part, ToolCall, UserMessage};
use hermes_core::model::{Collector, ModelClient, ModelError, ModelRequest, WireFormat};
use hermes_core::tool::{Effects, ToolSpec};
use hermes_models::{FieldRuleCache, HttpModelClient};
use hermes_testkit::model_server::{ModelServer, RecordedRequest, Reply};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{FORMATS, parts, request};

const CHAT: WireFormat = WireFormat::ChatCompletions;

fn tool(nth: usize) -> ToolSpec {
    ToolSpec {
        name: format!("look{nth}"),
        description: "To look. ".repeat(150),
        parameters: Arc::new(json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "pattern": "^/.*$", "default": "/"},
                "tags": {"type": "array"},
                "kind": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            },
        })),
        toolset: "files",
        effects: Effects::ReadOnly,
        untrusted: false,
    }
}

/// A question with an image, a call, its result with an image, and a question.
fn asked() -> ModelRequest {
    let call = ToolCall {
        id: "chatcmpl-tool-db309d8c2d1d4dbb993017c0330862a8".into(),
        name: "look0".into(),
        arguments: "{}".into(),
        ..ToolCall::default()
    };
    let picture = || Part::image("data:image/png;base64,AAAA");
    let mut result = Message::tool(&call, "");
    if let Message::Tool(tool) = &mut result {
        tool.content = Content::Parts(vec![Part::text("seen"), picture()]);
    }
    let log = [
        Message::User(UserMessage {
            content: Content::Parts(vec![Part::text("see"), picture()]),
            wire_text: None,
        }),
        Message::Assistant(AssistantMessage {
            text: "I look.".into(),
            tool_calls: vec![call],
            ..AssistantMessage::default()
        }),
        result,
        Message::user("and now?"),
    ];
    ModelRequest {
        tools: (0..5).map(tool).collect::<Vec<_>>().into(),
        ..request(log)
    }
}

async fn ask(server: &ModelServer, format: WireFormat, home: &Home) -> Result<String, ModelError> {
    let mut parts = parts(&server.base_url(), format);
    parts.quirks.list_tool_content = true;
    parts.fields = Arc::new(FieldRuleCache::new(home));
    let client = HttpModelClient::new(parts);
    let mut stream = client.stream(asked(), CancellationToken::new());
    let mut collector = Collector::default();
    while let Some(event) = stream.next().await {
        collector.push(&event?);
    }
    Ok(collector.finish().0.text)
}

/// Asks twice, as before and after a restart: one refusal in all.
async fn recovers_once(
    format: WireFormat,
    status: u16,
    error: Value,
    refuses: impl Fn(&Value) -> bool + Send + Sync + 'static,
) -> Value {
    let server = ModelServer::start();
    let wording = error.clone();
    server.answer_with(move |request: &RecordedRequest| {
        if refuses(&request.body) {
            Reply::json(status, &wording)
        } else {
            Reply::text("fine")
        }
    });
    let home = tempfile::tempdir().unwrap();
    let home = Home::at(home.path());
    for requests in [2, 3] {
        let said = ask(&server, format, &home).await;
        assert_eq!(said.as_deref(), Ok("fine"), "{format:?} {error}");
        assert_eq!(
            server.model_requests().len(),
            requests,
            "{format:?} {error}"
        );
    }
    server.last_request().body
}

fn message(text: &str) -> Value {
    json!({"error": {"message": text, "type": "invalid_request_error"}})
}

#[tokio::test]
async fn ids_of_calls() {
    let long = |body: &Value| {
        let text = body.to_string().replace("\"call_id\"", "");
        text.contains("\"chatcmpl-tool") || text.contains("\"call_")
    };
    for format in FORMATS {
        for text in [
            "Tool call id was call_0fypS1hVX but must be a-z, A-Z, 0-9, with a length of 9.",
            "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 20, but got a string with length 46 instead.",
            "Invalid 'input[95].call_id': string too long. Expected a string with maximum length 20, but got a string with length 116 instead.",
            "messages.1.content.1.tool_use.id: String should match pattern '^[a-zA-Z0-9]+$'",
        ] {
            recovers_once(format, 400, message(text), long).await;
        }
    }
}

#[tokio::test]
async fn a_system_prompt_without_a_place() {
    let system = |body: &Value| {
        body["messages"].as_array().is_some_and(|messages| {
            messages
                .iter()
                .any(|message| matches!(message["role"].as_str(), Some("system" | "developer")))
        })
    };
    for (status, text) in [
        (400, "System role not supported"),
        (500, "Jinja Exception: System role not supported"),
        (
            400,
            "Developer instruction is not enabled for models/gemma-3-27b-it",
        ),
    ] {
        let body = recovers_once(CHAT, status, message(text), system).await;
        assert_eq!(body["messages"][0]["role"], "user");
        assert_eq!(body["messages"][0]["content"][0]["text"], "Be brief.");
    }
}

#[tokio::test]
async fn words_of_schemas() {
    let odd = |body: &Value| {
        let tools = body["tools"].to_string();
        ["pattern", "default", "oneOf"]
            .iter()
            .any(|word| tools.contains(&format!("\"{word}\"")))
            || !tools.contains("\"items\"")
    };
    for format in FORMATS {
        for (status, text) in [
            (
                400,
                "Invalid schema for function 'look0': In context=('properties', 'tags'), array schema missing items.",
            ),
            (
                400,
                "tools.3.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
            ),
            (
                500,
                "JSON schema conversion failed:\nUnrecognized schema: {\"not\":{}}",
            ),
            (400, "Grammar error: Unimplemented keys: [\"pattern\"]"),
        ] {
            recovers_once(format, status, message(text), odd).await;
        }
    }
}

#[tokio::test]
async fn images_where_there_is_no_place_for_them() {
    let shown = |body: &Value| body.to_string().contains("base64");
    for format in FORMATS {
        for text in [
            "Image inputs are not supported by this model",
            "Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected `text` at line 1 column 512",
            "At most 0 image(s) may be provided in one request.",
            "messages.1.content must be a string",
        ] {
            recovers_once(format, 400, message(text), shown).await;
        }
    }
}

#[tokio::test]
async fn tools_that_are_too_many_or_described_at_length() {
    for format in FORMATS {
        let path = if format == CHAT { "function." } else { "" };
        let place = format!("tools[0].{path}description");
        let text = format!(
            "Invalid '{place}': string too long. Expected a string with maximum length 1024, but got a string with length 1350 instead."
        );
        let error =
            json!({"error": {"message": text, "param": place, "code": "string_above_max_length"}});
        let pointer = format!("/tools/0/{}description", path.replace('.', "/"));
        recovers_once(format, 400, error, move |body| {
            let text = body.pointer(&pointer).and_then(Value::as_str);
            text.is_some_and(|text| text.chars().count() > 1024)
        })
        .await;
        let text = "Invalid 'tools': array too long. Expected an array with maximum length 3, but got an array with length 5 instead.";
        let error =
            json!({"error": {"message": text, "param": "tools", "code": "array_above_max_length"}});
        recovers_once(format, 400, error, |body| {
            body["tools"]
                .as_array()
                .is_some_and(|tools| tools.len() > 3)
        })
        .await;
    }
}
