//! What hooks are told.

use pretty_assertions::assert_eq;
use serde_json::Value;

use super::harness::{GatewayRun, TurnHarness};

fn events(life: &GatewayRun, names: &[&str]) -> Vec<(&'static str, Value)> {
    let happened = life.happened.lock().unwrap();
    let wanted = happened.iter().filter(|(name, _)| names.contains(name));
    wanted.cloned().collect()
}

#[tokio::test]
async fn the_beginning_and_the_end_of_a_turn_say_what_it_was_about() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    let long = "x".repeat(600);
    life.say("c", "m1", &long).await;
    life.rest().await;
    let found = events(&life, &["agent:start", "agent:end"]);
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["agent:start", "agent:end"]);
    let session = life.program.opened.lock().unwrap()[0].id.clone();
    for (_, about) in &found {
        assert_eq!(about["platform"], "fake");
        assert_eq!(about["user_id"], "user of c");
        assert_eq!(about["chat_id"], "c");
        assert_eq!(about["thread_id"], Value::Null);
        assert_eq!(about["chat_type"], "dm");
        assert_eq!(about["session_id"], session.as_str());
        assert_eq!(about["message"], "x".repeat(500));
    }
    let response = format!("re: {}", "x".repeat(496));
    assert_eq!(found[1].1["response"], response);
    life.end().await;
}

#[tokio::test]
async fn a_chat_that_leaves_a_conversation_says_which() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "one").await;
    life.rest().await;
    let session = life.program.opened.lock().unwrap()[0].id.clone();
    life.say("c", "m2", "/new").await;
    life.sees("c", "A new conversation").await;
    life.rest().await;
    let found = events(&life, &["session:end", "session:reset"]);
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["session:end", "session:reset"]);
    assert_eq!(found[0].1["session_id"], session.as_str());
    assert_eq!(found[0].1["platform"], "fake");
    assert_eq!(found[0].1["user_id"], "user of c");
    life.end().await;
}
