//! Chat completions.

use std::time::Duration;

use futures_util::StreamExt as _;
use hermes_core::message::Message;
use pretty_assertions::assert_eq;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{ApiHarness, answer, stream};

const CHAT: &str = "/v1/chat/completions";

fn ask(text: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn an_answer_in_one_piece() {
    let world = ApiHarness::new().await;
    let request = world
        .request(Method::POST, CHAT)
        .body(ask("hello").to_string());
    let response = request
        .header("x-hermes-session-key", "scope-1")
        .send()
        .await
        .unwrap();
    let session = response.headers()["x-hermes-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(session.starts_with("api-"), "{session}");
    assert_eq!(response.headers()["x-hermes-session-key"], "scope-1");
    assert_eq!(response.headers()["x-frame-options"], "DENY");
    let (status, body) = answer(response).await;
    assert_eq!(status, 200);
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "m");
    assert_eq!(body["choices"][0]["message"]["content"], "You said: hello");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(body["usage"]["prompt_tokens"], 10);
    assert_eq!(body["usage"]["total_tokens"], 15);
    assert_eq!(body.get("hermes"), None);
    let openings = world.seen.openings.lock().unwrap();
    assert!(openings[0].unattended && openings[0].keep_open);
    assert_eq!(openings[0].source, "api_server");
}

#[tokio::test]
async fn an_answer_bit_by_bit_with_tools_and_usage() {
    let world = ApiHarness::new().await;
    let mut body = ask("tool ls");
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = stream(world.request(Method::POST, CHAT).body(body.to_string())).await;
    let last = events.last().unwrap();
    assert_eq!(last.data, "[DONE]");
    assert_eq!(events[0].data["choices"][0]["delta"]["role"], "assistant");
    let text: String = events
        .iter()
        .filter_map(|event| event.data["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "I look. There is a.txt.");
    let tools: Vec<&Value> = events
        .iter()
        .filter(|event| event.name.as_deref() == Some("hermes.tool.progress"))
        .map(|event| &event.data)
        .collect();
    assert_eq!(tools.len(), 2);
    assert_eq!(tools[0]["tool"], "terminal");
    assert_eq!(tools[0]["label"], "ls");
    assert_eq!(tools[0]["status"], "running");
    assert_eq!(tools[1]["status"], "completed");
    assert_eq!(tools[0]["toolCallId"], tools[1]["toolCallId"]);
    assert_eq!(tools[0]["choices"], json!([]));
    let finish = &events[events.len() - 3].data;
    assert_eq!(finish["choices"][0]["finish_reason"], "stop");
    assert_eq!(finish["usage"], Value::Null);
    let usage = &events[events.len() - 2].data;
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 5);
    // Without asking for it, usage stands with the end.
    let mut body = ask("quiet");
    body["stream"] = json!("true");
    let events = stream(world.request(Method::POST, CHAT).body(body.to_string())).await;
    assert_eq!(events.len(), 4);
    assert_eq!(
        events[1].data["choices"][0]["delta"]["content"],
        "told at the end"
    );
    assert_eq!(events[2].data["usage"]["total_tokens"], 15);
}

#[tokio::test]
async fn text_that_comes_again_is_told_once() {
    let world = ApiHarness::new().await;
    let mut body = ask("again");
    body["stream"] = json!(true);
    let events = stream(world.request(Method::POST, CHAT).body(body.to_string())).await;
    let text: String = events
        .iter()
        .filter_map(|event| event.data["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "It was a dark night");
}

#[tokio::test]
async fn a_client_that_keeps_the_conversation_stays_in_its_session() {
    let world = ApiHarness::new().await;
    let talk = async |messages: Value| {
        let body = json!({"messages": messages}).to_string();
        let response = world
            .request(Method::POST, CHAT)
            .body(body)
            .send()
            .await
            .unwrap();
        let session = response.headers()["x-hermes-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        (
            session,
            answer(response).await.1["choices"][0]["message"]["content"].clone(),
        )
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    let said = |text: &str| json!({"role": "assistant", "content": text});
    let system = json!({"role": "system", "content": "Be brief."});
    let (first, answer) = talk(json!([system, user("one")])).await;
    assert_eq!(answer, "You said: one");
    let next = json!([system, user("one"), said("You said: one"), user("past")]);
    let (same, answer) = talk(next.clone()).await;
    assert_eq!(same, first);
    assert_eq!(answer, "[user=one|assistant=You said: one]");
    // The same words again: the session has moved on, so this is another one, with that past.
    let (other, answer) = talk(next).await;
    assert_ne!(other, first);
    assert_eq!(answer, "[user=one|assistant=You said: one]");
    // An edited past is what the model sees.
    let edited = json!([system, user("two"), said("You said: one"), user("past")]);
    let (third, answer) = talk(edited).await;
    assert!(third != first && third != other);
    assert_eq!(answer, "[user=two|assistant=You said: one]");
    // Another conversation that begins the same way sees nothing of the first.
    let (fourth, answer) = talk(json!([system, user("past")])).await;
    assert_eq!(answer, "[]");
    assert!(![first, other, third].contains(&fourth));
    let openings = world.seen.openings.lock().unwrap();
    assert_eq!(openings[0].system.as_deref(), Some("Be brief."));
    assert_eq!(openings[1].history[0], Message::user("one"));
}

#[tokio::test]
async fn a_session_is_named_by_header_or_body() {
    let world = ApiHarness::new().await;
    let request = world
        .request(Method::POST, CHAT)
        .header("x-hermes-session-id", "mine");
    let response = request.body(ask("one").to_string()).send().await.unwrap();
    assert_eq!(response.headers()["x-hermes-session-id"], "mine");
    let mut body = ask("past");
    body["session_id"] = json!("mine");
    let (_, answer) = world.post(CHAT, body).await;
    let text = &answer["choices"][0]["message"]["content"];
    assert_eq!(text, "[user=one|assistant=You said: one]");
    let mut body = ask("x");
    body["session_id"] = json!("../etc");
    let (status, refused) = world.post(CHAT, body).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (400, &json!("invalid_session_id"))
    );
    // New instructions for a session that is there go with the message, once.
    for _ in 0..2 {
        let body = json!({"session_id": "mine", "messages": [
            {"role": "system", "content": "Rhyme."}, {"role": "user", "content": "two"}]});
        assert_eq!(world.post(CHAT, body).await.0, 200);
    }
    let inputs = world.seen.inputs.lock().unwrap();
    let contexts: Vec<bool> = inputs.iter().map(|input| input.context.is_some()).collect();
    assert_eq!(contexts, [false, false, true, false]);
    assert!(inputs[2].context.as_ref().unwrap().contains("Rhyme."));
}

#[tokio::test]
async fn failures_are_failures() {
    let world = ApiHarness::new().await;
    let request = world
        .request(Method::POST, CHAT)
        .body(ask("fail").to_string());
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-should-retry"], "false");
    let (status, body) = answer(response).await;
    assert_eq!(status, 502);
    assert_eq!(body["error"]["code"], "agent_incomplete");
    assert_eq!(body["error"]["hermes"]["failed"], true);
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("no credit left"), "{message}");
    assert!(!message.contains("abcdefghijklmnopqrstuvwxyz"), "{message}");
    let mut streamed = ask("fail");
    streamed["stream"] = json!(true);
    let events = stream(world.request(Method::POST, CHAT).body(streamed.to_string())).await;
    let finish = &events[events.len() - 2].data;
    assert_eq!(finish["choices"][0]["finish_reason"], "error");
    assert!(
        finish["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("no credit left")
    );
    let request = world
        .request(Method::POST, CHAT)
        .body(ask("half").to_string());
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-hermes-partial"], "true");
    let (status, body) = answer(response).await;
    assert_eq!(status, 200);
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["choices"][0]["message"]["content"], "half of");
    assert_eq!(body["hermes"]["error_code"], "output_truncated");
    let mut refused = ask("x");
    refused["session_id"] = json!("refused-1");
    let (status, body) = world.post(CHAT, refused).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("not_configured"))
    );
}

#[tokio::test]
async fn nobody_is_asked_here() {
    let world = ApiHarness::new().await;
    assert_eq!(world.say("danger").await, "denied: nobody is here");
    assert_eq!(world.say("ask").await, "I decided myself");
}

#[tokio::test]
async fn a_client_that_leaves_interrupts_its_turn() {
    let world = ApiHarness::new().await;
    for streaming in [true, false] {
        let mut body = ask("wait");
        body["stream"] = json!(streaming);
        let request = world.request(Method::POST, CHAT).body(body.to_string());
        if streaming {
            let mut bytes = request.send().await.unwrap().bytes_stream();
            bytes.next().await.unwrap().unwrap();
            assert_eq!(world.work.running(), 1);
            drop(bytes);
        } else {
            let gone = tokio::time::timeout(Duration::from_millis(300), request.send()).await;
            assert!(gone.is_err());
        }
        world.seen.interrupted.notified().await;
    }
    // The place is given back when the turn has stopped.
    while world.work.running() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn repeated_requests_are_answered_once() {
    let world = ApiHarness::new().await;
    let send = async |key: &str, text: &str| {
        let request = world
            .request(Method::POST, CHAT)
            .header("idempotency-key", key);
        answer(request.body(ask(text).to_string()).send().await.unwrap()).await
    };
    let (first, second) = tokio::join!(send("k1", "hello"), send("k1", "hello"));
    assert_eq!(first, second);
    assert_eq!(send("k1", "hello").await, first);
    assert_eq!(world.seen.inputs.lock().unwrap().len(), 1);
    let (status, body) = send("k1", "something else").await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (422, &json!("idempotency_key_reused"))
    );
    assert_ne!(send("k2", "hello").await.1["id"], first.1["id"]);
    // The same words under the same key in another conversation are another request.
    let elsewhere = world
        .request(Method::POST, CHAT)
        .header("idempotency-key", "k1")
        .header("x-hermes-session-id", "elsewhere")
        .body(ask("hello").to_string());
    let (status, _) = answer(elsewhere.send().await.unwrap()).await;
    assert_eq!(status, 422);
}

#[tokio::test]
async fn pictures_reach_the_agent() {
    let world = ApiHarness::new().await;
    let body = json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]});
    assert_eq!(world.post(CHAT, body).await.0, 200);
    let inputs = world.seen.inputs.lock().unwrap();
    assert_eq!(
        (inputs[0].text.as_str(), inputs[0].images.len()),
        ("look", 1)
    );
}

