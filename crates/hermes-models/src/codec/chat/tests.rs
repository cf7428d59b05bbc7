use hermes_core::message::{
    AssistantMessage, BlobKind, Content, FinishReason, Message, Part, ToolCall, ToolMessage,
    UserMessage,
};
use hermes_core::model::{ModelEvent, ToolChoice};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::codec::samples::{Sample, blob, call, collect, decode};
use crate::codec::{AnswerDecoder, WireFault};
use crate::quirks::{CacheLayout, CacheTtl, MaxTokensKey, ReasoningEcho};

#[test]
fn a_request() {
    let mut sample = Sample::chat();
    sample.request.max_tokens = Some(100);
    sample.request.temperature = Some(0.7);
    let body = sample.body();
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "You are here."},
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{\"at\":1,\"path\":\"b\"}"}},
                {"id": "c2", "type": "function", "function": {"name": "write", "arguments": "{}"}},
            ]},
            {"role": "tool", "content": "one", "name": "read", "tool_call_id": "c1"},
            {"role": "tool", "content": "two", "name": "write", "tool_call_id": "c2"},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "thanks"},
        ])
    );
    assert_eq!(body["tools"][0]["function"]["name"], "read");
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert_eq!(body["max_tokens"], 100);
    assert_eq!(body["temperature"], 0.7);
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "model",
            "messages",
            "tools",
            "stream",
            "stream_options",
            "max_tokens",
            "temperature"
        ]
    );
}

#[test]
fn the_small_print_of_endpoints() {
    let mut sample = Sample::chat();
    sample.quirks.developer_role = true;
    sample.quirks.max_tokens.key = MaxTokensKey::MaxCompletionTokens;
    sample.quirks.max_tokens.default = Some(50_000);
    sample.quirks.stream_usage = false;
    sample.quirks.ollama_num_ctx = Some(16_384);
    sample.quirks.provider_preferences = Some(json!({"only": ["acme"]}));
    sample.quirks.extra_body = json!({"session_id": "{session}"})
        .as_object()
        .unwrap()
        .clone();
    sample.quirks.headers = vec![("X-Title".into(), "s={session}".into())];
    sample.quirks.prompt_cache_key = true;
    sample.quirks.tool_result_names = false;
    sample.request.tool_choice = ToolChoice::None;
    let body = sample.body();
    assert_eq!(body["messages"][0]["role"], "developer");
    assert_eq!(body["messages"][3].get("name"), None);
    // Not more than the model can say.
    assert_eq!(body["max_completion_tokens"], 8_000);
    assert_eq!(body["tool_choice"], "none");
    assert_eq!(body["options"], json!({"num_ctx": 16_384}));
    assert_eq!(body["provider"], json!({"only": ["acme"]}));
    assert_eq!(body["session_id"], "s-1");
    assert_eq!(body.get("stream_options"), None);
    let key = body["prompt_cache_key"].as_str().unwrap();
    assert_eq!((key.len(), &key[..4]), (28, "pck_"));
    let encoded =
        crate::codec::encode(&sample.request, &sample.quirks, &sample.route, &sample.info).unwrap();
    assert!(
        encoded
            .headers
            .contains(&("x-title".into(), "s=s-1".into()))
    );
}

#[test]
fn a_model_without_tools_or_eyes_gets_neither() {
    let mut sample = Sample::chat();
    sample.info.tools = false;
    sample.info.images = false;
    let body = sample.body();
    assert_eq!(body.get("tools"), None);
    let user = body["messages"][1]["content"].as_str().unwrap();
    assert!(user.starts_with("look\n[image left out"), "{user}");
}

