//! Runs.

use futures_util::StreamExt as _;
use pretty_assertions::assert_eq;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{ApiHarness, StreamedEvent, events, stream};

async fn start(world: &ApiHarness, body: Value) -> String {
    let (status, started) = world.post("/v1/runs", body).await;
    assert_eq!(
        (status, &started["status"]),
        (202, &json!("started")),
        "{started}"
    );
    started["run_id"].as_str().unwrap().to_owned()
}

fn names(events: &[StreamedEvent]) -> Vec<&str> {
    let name = |event: &StreamedEvent| event.data["event"].as_str().map(str::len);
    assert!(events.iter().all(|event| name(event).is_some()));
    events
        .iter()
        .filter_map(|event| event.data["event"].as_str())
        .collect()
}

async fn follow(world: &ApiHarness, run: &str, after: Option<u64>) -> Vec<StreamedEvent> {
    let mut request = world.request(Method::GET, &format!("/v1/runs/{run}/events"));
    if let Some(after) = after {
        request = request.header("last-event-id", after.to_string());
    }
    stream(request).await
}

#[tokio::test]
async fn events_can_be_followed_by_many_late_and_again() {
    let world = ApiHarness::new().await;
    let run = start(&world, json!({"input": "tool ls"})).await;
    let (one, two) = tokio::join!(follow(&world, &run, None), follow(&world, &run, None));
    assert_eq!(names(&one), names(&two));
    let kinds: Vec<&str> = names(&one)
        .into_iter()
        .filter(|name| *name != "message.delta")
        .collect();
    assert_eq!(kinds, ["tool.started", "tool.completed", "run.completed"]);
    let ids: Vec<u64> = one
        .iter()
        .map(|event| event.id.as_ref().unwrap().parse().unwrap())
        .collect();
    assert_eq!(ids, (1..=one.len() as u64).collect::<Vec<_>>());
    let rest = follow(&world, &run, Some(2)).await;
    assert_eq!(names(&rest), &names(&one)[2..]);
    assert!(
        follow(&world, &run, Some(ids.len() as u64))
            .await
            .is_empty()
    );
    let done = &one.last().unwrap().data;
    assert_eq!(done["output"], "There is a.txt.");
    assert_eq!(done["usage"]["total_tokens"], 15);
    let (_, status) = world.get(&format!("/v1/runs/{run}")).await;
    assert_eq!(status["status"], "completed");
    assert_eq!(status["output"], "There is a.txt.");
    assert_eq!(status["last_event"], "run.completed");
    assert_eq!(world.get("/v1/runs/run_x").await.0, 404);
    let bad = world.request(Method::GET, &format!("/v1/runs/{run}/events?after=x"));
    assert_eq!(bad.send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn a_run_asks_and_is_answered() {
    let world = ApiHarness::new().await;
    for (choice, expected) in [
        ("approve", "allowed: Once"),
        ("session", "allowed: Session"),
        ("always", "allowed: Always(Rule(\"rm\"))"),
        ("deny", "denied"),
    ] {
        let run = start(&world, json!({"input": "danger"})).await;
        let path = format!("/v1/runs/{run}");
        let request = world.request(Method::GET, &format!("{path}/events"));
        let mut bytes = request.send().await.unwrap().bytes_stream();
        let mut text = String::new();
        while !text.contains("approval.request") {
            text.push_str(&String::from_utf8_lossy(
                &bytes.next().await.unwrap().unwrap(),
            ));
        }
        let asked = &events(&text)[0].data;
        assert_eq!(asked["command"], "rm -rf build");
        assert_eq!(
            asked["choices"],
            json!(["once", "session", "always", "deny"])
        );
        assert_eq!(world.get(&path).await.1["status"], "waiting_for_approval");
        let (status, body) = world
            .post(&format!("{path}/approval"), json!({"choice": "maybe"}))
            .await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (400, &json!("invalid_approval_choice"))
        );
        let (status, body) = world
            .post(&format!("{path}/approval"), json!({"choice": choice}))
            .await;
        assert_eq!((status, &body["resolved"]), (200, &json!(1)), "{body}");
        while let Some(more) = bytes.next().await {
            text.push_str(&String::from_utf8_lossy(&more.unwrap()));
        }
        let all = events(&text);
        assert_eq!(all.last().unwrap().data["output"], expected);
        assert!(names(&all).contains(&"approval.responded"));
        let (status, body) = world
            .post(&format!("{path}/approval"), json!({"choice": "once"}))
            .await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (409, &json!("approval_not_active"))
        );
    }
    let openings = world.seen.openings.lock().unwrap();
    assert!(openings.iter().all(|opening| !opening.unattended));
}

#[tokio::test]
async fn a_session_of_chat_completions_is_opened_anew_for_a_run_that_can_ask() {
    let world = ApiHarness::new().await;
    let body = json!({"session_id": "s", "messages": [{"role": "user", "content": "one"}]});
    world.post("/v1/chat/completions", body).await;
    // The header counts here as well.
    let request = world
        .request(Method::POST, "/v1/runs")
        .header("x-hermes-session-id", "s");
    let started = request
        .body(json!({"input": "past"}).to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(started.headers()["x-hermes-session-id"], "s");
    let (_, started) = super::harness::answer(started).await;
    let all = follow(&world, started["run_id"].as_str().unwrap(), None).await;
    let output = &all.last().unwrap().data["output"];
    assert_eq!(output, "[user=one|assistant=You said: one]");
    let openings = world.seen.openings.lock().unwrap();
    let terms: Vec<bool> = openings.iter().map(|opening| opening.unattended).collect();
    assert_eq!(terms, [true, false]);
}

#[tokio::test]
async fn a_run_is_stopped() {
    let world = ApiHarness::new().await;
    let run = start(&world, json!({"input": "wait", "session_id": "s"})).await;
    let waiting = start(&world, json!({"input": "hello", "session_id": "s"})).await;
    let following = follow(&world, &run, None);
    let stopping = async {
        world.seen.openings_at_least(1).await;
        let (status, body) = world
            .post(&format!("/v1/runs/{waiting}/stop"), json!({}))
            .await;
        assert_eq!((status, &body["status"]), (200, &json!("stopping")));
        world.post(&format!("/v1/runs/{run}/stop"), json!({})).await
    };
    let (all, _) = tokio::join!(following, stopping);
    assert_eq!(all.last().unwrap().data["event"], "run.cancelled");
    assert_eq!(
        world.get(&format!("/v1/runs/{run}")).await.1["status"],
        "cancelled"
    );
    let all = follow(&world, &waiting, None).await;
    assert_eq!(all.last().unwrap().data["event"], "run.cancelled");
    let (status, body) = world.post(&format!("/v1/runs/{run}/stop"), json!({})).await;
    assert_eq!((status, &body["error"]["code"]), (409, &json!("run_ended")));
    while world.work.running() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_run_that_fails_says_so() {
    let world = ApiHarness::new().await;
    let run = start(&world, json!({"input": "fail"})).await;
    let all = follow(&world, &run, None).await;
    let last = &all.last().unwrap().data;
    assert_eq!(last["event"], "run.failed");
    assert!(
        last["error"]
            .as_str()
            .unwrap()
            .starts_with("no credit left")
    );
    let run = start(&world, json!({"input": "x", "session_id": "refused-2"})).await;
    let all = follow(&world, &run, None).await;
    assert_eq!(all.last().unwrap().data["error"], "no model is set up");
}
