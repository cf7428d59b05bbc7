//! The three formats, end to end.

use hermes_core::message::{FinishReason, Message};
use hermes_core::model::{ModelClient, WireFormat};
use hermes_models::quirks::{AuthStyle, Quirks, ThinkingReplay};
use hermes_testkit::model_server::{ModelServer, Reply, ReplyUsage, ScriptedCall};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{FORMATS, answer, client, parts, request};
use futures_util::StreamExt;

fn rich() -> Reply {
    Reply::text("Grüße")
        .signed_reasoning("hm", Some("sealed"))
        .and_call(ScriptedCall::new("call_a", "read_file", &json!({"path": "a"})).chunks(3))
        .and_tool_call("call_b", "todo", &json!({}))
        .usage(ReplyUsage {
            prompt: 100,
            completion: 10,
            cached: 60,
            reasoning: 4,
            ..ReplyUsage::default()
        })
}

#[tokio::test]
async fn everything_at_once() {
    for format in FORMATS {
        let server = ModelServer::start();
        server.push(rich().torn(7).crlf());
        let (message, usage) = answer(&client(&server, format)).await;
        assert_eq!(message.text, "Grüße", "{format:?}");
        assert_eq!(message.reasoning.as_deref(), Some("hm"), "{format:?}");
        let calls: Vec<(&str, &str, &str)> = message
            .tool_calls
            .iter()
            .map(|call| {
                (
                    call.id.as_str(),
                    call.name.as_str(),
                    call.arguments.as_str(),
                )
            })
            .collect();
        assert_eq!(
            calls,
            [
                ("call_a", "read_file", "{\"path\":\"a\"}"),
                ("call_b", "todo", "{}")
            ],
            "{format:?}"
        );
        assert_eq!(message.finish, Some(FinishReason::ToolCalls), "{format:?}");
        let usage = usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens(), usage.cache_read, usage.output),
            (100, 60, 10),
            "{format:?}"
        );
    }
}

#[tokio::test]
async fn one_object_in_place_of_a_stream() {
    for format in FORMATS {
        let server = ModelServer::start();
        server.push(rich().json_answer());
        let (message, usage) = answer(&client(&server, format)).await;
        assert_eq!(message.text, "Grüße", "{format:?}");
        assert_eq!(message.tool_calls.len(), 2, "{format:?}");
        assert_eq!(message.finish, Some(FinishReason::ToolCalls), "{format:?}");
        assert!(usage.is_some(), "{format:?}");
    }
}

#[tokio::test]
async fn requests_arrive_as_the_format_wants_them() {
    for format in FORMATS {
        let server = ModelServer::start();
        server.push(Reply::text("ok"));
        answer(&client(&server, format)).await;
        let seen = server.last_request();
        assert!(seen.streams(), "{format:?}");
        assert_eq!(seen.api_key(), Some("key-0123456789"), "{format:?}");
        assert_eq!(seen.system(), "Be brief.", "{format:?}");
        assert_eq!(seen.last_user_text(), "hi", "{format:?}");
        assert_eq!(
            seen.header("user-agent"),
            Some(concat!("hermes/", env!("CARGO_PKG_VERSION")))
        );
        let anthropic = format == WireFormat::AnthropicMessages;
        assert_eq!(
            seen.header("anthropic-version").is_some(),
            anthropic,
            "{format:?}"
        );
    }
}

#[tokio::test]
async fn signed_thinking_returns_to_its_issuer() {
    let server = ModelServer::start();
    server.push_all([rich(), Reply::text("done")]);
    let mut quirks = Quirks::new(WireFormat::AnthropicMessages);
    quirks.thinking = ThinkingReplay::Signed;
    quirks.auth = AuthStyle::Bearer;
    let mut parts = parts(&server.base_url(), WireFormat::AnthropicMessages);
    parts.quirks = quirks;
    let client = hermes_models::HttpModelClient::new(parts);
    let (message, _) = answer(&client).await;
    let results: Vec<Message> = message
        .tool_calls
        .iter()
        .map(|call| Message::tool(call, "done"))
        .collect();
    let log = [Message::user("hi"), Message::Assistant(message)];
    let stream = client.stream(
        request(log.into_iter().chain(results)),
        CancellationToken::new(),
    );
    assert!(stream.all(|event| std::future::ready(event.is_ok())).await);
    let sent = server.last_request();
    assert!(sent.header("authorization").is_some());
    let blocks = &sent.body["messages"][1]["content"];
    assert_eq!(
        blocks[0],
        json!({"type": "thinking", "thinking": "hm", "signature": "sealed"})
    );
    assert_eq!(blocks[2]["id"], "call_a");
}