#[test]
fn the_wire_text_is_sent_as_it_was() {
    let mut sample = Sample::chat();
    sample.set_log([Message::User(UserMessage {
        content: Content::Parts(vec![Part::text("hi"), Part::image("https://x.test/a.png")]),
        wire_text: Some(" hi <memory> \n".into()),
    })]);
    assert_eq!(
        sample.body()["messages"][1]["content"],
        json!([
            {"type": "text", "text": " hi <memory> \n"},
            {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
        ])
    );
}

fn with_reasoning(issuer: &str) -> Vec<Message> {
    vec![
        Message::user("q"),
        Message::Assistant(AssistantMessage {
            text: "a".into(),
            reasoning: Some("hm".into()),
            blobs: vec![
                blob(BlobKind::ReasoningContent, issuer, json!("hm")),
                blob(
                    BlobKind::ReasoningDetails,
                    issuer,
                    json!([{"type": "reasoning.text", "text": "hm"}]),
                ),
            ],
            ..AssistantMessage::default()
        }),
    ]
}

#[test]
fn reasoning_goes_back_only_to_its_issuer_and_as_it_wants() {
    let mut sample = Sample::chat();
    let mut assistant = |echo, issuer: &str| {
        sample.quirks.echo = echo;
        sample.set_log(with_reasoning(issuer));
        sample.body()["messages"][2].clone()
    };
    let details = json!([{"type": "reasoning.text", "text": "hm"}]);
    let cases = [
        (
            ReasoningEcho::Required,
            "prov",
            json!({"role": "assistant", "content": "a", "reasoning_content": "hm"}),
        ),
        (
            ReasoningEcho::Required,
            "other",
            json!({"role": "assistant", "content": "a", "reasoning_content": " "}),
        ),
        (
            ReasoningEcho::Optional,
            "prov",
            json!({"role": "assistant", "content": "a", "reasoning_details": details}),
        ),
        (
            ReasoningEcho::Optional,
            "other",
            json!({"role": "assistant", "content": "a"}),
        ),
        (
            ReasoningEcho::Forbidden,
            "prov",
            json!({"role": "assistant", "content": "a"}),
        ),
    ];
    for (echo, issuer, expected) in cases {
        assert_eq!(assistant(echo, issuer), expected, "{echo:?} {issuer}");
    }
}

#[test]
fn signatures_of_calls_and_images_of_results_travel_where_allowed() {
    let signed = ToolCall {
        extra: Some(json!({"google": {"thought_signature": "x"}})),
        ..call("c1", "look", "{}")
    };
    let mut sample = Sample::chat();
    sample.set_log([
        Message::Assistant(AssistantMessage {
            tool_calls: vec![signed],
            ..AssistantMessage::default()
        }),
        Message::Tool(ToolMessage {
            call_id: "c1".into(),
            name: "look".into(),
            content: Content::Parts(vec![
                Part::text("seen"),
                Part::image("data:image/png;base64,AA"),
            ]),
            disposition: None,
        }),
    ]);
    let body = sample.body();
    assert_eq!(
        body["messages"][1]["tool_calls"][0].get("extra_content"),
        None
    );
    assert_eq!(
        body["messages"][2]["content"],
        "seen\n[an image is not shown here]"
    );
    sample.quirks.thought_signatures = true;
    sample.quirks.list_tool_content = true;
    let body = sample.body();
    assert_eq!(
        body["messages"][1]["tool_calls"][0]["extra_content"]["google"]["thought_signature"],
        "x"
    );
    assert_eq!(body["messages"][2]["content"][1]["type"], "image_url");
}

#[test]
fn markers_sit_on_parts_of_messages_that_have_some() {
    let mut sample = Sample::chat();
    sample.quirks.cache = CacheLayout::Envelope;
    sample.quirks.cache_ttl = CacheTtl::OneHour;
    let body = sample.body();
    let marked: Vec<usize> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .filter(|(_, message)| message.to_string().contains("cache_control"))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(marked, [0, 4, 5, 6]);
    assert_eq!(
        body["messages"][6]["content"],
        json!([{"type": "text", "text": "thanks", "cache_control": {"type": "ephemeral", "ttl": "1h"}}])
    );
    // An assistant message without text cannot carry one, and none stands beside the content.
    assert_eq!(body["messages"][2]["content"], "");
    assert_eq!(body["messages"][4].get("cache_control"), None);
    sample.quirks.cache = CacheLayout::SystemOnly;
    let body = sample.body();
    assert_eq!(body.to_string().matches("cache_control").count(), 1);
    assert_eq!(body["messages"][6]["content"], "thanks");
}

fn delta(delta: &Value) -> Value {
    json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]})
}

fn end(reason: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn piece(index: u64, id: &Value, name: &str, arguments: &str) -> Value {
    delta(
        &json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}),
    )
}

#[test]
fn text_and_a_late_usage_chunk() {
    let events = [
        delta(&json!({"role": "assistant", "content": ""})),
        delta(&json!({"content": "Hel"})),
        delta(&json!({"content": "lo <think>kept</think>"})),
        end(&json!("stop")),
        json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2, "cost": 0.5}}),
    ];
    let (message, usage) = collect(&Sample::chat(), &events, true);
    assert_eq!(message.text, "Hello <think>kept</think>");
    assert_eq!(message.finish, Some(FinishReason::Stop));
    let usage = usage.unwrap();
    assert_eq!(
        (usage.input, usage.output, usage.reported_cost_usd),
        (10, 2, Some(0.5))
    );
}

#[test]
fn names_that_are_repeated_are_not_joined() {
    let events = [
        piece(0, &json!("c1"), "read", "{\"a\""),
        piece(0, &json!("c1"), "read", ":1"),
        piece(0, &json!(null), "read", "}"),
        end(&json!("tool_calls")),
    ];
    let (message, _) = collect(&Sample::chat(), &events, true);
    assert_eq!(message.tool_calls, [call("c1", "read", "{\"a\":1}")]);
}

