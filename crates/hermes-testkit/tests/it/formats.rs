//! Each format spells the same answer in its own way.

use hermes_testkit::model_server::{
    Format, ModelServer, ReasoningField, Reply, ReplyUsage, ScriptedCall, ServedModel, UsagePlace,
};
use serde_json::{Value, json};

use crate::client::{chat, send};

fn rich() -> Reply {
    Reply::text("Grüße, world")
        .deltas(3)
        .signed_reasoning("thinking", Some("sig"))
        .and_call(ScriptedCall::new("call_1", "read_file", &json!({"path": "ä.txt"})).chunks(3))
        .and_tool_call("call_2", "todo", &json!({}))
        .usage(ReplyUsage {
            prompt: 100,
            completion: 20,
            cached: 60,
            cache_write: 10,
            reasoning: 7,
            cost: Some(0.25),
        })
}

fn concat(values: &[Value], pick: impl Fn(&Value) -> Option<&str>) -> String {
    values.iter().filter_map(pick).collect()
}

#[test]
fn chat_completions_stream() {
    let server = ModelServer::start();
    server.push(rich());
    let answer = chat(&server, "hi");
    assert!(answer.complete);
    assert!(answer.body.ends_with("data: [DONE]\n\n"));
    let data = answer.data();
    let delta = |value: &'static str| {
        move |event: &Value| {
            event["choices"][0]["delta"][value]
                .as_str()
                .map(str::to_owned)
        }
    };
    let text: String = data.iter().filter_map(delta("content")).collect();
    let thought: String = data.iter().filter_map(delta("reasoning_content")).collect();
    assert_eq!(
        (text.as_str(), thought.as_str()),
        ("Grüße, world", "thinking")
    );
    let arguments = concat(&data, |event| {
        let call = &event["choices"][0]["delta"]["tool_calls"][0];
        (call["index"] == 0).then(|| call["function"]["arguments"].as_str())?
    });
    assert_eq!(arguments, r#"{"path":"ä.txt"}"#);
    let last = data.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 60);
    assert_eq!(last["usage"]["cost"], 0.25);
    let finish = &data[data.len() - 2]["choices"][0]["finish_reason"];
    assert_eq!(finish, "tool_calls");
}

#[test]
fn anthropic_messages_stream() {
    let server = ModelServer::start();
    server.push(rich());
    let body = json!({"model": "m", "stream": true, "messages": []}).to_string();
    let data = send(&server, "POST", "/v1/messages", &body).data();
    let kinds: Vec<&str> = data
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds.first(), Some(&"message_start"));
    assert_eq!(kinds.last(), Some(&"message_stop"));
    // Anthropic's input does not include what was cached.
    assert_eq!(data[0]["message"]["usage"]["input_tokens"], 30);
    assert_eq!(
        concat(&data, |event| event["delta"]["text"].as_str()),
        "Grüße, world"
    );
    assert_eq!(
        concat(&data, |event| event["delta"]["signature"].as_str()),
        "sig"
    );
    assert_eq!(
        concat(&data, |event| event["delta"]["partial_json"].as_str()),
        r#"{"path":"ä.txt"}{}"#
    );
    assert_eq!(data[data.len() - 2]["delta"]["stop_reason"], "tool_use");
}

#[test]
fn responses_stream() {
    let server = ModelServer::start();
    server.push(rich());
    server.push(Reply::text("cut").finish("length"));
    let body = json!({"model": "m", "stream": true, "input": "hi"}).to_string();
    let data = send(&server, "POST", "/v1/responses", &body).data();
    let of = |kind: &str| {
        data.iter()
            .filter(|event| event["type"] == kind)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        concat(&of("response.output_text.delta"), |event| event["delta"]
            .as_str()),
        "Grüße, world"
    );
    assert_eq!(
        concat(&of("response.function_call_arguments.delta"), |event| event
            ["delta"]
            .as_str()),
        r#"{"path":"ä.txt"}{}"#
    );
    let whole = &of("response.completed")[0]["response"];
    assert_eq!(whole["output"][0]["encrypted_content"], "sig");
    assert_eq!(whole["output"][2]["call_id"], "call_1");
    assert_eq!(
        whole["usage"]["output_tokens_details"]["reasoning_tokens"],
        7
    );

    let data = send(&server, "POST", "/v1/responses", &body).data();
    let last = data.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(
        last["response"]["incomplete_details"]["reason"],
        "max_output_tokens"
    );
}

