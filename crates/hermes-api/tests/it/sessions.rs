//! Stored sessions.

use pretty_assertions::assert_eq;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{ApiHarness, answer, stream};

const SESSIONS: &str = "/api/sessions";

async fn change(world: &ApiHarness, method: Method, path: &str, body: Value) -> (u16, Value) {
    let request = world.request(method, path).body(body.to_string());
    answer(request.send().await.unwrap()).await
}

#[tokio::test]
async fn a_session_is_made_used_renamed_copied_and_deleted() {
    let world = ApiHarness::new().await;
    let (status, made) = world
        .post(SESSIONS, json!({"id": "s1", "title": "First"}))
        .await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["session"]["title"], "First");
    assert_eq!(made["session"]["source"], "api_server");
    assert_eq!(made["session"]["has_system_prompt"], false);
    let (status, body) = world.post(SESSIONS, json!({"id": "s1"})).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (409, &json!("session_exists"))
    );
    let (status, body) = world
        .post(SESSIONS, json!({"id": "s2", "title": "First"}))
        .await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (400, &json!("invalid_title"))
    );
    assert_eq!(
        world.get("/api/sessions/s2").await.0,
        404,
        "not made without its name"
    );
    assert_eq!(world.post(SESSIONS, json!({"id": "a/b"})).await.0, 400);
    let chat = "/api/sessions/s1/chat";
    let (_, said) = world.post(chat, json!({"message": "one"})).await;
    assert_eq!(said["message"]["content"], "You said: one");
    assert_eq!(said["session_id"], "s1");
    assert_eq!(
        world.post(chat, json!({})).await.1["error"]["code"],
        "missing_message"
    );
    assert_eq!(
        world
            .post("/api/sessions/none/chat", json!({"message": "x"}))
            .await
            .0,
        404
    );
    let (_, rows) = world.get("/api/sessions/s1/messages").await;
    let roles: Vec<&Value> = rows["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| &r["role"])
        .collect();
    assert_eq!(roles, ["user", "assistant"]);
    let (_, listed) = world.get("/api/sessions?limit=x").await;
    assert_eq!(listed["error"]["param"], "limit");
}

#[tokio::test]
async fn a_session_is_renamed_copied_and_deleted() {
    let world = ApiHarness::new().await;
    world.post(SESSIONS, json!({"id": "s1"})).await;
    world
        .post("/api/sessions/s1/chat", json!({"message": "one"}))
        .await;
    let path = "/api/sessions/s1";
    let (_, named) = change(&world, Method::PATCH, path, json!({"title": "Renamed"})).await;
    assert_eq!(named["session"]["title"], "Renamed");
    let (status, body) = change(&world, Method::PATCH, path, json!({"source": "x"})).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (400, &json!("unsupported_session_field"))
    );
    let (status, fork) = world
        .post("/api/sessions/s1/fork", json!({"id": "s3"}))
        .await;
    assert_eq!(
        (status, &fork["session"]["parent_session_id"]),
        (201, &json!("s1")),
        "{fork}"
    );
    assert_eq!(fork["session"]["title"], "Renamed #2");
    let (_, said) = world
        .post("/api/sessions/s3/chat", json!({"message": "past"}))
        .await;
    assert_eq!(
        said["message"]["content"],
        "[user=one|assistant=You said: one]"
    );
    let (_, listed) = world.get("/api/sessions?limit=1").await;
    assert_eq!(
        (
            listed["data"].as_array().unwrap().len(),
            &listed["has_more"]
        ),
        (1, &json!(true))
    );
    assert_eq!(world.get("/api/sessions?limit=x").await.0, 400);
    let (_, gone) = change(&world, Method::DELETE, path, json!({})).await;
    assert_eq!(gone["deleted"], true);
    assert_eq!(world.get(path).await.0, 404);
    assert_eq!(world.get("/api/sessions/s3").await.0, 200);
}

#[tokio::test]
async fn a_session_in_use_is_not_deleted() {
    let world = ApiHarness::new().await;
    world.post(SESSIONS, json!({"id": "s"})).await;
    let (_, run) = world
        .post("/v1/runs", json!({"input": "wait", "session_id": "s"}))
        .await;
    world.seen.openings_at_least(1).await;
    let (status, body) = change(&world, Method::DELETE, "/api/sessions/s", json!({})).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (409, &json!("session_busy"))
    );
    let stop = format!("/v1/runs/{}/stop", run["run_id"].as_str().unwrap());
    world.post(&stop, json!({})).await;
}

#[tokio::test]
async fn a_turn_in_a_session_bit_by_bit() {
    let world = ApiHarness::new().await;
    world.post(SESSIONS, json!({"id": "s"})).await;
    let request = world.request(Method::POST, "/api/sessions/s/chat/stream");
    let events = stream(request.body(json!({"message": "tool ls"}).to_string())).await;
    let names: Vec<&str> = events
        .iter()
        .map(|event| event.name.as_deref().unwrap())
        .collect();
    let kinds: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| *name != "assistant.delta")
        .collect();
    assert_eq!(
        kinds,
        [
            "run.started",
            "message.started",
            "tool.started",
            "tool.completed",
            "assistant.completed",
            "run.completed",
            "done"
        ]
    );
    let end = &events[events.len() - 2].data;
    let roles: Vec<&Value> = end["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["role"])
        .collect();
    assert_eq!(roles, ["assistant", "tool", "assistant"]);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.data["seq"], number + 1);
        assert_eq!(event.data["session_id"], "s");
    }
    let request = world.request(Method::POST, "/api/sessions/s/chat/stream");
    let events = stream(request.body(json!({"message": "fail"}).to_string())).await;
    assert_eq!(events[events.len() - 2].name.as_deref(), Some("error"));
}