#[test]
fn an_index_that_is_reused_with_a_new_id_is_a_new_call() {
    let events = [
        piece(0, &json!("c1"), "read", "{}"),
        piece(0, &json!("c2"), "write", "{}"),
        // "stop" although there are calls.
        end(&json!("stop")),
    ];
    let (message, _) = collect(&Sample::chat(), &events, true);
    assert_eq!(
        message.tool_calls,
        [call("c1", "read", "{}"), call("c2", "write", "{}")]
    );
    assert_eq!(message.finish, Some(FinishReason::ToolCalls));
}

/// Pieces without an index belong to the call before them, however many calls there are.
#[test]
fn calls_without_an_index_stay_whole() {
    let bare = |call: Value| delta(&json!({"tool_calls": [call]}));
    let events = [
        bare(json!({"id": "c1", "function": {"name": "read", "arguments": ""}})),
        bare(json!({"function": {"arguments": "{\"a\""}})),
        bare(json!({"function": {"arguments": ":1}"}})),
        bare(json!({"id": "c2", "function": {"name": "write", "arguments": "{"}})),
        bare(json!({"id": "", "function": {"arguments": "\"b\":2"}})),
        bare(json!({"id": null, "function": {"name": null, "arguments": "}"}})),
        end(&json!("tool_calls")),
    ];
    let (message, _) = collect(&Sample::chat(), &events, true);
    assert_eq!(
        message.tool_calls,
        [
            call("c1", "read", "{\"a\":1}"),
            call("c2", "write", "{\"b\":2}")
        ]
    );
    // Two calls side by side, told apart by their place.
    let both = |first: Value, second: Value| delta(&json!({"tool_calls": [first, second]}));
    let part = |arguments: &str| json!({"function": {"arguments": arguments}});
    let events = [
        both(
            json!({"id": "c1", "function": {"name": "read"}}),
            json!({"id": "c2", "function": {"name": "write"}}),
        ),
        both(part("{"), part("{\"b\"")),
        both(part("}"), part(":2}")),
        end(&json!("tool_calls")),
    ];
    let (message, _) = collect(&Sample::chat(), &events, true);
    assert_eq!(
        message.tool_calls,
        [call("c1", "read", "{}"), call("c2", "write", "{\"b\":2}")]
    );
    // Whole calls without any mark, one after the other.
    let events = [
        bare(json!({"function": {"name": "read", "arguments": "{\"a\":1}"}})),
        bare(json!({"function": {"name": "read", "arguments": "{\"a\":2}"}})),
        end(&json!("stop")),
    ];
    let (message, _) = collect(&Sample::chat(), &events, true);
    assert_eq!(message.tool_calls.len(), 2);
}

/// Gemini 3 wants a signature on the first call of every step, also on calls of others.
#[test]
fn steps_of_other_models_are_signed_for_gemini() {
    let mut sample = Sample::chat();
    sample.quirks.thought_signatures = true;
    sample.quirks.needs_signatures = true;
    let signed = |sample: &Sample| -> Vec<Option<String>> {
        let body = sample.body();
        let calls = body["messages"][2]["tool_calls"]
            .as_array()
            .unwrap()
            .clone();
        calls
            .iter()
            .map(|call| {
                let signature = call.pointer("/extra_content/google/thought_signature")?;
                Some(signature.as_str()?.to_owned())
            })
            .collect()
    };
    let stand_in = Some("skip_thought_signature_validator".to_owned());
    assert_eq!(signed(&sample), [stand_in.clone(), None]);
    // Its own signature stays; one of another model does not travel.
    let step = |by: &str| {
        let mut calls = vec![call("c1", "read", "{}"), call("c2", "read", "{}")];
        calls[0].extra = Some(json!({"google": {"thought_signature": "own"}}));
        [
            Message::user("go"),
            Message::Assistant(AssistantMessage {
                tool_calls: calls,
                written_by: Some(Box::new(hermes_core::message::WrittenBy {
                    provider: "prov".into(),
                    model: by.into(),
                })),
                ..AssistantMessage::default()
            }),
        ]
    };
    sample.set_log(step("m"));
    assert_eq!(signed(&sample), [Some("own".to_owned()), None]);
    sample.set_log(step("other"));
    assert_eq!(signed(&sample), [stand_in, None]);
}

#[test]
fn ids_may_be_numbers_or_missing() {
    let events = [
        piece(0, &json!(7), "read", "{}"),
        piece(1, &json!(null), "write", "{\"x\":1}"),
        piece(1, &json!(null), "write", "{\"x\":1}"),
        end(&json!("tool_calls")),
    ];
    let sample = Sample::chat();
    let (message, _) = collect(&sample, &events, true);
    assert_eq!(message.tool_calls[0].id, "7");
    assert_eq!(message.tool_calls.len(), 3);
    assert_ne!(message.tool_calls[1].id, message.tool_calls[2].id);
    assert!(message.tool_calls[1].id.starts_with("call_"));
    assert_eq!(collect(&sample, &events, true).0, message);
}

