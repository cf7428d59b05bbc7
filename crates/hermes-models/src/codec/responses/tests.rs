use hermes_core::message::{AssistantMessage, BlobKind, FinishReason, Message};
use hermes_core::model::{ModelEvent, ReasoningEffort, WireFormat};
use hermes_http::sse::SseEvent;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::codec::samples::{Sample, blob, call, collect, decode};
use crate::codec::{AnswerDecoder, WireFault};
use crate::quirks::{LOW_TO_HIGH, MaxTokensKey, ReasoningShape};

fn sample() -> Sample {
    let mut sample = Sample::new(WireFormat::Responses);
    sample.quirks.reasoning = ReasoningShape::Responses {
        levels: LOW_TO_HIGH,
    };
    sample.quirks.parallel_tool_calls = true;
    sample.quirks.prompt_cache_key = true;
    sample
}

#[test]
fn a_request() {
    let mut sample = sample();
    sample.request.reasoning = Some(ReasoningEffort::Medium);
    sample.request.max_tokens = Some(500);
    let body = sample.body();
    assert_eq!(body["instructions"], "You are here.");
    assert_eq!(
        body["input"],
        json!([
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            ]},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{\"at\":1,\"path\":\"b\"}"},
            {"type": "function_call", "call_id": "c2", "name": "write", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "function_call_output", "call_id": "c2", "output": "two"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "thanks"}]},
        ])
    );
    assert_eq!(body["tools"][0]["name"], "read");
    assert_eq!(body["store"], false);
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(
        body["reasoning"],
        json!({"effort": "medium", "summary": "auto"})
    );
    assert_eq!(body["max_output_tokens"], 500);
    sample.quirks.max_tokens.key = MaxTokensKey::Omit;
    assert_eq!(sample.body().get("max_output_tokens"), None);
}

#[test]
fn the_cache_key_follows_prompt_and_tools_only() {
    let mut sample = sample();
    let key = sample.body()["prompt_cache_key"].clone();
    sample.request.session = "another".into();
    sample.request.messages.truncate(1);
    assert_eq!(sample.body()["prompt_cache_key"], key);
    sample.request.system = "Else.".into();
    assert_ne!(sample.body()["prompt_cache_key"], key);
}

#[test]
fn sealed_reasoning_goes_back_to_its_issuer() {
    let mut sample = sample();
    let item = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "zz", "summary": [], "_issuer_kind": "x", "status": null});
    let mut input = |issuer: &str| {
        sample.set_log([Message::Assistant(AssistantMessage {
            text: "a".into(),
            blobs: vec![
                blob(BlobKind::ResponsesReasoning, issuer, json!([item])),
                blob(
                    BlobKind::ResponsesMessage,
                    issuer,
                    json!([{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary",
                            "content": [{"type": "output_text", "text": "a", "annotations": []}]}]),
                ),
            ],
            ..AssistantMessage::default()
        })]);
        sample.body()["input"].clone()
    };
    assert_eq!(
        input("prov"),
        json!([
            {"type": "reasoning", "encrypted_content": "zz", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}], "phase": "commentary"},
        ])
    );
    assert_eq!(
        input("other"),
        json!([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}])
    );
}

fn event(kind: &str, mut fields: Value) -> Value {
    fields["type"] = format!("response.{kind}").into();
    fields
}

fn reasoning_item() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "zz"})
}

