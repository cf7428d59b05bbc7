//! The server with a model that does what it is told: who may ask, in what order, what comes back.

use std::os::unix::fs::PermissionsExt as _;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::http::{Client, eventually};
use crate::parrot::Perch;

fn said(text: &str) -> Value {
    json!({ "model": "x", "messages": [{ "role": "user", "content": text }] })
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn the_run_file_is_for_the_owner_and_the_token_is_needed() {
    let perch = Perch::new();
    let mode = std::fs::metadata(&perch.run).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let models = perch.client.get("/v1/models");
    assert_eq!(models["data"][0]["id"], "parrot.Q1");
    assert_eq!(
        perch.client.get("/v1/models/parrot.Q1")["context_length"],
        4000
    );
    let stranger = Client {
        token: "wrong".to_owned(),
        ..perch.client.clone()
    };
    for path in ["/v1/models", "/health", "/lease", "/nothing"] {
        let response = stranger.send("GET", path, "");
        assert_eq!(response.status, 401, "{path}");
        assert_eq!(response.json()["error"]["code"], "invalid_api_key");
    }
    let rebound = Client {
        host: Some(format!("evil.example:{}", perch.client.port)),
        ..perch.client.clone()
    };
    assert_eq!(rebound.send("GET", "/v1/models", "").status, 421);
    let by_name = Client {
        host: Some(format!("localhost:{}", perch.client.port)),
        ..perch.client.clone()
    };
    assert_eq!(by_name.send("GET", "/v1/models", "").status, 200);
    assert_eq!(perch.client.send("GET", "/nothing", "").status, 404);
    assert_eq!(
        perch.client.send("GET", "/v1/chat/completions", "").status,
        405
    );
}

#[test]
fn an_answer_whole_and_in_chunks() {
    let perch = Perch::new();
    let answer = perch.client.chat(&said("say Hello – wörld <|im_end|>!"));
    assert_eq!(content(&answer), "Hello – wörld <|im_end|>!");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["usage"]["completion_tokens"], 28);
    let again = perch.client.chat(&said("say Hello – wörld <|im_end|>!"));
    let usage = &again["usage"];
    assert_eq!(
        usage["prompt_tokens_details"]["cached_tokens"],
        usage["prompt_tokens"]
    );

    let mut body = said("say Hello – wörld <|im_end|>!");
    let chunks = perch.client.chunks(&body);
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "Hello – wörld <|im_end|>!");
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!(last["usage"]["completion_tokens"], 28);
    body["stream_options"] = json!({ "include_usage": true });
    let chunks = perch.client.chunks(&body);
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 28);
}

#[test]
fn answers_end_where_they_must() {
    let perch = Perch::new();
    let mut body = said("say one two three");
    body["stop"] = json!(["two", "never"]);
    let answer = perch.client.chat(&body);
    assert_eq!(content(&answer), "one ");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    body["stop"] = json!(null);
    body["max_tokens"] = json!(5);
    let answer = perch.client.chat(&body);
    assert_eq!(content(&answer), "one t");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

fn weather() -> Value {
    json!([{ "type": "function", "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": { "city": { "type": "string" }, "days": { "type": "integer" } },
            "required": ["city"],
        },
    }}])
}

#[test]
fn calls_are_well_formed_whatever_the_model_says() {
    let perch = Perch::new();
    // Its own way of calling, in the right form.
    let call = "say Sure.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>";
    let mut body = said(call);
    body["tools"] = weather();
    let answer = perch.client.chat(&body);
    let message = &answer["choices"][0]["message"];
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(message["content"], "Sure.");
    assert_eq!(message["tool_calls"][0]["function"]["name"], "weather");
    let arguments = message["tool_calls"][0]["function"]["arguments"]
        .as_str()
        .unwrap();
    assert_eq!(arguments, "{\"city\": \"Bern\"}");
    let chunks = perch.client.chunks(&body);
    let streamed: String = chunks
        .iter()
        .filter_map(|chunk| {
            chunk
                .pointer("/choices/0/delta/tool_calls/0/function/arguments")?
                .as_str()
        })
        .collect();
    assert_eq!(streamed, arguments);
    assert_eq!(
        chunks.last().unwrap()["choices"][0]["finish_reason"],
        "tool_calls"
    );

    // Words, where a call is required: noise in the right form.
    body["messages"] = json!([{ "role": "user", "content": "say I would rather talk" }]);
    body["max_tokens"] = json!(120);
    for choice in [
        json!("required"),
        json!({ "type": "function", "function": { "name": "weather" } }),
    ] {
        body["tool_choice"] = choice;
        let answer = perch.client.chat(&body);
        let calls = answer["choices"][0]["message"]["tool_calls"]
            .as_array()
            .unwrap();
        for call in calls {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            assert!(arguments["city"].is_string());
        }
    }
    body["tool_choice"] = json!("auto");
    assert_eq!(content(&perch.client.chat(&body)), "I would rather talk");
    body["tool_choice"] = json!("none");
    body["messages"] = json!([{ "role": "user", "content": call }]);
    let answer = perch.client.chat(&body);
    assert!(answer["choices"][0]["message"].get("tool_calls").is_none());
    assert!(!content(&answer).contains("<tool_call>"));
}

