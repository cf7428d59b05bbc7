//! What prompt caches live on: the same log gives the same bytes, a longer log begins with the
//! bytes of the shorter one, and the network's way of cutting bytes changes nothing.

use hermes_core::message::{
    AssistantMessage, BlobKind, Content, Message, Part, ToolCall, ToolMessage, UserMessage,
};
use hermes_core::model::{ModelEvent, WireFormat};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::samples::{Sample, blob};
use super::{AnswerDecoder, AnswerReader};
use crate::quirks::{CacheLayout, ReasoningEcho, ThinkingReplay};

fn any_text() -> impl Strategy<Value = String> {
    "[ a-zé\"\n]{0,12}"
}

fn user() -> impl Strategy<Value = Vec<Message>> {
    (any_text(), any::<bool>(), proptest::option::of(any_text())).prop_map(|(text, image, wire)| {
        let content = if image {
            Content::Parts(vec![
                Part::text(text),
                Part::image("data:image/png;base64,AA"),
            ])
        } else {
            Content::Text(text)
        };
        vec![Message::User(UserMessage {
            content,
            wire_text: wire,
        })]
    })
}

/// An assistant message and the results of its calls.
fn step() -> impl Strategy<Value = Vec<Message>> {
    let call = (
        "(c[0-9]{1,2})?",
        "[a-z]{1,5}",
        "(\\{\"b\": [0-9], \"a\":\"x\"\\})?|\\{oops",
    );
    (
        any_text(),
        proptest::collection::vec(call, 0..3),
        any::<bool>(),
        "prov|other",
    )
        .prop_map(|(text, calls, thought, issuer)| {
            let tool_calls: Vec<ToolCall> = calls
                .into_iter()
                .map(|(id, name, arguments)| ToolCall {
                    id,
                    name,
                    arguments,
                    ..ToolCall::default()
                })
                .collect();
            let blobs = if thought {
                vec![
                    blob(BlobKind::ReasoningContent, &issuer, json!("hm")),
                    blob(
                        BlobKind::ReasoningDetails,
                        &issuer,
                        json!([{"type": "thinking", "thinking": "hm", "signature": "s"}]),
                    ),
                    blob(
                        BlobKind::ResponsesReasoning,
                        &issuer,
                        json!([{"type": "reasoning", "encrypted_content": "zz"}]),
                    ),
                ]
            } else {
                Vec::new()
            };
            let results: Vec<Message> = tool_calls
                .iter()
                .map(|call| {
                    Message::Tool(ToolMessage {
                        call_id: call.id.clone(),
                        name: call.name.clone(),
                        content: Content::from(format!(" result of {} ", call.name)),
                        disposition: None,
                    })
                })
                .collect();
            let assistant = Message::Assistant(AssistantMessage {
                text,
                tool_calls,
                blobs,
                ..AssistantMessage::default()
            });
            std::iter::once(assistant).chain(results).collect()
        })
}

fn log() -> impl Strategy<Value = Vec<Message>> {
    proptest::collection::vec(prop_oneof![user(), step()], 0..6).prop_map(|parts| parts.concat())
}

fn variants() -> Vec<Sample> {
    let mut out = Vec::new();
    for layout in [
        CacheLayout::None,
        CacheLayout::Envelope,
        CacheLayout::SystemOnly,
    ] {
        for echo in [ReasoningEcho::Required, ReasoningEcho::Optional] {
            let mut sample = Sample::chat();
            sample.quirks.cache = layout;
            sample.quirks.echo = echo;
            out.push(sample);
        }
    }
    for layout in [CacheLayout::None, CacheLayout::AnthropicNative] {
        for replay in [
            ThinkingReplay::Signed,
            ThinkingReplay::Strip,
            ThinkingReplay::All,
        ] {
            let mut sample = Sample::new(WireFormat::AnthropicMessages);
            sample.quirks.cache = layout;
            sample.quirks.thinking = replay;
            out.push(sample);
        }
    }
    out.push(Sample::new(WireFormat::Responses));
    out
}

/// The encoded conversation without cache markers, and without the brackets that close it: a
/// longer one may go on inside its last message.
fn conversation(sample: &Sample) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.shift_remove("cache_control");
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut body = sample.body();
    strip(&mut body);
    let key = if body.get("input").is_some() {
        "input"
    } else {
        "messages"
    };
    let text = body[key].to_string();
    let open = text
        .strip_suffix("]}]")
        .or_else(|| text.strip_suffix(']'))
        .unwrap_or(&text);
    open.to_owned()
}

