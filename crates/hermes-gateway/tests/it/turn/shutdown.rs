//! Chats hear that the gateway goes down; what is said to chats that did not ask.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::ids::SessionId;
use hermes_core::store::SessionStore as _;
use hermes_gateway::ShutdownNotice;
use hermes_platforms::{MirrorRole, Posting, Recourse};
use hermes_store::delivery::Target;
use pretty_assertions::assert_eq;

use super::harness::{GatewayRun, TurnHarness, incoming};

const HOME: &str = "platforms: {telegram: {enabled: true, home_channel: {chat_id: home}}}\n";

async fn at_work_and_at_home(house: &mut TurnHarness) -> GatewayRun {
    house.platform = "telegram";
    house.env = vec![("TELEGRAM_ALLOW_ALL_USERS", "true")];
    let life = house.life().await;
    life.say("c", "m2", "slow one").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life
}

fn heard(house: &TurnHarness, chat: &str) -> Vec<String> {
    let texts = house.screen.texts(chat).into_iter();
    texts.filter(|text| text.contains("The gateway")).collect()
}

fn target(chat: &str, thread: Option<&str>) -> Target {
    Target {
        platform: "fake".to_owned(),
        account: String::new(),
        chat_id: chat.to_owned(),
        thread_id: thread.map(str::to_owned),
    }
}

#[tokio::test]
async fn chats_at_work_and_homes_hear_that_it_goes_down() {
    let mut house = TurnHarness::new(HOME);
    let life = at_work_and_at_home(&mut house).await;
    let leaving = ShutdownNotice {
        homes: true,
        ..ShutdownNotice::default()
    };
    life.gateway.announce_shutdown(&leaving).await;
    // It has left already: nobody waits for the end to see it.
    let down = "⏸️ The gateway is shutting down.";
    assert_eq!(heard(&house, "home"), [down]);
    let told = heard(&house, "c");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with(down), "{told:?}");
    life.end().await;
}

#[tokio::test]
async fn whoever_asked_for_a_restart_is_not_told_again() {
    let mut house = TurnHarness::new(HOME);
    let life = at_work_and_at_home(&mut house).await;
    let leaving = ShutdownNotice {
        restart: true,
        requested_by: Some(Target {
            platform: "telegram".to_owned(),
            ..target("c", None)
        }),
        homes: true,
    };
    life.gateway.announce_shutdown(&leaving).await;
    assert_eq!(heard(&house, "c"), Vec::<String>::new());
    assert_eq!(heard(&house, "home"), Vec::<String>::new());
    life.end().await;
}

#[tokio::test]
async fn a_platform_can_be_left_in_peace() {
    let mut house =
        TurnHarness::new(&HOME.replace("enabled", "gateway_restart_notification: false, enabled"));
    let life = at_work_and_at_home(&mut house).await;
    let leaving = ShutdownNotice {
        homes: true,
        ..ShutdownNotice::default()
    };
    life.gateway.announce_shutdown(&leaving).await;
    assert_eq!(heard(&house, "c"), Vec::<String>::new());
    assert_eq!(heard(&house, "home"), Vec::<String>::new());
    life.end().await;
}

fn posting(id: &str, target: Target) -> Posting {
    Posting {
        id: id.to_owned(),
        target,
        text: "by the way".to_owned(),
        files: false,
        mirror: Some(MirrorRole::Assistant),
    }
}

#[tokio::test]
async fn a_message_to_a_chat_does_not_wait_for_a_turn_in_a_topic_of_it() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    let mut message = incoming("c", "m1", "slow one");
    message.source.thread_id = Some("7".to_owned());
    life.send(message).await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    let post = life.gateway.post();
    let sending = post.send(posting("p1", target("c", None)));
    let sent = tokio::time::timeout(Duration::from_secs(30), sending).await;
    assert_eq!(sent.expect("at once").unwrap(), 1);
    life.end().await;
}

#[tokio::test]
async fn a_message_to_a_group_is_nobodys_own_words() {
    let mut house = TurnHarness::new("group_sessions_per_user: true\n");
    let life = house.life().await;
    let mut message = incoming("g", "m1", "one");
    message.source.chat_type = "group".to_owned();
    life.send(message).await;
    life.sees("g", "re: ").await;
    life.rest().await;
    let post = life.gateway.post();
    post.send(posting("p1", target("g", None))).await.unwrap();
    life.sees("g", "by the way").await;
    let session = life.program.opened.lock().unwrap()[0].id.clone();
    let stored = life.store.load(&SessionId::new(session)).await.unwrap();
    assert_eq!(stored.unwrap().items.len(), 2);
    life.end().await;
}

/// A stop waits for the platform's answer to what is being sent: cut off, nobody would know whether
/// it arrived, and it would come again with a mark.
#[tokio::test]
async fn what_is_being_sent_is_not_cut_off() {
    let mut house = TurnHarness::with("", Recourse::Mark);
    let slow = Arc::<tokio::sync::Notify>::default();
    *house.screen.slow_answers.lock().unwrap() = Some(Arc::clone(&slow));
    let life = house.life().await;
    life.say("c", "m1", "hello").await;
    life.sees("c", "re: hello").await;
    life.cancel.cancel();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    *house.screen.slow_answers.lock().unwrap() = None;
    slow.notify_one();
    life.end().await;
    let life = house.life().await;
    life.say("c", "m2", "again").await;
    life.sees("c", "re: again").await;
    life.rest().await;
    assert_eq!(house.screen.texts("c"), ["re: hello", "re: again"]);
    life.end().await;
}
