//! Responses.

use futures_util::StreamExt as _;
use pretty_assertions::assert_eq;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{ApiHarness, stream};

const RESPONSES: &str = "/v1/responses";

fn text(response: &Value) -> &Value {
    let output = response["output"].as_array().unwrap();
    &output.last().unwrap()["content"][0]["text"]
}

#[tokio::test]
async fn an_answer_is_kept_and_gone_on_from() {
    let world = ApiHarness::new().await;
    let (status, first) = world
        .post(
            RESPONSES,
            json!({"input": "one", "instructions": "Be brief."}),
        )
        .await;
    assert_eq!(status, 200, "{first}");
    assert_eq!(first["status"], "completed");
    assert_eq!(text(&first), "You said: one");
    assert_eq!(first["usage"]["input_tokens"], 10);
    let id = first["id"].as_str().unwrap();
    assert_eq!(world.get(&format!("{RESPONSES}/{id}")).await.1, first);
    let follow = |text: &str| json!({"input": text, "previous_response_id": id});
    let (_, second) = world.post(RESPONSES, follow("past")).await;
    assert_eq!(text(&second), "[user=one|assistant=You said: one]");
    assert_eq!(second["instructions"], "Be brief.");
    // From the same answer again: the session has moved on, the past is the same.
    let (_, third) = world.post(RESPONSES, follow("past")).await;
    assert_eq!(text(&third), "[user=one|assistant=You said: one]");
    let sessions: Vec<String> = {
        let openings = world.seen.openings.lock().unwrap();
        openings.iter().map(|opening| opening.id.clone()).collect()
    };
    assert_eq!(sessions.len(), 2, "the second answer stayed in its session");
    assert_ne!(sessions[0], sessions[1]);
    let gone = world
        .request(Method::DELETE, &format!("{RESPONSES}/{id}"))
        .send();
    assert_eq!(gone.await.unwrap().status(), 200);
    assert_eq!(world.get(&format!("{RESPONSES}/{id}")).await.0, 404);
    let (status, body) = world.post(RESPONSES, follow("x")).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (404, &json!("response_not_found"))
    );
}

#[tokio::test]
async fn conversations_have_names() {
    let world = ApiHarness::new().await;
    let say = async |text: &str| {
        let body = json!({"input": text, "conversation": {"id": "talk"}});
        let (status, answer) = world.post(RESPONSES, body).await;
        assert_eq!(status, 200, "{answer}");
        text_of(&answer)
    };
    assert_eq!(say("one").await, "You said: one");
    assert_eq!(say("past").await, "[user=one|assistant=You said: one]");
    assert_eq!(world.seen.openings.lock().unwrap().len(), 1);
    let both = json!({"input": "x", "conversation": "talk", "previous_response_id": "resp_1"});
    assert_eq!(world.post(RESPONSES, both).await.0, 400);
    let unkept = json!({"input": "x", "store": false});
    let (_, answer) = world.post(RESPONSES, unkept).await;
    let id = answer["id"].as_str().unwrap();
    assert_eq!(world.get(&format!("{RESPONSES}/{id}")).await.0, 404);
}