/// Bytes of an answer in each format, with text that UTF-8 spells in several bytes.
fn answers() -> Vec<(WireFormat, String)> {
    let event = |value: &Value| format!("data: {value}\r\n\r\n");
    let chat: String = [
        json!({"choices": [{"delta": {"role": "assistant", "content": "Grüße 🌍"}}]}),
        json!({"choices": [{"delta": {"reasoning_content": "hm…"}}]}),
        json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": 3, "function": {"name": "read", "arguments": "{\"p\":"}}]}}]}),
        json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "\"ä\"}"}}]}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
    ]
    .iter()
    .map(event)
    .collect();
    let anthropic: String = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 3}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "né"}}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "€"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    ]
    .iter()
    .map(event)
    .collect();
    let responses: String = [
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "日本"}),
        json!({"type": "response.completed", "response": {"status": "completed"}}),
    ]
    .iter()
    .map(event)
    .collect();
    let whole = json!({"choices": [{"message": {"content": "whole ✓"}, "finish_reason": "stop"}]});
    vec![
        (
            WireFormat::ChatCompletions,
            format!(": keep-alive\n\n{chat}data: [DONE]\n\n"),
        ),
        (
            WireFormat::ChatCompletions,
            format!("\u{feff}\n{chat}data: {{\"choi"),
        ),
        (WireFormat::ChatCompletions, format!("\n {whole}\n")),
        (WireFormat::AnthropicMessages, anthropic),
        (WireFormat::Responses, responses),
    ]
}

/// JSON with the words of the formats in wrong places.
fn wild_event() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("content_block_start"),
        Just("content_block_delta"),
        Just("content_block_stop"),
        Just("message_delta"),
        Just("message"),
        Just("tool_use"),
        Just("thinking"),
        Just("input_json_delta"),
        Just("text_delta"),
        Just("signature_delta"),
        Just("response.output_item.added"),
        Just("response.output_item.done"),
        Just("response.function_call_arguments.delta"),
        Just("response.function_call_arguments.done"),
        Just("response.completed"),
        Just("function_call"),
        Just("reasoning"),
        Just("stop"),
        Just("x"),
        Just(""),
    ];
    let key = prop_oneof![
        Just("type"),
        Just("index"),
        Just("output_index"),
        Just("choices"),
        Just("delta"),
        Just("message"),
        Just("content"),
        Just("tool_calls"),
        Just("function"),
        Just("name"),
        Just("arguments"),
        Just("id"),
        Just("call_id"),
        Just("item_id"),
        Just("item"),
        Just("content_block"),
        Just("input"),
        Just("text"),
        Just("thinking"),
        Just("usage"),
        Just("finish_reason"),
        Just("stop_reason"),
        Just("reasoning_details"),
        Just("response"),
        Just("output"),
        Just("summary"),
        Just("partial_json"),
        Just("status"),
    ];
    let leaf = prop_oneof![
        word.prop_map(Value::from),
        (0_u64..4).prop_map(Value::from),
        Just(Value::Null),
        Just(json!(-1.5)),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            1 => proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            3 => proptest::collection::vec((key.clone().prop_map(str::to_owned), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn read(format: WireFormat, chunks: &[&[u8]]) -> Vec<ModelEvent> {
    let sample = Sample::new(format);
    let decoder = AnswerDecoder::new(&sample.request, &sample.quirks, &sample.route);
    let mut reader = AnswerReader::new(decoder);
    let mut out = Vec::new();
    for chunk in chunks {
        reader.push(chunk, &mut out).unwrap();
    }
    reader.finish(&mut out).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_same_log_gives_the_same_bytes(log in log()) {
        for mut sample in variants() {
            sample.set_log(log.clone());
            prop_assert_eq!(sample.bytes(), sample.bytes());
        }
    }

    #[test]
    fn a_longer_log_begins_with_the_shorter(before in log(), after in log()) {
        for mut sample in variants() {
            sample.set_log(before.clone());
            let short = conversation(&sample);
            sample.set_log([before.clone(), after.clone()].concat());
            let long = conversation(&sample);
            prop_assert!(long.starts_with(&short), "\n{}\n{}", short, long);
        }
    }

    #[test]
    fn no_answer_can_cause_a_panic(events in proptest::collection::vec(wild_event(), 0..8)) {
        for format in [WireFormat::ChatCompletions, WireFormat::AnthropicMessages, WireFormat::Responses] {
            let sample = Sample::new(format);
            let whole = AnswerDecoder::new(&sample.request, &sample.quirks, &sample.route)
                .whole(&Value::Array(events.clone()));
            prop_assert!(whole.is_err() || whole == Ok(Vec::new()));
            // Faults are fine; a slot must not be used before it was announced.
            let Ok(decoded) = super::samples::decode(&sample, &events, true) else {
                continue;
            };
            let mut announced = Vec::new();
            for event in decoded {
                match event {
                    ModelEvent::ToolStarted { slot, .. } if !announced.contains(&slot) => {
                        announced.push(slot);
                    }
                    ModelEvent::ToolArguments { slot, .. } | ModelEvent::ToolExtra { slot, .. } => {
                        prop_assert!(announced.contains(&slot));
                    }
                    _ => {}
                }
            }
            let count = announced.len();
            announced.sort_unstable();
            prop_assert_eq!(announced, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_split_of_the_bytes_does_not_matter(
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        for (format, answer) in answers() {
            let bytes = answer.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let whole = read(format, &[bytes]);
            prop_assert!(matches!(whole.last(), Some(ModelEvent::Finished(_))));
            prop_assert_eq!(read(format, &chunks), whole);
        }
    }
}
