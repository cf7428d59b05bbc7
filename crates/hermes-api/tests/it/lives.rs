//! What a client may ask of the next process of the server.

use pretty_assertions::assert_eq;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{ApiHarness, answer, stream};

const CHAT: &str = "/v1/chat/completions";

async fn send(world: &ApiHarness, path: &str, key: &str, body: &Value) -> (u16, Value) {
    let request = world
        .request(Method::POST, path)
        .header("idempotency-key", key);
    answer(request.body(body.to_string()).send().await.unwrap()).await
}

fn said(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn a_key_of_an_earlier_life_gets_the_answer_that_was_stored() {
    let world = ApiHarness::new().await;
    let chat = send(&world, CHAT, "k1", &said("hello")).await;
    let input = json!({"input": "hello"});
    let response = send(&world, "/v1/responses", "k1", &input).await;
    let run = send(&world, "/v1/runs", "k1", &input).await;
    assert_eq!((chat.0, response.0, run.0), (200, 200, 202));
    assert_eq!(send(&world, "/v1/runs", "k1", &input).await, run);
    let world = world.again().await;
    assert_eq!(send(&world, CHAT, "k1", &said("hello")).await, chat);
    assert_eq!(send(&world, "/v1/responses", "k1", &input).await, response);
    assert_eq!(send(&world, "/v1/runs", "k1", &input).await, run);
    assert_eq!(world.seen.inputs.lock().unwrap().len(), 0);
    let (status, body) = send(&world, CHAT, "k1", &said("else")).await;
    let code = &body["error"]["code"];
    assert_eq!((status, code), (422, &json!("idempotency_key_reused")));
}

/// A stream under a key, as its bytes.
async fn told(world: &ApiHarness, path: &str, key: &str, text: &str) -> String {
    let response = begun(world, path, key, text).await;
    response.text().await.unwrap()
}

async fn begun(world: &ApiHarness, path: &str, key: &str, text: &str) -> reqwest::Response {
    let mut body = if path == CHAT {
        said(text)
    } else {
        json!({"input": text})
    };
    body["stream"] = json!(true);
    let request = world
        .request(Method::POST, path)
        .header("idempotency-key", key)
        .body(body.to_string());
    request.send().await.unwrap()
}

#[tokio::test]
async fn a_stream_under_a_key_is_the_same_for_all_and_goes_on_without_them() {
    let mut world = ApiHarness::new().await;
    for path in [CHAT, "/v1/responses"] {
        let mut gone = begun(&world, path, "k1", "door").await;
        assert!(gone.headers().contains_key("x-hermes-session-id"));
        gone.chunk().await.unwrap().unwrap();
        drop(gone);
        // It came back for it, and another one with it.
        let early = begun(&world, path, "k1", "door").await;
        let (early, other, ()) =
            tokio::join!(early.text(), told(&world, path, "k1", "door"), async {
                world.seen.door.notify_one();
            });
        let early = early.unwrap();
        assert!(
            early.contains("before ") && early.contains("after"),
            "{early}"
        );
        assert_eq!(other, early);
        assert_eq!(told(&world, path, "k1", "door").await, early);
        assert_eq!(world.seen.inputs.lock().unwrap().len(), 1);
        assert_eq!(begun(&world, path, "k1", "else").await.status(), 422);
        world = world.again().await;
        let later = begun(&world, path, "k1", "door").await;
        assert_eq!(
            later.headers()["content-type"],
            "text/event-stream; charset=utf-8"
        );
        assert!(later.headers().contains_key("x-hermes-session-id"));
        assert_eq!(later.text().await.unwrap(), early);
        assert_eq!(world.seen.inputs.lock().unwrap().len(), 0);
        // A failure is told to whoever reads, and frees the key.
        for _ in 0..2 {
            assert!(
                told(&world, path, "k2", "fail")
                    .await
                    .contains("no credit left")
            );
        }
        assert_eq!(world.seen.inputs.lock().unwrap().len(), 2);
        world = world.again().await;
    }
}

#[tokio::test]
async fn a_stream_that_was_cut_says_so_in_the_next_life() {
    let world = ApiHarness::new().await;
    let mut cut = begun(&world, CHAT, "k1", "wait").await;
    cut.chunk().await.unwrap().unwrap();
    let world = world.again().await;
    drop(cut);
    assert_eq!(begun(&world, CHAT, "k1", "wait").await.status(), 409);
    assert_eq!(world.seen.inputs.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_request_that_was_cut_says_so() {
    let world = ApiHarness::new().await;
    let body = said("wait");
    let request = world
        .request(Method::POST, CHAT)
        .header("idempotency-key", "k1")
        .body(body.to_string());
    let asked = hermes_core::task::spawn("a client", request.send());
    while world.seen.inputs.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let world = world.again().await;
    drop(asked.await);
    let (status, told) = send(&world, CHAT, "k1", &body).await;
    let error = &told["error"];
    assert_eq!(
        (status, &error["code"]),
        (409, &json!("request_interrupted"))
    );
    assert!(error["hermes"]["session_id"].is_string(), "{error}");
    assert_eq!(world.seen.inputs.lock().unwrap().len(), 0);
    // A failure is no answer: that key may be used again.
    for _ in 0..2 {
        let (status, _) = send(&world, CHAT, "k2", &said("fail")).await;
        assert_eq!(status, 502);
    }
    assert_eq!(world.seen.inputs.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn runs_of_an_earlier_life_can_be_asked_about() {
    let world = ApiHarness::new().await;
    let (_, done) = world.post("/v1/runs", json!({"input": "hello"})).await;
    let done = done["run_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/runs/{done}");
    stream(world.request(Method::GET, &format!("{path}/events"))).await;
    let (_, cut) = world.post("/v1/runs", json!({"input": "danger"})).await;
    let cut = cut["run_id"].as_str().unwrap().to_owned();
    let before = world.get(&path).await;
    let world = world.again().await;
    let after = world.get(&path).await;
    assert_eq!((after.0, &after.1["status"]), (200, &json!("completed")));
    assert_eq!(after.1["output"], before.1["output"]);
    let events = stream(world.request(Method::GET, &format!("{path}/events"))).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].data["event"], "run.completed");
    let (_, shown) = world.get(&format!("/v1/runs/{cut}")).await;
    assert!(
        ["failed", "cancelled", "completed"].contains(&shown["status"].as_str().unwrap()),
        "{shown}"
    );
    let (status, _) = world
        .post(
            &format!("/v1/runs/{cut}/approval"),
            json!({"choice": "once"}),
        )
        .await;
    assert_eq!(status, 409);
    assert_eq!(
        world
            .post(&format!("/v1/runs/{cut}/stop"), json!({}))
            .await
            .0,
        409
    );
}
