//! Streams as servers and proxies write them. Whatever stands around an answer, it is read; whatever
//! is no end of one is not taken for it.

use hermes_core::message::FinishReason;
use hermes_core::model::WireFormat;
use hermes_testkit::model_server::{ModelServer, Reply};
use serde_json::{Value, json};

use super::{answer, client, events, failure};

const CHAT: WireFormat = WireFormat::ChatCompletions;

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn delta(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}}]})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn plain() -> String {
    [delta("one "), delta("two"), end("stop")]
        .iter()
        .map(event)
        .collect::<String>()
        + "data: [DONE]\n\n"
}

async fn read(stream: &str) -> (String, Option<FinishReason>) {
    let server = ModelServer::start();
    server.push(Reply::http(200, stream).header("content-type", "text/event-stream"));
    let (message, _) = answer(&client(&server, CHAT)).await;
    (message.text, message.finish)
}

#[tokio::test]
async fn what_stands_around_an_answer_is_passed_over() {
    let other = json!({"choices": [{"index": 1, "delta": {"content": "OTHER"}}]});
    let both = json!({"choices": [
        {"index": 1, "delta": {"content": "OTHER"}}, {"index": 0, "delta": {"content": "no"}},
    ]});
    let lines = [delta("one "), delta("two"), end("stop")]
        .map(|event| event.to_string())
        .join("\n");
    let older = event(&json!({"choices": [{"index": 0, "text": "one two"}]}))
        + &event(&json!({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}));
    for stream in [
        format!("data: {{}}\n\n{}", plain()),
        format!("data: null\n\n{}", plain()),
        format!("data: heartbeat\n\n{}", plain()),
        format!("data: {{\"keepalive\":true}}\n\n{}", plain()),
        plain().replace("data: [DONE]", "data: [done]"),
        plain().replace("data: [DONE]", "data: \"[DONE]\""),
        plain().replace("\n\n", "\n\ndata: \"ping\"\n\n"),
        event(&delta("one ")) + &event(&other) + &event(&delta("two")) + &event(&end("stop")),
        lines,
        older,
    ] {
        let (text, finish) = read(&stream).await;
        assert_eq!(text, "one two", "{stream}");
        assert_eq!(finish, Some(FinishReason::Stop), "{stream}");
    }
    let (text, _) = read(&(event(&both) + &event(&end("stop")))).await;
    assert_eq!(text, "OTHER", "the choice that came first");
}

#[tokio::test]
async fn a_call_that_is_repeated_whole_is_one_call() {
    let piece = |arguments: &str| {
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "c1", "function": {"name": "read", "arguments": arguments}},
        ]}}]})
    };
    let whole = "{\"path\":\"a\"}";
    for pieces in [vec![whole, whole], vec!["{\"path\"", ":\"a\"}", whole]] {
        let stream: String = pieces
            .iter()
            .map(|arguments| event(&piece(arguments)))
            .chain([event(&end("tool_calls"))])
            .collect();
        let server = ModelServer::start();
        server.push(Reply::http(200, &stream).header("content-type", "text/event-stream"));
        let (message, _) = answer(&client(&server, CHAT)).await;
        assert_eq!(message.tool_calls.len(), 1, "{stream}");
        assert_eq!(message.tool_calls[0].arguments, whole, "{stream}");
    }
}

#[tokio::test]
async fn an_answer_of_another_kind_is_named() {
    for stream in [
        "data: {\"hello\": 1}\n\n",
        "data: Service is starting\n\n",
        "event: message_start\ndata: {\"type\":\"message_start\"}\n\n",
    ] {
        let server = ModelServer::start();
        server.push(Reply::http(200, stream).header("content-type", "text/event-stream"));
        let error = failure(&client(&server, CHAT)).await;
        assert!(error.message.contains("format"), "{stream}: {error}");
    }
}

#[tokio::test]
async fn an_error_in_words_ends_the_answer() {
    for tail in [
        "event: error\ndata: upstream exploded\n\n",
        "event: error\ndata: {\"message\":\"upstream exploded\"}\n\n",
        "data: {\"error\":\"upstream exploded\"}\n\n",
    ] {
        let server = ModelServer::start();
        let stream = event(&delta("one ")) + tail;
        server.push(Reply::http(200, &stream).header("content-type", "text/event-stream"));
        let last = events(&client(&server, CHAT)).await.pop().unwrap();
        let error = last.expect_err(tail);
        assert!(error.message.contains("exploded"), "{error}");
    }
}
