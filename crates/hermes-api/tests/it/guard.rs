//! Who is let in, and how much.

use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use pretty_assertions::assert_eq;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{ApiHarness, KEY, answer};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn only_the_key_opens() {
    let world = ApiHarness::new().await;
    let (status, body) = answer(world.stranger(Method::GET, "/health").send().await.unwrap()).await;
    assert_eq!((status, &body["status"]), (200, &json!("ok")));
    for path in [
        "/v1/models",
        "/health/detailed",
        "/api/sessions",
        "/api/jobs",
        "/v1/capabilities",
    ] {
        for key in [None, Some(""), Some("wrong"), Some(&KEY[1..])] {
            let mut request = world.stranger(Method::GET, path);
            if let Some(key) = key {
                request = request.bearer_auth(key);
            }
            let (status, body) = answer(request.send().await.unwrap()).await;
            assert_eq!(
                (status, &body["error"]["code"]),
                (401, &json!("invalid_api_key")),
                "{path}"
            );
        }
        assert_eq!(world.get(path).await.0, 200, "{path}");
    }
    let request = world.stranger(Method::POST, CHAT).body("{}");
    assert_eq!(request.send().await.unwrap().status(), 401);
    assert!(world.seen.openings.lock().unwrap().is_empty());
}

#[tokio::test]
async fn origins_must_be_named() {
    let world = ApiHarness::with(json!({"cors_origins": "https://a.example"})).await;
    let from = |origin: &str, method| {
        let request = world.request(method, "/v1/models");
        request.header("origin", origin.to_owned()).send()
    };
    let answered = from("https://a.example", Method::GET).await.unwrap();
    assert_eq!(
        answered.headers()["access-control-allow-origin"],
        "https://a.example"
    );
    assert_eq!(
        from("https://b.example", Method::GET)
            .await
            .unwrap()
            .status(),
        403
    );
    let asked = world
        .stranger(Method::OPTIONS, CHAT)
        .header("origin", "https://a.example");
    let asked = asked.send().await.unwrap();
    assert_eq!(asked.status(), 200);
    let allowed = asked.headers()["access-control-allow-headers"]
        .to_str()
        .unwrap();
    assert!(allowed.contains("X-Hermes-Session-Id"), "{allowed}");
    let closed = ApiHarness::new().await;
    let request = closed
        .request(Method::GET, "/v1/models")
        .header("origin", "https://a.example");
    assert_eq!(request.send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn what_is_no_request_is_told_so() {
    let world = ApiHarness::new().await;
    for (body, expected) in [("", 400), ("[1]", 400), ("{", 400), ("{}", 400)] {
        let request = world.request(Method::POST, CHAT).body(body);
        let (status, told) = answer(request.send().await.unwrap()).await;
        assert_eq!(status, expected, "{body}");
        assert_eq!(told["error"]["type"], "invalid_request_error", "{body}");
    }
    let big = "x".repeat(10_000_001);
    let (status, body) = world.post(CHAT, json!({"messages": big})).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (413, &json!("body_too_large"))
    );
    assert_eq!(world.get("/v1/nothing").await.0, 404);
    let (status, body) = world.post("/v1/models", json!({})).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (405, &json!("method_not_allowed"))
    );
    assert_eq!(world.work.running(), 0);
}

#[tokio::test]
async fn turns_are_bounded_and_a_drain_takes_none() {
    let world = ApiHarness::with(json!({"max_concurrent_runs": 1})).await;
    let body = json!({"stream": true, "messages": [{"role": "user", "content": "wait"}]});
    let request = world.request(Method::POST, CHAT).body(body.to_string());
    let mut bytes = request.send().await.unwrap().bytes_stream();
    bytes.next().await.unwrap().unwrap();
    let more = json!({"messages": [{"role": "user", "content": "hello"}]});
    for path in [CHAT, "/v1/responses", "/v1/runs"] {
        let request = world.request(Method::POST, path).body(more.to_string());
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["retry-after"], "1");
        let (status, body) = answer(response).await;
        assert_eq!(
            (status, &body["error"]["type"]),
            (429, &json!("rate_limit_error")),
            "{path}"
        );
    }
    drop(bytes);
    world.seen.interrupted.notified().await;
    while world.work.running() > 0 {
        tokio::task::yield_now().await;
    }
    world.seen.draining.store(true, Ordering::SeqCst);
    let (status, body) = world.post(CHAT, more).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("gateway_draining"))
    );
    assert_eq!(world.get("/v1/models").await.0, 200);
}

#[tokio::test]
async fn a_server_that_stops_tells_its_clients() {
    let world = ApiHarness::new().await;
    let body = json!({"stream": true, "messages": [{"role": "user", "content": "wait"}]});
    let request = world.request(Method::POST, CHAT).body(body.to_string());
    let response = request.send().await.unwrap();
    let reading = hermes_core::task::spawn("reading", response.text());
    world.stop().await;
    let text = reading.await.unwrap().unwrap().unwrap();
    let events = super::harness::events(&text);
    assert_eq!(events.last().unwrap().data, "[DONE]");
    let finish = &events[events.len() - 2].data;
    assert_eq!(finish["hermes"]["error_code"], "interrupted");
}

#[tokio::test]
async fn health_and_abilities() {
    let world = ApiHarness::with(json!({"model_name": "mine", "model_routes": {
        "fast": {"model": "small", "provider": "p"}}}))
    .await;
    let (_, health) = world.get("/health/detailed").await;
    assert_eq!(health["gateway_state"], "running");
    assert_eq!(health["gateway_busy"], true);
    let checks = &health["readiness"]["checks"];
    for check in ["state_db", "config", "model", "gateway"] {
        assert_eq!(checks[check]["status"], "ok", "{check}");
    }
    assert_eq!(checks["gateway"]["connected_platforms"], 1);
    let (_, models) = world.get("/v1/models").await;
    let ids: Vec<&Value> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["id"])
        .collect();
    assert_eq!(ids, ["mine", "fast"]);
    assert_eq!(world.get("/v1/models/fast").await.1["root"], "small");
    assert_eq!(world.get("/v1/models/slow").await.0, 404);
    let (_, about) = world.get("/v1/capabilities").await;
    assert_eq!(about["features"]["run_events_resume"], true);
    assert_eq!(
        world.get("/v1/toolsets").await.1["data"][0]["name"],
        "terminal"
    );
    assert_eq!(world.get("/v1/skills").await.1["object"], "list");
    let body = json!({"model": "fast", "messages": [{"role": "user", "content": "hello"}]});
    world.post(CHAT, body).await;
    let openings = world.seen.openings.lock().unwrap();
    assert_eq!(openings[0].model.as_deref(), Some("small"));
    assert_eq!(openings[0].provider.as_deref(), Some("p"));
}
