//! A store that fails for a while, and what other processes left.

use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::store::{NewItem, SessionStore as _};
use pretty_assertions::assert_eq;
use std::sync::atomic::Ordering;

use super::harness::{GatewayRun, TurnHarness};
use crate::harness::Fuse;

const STREAMING: &str = "streaming: {enabled: true}\nagent: {gateway_timeout: 0}\n";

#[tokio::test(start_paused = true)]
async fn a_chat_whose_messages_could_not_be_read_looks_again() {
    let mut house = TurnHarness::new("");
    let fuse = Fuse::new(1_000_000);
    let life = house.life_with(fuse.clone()).await;
    fuse.fail("reading messages of a chat", 2);
    life.say("c", "m1", "one").await;
    life.sees("c", "re: one").await;
    life.rest().await;
    // The same in a chat that is awake.
    fuse.fail("reading messages of a chat", 2);
    life.say("c", "m2", "two").await;
    life.sees("c", "re: two").await;
    life.rest().await;
    assert_eq!(house.screen.texts("c"), ["re: one", "re: two"]);
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_which_the_store_could_not_tell_is_asked_about_again() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.end().await;
    let fuse = Fuse::new(1_000_000);
    fuse.fail("reading how far a turn got", 2);
    let life = house.life_with(fuse).await;
    life.say("c", "m2", "/queue two").await;
    life.sees("c", "re: two").await;
    life.rest().await;
    let texts = house.screen.texts("c");
    assert_eq!(texts, ["re: slow one", "re: two"]);
    life.end().await;
}

/// A process that ended between the answer and its delivery, with a preview on the screen.
async fn answered_and_crashed(house: &mut TurnHarness, answer: &str) {
    let fuse = Fuse::new(1_000_000);
    let life = house.life_with(fuse.clone()).await;
    life.say("c", "m1", "stream and crash").await;
    life.sees("c", "and its end").await;
    append(&life, answer).await;
    fuse.blow();
}

async fn append(life: &GatewayRun, answer: &str) {
    let session = life.program.opened.lock().unwrap()[0].id.clone();
    let item = NewItem {
        message: Message::assistant(answer.to_owned()),
        at: 2_000_000_001.0,
        token_count: None,
        platform_message_id: None,
    };
    let session = SessionId::new(session);
    life.store.append(&session, vec![item]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_preview_does_not_become_a_file() {
    let dir = tempfile::Builder::new().prefix("shown").tempdir().unwrap();
    let path = dir.path().join("photo.png");
    std::fs::write(&path, "a picture").unwrap();
    let mut house = TurnHarness::new(STREAMING);
    answered_and_crashed(&mut house, &format!("MEDIA:{}", path.display())).await;
    let life = house.life().await;
    life.until("the file", |screen| {
        let bubbles = screen.bubbles.lock().unwrap();
        bubbles.iter().any(|one| one.media.is_some())
    })
    .await;
    life.rest().await;
    life.until("the preview is gone", |screen| {
        let bubbles = screen.bubbles.lock().unwrap();
        bubbles.iter().filter(|one| !one.gone).count() == 1
    })
    .await;
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_platform_that_does_not_delete_holds_nobody_up() {
    let mut house = TurnHarness::new(STREAMING);
    answered_and_crashed(&mut house, "NO_REPLY").await;
    house.screen.hangs_on_delete.store(true, Ordering::SeqCst);
    let life = house.life().await;
    life.rest().await;
    life.say("c", "m2", "two").await;
    life.sees("c", "re: two").await;
    life.end().await;
}
