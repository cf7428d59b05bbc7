//! Previews of an answer in the making.

use pretty_assertions::assert_eq;

use super::harness::TurnHarness;

const STREAMING: &str = "streaming: {enabled: true}\n";

#[tokio::test(start_paused = true)]
async fn one_message_grows_into_the_final() {
    let mut house = TurnHarness::new(STREAMING);
    let life = house.life().await;
    life.say("c", "m1", "stream").await;
    life.sees("c", "re: stream").await;
    life.rest().await;
    assert_eq!(house.screen.texts("c"), ["re: stream"]);
    let bubble = house.screen.find("re: stream").unwrap();
    assert!(bubble.before.len() >= 2, "{bubble:?}");
    assert!(
        bubble.before.iter().all(|text| text.ends_with(" ▉")),
        "{bubble:?}"
    );
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn too_many_floods_end_the_preview_and_not_the_answer() {
    let mut house = TurnHarness::new(STREAMING);
    *house.screen.floods.lock().unwrap() = 3;
    let life = house.life().await;
    life.say("c", "m1", "stream").await;
    // The last refusal may be for the final, which is tried again when its time comes.
    let clock = house.clock.clone();
    life.until("the final", |screen| {
        clock.advance(std::time::Duration::from_secs(1));
        screen.texts("c") == ["re: stream"]
    })
    .await;
    life.rest().await;
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_preview_of_nothing_vanishes() {
    let mut house = TurnHarness::new(
        "display: {platforms: {fake: {tool_progress: all}}}\nstreaming: {enabled: true, buffer_threshold: 1}\n",
    );
    let life = house.life().await;
    life.say("c", "m1", "slow tool silent").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.program.gate.notify_one();
    life.rest().await;
    life.until("nothing", |screen| screen.texts("c").is_empty())
        .await;
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn drafts_leave_nothing() {
    let mut house = TurnHarness::new(STREAMING);
    house.capabilities.drafts = true;
    let life = house.life().await;
    life.say("c", "m1", "stream").await;
    life.sees("c", "re: stream").await;
    life.rest().await;
    let bubbles = house.screen.bubbles.lock().unwrap().clone();
    assert_eq!(bubbles.len(), 1);
    assert!(bubbles[0].before.is_empty());
    assert!(house.screen.drafts.lock().unwrap().len() >= 2);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_life_completes_the_preview_of_the_last() {
    let mut house = TurnHarness::new(STREAMING);
    let life = house.life().await;
    life.say("c", "m1", "stream and crash").await;
    life.sees("c", "The beginning of a longer answer").await;
    life.end().await;
    let life = house.life().await;
    life.sees("c", "re: stream and crash").await;
    life.rest().await;
    assert_eq!(house.screen.texts("c"), ["re: stream and crash"]);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_chat_without_drafts_sees_a_message_that_grows() {
    let mut house = TurnHarness::new(STREAMING);
    house.capabilities.drafts = true;
    house
        .screen
        .refuses_drafts
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let life = house.life().await;
    life.say("c", "m1", "stream").await;
    life.sees("c", "re: stream").await;
    life.rest().await;
    assert_eq!(house.screen.texts("c"), ["re: stream"]);
    let bubble = house.screen.find("re: stream").unwrap();
    assert!(!bubble.before.is_empty(), "{bubble:?}");
    life.end().await;
}