fn stream() -> Vec<Value> {
    vec![
        event("created", json!({"response": {"status": "in_progress"}})),
        event(
            "output_item.added",
            json!({"output_index": 0, "item": {"type": "reasoning", "id": "rs_1"}}),
        ),
        event(
            "reasoning_summary_text.delta",
            json!({"output_index": 0, "delta": "h"}),
        ),
        event(
            "reasoning_summary_text.delta",
            json!({"output_index": 0, "delta": "m"}),
        ),
        event(
            "output_item.done",
            json!({"output_index": 0, "item": reasoning_item()}),
        ),
        event(
            "output_text.delta",
            json!({"output_index": 1, "delta": "hi"}),
        ),
        event(
            "output_item.done",
            json!({"output_index": 1, "item": {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}}),
        ),
        event(
            "output_item.added",
            json!({"output_index": 2, "item": {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": ""}}),
        ),
        event(
            "function_call_arguments.delta",
            json!({"output_index": 2, "item_id": "fc_1", "delta": "{\"a\":"}),
        ),
        event(
            "function_call_arguments.delta",
            json!({"output_index": 2, "item_id": "fc_1", "delta": "1}"}),
        ),
        event(
            "function_call_arguments.done",
            json!({"output_index": 2, "item_id": "fc_1", "arguments": "{\"a\":1}"}),
        ),
        event(
            "output_item.done",
            json!({"output_index": 2, "item": {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": "{\"a\":1}"}}),
        ),
        event(
            "output_item.done",
            json!({"output_index": 3, "item": {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "write", "arguments": "{}"}}),
        ),
        event(
            "completed",
            json!({"response": {"status": "completed", "output": [], "usage": {
            "input_tokens": 100, "input_tokens_details": {"cached_tokens": 80}, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 4}}}}),
        ),
    ]
}

#[test]
fn a_stream_is_read() {
    let (message, usage) = collect(&sample(), &stream(), false);
    assert_eq!(message.text, "hi");
    assert_eq!(message.reasoning.as_deref(), Some("hm"));
    let calls: Vec<(&str, &str, &str, Option<&str>)> = message
        .tool_calls
        .iter()
        .map(|c| {
            (
                c.id.as_str(),
                c.name.as_str(),
                c.arguments.as_str(),
                c.response_item_id.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        calls,
        [
            ("c1", "read", "{\"a\":1}", Some("fc_1")),
            ("c2", "write", "{}", Some("fc_2"))
        ]
    );
    assert_eq!(message.finish, Some(FinishReason::ToolCalls));
    assert_eq!(
        message.blobs,
        [blob(
            BlobKind::ResponsesReasoning,
            "prov",
            json!([reasoning_item()])
        )]
    );
    let usage = usage.unwrap();
    assert_eq!(
        (usage.input, usage.cache_read, usage.output, usage.reasoning),
        (20, 80, 9, 4)
    );
}

#[test]
fn a_whole_response() {
    let whole = json!({
        "object": "response", "status": "incomplete", "error": null,
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [reasoning_item(), {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
    });
    for events in [
        vec![whole.clone()],
        vec![event("incomplete", json!({"response": whole}))],
    ] {
        let (message, _) = collect(&sample(), &events, false);
        assert_eq!(message.text, "hi");
        assert_eq!(message.reasoning.as_deref(), Some("hm"));
        assert_eq!(message.finish, Some(FinishReason::Length));
    }
}

#[test]
fn ends_and_errors() {
    let sample = sample();
    let last = |events: &[Value]| decode(&sample, events, false).unwrap().pop();
    let finished = |reason| Some(ModelEvent::Finished(reason));
    assert_eq!(last(&stream()[..6]), finished(FinishReason::Cut));
    let unfinished = event(
        "incomplete",
        json!({"response": {"status": "incomplete", "output": []}}),
    );
    assert_eq!(last(&[unfinished]), finished(FinishReason::Incomplete));
    let refusal = [
        event("refusal.delta", json!({"output_index": 0, "delta": "no"})),
        event("completed", json!({"response": {"status": "completed"}})),
    ];
    assert_eq!(last(&refusal), finished(FinishReason::ContentFilter));
    let failed = event(
        "failed",
        json!({"response": {"status": "failed", "error": {"code": "server_error", "message": "m"}}}),
    );
    assert_eq!(
        decode(&sample, &[failed], false),
        Err(WireFault::Provider(
            json!({"error": {"code": "server_error", "message": "m"}})
        ))
    );
    assert_eq!(decode(&sample, &[], false), Ok(vec![]));
}

/// What was not streamed of a call stands in the event that completes it; no field is needed twice.
#[test]
fn calls_that_are_known_only_at_their_end() {
    let whole = r#"{"path":"a"}"#;
    let added = |fields: Value| {
        let mut item = json!({"type": "function_call"});
        item.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        item
    };
    let done = added(json!({"id": "fc", "call_id": "c1", "name": "read", "arguments": whole}));
    for (begun, place, streamed) in [
        (
            json!({"id": "fc", "call_id": "c1", "name": "read"}),
            json!({"output_index": 0}),
            &whole[..5],
        ),
        (
            json!({"id": "fc", "call_id": "c1", "name": ""}),
            json!({"output_index": 0}),
            whole,
        ),
        (json!({"id": "fc"}), json!({"item_id": "fc"}), whole),
        (json!({"call_id": "c1", "name": "read"}), json!({}), whole),
    ] {
        let mut first = place.clone();
        first["item"] = added(begun.clone());
        let mut delta = place.clone();
        delta["delta"] = json!(streamed);
        let mut last = place.clone();
        last["item"] = done.clone();
        let events = [
            event("output_item.added", first),
            event("function_call_arguments.delta", delta),
            event("output_item.done", last),
            event("completed", json!({"response": {"status": "completed"}})),
        ];
        let (mut message, _) = collect(&sample(), &events, false);
        message.tool_calls[0].response_item_id = None;
        assert_eq!(message.tool_calls, [call("c1", "read", whole)], "{begun}");
        assert_eq!(message.finish, Some(FinishReason::ToolCalls));
    }
}

#[test]
fn text_that_was_streamed_is_not_said_again() {
    for place in [
        json!({"output_index": 0}),
        json!({"item_id": "m"}),
        json!({}),
    ] {
        let mut delta = place.clone();
        delta["delta"] = json!("hello");
        let mut done = json!({"item": {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hello"}]}});
        if let Some(index) = place.get("output_index") {
            done["output_index"] = index.clone();
        }
        let events = [
            event("output_text.delta", delta),
            event("output_item.done", done),
            event("completed", json!({"response": {"status": "completed"}})),
        ];
        assert_eq!(
            collect(&sample(), &events, false).0.text,
            "hello",
            "{place}"
        );
    }
}

/// The event says that the answer is not complete, whatever else it leaves out.
#[test]
fn an_incomplete_response_is_never_an_answer() {
    let text = event(
        "output_text.delta",
        json!({"output_index": 0, "delta": "x"}),
    );
    for (response, reason) in [
        (json!({}), FinishReason::Incomplete),
        (json!({"response": {}}), FinishReason::Incomplete),
        (
            json!({"response": {"status": "completed"}}),
            FinishReason::Incomplete,
        ),
        (
            json!({"response": {"incomplete_details": {"reason": "max_output_tokens"}}}),
            FinishReason::Length,
        ),
    ] {
        let end = event("incomplete", response.clone());
        let (message, _) = collect(&sample(), &[text.clone(), end], false);
        assert_eq!(message.finish, Some(reason), "{response}");
    }
}

#[test]
fn the_kind_may_stand_in_the_event_line_only() {
    let sample = sample();
    let mut decoder = AnswerDecoder::new(&sample.request, &sample.quirks, &sample.route);
    let mut events = Vec::new();
    for (name, data) in [
        (
            "response.output_text.delta",
            r#"{"output_index":0,"delta":"x"}"#,
        ),
        (
            "response.completed",
            r#"{"response":{"status":"completed"}}"#,
        ),
    ] {
        let event = SseEvent {
            name: Some(name.into()),
            data: Some(data.into()),
            ..SseEvent::default()
        };
        events.extend(decoder.push(&event).unwrap());
    }
    events.extend(decoder.finish());
    assert_eq!(
        events,
        [
            ModelEvent::Text("x".into()),
            ModelEvent::Finished(FinishReason::Stop)
        ]
    );
}
