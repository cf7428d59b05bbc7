use hermes_core::message::{
    AssistantMessage, BlobKind, Content, FinishReason, Message, UserMessage,
};
use hermes_core::model::{ModelEvent, ReasoningEffort, ToolChoice, WireFormat};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::codec::WireFault;
use crate::codec::samples::{Sample, blob, call, collect, decode};
use crate::quirks::{CacheLayout, ReasoningShape, ThinkingReplay};

fn sample() -> Sample {
    Sample::new(WireFormat::AnthropicMessages)
}

#[test]
fn a_request() {
    let body = sample().body();
    assert_eq!(body["system"], "You are here.");
    assert_eq!(body["max_tokens"], 8_000);
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            ]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"at": 1, "path": "b"}},
                {"type": "tool_use", "id": "c2", "name": "write", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
            ]},
            {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
            {"role": "user", "content": [{"type": "text", "text": "thanks"}]},
        ])
    );
    assert_eq!(
        body["tools"][0],
        json!({"name": "read", "description": "To read.", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}})
    );
}

#[test]
fn four_breakpoints_tools_system_and_the_last_two() {
    let mut sample = sample();
    sample.quirks.cache = CacheLayout::AnthropicNative;
    let body = sample.body();
    assert_eq!(body.to_string().matches("cache_control").count(), 4);
    let marker = json!({"type": "ephemeral"});
    assert_eq!(body["system"][0]["cache_control"], marker);
    assert_eq!(body["tools"][1]["cache_control"], marker);
    assert_eq!(body["messages"][3]["content"][0]["cache_control"], marker);
    assert_eq!(body["messages"][4]["content"][0]["cache_control"], marker);
    sample.request.tools = Vec::new().into();
    let body = sample.body();
    // The place of the tools goes to one more message, inside its last result.
    assert_eq!(body["messages"][2]["content"][1]["cache_control"], marker);
    assert_eq!(body.to_string().matches("cache_control").count(), 4);
}

fn thinking_log(issuer: &str) -> Vec<Message> {
    let calls = vec![
        call("c1", "read", "{\"fixed\":true}"),
        call("c2", "write", "{}"),
    ];
    vec![
        Message::user("q"),
        Message::Assistant(AssistantMessage {
            text: "said".into(),
            tool_calls: calls.clone(),
            blobs: vec![blob(
                BlobKind::ReasoningDetails,
                issuer,
                json!([
                    {"type": "thinking", "thinking": "one", "signature": "s1"},
                    {"type": "text", "text": "said"},
                    {"type": "tool_use", "id": "c1", "name": "read", "input": {}},
                    {"type": "thinking", "thinking": "two"},
                    {"type": "redacted_thinking", "data": "zz"},
                    {"type": "tool_use", "id": "c2", "name": "write", "input": {}},
                ]),
            )],
            ..AssistantMessage::default()
        }),
        Message::tool(&calls[0], "r1"),
        Message::tool(&calls[1], "r2"),
    ]
}

fn kinds(replay: ThinkingReplay, issuer: &str) -> Vec<String> {
    let mut sample = sample();
    sample.quirks.thinking = replay;
    sample.set_log(thinking_log(issuer));
    let body = sample.body();
    let blocks = body["messages"][1]["content"].as_array().unwrap();
    assert!(blocks.contains(
        &json!({"type": "tool_use", "id": "c1", "name": "read", "input": {"fixed": true}})
    ));
    blocks
        .iter()
        .map(|block| {
            block["thinking"]
                .as_str()
                .or(block["type"].as_str())
                .unwrap()
                .to_owned()
        })
        .collect()
}

#[test]
fn thinking_keeps_its_place_where_it_may_go_back() {
    let rest = ["text", "tool_use", "tool_use"];
    assert_eq!(kinds(ThinkingReplay::Strip, "prov"), rest);
    assert_eq!(kinds(ThinkingReplay::Signed, "other"), rest);
    assert_eq!(
        kinds(ThinkingReplay::Signed, "prov"),
        ["one", "text", "tool_use", "redacted_thinking", "tool_use"]
    );
    assert_eq!(
        kinds(ThinkingReplay::All, "prov"),
        [
            "one",
            "text",
            "tool_use",
            "two",
            "redacted_thinking",
            "tool_use"
        ]
    );
    assert_eq!(
        kinds(ThinkingReplay::Unsigned, "prov"),
        ["text", "tool_use", "two", "tool_use"]
    );
}

#[test]
fn thinking_alone_stands_in_front() {
    let mut sample = sample();
    sample.quirks.thinking = ThinkingReplay::Signed;
    sample.set_log([
        Message::user("q"),
        Message::Assistant(AssistantMessage {
            text: "a".into(),
            tool_calls: vec![call("c1", "read", "{}")],
            blobs: vec![blob(
                BlobKind::ReasoningDetails,
                "prov",
                json!([{"type": "thinking", "thinking": "t", "signature": "s"}]),
            )],
            ..AssistantMessage::default()
        }),
    ]);
    let body = sample.body();
    let types: Vec<&str> = body["messages"][1]["content"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|block| block["type"].as_str())
        .collect();
    assert_eq!(types, ["thinking", "text", "tool_use"]);
}

