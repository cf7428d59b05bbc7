use hermes_platforms::{MediaKind, PlatformState};
use hermes_testkit::telegram::{FakeTelegram, PersonMessage, TelegramFault};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

async fn polls(telegram: &FakeTelegram, count: usize) {
    telegram
        .wait_for(|telegram| telegram.calls("getUpdates") >= count)
        .await;
}

#[tokio::test]
async fn a_message_is_confirmed_after_it_is_stored() {
    let telegram = telegram_with_people();
    telegram.say(PersonMessage::text(ADA, "while nobody listened"));
    let mut running = RunningAdapter::start(&telegram, &json!({}));
    let arrival = soon(running.arrival()).await;
    assert_eq!(arrival.message.text, "while nobody listened");
    assert_eq!(arrival.message.source.user_name.as_deref(), Some("Ada"));
    assert_eq!(telegram.pending(), 1);
    // It could not be stored: it comes again.
    drop(arrival);
    let again = soon(running.arrival()).await;
    assert_eq!(telegram.pending(), 1);
    again.stored.send(true).unwrap();
    soon(telegram.wait_for(|telegram| telegram.pending() == 0)).await;
    let condition = soon(running.until(PlatformState::Connected)).await;
    assert!(condition.received_at.is_some());
    running.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_stored_is_confirmed_when_it_stops() {
    let telegram = telegram_with_people();
    let mut running = RunningAdapter::start(&telegram, &json!({}));
    soon(polls(&telegram, 2)).await;
    // The poll that waits brings it; the next one, which would confirm it, never answers.
    telegram.fault("getUpdates", TelegramFault::Hang, 1);
    telegram.say(PersonMessage::text(ADA, "last words"));
    assert_eq!(soon(running.next()).await.text, "last words");
    soon(polls(&telegram, 3)).await;
    running.stop().await.unwrap();
    assert_eq!(telegram.pending(), 0);
}

#[tokio::test]
async fn a_poll_that_nobody_answers_is_given_up() {
    let telegram = telegram_with_people();
    let _time = FixedClock::new();
    let mut running = RunningAdapter::start(&telegram, &json!({}));
    polls(&telegram, 2).await;
    // Half-open: the connection is there, and nothing ever comes through it.
    telegram.fault("getUpdates", TelegramFault::Hang, 1);
    telegram.say(PersonMessage::text(ADA, "one"));
    assert_eq!(running.next().await.text, "one");
    polls(&telegram, 3).await;
    telegram.say(PersonMessage::text(ADA, "two"));
    assert_eq!(running.condition.borrow().state, PlatformState::Connected);
    tokio::time::advance(Duration::from_secs(46)).await;
    let condition = running.until(PlatformState::Retrying).await;
    assert_eq!(
        condition.error.as_deref(),
        Some("getUpdates: no answer within 45 s")
    );
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(running.next().await.text, "two");
    assert_eq!(running.until(PlatformState::Connected).await.error, None);
    telegram.wait_for(|telegram| telegram.pending() == 0).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn faults_of_the_network_are_outlived() {
    let telegram = telegram_with_people();
    let _time = FixedClock::new();
    telegram.refuse(true);
    let mut running = RunningAdapter::start(&telegram, &json!({}));
    running.until(PlatformState::Retrying).await;
    telegram.say(PersonMessage::text(ADA, "patience"));
    for fault in [
        TelegramFault::Cut,
        TelegramFault::Status(502),
        TelegramFault::Garbage,
        TelegramFault::Error(500, "Internal Server Error".to_owned()),
    ] {
        telegram.fault("getUpdates", fault, 1);
    }
    telegram.refuse(false);
    let mut condition = running.condition.clone();
    tokio::time::advance(Duration::from_mins(1)).await;
    let message = loop {
        tokio::select! {
            message = running.next() => break message,
            // It is about to wait.
            _ = condition.changed() => tokio::time::advance(Duration::from_mins(1)).await,
        }
    };
    assert_eq!(message.text, "patience");
    assert_eq!(telegram.calls("getUpdates"), 5);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_flood_is_waited_for() {
    let telegram = telegram_with_people();
    let _time = FixedClock::new();
    telegram.say(PersonMessage::text(ADA, "later"));
    telegram.fault("getUpdates", TelegramFault::TooMany { retry_after: 17 }, 1);
    let mut running = RunningAdapter::start(&telegram, &json!({}));
    running.until(PlatformState::Retrying).await;
    tokio::time::advance(Duration::from_secs(16)).await;
    assert_eq!(telegram.calls("getUpdates"), 1);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(running.next().await.text, "later");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn polls_that_bring_nothing_while_something_waits_are_doubted() {
    let telegram = telegram_with_people();
    let _time = FixedClock::new();
    let mut running = RunningAdapter::start(&telegram, &json!({}));
    running.until(PlatformState::Connected).await;
    telegram.deaf(true);
    telegram.say(PersonMessage::text(ADA, "do you hear me"));
    let condition = running.until(PlatformState::Retrying).await;
    let error = condition.error.unwrap();
    assert!(error.contains("1 updates for us"), "{error}");
    telegram.deaf(false);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(running.next().await.text, "do you hear me");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn another_poller_is_explained() {
    let telegram = telegram_with_people();
    let conflict = "Conflict: terminated by other getUpdates request; make sure that only one bot \
                    instance is running";
    telegram.fault_always("getUpdates", TelegramFault::Error(409, conflict.to_owned()));
    let mut running = RunningAdapter::start(&telegram, &json!({}));
    let condition = soon(running.until(PlatformState::Retrying)).await;
    let error = condition.error.unwrap();
    assert!(
        error.contains("another program polls with the same token"),
        "{error}"
    );
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_webhook_of_another_time_is_removed_and_what_waits_is_kept() {
    let telegram = telegram_with_people();
    telegram.set_webhook("http://127.0.0.1:9/old");
    telegram.say(PersonMessage::text(ADA, "kept"));
    let mut running = RunningAdapter::start(&telegram, &json!({}));
    assert_eq!(soon(running.next()).await.text, "kept");
    assert_eq!(telegram.webhook(), "");
    running.stop().await.unwrap();
}

/// Polls do not wait for anything that is only good to know.
#[tokio::test]
async fn polls_begin_and_go_on_without_word_of_webhooks() {
    for fault in [
        TelegramFault::Error(500, "Internal Server Error".to_owned()),
        TelegramFault::Hang,
    ] {
        let telegram = telegram_with_people();
        telegram.fault_always("getWebhookInfo", fault);
        telegram.set_webhook("http://127.0.0.1:9/old");
        telegram.say(PersonMessage::text(ADA, "hello"));
        let mut running = RunningAdapter::start(&telegram, &json!({}));
        assert_eq!(soon(running.next()).await.text, "hello");
        assert_eq!(telegram.webhook(), "");
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_revoked_token_is_hopeless() {
    let telegram = telegram_with_people();
    telegram.revoke();
    let running = RunningAdapter::start(&telegram, &json!({}));
    let hopeless = soon(running.task).await.unwrap().unwrap().unwrap_err();
    assert!(hopeless.0.contains("@BotFather"), "{hopeless}");
    assert!(!hopeless.0.contains(TOKEN), "{hopeless}");
}

#[tokio::test]
async fn groups_are_heard_by_their_rules() {
    let telegram = telegram_with_people();
    telegram.forum(-100_900, "Forum", &[(4, "Plans")]);
    let mut running = RunningAdapter::start(
        &telegram,
        &json!({"require_mention": true, "free_response_topics": ["-100900:4"],
                "observe_unmentioned_group_messages": true}),
    );
    let group = |text: &str| PersonMessage::text(ADA, text).in_chat(GROUP);
    telegram.say(group("nobody in particular"));
    telegram.say(group("😀😀 @hermes_test_bot: what now?"));
    let message = soon(running.next()).await;
    assert_eq!(message.text, "😀😀 what now?");
    assert_eq!(message.source.chat_type, "group");
    assert_eq!(
        message.context.as_deref(),
        Some("Ada: nobody in particular")
    );
    telegram.say(group("/new@hermes_test_bot now"));
    assert_eq!(soon(running.next()).await.text, "/new now");
    let sent = running.outbound.send(&outgoing(GROUP, "an answer")).await;
    let id: i64 = sent.unwrap().unwrap().parse().unwrap();
    telegram.say(group("a reply needs no name").replying(id));
    let message = soon(running.next()).await;
    let reply = message.reply_to.unwrap();
    assert_eq!(
        (reply.own, reply.text.as_deref()),
        (true, Some("an answer"))
    );
    telegram.say(
        PersonMessage::text(ADA, "free")
            .in_chat(-100_900)
            .in_thread(4),
    );
    let message = soon(running.next()).await;
    assert_eq!(message.source.thread_id.as_deref(), Some("4"));
    // Nothing else came: everything is confirmed.
    soon(telegram.wait_for(|telegram| telegram.pending() == 0)).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_press_comes_with_its_button() {
    use hermes_platforms::{Button, Tone};

    let telegram = telegram_with_people();
    let mut running = RunningAdapter::start(&telegram, &json!({}));
    let mut question = outgoing(ADA, "Run it?");
    let button = |label: &str, data: &str| Button {
        label: label.to_owned(),
        data: data.to_owned(),
        tone: Tone::Neutral,
    };
    question.buttons = vec![vec![button("Yes", "ea:once:1"), button("No", "ea:deny:1")]];
    let id = running.outbound.send(&question).await.unwrap().unwrap();
    let shown = telegram.shown(ADA);
    assert_eq!(
        shown[0].buttons[0][1],
        ("No".to_owned(), "ea:deny:1".to_owned())
    );
    let query = telegram.press(ADA, ADA, shown[0].id, "ea:once:1");
    let press = soon(running.next()).await;
    assert_eq!(press.text, "Yes");
    let pressed = press.pressed.clone().unwrap();
    assert_eq!(pressed.data, "ea:once:1");
    assert_eq!(pressed.message_id.as_deref(), Some(id.as_str()));
    running.outbound.pressed(&press, Some("Running")).await;
    assert_eq!(telegram.callback_answer(&query).unwrap()["text"], "Running");
    // An edit without buttons takes them away.
    running
        .outbound
        .edit(&id, &outgoing(ADA, "Run it? Yes"))
        .await
        .unwrap();
    assert!(telegram.shown(ADA)[0].buttons.is_empty());
    question.buttons[0][0].data = "x".repeat(65);
    let error = running.outbound.send(&question).await.unwrap_err();
    assert!(error.to_string().contains("64"), "{error}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn files_come_in() {
    let telegram = telegram_with_people();
    let mut running = RunningAdapter::start(&telegram, &json!({}));
    let dir = tempfile::tempdir().unwrap();
    telegram.say(
        PersonMessage::text(ADA, "look")
            .with_file("document", "../notes.txt", "text/plain", b"words")
            .in_album("a"),
    );
    let message = soon(running.next()).await;
    assert_eq!(message.text, "look");
    assert_eq!(message.native["media_group_id"], "a");
    let media = &message.media[0];
    assert_eq!(media.kind, MediaKind::Document);
    let fetch = |max| running.outbound.fetch_media(media, dir.path(), max);
    telegram.fault("download", TelegramFault::Cut, 1);
    assert!(matches!(
        fetch(100).await,
        Err(hermes_platforms::SendError::NotSent { .. })
    ));
    let path = fetch(100).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"words");
    assert_eq!(path.parent(), Some(dir.path()));
    assert!(path.to_string_lossy().ends_with("_notes.txt"));
    // What is announced may be wrong: what comes counts.
    telegram.claim_size(&media.id, 1);
    let mut silent = media.clone();
    silent.bytes = None;
    let error = running.outbound.fetch_media(&silent, dir.path(), 3).await;
    assert!(error.unwrap_err().to_string().contains("larger"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    telegram.claim_size(&media.id, 21 << 20);
    let error = running
        .outbound
        .fetch_media(&silent, dir.path(), 1 << 30)
        .await;
    assert!(error.unwrap_err().to_string().contains("20 MB"));
    telegram.say(PersonMessage::text(ADA, "").with_file("voice", "v.oga", "audio/ogg", b"OggS"));
    let voice = soon(running.next()).await;
    assert_eq!(voice.media[0].kind, MediaKind::Voice);
    let path = running
        .outbound
        .fetch_media(&voice.media[0], dir.path(), 100)
        .await;
    assert!(path.unwrap().extension().is_some_and(|end| end == "oga"));
    running.stop().await.unwrap();
}
