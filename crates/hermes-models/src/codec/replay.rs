//! A conversation continues with another model: regardless of which model wrote its messages, the
//! request is what the strictest server of the format accepts, and sealed reasoning reaches only the
//! model that sealed it.

use std::collections::HashSet;

use hermes_core::message::{AssistantMessage, BlobKind, Message, ToolCall, WireBlob, WrittenBy};
use hermes_core::model::WireFormat;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::samples::{Sample, blob};
use crate::quirks::{ReasoningEcho, ReasoningShape, ThinkingReplay, ThinkingToggle, ToolIds};

const WRITERS: &[(&str, &str)] = &[
    ("prov", "m"),
    ("prov", "older"),
    ("anthropic", "claude-sonnet-4-5"),
    ("openai-api", "gpt-5"),
    ("gemini", "gemini-3-pro"),
    ("deepseek", "deepseek-reasoner"),
];

/// Ids as servers give them out.
fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("call_0".to_owned()),
        Just(String::new()),
        Just("functions.read:0".to_owned()),
        Just("chatcmpl-tool-db309d8c2d1d4dbb993017c0330862a8".to_owned()),
        Just(format!("call_1__thought__{}", "s".repeat(90))),
        "[a-zA-Z0-9]{9}",
        "toolu_[a-z0-9]{8}",
        "ünïcode [0-9]",
    ]
}

