//! What comes in.

use std::time::Duration;

use hermes_platforms::{Button, MediaKind, Offer, SendError, Tone};
use hermes_testkit::slack::PostedMessage;
use serde_json::json;
use tempfile::TempDir;

use super::harness::{SlackHarness, outgoing, soon};

#[tokio::test]
async fn a_message_arrives_whole_and_is_acknowledged() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    let ts = scene.slack.say("T1", "D1", "U1", "a &lt;b&gt; <@U2>");
    let message = life.hear().await;
    assert_eq!(message.text, "a <b> @bob");
    assert_eq!(message.message_id, ts);
    let source = &message.source;
    assert_eq!(
        (source.chat_id.as_str(), source.chat_type.as_str()),
        ("D1", "dm")
    );
    assert_eq!(source.user_id.as_deref(), Some("U1"));
    assert_eq!(source.user_name.as_deref(), Some("alice"));
    assert_eq!(source.thread_id.as_deref(), Some(ts.as_str()));
    assert_eq!(source.scope_id.as_deref(), Some("T1"));
    assert_eq!(format!("{:.6}", message.sent_at), ts);
    soon(scene.slack.wait_for(|slack| slack.unacked() == 0)).await;
    assert_eq!(scene.slack.acks().len(), 1);
    life.end().await;
}

#[tokio::test]
async fn what_comes_twice_is_heard_once() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    // A mention is two events: a message and a mention.
    let ts = scene.slack.say("T1", "C1", "U1", "<@UBOTT1> hello");
    assert_eq!(life.hear().await.text, "hello");
    scene.slack.say_again("T1", "C1", &ts);
    scene.slack.say("T1", "C1", "U1", "among ourselves");
    scene.slack.say("T1", "D1", "U1", "last");
    assert_eq!(life.hear().await.text, "last");
    soon(scene.slack.wait_for(|slack| slack.unacked() == 0)).await;
    life.end().await;
    // Nor in the next process.
    let mut life = scene.live().await;
    scene.slack.say_again("T1", "C1", &ts);
    scene.slack.say("T1", "D1", "U1", "new");
    assert_eq!(life.hear().await.text, "new");
    soon(scene.slack.wait_for(|slack| slack.unacked() == 0)).await;
    assert!(life.rest().is_empty());
    life.end().await;
}

#[tokio::test]
async fn once_mentioned_in_a_thread_it_listens_there() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    let slack = &scene.slack;
    let root = slack.say("T1", "C1", "U1", "shall we deploy?");
    slack.reply("T1", "C1", &root, "U2", "tests are &lt;green&gt;");
    slack.reply("T1", "C1", &root, "U1", "<@UBOTT1> what do you think?");
    let first = life.hear().await;
    assert_eq!(first.text, "what do you think?");
    assert_eq!(first.source.thread_id.as_deref(), Some(root.as_str()));
    assert_eq!(first.source.chat_type, "group");
    let context = first.context.expect("what was said before");
    assert!(
        context.contains("alice: shall we deploy?\nbob: tests are <green>"),
        "{context}"
    );
    assert!(!context.contains("what do you think"), "{context}");
    slack.reply("T1", "C1", &root, "U2", "I agree");
    let next = life.hear().await;
    assert_eq!((next.text.as_str(), next.context), ("I agree", None));
    life.kill().await;
    let mut life = scene.live().await;
    let slack = &scene.slack;
    slack.reply("T1", "C1", &root, "U2", "still there?");
    assert_eq!(life.hear().await.text, "still there?");
    let other = slack.say("T1", "C1", "U1", "lunch?");
    slack.reply("T1", "C1", &other, "U2", "yes");
    slack.say("T1", "D1", "U1", "end");
    assert_eq!(life.hear().await.text, "end");
    life.end().await;
}

#[tokio::test]
async fn who_answers_a_message_of_ours_speaks_to_us() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    let report = outgoing("C1", None, "The report is ready.");
    let ts = life.outbound.send(&report).await.unwrap().unwrap();
    scene.slack.reply("T1", "C1", &ts, "U2", "thanks, and now?");
    let answer = life.hear().await;
    assert_eq!(answer.text, "thanks, and now?");
    assert!(
        answer
            .context
            .unwrap()
            .contains("you: The report is ready.")
    );
    life.end().await;
}

