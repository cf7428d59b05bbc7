//! Messages while a turn runs, and stopping it.

use pretty_assertions::assert_eq;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::harness::{GatewayRun, TurnHarness};

#[tokio::test]
async fn a_steer_joins_the_turn_that_runs() {
    let mut house = TurnHarness::new("display: {busy_steer_ack_enabled: false}\n");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "and this").await;
    let steered = &life.program.steered;
    life.until("it is read", |_| steered.load(Ordering::SeqCst) == 1)
        .await;
    life.program.gate.notify_waiters();
    life.rest().await;
    assert_eq!(house.screen.texts("c"), ["re: slow one | and this"]);
    life.end().await;
}

#[tokio::test]
async fn words_that_come_too_late_are_the_next_turn() {
    let mut house = TurnHarness::new("display: {busy_steer_ack_enabled: false}\n");
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
    let mut house = TurnHarness::new("busy_input_mode: queue\n");
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
    let mut house = TurnHarness::new("display: {busy_steer_ack_enabled: false}\n");
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
    let mut house = TurnHarness::new("busy_input_mode: interrupt\n");
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
    let mut house = TurnHarness::new("busy_input_mode: queue\n");
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
    // The turn itself ends a moment after it was told to.
    life.until("no turn", |_| life.gateway.status().active_turns == 0)
        .await;
    life.say("c", "m4", "four").await;
    life.sees("c", "four").await;
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn stop_unlocks_a_turn_that_hears_nothing() {
    let mut house = TurnHarness::new("");
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
    let mut house = TurnHarness::new("agent: {gateway_timeout: 60}\n");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.sees("c", "Nothing happened").await;
    life.rest().await;
    life.end().await;
}

/// Waits until a turn has taken so many messages.
async fn taken(life: &GatewayRun, count: usize) {
    for _ in 0..10_000 {
        let waiting = life.delivery.waiting(9).await.unwrap();
        if waiting.iter().filter(|one| one.turn.is_some()).count() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{count} messages were not taken");
}

#[tokio::test(start_paused = true)]
async fn stop_lets_go_of_words_that_joined_and_were_not_read() {
    let mut house = TurnHarness::new("display: {busy_steer_ack_enabled: false}\n");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "and this").await;
    taken(&life, 2).await;
    life.say("c", "m3", "/stop").await;
    life.sees("c", "Stopped. 1 that waited").await;
    life.rest().await;
    let texts = house.screen.texts("c");
    assert!(!texts.concat().contains("re: "), "{texts:?}");
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn stop_holds_for_the_turn_that_words_let_go_would_begin() {
    let mut house = TurnHarness::new("display: {busy_steer_ack_enabled: false}\n");
    let life = house.life().await;
    // It is over before it hears that it should stop.
    life.say("c", "m1", "stream").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "slow late").await;
    taken(&life, 2).await;
    life.say("c", "m3", "/stop").await;
    life.sees("c", "Stopped. 1 that waited").await;
    life.rest().await;
    life.until("no turn", |_| life.gateway.status().active_turns == 0)
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    life.program.gate.notify_waiters();
    life.until("no turn", |_| life.gateway.status().active_turns == 0)
        .await;
    let texts = house.screen.texts("c");
    assert!(!texts.concat().contains("late"), "{texts:?}");
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn none_overtakes_those_that_stayed_in_the_database() {
    let mut house = TurnHarness::new("busy_input_mode: queue\nagent: {gateway_timeout: 0}\n");
    let life = house.life().await;
    life.say("c", "m1", "slow 1").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "slow 2").await;
    // One more than the queue takes.
    for number in 3..=258 {
        let id = format!("m{number}");
        life.say("c", &id, &format!("n{number}")).await;
    }
    life.until("a full queue", |_| life.gateway.status().queued == 256)
        .await;
    life.program.gate.notify_one();
    life.until("the second", |_| {
        let status = life.gateway.status();
        status.active_turns == 1 && status.queued == 255
    })
    .await;
    life.say("c", "m259", "n259").await;
    life.say("c", "m260", "/queue n260").await;
    // It is answered at once, and shows that those before it were looked at.
    life.say("c", "m261", "/whoami").await;
    life.sees("c", "You are Ann").await;
    life.program.gate.notify_one();
    // In steps: virtual time does not wait for the store, however busy the machine is.
    for number in (10..=260).step_by(10) {
        life.sees("c", &format!("re: n{number}")).await;
    }
    life.rest().await;
    let texts = house.screen.texts("c");
    let answers: Vec<&str> = texts
        .iter()
        .map(String::as_str)
        .filter(|text| text.starts_with("re: "))
        .collect();
    let mut wanted = vec!["re: slow 1".to_owned(), "re: slow 2".to_owned()];
    wanted.extend((3..=260).map(|number| format!("re: n{number}")));
    assert_eq!(answers, wanted);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn work_of_subagents_is_not_interrupted_by_a_message() {
    let mut house = TurnHarness::new("busy_input_mode: interrupt\n");
    let life = house.life().await;
    life.say("c", "m1", "delegate this").await;
    let delegated = &life.program.delegated;
    life.until("subagents", |_| delegated.load(Ordering::SeqCst))
        .await;
    life.say("c", "m2", "two").await;
    life.until("it waits", |_| life.gateway.status().queued == 1)
        .await;
    life.program.gate.notify_waiters();
    life.sees("c", "re: two").await;
    life.rest().await;
    let texts = house.screen.texts("c");
    assert!(texts[0].starts_with("⏳"), "{texts:?}");
    assert_eq!(texts[1..], ["re: delegate this", "re: two"]);
    life.end().await;
}