fn sealed(kind: BlobKind) -> Value {
    match kind {
        BlobKind::ReasoningDetails => json!([
            {"type": "thinking", "thinking": "SEALED", "signature": "SEALED"},
            {"type": "redacted_thinking", "data": "SEALED"},
        ]),
        BlobKind::ResponsesReasoning => {
            json!([{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"}])
        }
        BlobKind::ResponsesMessage => {
            json!([{"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "said"}]}])
        }
        BlobKind::ReasoningContent => json!("thought"),
        BlobKind::ResponsesOrder => json!("r m"),
    }
}

fn blobs(issuer: &str) -> Vec<WireBlob> {
    [
        BlobKind::ReasoningDetails,
        BlobKind::ResponsesReasoning,
        BlobKind::ReasoningContent,
    ]
    .map(|kind| blob(kind, issuer, sealed(kind)))
    .into()
}

/// An assistant message, the results of its calls, and perhaps what the person says to it.
fn step() -> impl Strategy<Value = Vec<Message>> {
    let call = (id(), "[a-z]{1,5}", "(\\{\"a\":1\\})?|\\{oops|[0-9]|\\[1\\]");
    (
        "[ a-z]{0,6}",
        proptest::collection::vec(call, 0..4),
        0..WRITERS.len(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(text, calls, writer, thought, asked)| {
            let (provider, model) = WRITERS[writer];
            let tool_calls: Vec<ToolCall> = calls
                .into_iter()
                .map(|(id, name, arguments)| ToolCall {
                    id,
                    name,
                    arguments,
                    extra: (provider == "gemini")
                        .then(|| json!({"google": {"thought_signature": "SEALED"}})),
                    ..ToolCall::default()
                })
                .collect();
            let results: Vec<Message> = tool_calls
                .iter()
                .map(|call| Message::tool(call, "ok"))
                .collect();
            let text = if tool_calls.is_empty() {
                format!("a{text}")
            } else {
                text
            };
            let mut out = vec![Message::Assistant(AssistantMessage {
                text,
                reasoning: thought.then(|| "thought".to_owned()),
                tool_calls,
                blobs: if thought { blobs(provider) } else { Vec::new() },
                written_by: Some(Box::new(WrittenBy {
                    provider: provider.into(),
                    model: model.into(),
                })),
                ..AssistantMessage::default()
            })];
            out.extend(results);
            if asked {
                out.push(Message::user("and?"));
            }
            out
        })
}

fn log() -> impl Strategy<Value = Vec<Message>> {
    proptest::collection::vec(step(), 1..5).prop_map(|steps| {
        let mut log = vec![Message::user("begin")];
        log.extend(steps.concat());
        if matches!(log.last(), Some(Message::Assistant(_))) {
            log.push(Message::user("go on"));
        }
        log
    })
}

/// The routes that the conversation continues on.
fn targets() -> Vec<Sample> {
    let mut out = Vec::new();
    let mut add = |format, provider: &str, model: &str, change: &dyn Fn(&mut Sample)| {
        let mut sample = Sample::new(format);
        sample.route.provider = provider.into();
        sample.route.model = model.into();
        change(&mut sample);
        out.push(sample);
    };
    let chat = WireFormat::ChatCompletions;
    add(chat, "prov", "m", &|_| {});
    add(chat, "mistral", "m", &|s| {
        s.quirks.tool_ids = ToolIds::Nine;
        s.quirks.echo = ReasoningEcho::Forbidden;
    });
    add(chat, "deepseek", "deepseek-reasoner", &|s| {
        s.quirks.echo = ReasoningEcho::Required;
        s.quirks.reasoning = ReasoningShape::Thinking(ThinkingToggle {
            always: true,
            levels: &[],
            exclusive: false,
        });
    });
    add(chat, "gemini", "gemini-3-pro", &|s| {
        s.quirks.thought_signatures = true;
        s.quirks.needs_signatures = true;
    });
    add(chat, "local", "gemma", &|s| s.quirks.system_in_user = true);
    for replay in [
        ThinkingReplay::Signed,
        ThinkingReplay::Strip,
        ThinkingReplay::All,
    ] {
        add(
            WireFormat::AnthropicMessages,
            "anthropic",
            "claude-sonnet-4-5",
            &|s| {
                s.quirks.thinking = replay;
                s.quirks.reasoning = ReasoningShape::AnthropicBudget;
                s.request.reasoning = Some(hermes_core::model::ReasoningEffort::High);
            },
        );
    }
    add(WireFormat::Responses, "openai-api", "gpt-5", &|_| {});
    out
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// What is wrong with a chat request, in the eyes of the strictest server.
fn chat_faults(body: &Value, sample: &Sample) -> Vec<String> {
    let mut faults = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for (at, message) in list(body, "messages").iter().enumerate() {
        let role = word(message, "role");
        let calls = list(message, "tool_calls");
        if role != "tool" && !open.is_empty() {
            faults.push(format!("{at}: calls without results: {open:?}"));
            open.clear();
        }
        match role.as_str() {
            "system" | "developer" if at > 0 || sample.quirks.system_in_user => {
                faults.push(format!("{at}: a system prompt here"));
            }
            "user" if message["content"] == "" => faults.push(format!("{at}: an empty question")),
            "assistant" if calls.is_empty() && message["content"] == "" => {
                faults.push(format!("{at}: an empty answer"));
            }
            "tool" => {
                let id = word(message, "tool_call_id");
                match open.iter().position(|known| *known == id) {
                    Some(found) => drop(open.remove(found)),
                    None => faults.push(format!("{at}: a result for nobody: {id}")),
                }
            }
            _ => {}
        }
        for call in calls {
            let id = word(call, "id");
            if sample.quirks.tool_ids == ToolIds::Nine && id.len() != 9 {
                faults.push(format!("{at}: id {id}"));
            }
            let arguments = word(&call["function"], "arguments");
            if serde_json::from_str::<Value>(&arguments).is_err() {
                faults.push(format!("{at}: arguments {arguments}"));
            }
            open.push(id);
        }
        let thought = word(message, "reasoning_content");
        match sample.quirks.echo {
            ReasoningEcho::Required if role == "assistant" && thought.is_empty() => {
                faults.push(format!("{at}: no reasoning"));
            }
            ReasoningEcho::Forbidden | ReasoningEcho::Optional if !thought.is_empty() => {
                faults.push(format!("{at}: reasoning that was not asked for"));
            }
            _ => {}
        }
        if sample.quirks.needs_signatures
            && !calls.is_empty()
            && calls.iter().all(|call| call.get("extra_content").is_none())
        {
            faults.push(format!("{at}: no signature"));
        }
    }
    if !open.is_empty() {
        faults.push(format!("calls without results: {open:?}"));
    }
    faults
}

fn anthropic_faults(body: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let messages = list(body, "messages");
    let mut used = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let fits = |id: &str| {
        !id.is_empty()
            && id
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    for (at, message) in messages.iter().enumerate() {
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        if word(message, "role") != expected {
            faults.push(format!("{at}: roles do not alternate"));
        }
        let blocks = list(message, "content");
        if blocks.is_empty() {
            faults.push(format!("{at}: no content"));
        }
        for block in blocks {
            match word(block, "type").as_str() {
                "text" if word(block, "text").trim().is_empty() => {
                    faults.push(format!("{at}: an empty text"));
                }
                "tool_use" => {
                    let id = word(block, "id");
                    if !fits(&id) || !used.insert(id.clone()) {
                        faults.push(format!("{at}: id {id}"));
                    }
                    if !block["input"].is_object() {
                        faults.push(format!("{at}: input {}", block["input"]));
                    }
                    open.push(id);
                }
                "tool_result" => {
                    let id = word(block, "tool_use_id");
                    match open.iter().position(|known| *known == id) {
                        Some(found) => drop(open.remove(found)),
                        None => faults.push(format!("{at}: a result for nobody: {id}")),
                    }
                }
                _ => {}
            }
        }
        if expected == "user" && !open.is_empty() {
            faults.push(format!("{at}: calls without results: {open:?}"));
            open.clear();
        }
        let last = blocks.last().map(|block| word(block, "type"));
        if last.is_some_and(|kind| kind.contains("thinking")) {
            faults.push(format!("{at}: ends with a thought"));
        }
    }
    // A step that thinks by budget must have begun with a thought.
    let in_step = messages.last().is_some_and(|message| {
        list(message, "content")
            .first()
            .is_some_and(|block| word(block, "type") == "tool_result")
    });
    if body.get("thinking").is_some() && in_step {
        let started = messages
            .iter()
            .rev()
            .find(|message| word(message, "role") == "assistant")
            .and_then(|message| list(message, "content").first())
            .map(|block| word(block, "type"));
        if !started.is_some_and(|kind| kind.contains("thinking")) {
            faults.push("a step of a thinking model without its thought".to_owned());
        }
    }
    faults
}

/// Ids that the provider gave out itself: they go back as they are.
fn own_ids(log: &[Message], provider: &str) -> HashSet<String> {
    let own = |message: &&AssistantMessage| {
        let by = message.written_by.as_ref();
        by.is_some_and(|by| by.provider == provider)
    };
    log.iter()
        .filter_map(|message| match message {
            Message::Assistant(message) => Some(message),
            _ => None,
        })
        .filter(own)
        .flat_map(|message| message.tool_calls.iter().map(|call| call.id.clone()))
        .collect()
}

fn responses_faults(body: &Value, own: &HashSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let items = list(body, "input");
    let mut open: Vec<String> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let id = word(item, "call_id");
        match word(item, "type").as_str() {
            "function_call" => {
                if id.is_empty() || (id.len() > 64 && !own.contains(&id)) {
                    faults.push(format!("{at}: id {id}"));
                }
                open.push(id);
            }
            "function_call_output" => match open.iter().position(|known| *known == id) {
                Some(found) => drop(open.remove(found)),
                None => faults.push(format!("{at}: a result for nobody: {id}")),
            },
            "reasoning" => {
                let next = items.get(at + 1).map(|next| word(next, "type"));
                let followed = next.as_deref() == Some("function_call")
                    || next.as_deref() == Some("reasoning")
                    || items
                        .get(at + 1)
                        .is_some_and(|next| word(next, "role") == "assistant");
                if !followed {
                    faults.push(format!("{at}: reasoning that nothing follows"));
                }
            }
            _ => {}
        }
    }
    if !open.is_empty() {
        faults.push(format!("calls without results: {open:?}"));
    }
    faults
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_conversation_of_others_is_taken_everywhere(log in log()) {
        for mut sample in targets() {
            sample.set_log(log.clone());
            let body = sample.body();
            let faults = match sample.quirks.format {
                WireFormat::ChatCompletions => chat_faults(&body, &sample),
                WireFormat::AnthropicMessages => anthropic_faults(&body),
                WireFormat::Responses => {
                    responses_faults(&body, &own_ids(&log, &sample.route.provider))
                }
            };
            prop_assert!(
                faults.is_empty(),
                "{} {}: {:#?}\n{:#}",
                sample.route.provider, sample.route.model, faults, body
            );
        }
    }

    #[test]
    fn what_is_sealed_goes_back_to_who_sealed_it_only(log in log()) {
        for mut sample in targets() {
            let own = |message: &Message| matches!(
                message,
                Message::Assistant(m) if m.written_by.as_ref().is_some_and(|by| {
                    by.provider == sample.route.provider && by.model == sample.route.model
                })
            );
            // The messages of others alone: none of their seals may show.
            let others: Vec<Message> = log
                .iter()
                .filter(|message| !own(message))
                .cloned()
                .collect();
            sample.set_log(others);
            let text = sample.body().to_string();
            prop_assert!(!text.contains("SEALED"), "{}: {text}", sample.route.provider);
        }
    }
}
