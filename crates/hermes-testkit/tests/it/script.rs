//! Which request gets which answer.

use hermes_testkit::model_server::{ModelServer, Reply, load_script};
use serde_json::{Value, json};

use crate::client::{Answer, chat, send};

fn said(answer: &Answer) -> String {
    let data = answer.data();
    let deltas = data
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    deltas.collect()
}

fn ask(server: &ModelServer, body: &Value) -> String {
    let mut body = body.clone();
    body["stream"] = json!(true);
    said(&send(
        server,
        "POST",
        "/v1/chat/completions",
        &body.to_string(),
    ))
}

#[test]
fn rules_come_first_then_matches_then_the_queue_then_the_default() {
    let server = ModelServer::start();
    server
        .push(Reply::text("queued"))
        .push_default(Reply::text("default"))
        .push_for_model("aux", Reply::text("for aux"))
        .rule(|request| (request.last_text() == "rule").then(|| Reply::text("by rule")));
    let aux = json!({"model": "aux", "messages": []});
    assert_eq!(said(&chat(&server, "rule")), "by rule");
    assert_eq!(ask(&server, &aux), "for aux");
    assert_eq!(server.unused(), 1);
    assert_eq!(said(&chat(&server, "x")), "queued");
    assert_eq!(said(&chat(&server, "x")), "default");
    assert_eq!(ask(&server, &aux), "default");
}

#[test]
fn a_closure_plays_an_agent() {
    let server = ModelServer::start();
    server.side_work(Reply::text("a title"));
    server.answer_with(|request| {
        if request.ends_with_tool_result() {
            Reply::text(&format!("it says {}", request.last_text()))
        } else {
            Reply::tool_call("c", "read_file", &json!({"path": "x"}))
        }
    });
    assert_eq!(
        ask(&server, &json!({"model": "m", "messages": []})),
        "a title"
    );
    let tools = json!([{"type": "function", "function": {"name": "read_file"}}]);
    let first =
        json!({"model": "m", "tools": tools, "messages": [{"role": "user", "content": "go"}]});
    assert_eq!(ask(&server, &first), "");
    let second = json!({"model": "m", "tools": tools, "messages": [
        {"role": "user", "content": "go"},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ]});
    assert_eq!(ask(&server, &second), "it says 42");
}

#[test]
fn an_empty_script_says_so_instead_of_hanging() {
    let server = ModelServer::start();
    let answer = chat(&server, "hi");
    assert_eq!(answer.status(), "400");
    assert!(answer.body.contains("no answer left for request 0"));
}

#[test]
fn scripts_load_from_json() {
    let server = ModelServer::start();
    let script = json!({
        "models": ["m"],
        "rules": [{"when": {"min_tool_results": 1}, "reply": {"text": "done"}}],
        "replies": [{"status": 429, "headers": {"retry-after": "3"}}],
        "default": {"tool_calls": [{"name": "read_file", "arguments": {"path": "a"}}],
                    "usage": {"prompt": 7}},
    });
    load_script(&server, &script).unwrap();
    assert!(chat(&server, "x").head.contains("retry-after: 3"));
    assert!(chat(&server, "x").body.contains("\"call_1\""));
    assert!(chat(&server, "x").body.contains("\"call_2\""));
    let result = json!({"model": "m", "messages": [{"role": "tool", "content": "x"}]});
    assert_eq!(ask(&server, &result), "done");

    let error = load_script(&server, &json!({"default": {"txt": "x"}})).unwrap_err();
    assert!(error.contains("\"txt\""), "{error}");
}