#[test]
fn a_thinking_budget_fits_into_the_answer_and_takes_the_temperature() {
    let mut sample = sample();
    sample.quirks.reasoning = ReasoningShape::AnthropicBudget;
    sample.request.reasoning = Some(ReasoningEffort::High);
    sample.request.temperature = Some(0.2);
    let body = sample.body();
    assert_eq!(body["thinking"]["budget_tokens"], 16_000);
    assert_eq!(body["max_tokens"], 20_096);
    assert_eq!(body.get("temperature"), None);
    // In the middle of a step whose message has no thinking, none may be asked for.
    sample.request.messages.truncate(4);
    let body = sample.body();
    assert_eq!(body.get("thinking"), None);
    assert_eq!(body["max_tokens"], 8_000);
    assert_eq!(body["temperature"], 0.2);
}

#[test]
fn blank_text_is_never_sent() {
    let mut sample = sample();
    let wire = Message::User(UserMessage {
        content: Content::from("x"),
        wire_text: Some(" \n".into()),
    });
    let kept = Message::Assistant(AssistantMessage {
        blobs: vec![blob(
            BlobKind::ReasoningDetails,
            "prov",
            json!([{"type": "text", "text": " \n"}, {"type": "text", "text": " a \n"}]),
        )],
        ..AssistantMessage::default()
    });
    sample.set_log([wire, kept]);
    let body = sample.body();
    assert_eq!(body["messages"][0]["content"][0]["text"], "(empty message)");
    assert_eq!(
        body["messages"][1]["content"],
        json!([{"type": "text", "text": "a"}])
    );
}

#[test]
fn odd_logs_stay_valid() {
    let mut sample = sample();
    sample.request.tool_choice = ToolChoice::None;
    sample.set_log([
        Message::assistant("first"),
        Message::assistant(" "),
        Message::user(" "),
    ]);
    let body = sample.body();
    assert_eq!(body["messages"][0]["role"], "user");
    assert_eq!(
        body["messages"][1]["content"],
        json!([{"type": "text", "text": "first"}])
    );
    assert_eq!(body["messages"][2]["content"][0]["text"], "(empty message)");
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
}

fn start(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn whole_stream() -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 1}}}),
        start(
            0,
            &json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        delta(0, &json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(0, &json!({"type": "signature_delta", "signature": "sig"})),
        stop(0),
        json!({"type": "ping"}),
        start(1, &json!({"type": "text", "text": ""})),
        delta(1, &json!({"type": "text_delta", "text": "let me"})),
        stop(1),
        start(
            2,
            &json!({"type": "tool_use", "id": "t1", "name": "read", "input": {}}),
        ),
        delta(
            2,
            &json!({"type": "input_json_delta", "partial_json": "{\"a\""}),
        ),
        delta(
            2,
            &json!({"type": "input_json_delta", "partial_json": ":1}"}),
        ),
        stop(2),
        start(
            3,
            &json!({"type": "tool_use", "id": "t2", "name": "write", "input": {"b": 2}}),
        ),
        stop(3),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 30}}),
        json!({"type": "message_stop"}),
    ]
}

#[test]
fn a_stream() {
    let (message, usage) = collect(&sample(), &whole_stream(), false);
    assert_eq!(message.text, "let me");
    assert_eq!(message.reasoning.as_deref(), Some("hm"));
    assert_eq!(
        message.tool_calls,
        [
            call("t1", "read", "{\"a\":1}"),
            call("t2", "write", "{\"b\":2}")
        ]
    );
    assert_eq!(message.finish, Some(FinishReason::ToolCalls));
    assert_eq!(
        message.blobs,
        [blob(
            BlobKind::ReasoningDetails,
            "prov",
            json!([
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": "let me"},
                {"type": "tool_use", "id": "t1", "name": "read", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "write", "input": {"b": 2}},
            ])
        )]
    );
    let usage = usage.unwrap();
    assert_eq!((usage.input, usage.cache_read, usage.output), (5, 20, 30));
}

#[test]
fn what_was_decoded_is_sent_back_as_it_came() {
    let mut sample = sample();
    sample.quirks.thinking = ThinkingReplay::Signed;
    let (message, _) = collect(&sample, &whole_stream(), false);
    sample.set_log([Message::user("q"), Message::Assistant(message)]);
    assert_eq!(
        sample.body()["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "text", "text": "let me"},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"a": 1}},
            {"type": "tool_use", "id": "t2", "name": "write", "input": {"b": 2}},
        ])
    );
}

#[test]
fn a_whole_message_and_one_without_ids() {
    let whole = json!({
        "type": "message", "stop_reason": "max_tokens", "usage": {"input_tokens": 1, "output_tokens": 2},
        "content": [{"type": "text", "text": "hi"}, {"type": "tool_use", "name": "read", "input": {"a": 1}}],
    });
    let (message, _) = collect(&sample(), &[whole], false);
    assert_eq!(message.text, "hi");
    assert!(message.tool_calls[0].id.starts_with("call_"));
    assert_eq!(message.tool_calls[0].arguments, "{\"a\":1}");
    assert_eq!(message.finish, Some(FinishReason::Length));
}

#[test]
fn ends_and_errors() {
    let sample = sample();
    let cut = decode(&sample, &whole_stream()[..4], false).unwrap();
    assert_eq!(cut.last(), Some(&ModelEvent::Finished(FinishReason::Cut)));
    assert!(!cut.iter().any(|event| matches!(event, ModelEvent::Blob(_))));
    let refused = json!({"type": "message_delta", "delta": {"stop_reason": "refusal"}});
    let events = decode(&sample, &[refused], false).unwrap();
    assert_eq!(
        events.last(),
        Some(&ModelEvent::Finished(FinishReason::ContentFilter))
    );
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    assert_eq!(
        decode(&sample, std::slice::from_ref(&error), false),
        Err(WireFault::Provider(error))
    );
    assert_eq!(decode(&sample, &[], false), Ok(vec![]));
}