#[test]
fn text_takes_all_the_tokens_it_may_have_although_a_call_would_not_fit() {
    let perch = Perch::new();
    let text = "word".repeat(100);
    let mut body = said(&format!("say {text}"));
    body["tools"] = weather();
    // A call takes more than 40 tokens, and less than 200.
    for most in [1, 40, 200] {
        body["max_tokens"] = json!(most);
        let answer = perch.client.chat(&body);
        assert_eq!(content(&answer), &text[..most]);
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
    }
    // No call is begun that cannot be completed.
    let call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}";
    body["messages"] = json!([{ "role": "user", "content": format!("say {call}") }]);
    body["max_tokens"] = json!(40);
    let answer = perch.client.chat(&body);
    assert!(answer["choices"][0]["message"].get("tool_calls").is_none());
    assert!(content(&answer).starts_with("<tool_call"), "{answer}");
}

#[test]
fn json_by_a_schema() {
    let perch = Perch::new();
    let mut body = said("say {\"title\": \"Sea\", \"more\": 1}");
    body["response_format"] = json!({ "type": "json_schema", "json_schema": { "name": "t", "schema": {
        "type": "object", "properties": { "title": { "type": "string" } }, "required": ["title"],
    }}});
    let answer = perch.client.chat(&body);
    let value: Value = serde_json::from_str(content(&answer)).unwrap();
    assert_eq!(value, json!({ "title": "Sea" }));
}

#[test]
fn wrong_requests_get_words() {
    let perch = Perch::new();
    let client = &perch.client;
    let (status, error) = client.refused("{");
    assert_eq!((status, &error["code"]), (400, &json!("invalid_request")));
    assert_eq!(error["type"], "invalid_request_error");
    let (status, error) = client.refused(&said(&"long ".repeat(1000)).to_string());
    assert_eq!(
        (status, &error["code"]),
        (400, &json!("context_length_exceeded"))
    );
    let mut body = said("x");
    body["tools"] = weather();
    body["tools"][0]["function"]["parameters"] = json!({ "$ref": "#/nowhere" });
    let (status, error) = client.refused(&body.to_string());
    assert_eq!((status, &error["param"]), (400, &json!("tools")));
    body["tools"] = weather();
    body["tool_choice"] = json!("required");
    body["max_tokens"] = json!(10);
    let (status, error) = client.refused(&body.to_string());
    assert_eq!(
        (status, &error["code"]),
        (400, &json!("max_tokens_too_small"))
    );
    assert_eq!(
        client.announce("/v1/chat/completions", 9_000_000).status,
        413
    );
    // After all of that it still works.
    assert_eq!(content(&client.chat(&said("say yes"))), "yes");
}

#[test]
fn few_wait_and_those_who_leave_make_room() {
    let perch = Perch::new();
    let client = &perch.client;
    perch.strings.hold(true);
    let wait = said("wait").to_string();
    let ask = || client.ask("POST", "/v1/chat/completions", &wait);
    let first = ask();
    eventually("the first is taken up", || {
        client.get("/health")["busy"] == true
    });
    let mut others: Vec<_> = (0..8).map(|_| ask()).collect();
    eventually("eight wait", || client.get("/health")["waiting"] == 8);
    let response = client.send("POST", "/v1/chat/completions", &wait);
    assert_eq!(response.status, 429);
    assert!(
        response.headers.contains("retry-after: 2"),
        "{}",
        response.headers
    );
    assert_eq!(response.json()["error"]["code"], "queue_full");
    drop(others.pop());
    eventually("one has left", || client.get("/health")["waiting"] == 7);
    others.push(ask());
    eventually("another has come", || client.get("/health")["waiting"] == 8);
    // The one whose answer is being made leaves: the next is taken up.
    drop(first);
    eventually("the next is taken up", || {
        client.get("/health")["waiting"] == 7
    });
    drop(others);
    eventually("nobody waits", || {
        let health = client.get("/health");
        health["waiting"] == 0 && health["busy"] == false
    });
    perch.strings.hold(false);
    assert_eq!(content(&client.chat(&said("wait"))), "waited");
}

#[test]
fn a_client_that_leaves_in_the_middle_stops_the_model() {
    let perch = Perch::new();
    let client = &perch.client;
    let mut body = said("count");
    body["stream"] = json!(true);
    let mut response = client.send("POST", "/v1/chat/completions", &body.to_string());
    for _ in 0..5 {
        response.piece().unwrap();
    }
    drop(response);
    eventually("the model is free", || {
        client.get("/health")["busy"] == false
    });
    let tokens = &client.get("/health")["generated_tokens"];
    assert!(tokens.as_u64().unwrap() <= 2048, "{tokens}");
    assert_eq!(&client.get("/health")["generated_tokens"], tokens);
    assert_eq!(content(&client.chat(&said("say free"))), "free");
}

#[test]
fn a_model_that_panics_is_opened_again() {
    let perch = Perch::new();
    let (status, error) = perch.client.refused(&said("panic").to_string());
    assert_eq!((status, &error["type"]), (500, &json!("server_error")));
    assert_eq!(content(&perch.client.chat(&said("say again"))), "again");
    assert_eq!(*perch.strings.opened.lock().unwrap(), 2);
    // There may be no room in memory for two.
    assert_eq!(*perch.strings.at_once.lock().unwrap(), 1);
}

#[test]
fn leases_are_counted_as_long_as_they_are_held() {
    let perch = Perch::new();
    let client = &perch.client;
    let mut lease = client.send("GET", "/lease", "");
    assert_eq!(lease.piece().as_deref(), Some(": alive\n\n"));
    assert_eq!(client.get("/health")["leases"], 1);
    drop(lease);
    eventually("the lease is gone", || client.get("/health")["leases"] == 0);
    let health = client.get("/health");
    assert_eq!(health["status"], "ok");
    assert!(health["rss_bytes"].as_u64().unwrap() > 0);
    assert!(health["idle_seconds"].as_f64().is_some());
}