#[test]
fn without_stream_each_format_is_one_object() {
    let server = ModelServer::start();
    server.push_default(rich());
    let body = json!({"model": "m"}).to_string();
    let ask = |path| send(&server, "POST", path, &body).json();
    let chat = ask("/v1/chat/completions");
    assert_eq!(
        chat["choices"][0]["message"]["tool_calls"][1]["id"],
        "call_2"
    );
    let anthropic = ask("/v1/messages");
    assert_eq!(anthropic["content"][2]["input"]["path"], "ä.txt");
    let responses = ask("/v1/responses");
    assert_eq!(responses["output"][3]["name"], "todo");
}

#[test]
fn quirks_of_chat_servers() {
    let server = ModelServer::start();
    let calls = || {
        [
            ScriptedCall::new("a", "x", &json!({"k": 1})).chunks(2),
            ScriptedCall::new("b", "y", &json!({})).id(json!(7)),
        ]
    };
    server.push(Reply::tool_calls(calls()).index_zero().repeat_names());
    let data = chat(&server, "hi").data();
    let pieces: Vec<&Value> = data
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array())
        .flatten()
        .collect();
    assert!(pieces.iter().all(|piece| piece["index"] == 0));
    assert_eq!(pieces[1]["function"]["name"], "x");
    assert_eq!(pieces.last().unwrap()["id"], 7);

    server.push(Reply::text("whole").json_answer());
    assert_eq!(
        chat(&server, "hi").json()["choices"][0]["message"]["content"],
        "whole"
    );

    server.push(Reply::text("x").no_finish().no_usage().no_done());
    let answer = chat(&server, "hi");
    assert!(answer.complete && !answer.body.contains("\"finish_reason\":\"stop\""));

    let reply = Reply::reasoning_only("hm").reasoning_field(ReasoningField::Details);
    server.push(reply.usage_place(UsagePlace::WithFinish).crlf());
    let answer = chat(&server, "hi");
    assert!(answer.body.contains("\r\n\r\n"));
    let data = answer.data();
    assert_eq!(
        data[1]["choices"][0]["delta"]["reasoning_details"][0]["text"],
        "hm"
    );
    assert_eq!(data.last().unwrap()["usage"]["prompt_tokens"], 10);
}

#[test]
fn requests_are_recorded_in_neutral_terms() {
    let server = ModelServer::start();
    server.push_default(Reply::text("ok"));
    chat(&server, "hello");
    let request = server.last_request();
    assert_eq!(request.format(), Some(Format::Chat));
    assert_eq!((request.model(), request.api_key()), ("m", Some("key-1")));
    assert_eq!(
        (request.system().as_str(), request.last_text().as_str()),
        ("be good", "hello")
    );
    assert_eq!(request.tool_names(), ["read_file"]);

    let anthropic = json!({"model": "m", "system": [{"type": "text", "text": "sys"}], "messages": [
        {"role": "user", "content": "do"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]},
    ]});
    send(&server, "POST", "/v1/messages", &anthropic.to_string());
    let request = server.last_request();
    assert_eq!(request.system(), "sys");
    assert!(request.ends_with_tool_result());
    assert_eq!(
        (
            request.tool_results()[0].id.as_str(),
            request.last_text().as_str()
        ),
        ("t", "out")
    );
    assert_eq!(request.last_user_text(), "do");

    let responses = json!({"model": "m", "instructions": "sys", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "do"}]},
        {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "out"},
    ]});
    send(&server, "POST", "/v1/responses", &responses.to_string());
    let request = server.last_request();
    assert_eq!(
        (request.system().as_str(), request.last_text().as_str()),
        ("sys", "out")
    );
    assert_eq!(request.last_user_text(), "do");
}

#[test]
fn models_are_listed() {
    let server = ModelServer::start();
    server.serve_models([ServedModel::new("org/m").context_length(4096)]);
    let list = send(&server, "GET", "/v1/models", "").json();
    assert_eq!(list["data"][0]["context_length"], 4096);
    assert_eq!(
        send(&server, "GET", "/v1/models/org/m", "").json()["id"],
        "org/m"
    );
    assert_eq!(send(&server, "GET", "/v1/models/none", "").status(), "404");
    assert_eq!(
        send(&server, "GET", "/api/tags", "").json()["models"][0]["name"],
        "org/m"
    );
    let show = send(&server, "POST", "/api/show", r#"{"model":"org/m"}"#).json();
    assert_eq!(show["model_info"]["scripted.context_length"], 4096);
    server.route("GET", "/props", Reply::json(200, &json!({"n_ctx": 8})));
    assert_eq!(send(&server, "GET", "/props", "").json()["n_ctx"], 8);
}
