//! Scripts as JSON, for programs that are not Rust tests.
//!
//! ```json
//! {
//!   "models": [{"id": "scripted", "context_length": 200000}],
//!   "rules":  [{"when": {"model": "m", "min_tool_results": 20, "tools": true, "contains": "x"},
//!               "reply": {"text": "done"}}],
//!   "replies": [{"tool_calls": [{"id": "call_{request}", "name": "read_file", "arguments": {"path": "a"}}]}],
//!   "default": {"text": "hello", "deltas": 5, "reasoning": "hm", "finish": "stop",
//!               "usage": {"prompt": 10, "completion": 5, "cached": 0, "cost": 0.01},
//!               "delay_ms": 0, "between_ms": 0, "per_second": 2000, "cut_after_events": 3,
//!               "status": 429, "headers": {"retry-after": "1"}, "body": "…"}
//! }
//! ```
//! Every key is optional. Rules are asked first, in order; then replies are used up; then the
//! default answers forever.

use std::time::Duration;

use serde_json::Value;

use super::{ModelServer, RecordedRequest, Reply, ReplyUsage, ScriptedCall, ServedModel};

/// Loads a whole script into a server. An error names what is wrong with it.
pub fn load_script(server: &ModelServer, script: &Value) -> Result<(), String> {
    known_keys(script, &["models", "rules", "replies", "default"])?;
    let models: Vec<ServedModel> = list(script, "models")?
        .iter()
        .map(|model| {
            let id = model["id"]
                .as_str()
                .or(model.as_str())
                .unwrap_or("scripted");
            ServedModel {
                context_length: model["context_length"].as_u64().map(|tokens| tokens as u32),
                ..ServedModel::new(id)
            }
        })
        .collect();
    server.serve_models(models);
    for rule in list(script, "rules")? {
        let when = rule["when"].clone();
        known_keys(&when, &["model", "min_tool_results", "tools", "contains"])?;
        let reply = reply_from_json(&rule["reply"])?;
        server.rule(move |request| matches(&when, request).then(|| reply.clone()));
    }
    for reply in list(script, "replies")? {
        server.push(reply_from_json(reply)?);
    }
    if let Some(reply) = script.get("default") {
        server.push_default(reply_from_json(reply)?);
    }
    Ok(())
}

fn list<'a>(script: &'a Value, key: &str) -> Result<&'a [Value], String> {
    match script.get(key) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("{key} must be a list")),
    }
}

fn known_keys(value: &Value, known: &[&str]) -> Result<(), String> {
    let Value::Object(map) = value else {
        return Err(format!("expected an object, found {value}"));
    };
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown key {key:?}; known: {}", known.join(", "))),
        None => Ok(()),
    }
}

fn matches(when: &Value, request: &RecordedRequest) -> bool {
    let model = when["model"]
        .as_str()
        .is_none_or(|model| model == request.model());
    let results = when["min_tool_results"]
        .as_u64()
        .is_none_or(|least| request.tool_results().len() as u64 >= least);
    let tools = when["tools"]
        .as_bool()
        .is_none_or(|tools| tools == request.offers_tools());
    let contains = when["contains"]
        .as_str()
        .is_none_or(|text| request.body_text().contains(text));
    model && results && tools && contains
}

const REPLY_KEYS: &[&str] = &[
    "text",
    "deltas",
    "reasoning",
    "tool_calls",
    "usage",
    "finish",
    "delay_ms",
    "between_ms",
    "per_second",
    "cut_after_events",
    "status",
    "headers",
    "body",
];

/// One reply of a script.
pub fn reply_from_json(value: &Value) -> Result<Reply, String> {
    known_keys(value, REPLY_KEYS)?;
    let mut reply = if let Some(status) = value["status"].as_u64() {
        match &value["body"] {
            Value::Null => Reply::error(status as u16, "scripted error"),
            Value::String(text) => Reply::http(status as u16, text),
            body => Reply::json(status as u16, body),
        }
    } else {
        answer(value)?
    };
    for (name, text) in value["headers"].as_object().into_iter().flatten() {
        reply = reply.header(name, text.as_str().unwrap_or_default());
    }
    if let Some(millis) = value["delay_ms"].as_u64() {
        reply = reply.delay(Duration::from_millis(millis));
    }
    if let Some(millis) = value["between_ms"].as_u64() {
        reply = reply.delay_between(Duration::from_millis(millis));
    }
    if let Some(events) = value["per_second"].as_u64() {
        reply = reply.per_second(u32::try_from(events).unwrap_or(u32::MAX));
    }
    if let Some(events) = value["cut_after_events"].as_u64() {
        reply = reply.cut_after_events(events as usize);
    }
    Ok(reply)
}

fn answer(value: &Value) -> Result<Reply, String> {
    let mut reply = match value["text"].as_str() {
        Some(text) => Reply::text(text),
        None => Reply::empty(),
    };
    if let Some(text) = value["reasoning"].as_str() {
        reply = reply.reasoning(text);
    }
    if let Some(count) = value["deltas"].as_u64() {
        reply = reply.deltas(count as usize);
    }
    for call in list(value, "tool_calls")? {
        let name = call["name"].as_str().ok_or("a tool call needs a name")?;
        let id = call["id"].as_str().unwrap_or("call_{request}");
        reply = reply.and_call(match &call["arguments"] {
            Value::String(raw) => ScriptedCall::raw(id, name, raw),
            arguments => ScriptedCall::new(id, name, arguments),
        });
    }
    if let Some(reason) = value["finish"].as_str() {
        reply = reply.finish(reason);
    }
    if let Some(usage) = value.get("usage") {
        let count = |key: &str| usage[key].as_u64().unwrap_or(0);
        reply = reply.usage(ReplyUsage {
            prompt: count("prompt"),
            completion: count("completion"),
            cached: count("cached"),
            cache_write: count("cache_write"),
            reasoning: count("reasoning"),
            cost: usage["cost"].as_f64(),
        });
    }
    Ok(reply)
}
