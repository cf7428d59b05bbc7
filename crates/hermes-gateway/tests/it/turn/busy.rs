//! Messages while a turn runs, and stopping it.

use pretty_assertions::assert_eq;
use std::time::Duration;

use super::stage::House;

#[tokio::test]
async fn a_steer_joins_the_turn_that_runs() {
    let mut house = House::new("display: {busy_steer_ack_enabled: false}\n");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "and this").await;
    life.until("it is read", |_| true).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    life.program.gate.notify_waiters();
    life.rest().await;
    assert_eq!(house.screen.texts("c"), ["re: slow one | and this"]);
    life.end().await;
}

#[tokio::test]
async fn words_that_come_too_late_are_the_next_turn() {
    let mut house = House::new("display: {busy_steer_ack_enabled: false}\n");
    let life = house.life().await;
    // Streams for six seconds and runs no tool that could carry the words.
    life.say("c", "m1", "stream").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "late").await;
    life.sees("c", "re: late").await;
    life.rest().await;
    assert_eq!(house.screen.texts("c"), ["re: stream", "re: late"]);
    life.end().await;
}

#[tokio::test]
async fn a_queue_is_answered_one_by_one() {
    let mut house = House::new("busy_input_mode: queue\n");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "two").await;
    life.say("c", "m3", "three").await;
    life.until("both wait", |_| life.gateway.status().queued == 2)
        .await;
    life.program.gate.notify_waiters();
    life.rest().await;
    let texts = house.screen.texts("c");
    assert!(texts[0].starts_with("⏳"), "{texts:?}");
    assert_eq!(texts[1..], ["re: slow one", "re: two", "re: three"]);
    life.end().await;
}

#[tokio::test]
async fn a_steer_does_not_overtake_what_waits() {
    let mut house = House::new("display: {busy_steer_ack_enabled: false}\n");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "/queue two").await;
    life.until("it waits", |_| life.gateway.status().queued == 1)
        .await;
    life.say("c", "m3", "three").await;
    life.until("it waits, too", |_| life.gateway.status().queued == 2)
        .await;
    life.program.gate.notify_waiters();
    life.rest().await;
    let texts = house.screen.texts("c");
    let answers: Vec<&str> = texts
        .iter()
        .map(String::as_str)
        .filter(|text| text.starts_with("re: "))
        .collect();
    assert_eq!(answers, ["re: slow one", "re: two", "re: three"]);
    life.end().await;
}

#[tokio::test]
async fn a_newer_message_interrupts_where_that_is_set() {
    let mut house = House::new("busy_input_mode: interrupt\n");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "two").await;
    life.sees("c", "re: ").await;
    life.rest().await;
    let texts = house.screen.texts("c");
    assert!(texts[0].starts_with("⚡"), "{texts:?}");
    assert_eq!(texts[1..], ["re: slow one | two"]);
    life.end().await;
}

#[tokio::test]
async fn stop_ends_what_runs_and_lets_go_of_what_waits() {
    let mut house = House::new("busy_input_mode: queue\n");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "two").await;
    life.until("it waits", |_| life.gateway.status().queued == 1)
        .await;
    life.say("c", "m3", "/stop").await;
    life.sees("c", "Stopped. 1 that waited").await;
    life.rest().await;
    assert_eq!(life.gateway.status().active_turns, 0);
    life.say("c", "m4", "four").await;
    life.sees("c", "four").await;
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn stop_unlocks_a_turn_that_hears_nothing() {
    let mut house = House::new("");
    let life = house.life().await;
    life.say("c", "m1", "hang").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "/stop").await;
    life.sees("c", "did not end in time").await;
    life.say("c", "m3", "three").await;
    life.sees("c", "three").await;
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_in_which_nothing_happens_is_ended() {
    let mut house = House::new("agent: {gateway_timeout: 60}\n");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.sees("c", "Nothing happened").await;
    life.rest().await;
    life.end().await;
}