#[tokio::test]
async fn a_conversation_that_does_not_fit_is_the_clients_error() {
    let world = ApiHarness::new().await;
    let request = world
        .request(Method::POST, CHAT)
        .body(ask("long story").to_string());
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-should-retry"], "false");
    let (status, body) = answer(response).await;
    assert_eq!(status, 400, "{body}");
    assert_eq!(body["error"]["code"], "context_length_exceeded");
    assert_eq!(body["error"]["type"], "invalid_request_error");
    let input = json!({"input": "long story"});
    let request = world
        .request(Method::POST, "/v1/responses")
        .body(input.to_string());
    let (status, body) = answer(request.send().await.unwrap()).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (400, &json!("context_length_exceeded"))
    );
    let mut body = ask("long story");
    body["stream"] = json!(true);
    let events = stream(world.request(Method::POST, CHAT).body(body.to_string())).await;
    let last = &events[events.len() - 2].data;
    assert_eq!(last["error"]["code"], "context_length_exceeded", "{last}");
    assert_eq!(last["error"]["type"], "invalid_request_error");
}

#[tokio::test]
async fn a_field_that_would_be_ignored_is_refused_by_name() {
    let world = ApiHarness::new().await;
    let refused = async |path: &str, body: &Value, field: &str| {
        let request = world.request(Method::POST, path).body(body.to_string());
        let (status, answer) = answer(request.send().await.unwrap()).await;
        assert_eq!(status, 400, "{path} {field}: {answer}");
        assert_eq!(answer["error"]["param"], field, "{path}: {answer}");
    };
    for (field, value) in [
        ("n", json!(2)),
        ("stop", json!(["END"])),
        ("max_tokens", json!(5)),
        ("background", json!(true)),
        (
            "tools",
            json!([{"type": "function", "function": {"name": "f"}}]),
        ),
        ("not_a_field", json!(1)),
    ] {
        let mut body = ask("hello");
        body[field] = value.clone();
        refused(CHAT, &body, field).await;
        let mut body = json!({"input": "hello"});
        body[field] = value;
        refused("/v1/responses", &body, field).await;
        refused("/v1/runs", &body, field).await;
    }
    assert!(
        world.seen.openings.lock().unwrap().is_empty(),
        "nothing was begun"
    );
    let mut body = ask("hello");
    body["n"] = json!(1);
    body["temperature"] = json!(0.2);
    body["user"] = json!("someone");
    body["max_tokens"] = Value::Null;
    let request = world.request(Method::POST, CHAT).body(body.to_string());
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-hermes-ignored"], "temperature");
    assert_eq!(answer(response).await.0, 200);
}