#[tokio::test]
async fn commands_come_with_an_exclamation_mark_or_a_slash() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    let compress = Offer {
        name: "compress".to_owned(),
        about: String::new(),
        args: None,
    };
    life.outbound.offer(&[compress]).await.unwrap();
    for (said, heard) in [
        ("!stop", "/stop"),
        ("!compress here", "/compress here"),
        ("!nice work", "!nice work"),
    ] {
        scene.slack.say("T1", "D1", "U1", said);
        assert_eq!(life.hear().await.text, heard);
    }
    scene.slack.say("T1", "C1", "U1", "<@UBOTT1> !new");
    assert_eq!(life.hear().await.text, "/new");
    for (command, text, heard) in [
        ("/hermes", "status", "/status"),
        ("/hermes", "what is &lt;b&gt;?", "what is <b>?"),
        ("/hermes", "", "/help"),
        ("/model", "opus", "/model opus"),
    ] {
        scene.slack.slash("T1", "C1", "U1", command, text);
        let message = life.hear().await;
        assert_eq!(message.text, heard);
        assert_eq!(message.source.chat_type, "group");
        assert_eq!(message.source.thread_id, None);
    }
    soon(scene.slack.wait_for(|slack| slack.unacked() == 0)).await;
    life.end().await;
}

#[tokio::test]
async fn buttons_come_back_pressed() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    let root = scene.slack.say("T1", "C1", "U1", "<@UBOTT1> run it");
    life.hear().await;
    let mut question = outgoing("C1", Some(&root), "Run `rm`?");
    let button = |label: &str, data: &str, tone| Button {
        label: label.to_owned(),
        data: data.to_owned(),
        tone,
    };
    question.buttons = vec![vec![
        button("Once", "a:1:once", Tone::Good),
        button("Deny", "a:1:deny", Tone::Danger),
    ]];
    let ts = life.outbound.send(&question).await.unwrap().unwrap();
    scene.slack.press("T1", "C1", &ts, "a:1:deny", "U2");
    let press = life.hear().await;
    let pressed = press.pressed.clone().expect("a press");
    assert_eq!(pressed.data, "a:1:deny");
    assert_eq!(pressed.message_id.as_deref(), Some(ts.as_str()));
    assert_eq!(press.text, "Deny");
    assert_eq!(press.source.user_id.as_deref(), Some("U2"));
    assert_eq!(press.source.thread_id.as_deref(), Some(root.as_str()));
    assert_eq!(press.source.chat_type, "group");
    life.outbound.pressed(&press, Some("Only alice may.")).await;
    assert_eq!(
        scene.slack.ephemerals("T1", "C1")[0]["text"],
        "Only alice may."
    );
    // The answer takes the buttons away.
    let done = outgoing("C1", Some(&root), "Denied by bob.");
    life.outbound.edit(&ts, &done).await.unwrap();
    let messages = scene.slack.messages("T1", "C1");
    let message = messages
        .iter()
        .find(|one| one["ts"] == ts.as_str())
        .unwrap();
    assert_eq!(message["text"], "Denied by bob.");
    assert!(message.get("blocks").is_none());
    life.end().await;
}

#[tokio::test]
async fn files_are_fetched_with_the_token() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    let said = PostedMessage::new("T1", "D1", "U1", "look")
        .file("../a b.png", "image/png", b"picture")
        .file("audio_message.mp4", "video/mp4", b"hm");
    scene.slack.say_with(&said);
    let message = life.hear().await;
    let [picture, memo] = message.media.as_slice() else {
        panic!("{:?}", message.media);
    };
    assert_eq!((picture.kind, picture.bytes), (MediaKind::Image, Some(7)));
    assert_eq!(memo.kind, MediaKind::Voice);
    let cache = TempDir::new().unwrap();
    let fetch = life.outbound.fetch_media(picture, cache.path(), 100);
    let path = fetch.await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"picture");
    assert_eq!(path.parent(), Some(cache.path()));
    let too_large = life.outbound.fetch_media(picture, cache.path(), 3);
    assert!(matches!(too_large.await, Err(SendError::Refused(_))));
    let mut unknown_size = picture.clone();
    unknown_size.bytes = None;
    let too_large = life.outbound.fetch_media(&unknown_size, cache.path(), 3);
    assert!(matches!(too_large.await, Err(SendError::Refused(_))));
    assert_eq!(
        std::fs::read_dir(cache.path()).unwrap().count(),
        1,
        "nothing half is left"
    );
    life.end().await;
}