#[test]
fn arguments_may_be_an_object_and_the_old_field_still_counts() {
    let events = [
        delta(
            &json!({"tool_calls": [{"id": "c1", "function": {"name": "read", "arguments": {"a": 1}}}]}),
        ),
        delta(&json!({"function_call": {"name": "write", "arguments": "{}"}})),
        end(&json!("function_call")),
    ];
    let (message, _) = collect(&Sample::chat(), &events, true);
    assert_eq!(message.tool_calls[0].arguments, "{\"a\":1}");
    assert_eq!(message.tool_calls[1].name, "write");
    assert_eq!(message.finish, Some(FinishReason::ToolCalls));
}

#[test]
fn a_whole_object_in_place_of_a_stream() {
    let whole = json!({
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": 1, "message": {
            "role": "assistant", "content": "hi", "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
        }}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    });
    let (message, usage) = collect(&Sample::chat(), &[whole], false);
    assert_eq!(
        (message.text.as_str(), message.reasoning.as_deref()),
        ("hi", Some("hm"))
    );
    assert_eq!(message.tool_calls.len(), 1);
    assert_eq!(message.finish, Some(FinishReason::ToolCalls));
    assert!(usage.is_some());
}

#[test]
fn reasoning_in_all_its_fields() {
    let mut sample = Sample::chat();
    let shapes = [
        json!({"reasoning_content": "hm"}),
        json!({"reasoning": "hm"}),
        json!({"reasoning": "hm", "reasoning_content": "hm"}),
        json!({"reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]}),
        json!({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
    ];
    for shape in shapes {
        let (message, _) = collect(&sample, &[delta(&shape), end(&json!("stop"))], true);
        assert_eq!(message.reasoning.as_deref(), Some("hm"), "{shape}");
        let details = shape.get("reasoning_details");
        assert_eq!(
            message.blobs.first().map(|blob| &blob.value),
            details,
            "{shape}"
        );
    }
    sample.quirks.echo = ReasoningEcho::Required;
    let events = [
        delta(&json!({"reasoning_content": "h"})),
        delta(&json!({"reasoning_content": "m"})),
        end(&json!("stop")),
    ];
    let (message, _) = collect(&sample, &events, true);
    assert_eq!(
        message.blobs,
        [blob(BlobKind::ReasoningContent, "prov", json!("hm"))]
    );
}

#[test]
fn thought_signatures_are_kept() {
    let extra = json!({"google": {"thought_signature": "s"}});
    let event = delta(&json!({"tool_calls": [
        {"index": 0, "id": "c1", "function": {"name": "read", "arguments": "{}"}, "extra_content": extra},
    ]}));
    let (message, _) = collect(&Sample::chat(), &[event, end(&json!("stop"))], true);
    assert_eq!(message.tool_calls[0].extra, Some(extra));
}

#[test]
fn an_error_inside_the_stream() {
    let error = json!({"error": {"message": "broke", "code": 502}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]});
    let fault = decode(
        &Sample::chat(),
        &[delta(&json!({"content": "x"})), error.clone()],
        false,
    );
    assert_eq!(fault, Err(WireFault::Provider(error)));
}

#[test]
fn the_end_of_a_stream() {
    let sample = Sample::chat();
    let text = delta(&json!({"content": "x"}));
    let last = |events: &[Value], done| decode(&sample, events, done).unwrap().pop();
    let finished = |reason| Some(ModelEvent::Finished(reason));
    assert_eq!(
        last(std::slice::from_ref(&text), false),
        finished(FinishReason::Cut)
    );
    assert_eq!(
        last(std::slice::from_ref(&text), true),
        finished(FinishReason::Stop)
    );
    assert_eq!(
        last(&[text.clone(), end(&json!("length"))], false),
        finished(FinishReason::Length)
    );
    assert_eq!(last(&[], false), None);
    assert_eq!(last(&[], true), None);
    let refusal = delta(&json!({"refusal": "no"}));
    assert_eq!(
        last(&[refusal, end(&json!("stop"))], true),
        finished(FinishReason::ContentFilter)
    );
}

#[test]
fn what_is_no_answer_is_refused() {
    let sample = Sample::chat();
    let mut decoder = AnswerDecoder::new(&sample.request, &sample.quirks, &sample.route);
    let fault = decoder.whole(&json!({"hello": 1})).unwrap_err();
    assert!(matches!(fault, WireFault::Malformed(_)), "{fault:?}");
    for event in [json!({"hello": 1}), json!({"type": "ping"})] {
        assert_eq!(decode(&sample, &[event], false), Ok(vec![]));
    }
}