fn text_of(answer: &Value) -> String {
    text(answer).as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_answer_of_another_process_is_gone_on_from_in_its_session() {
    let world = ApiHarness::new().await;
    let (_, first) = world.post(RESPONSES, json!({"input": "one"})).await;
    let id = first["id"].as_str().unwrap().to_owned();
    let session = world.seen.openings.lock().unwrap()[0].id.clone();
    // A turn by name makes the server forget where the session stood.
    let elsewhere = json!({"session_id": session, "messages": [{"role": "user", "content": "x"}]});
    world.post("/v1/chat/completions", elsewhere).await;
    let body = json!({"input": "past", "previous_response_id": id});
    let (_, answer) = world.post(RESPONSES, body).await;
    assert_eq!(text(&answer), "[user=one|assistant=You said: one]");
    let newest = world
        .seen
        .openings
        .lock()
        .unwrap()
        .last()
        .unwrap()
        .id
        .clone();
    assert_ne!(newest, session, "more was said in the session since");
    // Nothing was said since: found by what is stored.
    let (_, one) = world.post(RESPONSES, json!({"input": "two"})).await;
    let session = world
        .seen
        .openings
        .lock()
        .unwrap()
        .last()
        .unwrap()
        .id
        .clone();
    let id = one["id"].as_str().unwrap();
    let file = world.home.join("response_store.db");
    assert!(file.exists());
    let fresh = json!({"input": "past", "previous_response_id": id, "session_id": session});
    let (_, answer) = world.post(RESPONSES, fresh).await;
    assert_eq!(text(&answer), "[user=two|assistant=You said: two]");
}

#[tokio::test]
async fn calls_and_results_are_items() {
    let world = ApiHarness::new().await;
    let (_, answer) = world.post(RESPONSES, json!({"input": "tool ls"})).await;
    let kinds: Vec<&Value> = answer["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["type"])
        .collect();
    assert_eq!(
        kinds,
        [
            "message",
            "function_call",
            "function_call_output",
            "message"
        ]
    );
    assert_eq!(answer["output"][1]["name"], "terminal");
    assert_eq!(
        answer["output"][1]["call_id"],
        answer["output"][2]["call_id"]
    );
    let failed = world.post(RESPONSES, json!({"input": "fail"})).await;
    assert_eq!(
        (failed.0, &failed.1["error"]["code"]),
        (502, &json!("agent_incomplete"))
    );
    let (_, half) = world.post(RESPONSES, json!({"input": "half"})).await;
    assert_eq!(half["status"], "incomplete");
    assert_eq!(half["incomplete_details"]["reason"], "max_output_tokens");
}

#[tokio::test]
async fn events_have_the_names_and_order_of_the_format() {
    let world = ApiHarness::new().await;
    let body = json!({"input": "tool ls", "stream": true}).to_string();
    let events = stream(world.request(Method::POST, RESPONSES).body(body)).await;
    let names: Vec<&str> = events
        .iter()
        .map(|event| event.name.as_deref().unwrap())
        .collect();
    let without_deltas: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| *name != "response.output_text.delta")
        .collect();
    let text = [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ];
    let expected = ["response.created", "response.in_progress"]
        .into_iter()
        .chain(text)
        .chain([
            "response.output_item.added",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.output_item.done",
        ])
        .chain(text)
        .chain(["response.completed"]);
    assert_eq!(without_deltas, expected.collect::<Vec<_>>());
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.data["sequence_number"], number);
        assert_eq!(event.data["type"].as_str(), event.name.as_deref());
    }
    let done = &events.last().unwrap().data["response"];
    let id = done["id"].as_str().unwrap();
    assert_eq!(&world.get(&format!("{RESPONSES}/{id}")).await.1, done);
    let body = json!({"input": "fail", "stream": true}).to_string();
    let events = stream(world.request(Method::POST, RESPONSES).body(body)).await;
    let last = events.last().unwrap();
    assert_eq!(last.name.as_deref(), Some("response.failed"));
    assert_eq!(last.data["response"]["status"], "failed");
}

#[tokio::test]
async fn what_a_client_left_behind_is_kept_as_incomplete() {
    let world = ApiHarness::new().await;
    let body = json!({"input": "wait", "stream": true}).to_string();
    let request = world.request(Method::POST, RESPONSES).body(body);
    let mut bytes = request.send().await.unwrap().bytes_stream();
    let mut text = String::new();
    while !text.contains("output_text.delta") {
        text.push_str(&String::from_utf8_lossy(
            &bytes.next().await.unwrap().unwrap(),
        ));
    }
    let created = &super::harness::events(&text)[0].data["response"];
    let id = created["id"].as_str().unwrap();
    assert_eq!(
        world.get(&format!("{RESPONSES}/{id}")).await.1["status"],
        "in_progress"
    );
    drop(bytes);
    world.seen.interrupted.notified().await;
    let left = loop {
        let (_, left) = world.get(&format!("{RESPONSES}/{id}")).await;
        if left["status"] != "in_progress" {
            break left;
        }
    };
    assert_eq!(left["status"], "incomplete");
    assert_eq!(text_of(&left), "waiting");
}