#[tokio::test]
async fn two_workspaces_share_a_connection() {
    let mut scene = SlackHarness::new();
    scene.slack.add_workspace("T2");
    scene.slack.add_user("T2", "U9", "zoe");
    scene.slack.add_channel("T2", "C9", "channel");
    scene.slack.add_channel("T2", "D9", "im");
    scene.tokens = vec!["xoxb-T1", "xoxb-T2"];
    let mut life = scene.live().await;
    assert_eq!(scene.slack.sockets(), 1);
    scene.slack.say("T1", "D1", "U1", "one");
    assert_eq!(life.hear().await.text, "one");
    scene.slack.say("T2", "C9", "U9", "<@UBOTT2> two");
    let two = life.hear().await;
    assert_eq!(
        (two.text.as_str(), two.source.scope_id.as_deref()),
        ("two", Some("T2"))
    );
    assert_eq!(two.source.user_name.as_deref(), Some("zoe"));
    // The mention of another workspace's bot is none of ours.
    scene.slack.say("T2", "C9", "U9", "<@UBOTT1> three");
    // Known from what came in, after a restart too, and else by asking.
    for channel in ["C9", "D1"] {
        life.outbound
            .send(&outgoing(channel, None, "back"))
            .await
            .unwrap();
    }
    life.end().await;
    let life = scene.live().await;
    let asked = scene.slack.calls_of("conversations.info").len();
    life.outbound
        .send(&outgoing("C9", None, "again"))
        .await
        .unwrap();
    assert_eq!(scene.slack.calls_of("conversations.info").len(), asked);
    life.outbound
        .send(&outgoing("D9", None, "first"))
        .await
        .unwrap();
    assert_eq!(scene.slack.answers("T2", "C9"), ["back", "again"]);
    assert_eq!(scene.slack.answers("T2", "D9"), ["first"]);
    assert_eq!(scene.slack.answers("T1", "D1"), ["back"]);
    let nowhere = outgoing("C404", None, "x");
    let refused = life.outbound.send(&nowhere).await;
    assert!(matches!(refused, Err(SendError::Refused(_))), "{refused:?}");
    life.end().await;
}

#[tokio::test]
async fn what_was_said_during_a_long_absence_is_asked_for() {
    let mut scene = SlackHarness::new();
    scene.timing.gap = Duration::ZERO;
    let mut life = scene.live().await;
    let root = scene.slack.say("T1", "C1", "U1", "<@UBOTT1> hello");
    life.hear().await;
    life.end().await;
    let unheard = |said: PostedMessage| scene.slack.say_unheard(&said);
    unheard(PostedMessage::new("T1", "D1", "U1", "anybody?"));
    unheard(PostedMessage::new("T1", "D1", "U1", "hello?"));
    unheard(PostedMessage::new("T1", "C1", "U1", "not for the bot"));
    unheard(PostedMessage::new("T1", "C1", "U2", "<@UBOTT1> you?"));
    unheard(PostedMessage::new("T1", "C1", "U2", "and in the thread").thread(&root));
    let mut life = scene.live().await;
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(life.hear().await.text);
    }
    heard.sort();
    assert_eq!(heard, ["and in the thread", "anybody?", "hello?", "you?"]);
    life.end().await;
    let mut life = scene.live().await;
    scene.slack.say("T1", "D1", "U1", "end");
    assert_eq!(
        life.hear().await.text,
        "end",
        "asked for once more, heard once"
    );
    life.end().await;
}

#[tokio::test]
async fn more_than_a_page_is_asked_for_and_what_got_no_answer_is_asked_again() {
    let mut scene = SlackHarness::new();
    scene.timing.gap = Duration::ZERO;
    scene.timing.pause = Duration::from_millis(1);
    let mut life = scene.live().await;
    scene.slack.say("T1", "D1", "U1", "hello");
    life.hear().await;
    life.end().await;
    let missed: Vec<String> = (0..230).map(|number| format!("number {number}")).collect();
    for text in &missed {
        scene
            .slack
            .say_unheard(&PostedMessage::new("T1", "D1", "U1", text));
    }
    // No conversation is known, so nothing is asked about any.
    for _ in 0..5 {
        let cut = hermes_testkit::slack::SlackFault::CutBefore;
        scene.slack.fail_next("users.conversations", cut);
    }
    let asked = scene.slack.calls_of("users.conversations").len();
    let mut life = scene.live().await;
    let all = |slack: &hermes_testkit::slack::FakeSlack| {
        slack.calls_of("users.conversations").len() >= asked + 5
    };
    soon(scene.slack.wait_for(all)).await;
    scene.slack.say("T1", "D1", "U1", "live");
    assert_eq!(life.hear().await.text, "live");
    life.end().await;
    // From here on no absence is long enough: only what is left open is asked for.
    scene.timing.gap = Duration::from_hours(1);
    let mut life = scene.live().await;
    for text in &missed {
        assert_eq!(life.hear().await.text, *text);
    }
    life.end().await;
}

#[tokio::test]
async fn other_events_are_acknowledged_and_passed_over() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    for event in [
        json!({"type": "app_home_opened", "user": "U1", "channel": "D1", "tab": "home"}),
        json!({"type": "reaction_added", "user": "U1", "reaction": "eyes"}),
        json!({"type": "message", "subtype": "channel_join", "channel": "C1", "user": "U1", "ts": "1.0"}),
        json!({"type": "assistant_thread_started", "assistant_thread": {}}),
        json!(null),
    ] {
        scene.slack.event("T1", &event);
    }
    scene.slack.say("T1", "D1", "U1", "end");
    assert_eq!(life.hear().await.text, "end");
    soon(scene.slack.wait_for(|slack| slack.unacked() == 0)).await;
    life.end().await;
}
