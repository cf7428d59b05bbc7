//! What goes out.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::{SystemClock, SystemRng};
use hermes_gateway::{Outbox, OutboxPolicy};
use hermes_platforms::{DeliveryLookup, Markup, MediaKind, OutMedia, SendError};
use hermes_store::delivery::{Final, NewChunk, NewReply};
use hermes_testkit::slack::SlackFault;
use serde_json::Value;

use super::harness::{SlackHarness, outgoing, soon};

const POST: &str = "chat.postMessage";

#[tokio::test]
async fn a_message_is_posted_edited_and_removed() {
    let mut scene = SlackHarness::new();
    let life = scene.live().await;
    let root = scene.slack.say("T1", "C1", "U1", "among ourselves");
    let message = outgoing("C1", Some(&root), "*bold* &lt;x&gt;");
    let ts = life.outbound.send(&message).await.unwrap().unwrap();
    let messages = scene.slack.messages("T1", "C1");
    assert_eq!(messages[1]["text"], "*bold* &lt;x&gt;");
    assert_eq!(messages[1]["thread_ts"], root.as_str());
    let mut plain = outgoing("C1", Some(&root), "<!channel> & co");
    plain.markup = Markup::Plain;
    life.outbound.edit(&ts, &plain).await.unwrap();
    let messages = scene.slack.messages("T1", "C1");
    assert_eq!(
        messages[1]["text"], "&lt;!channel&gt; &amp; co",
        "nobody is called"
    );
    life.outbound.delete(&message.target, &ts).await.unwrap();
    life.outbound.delete(&message.target, &ts).await.unwrap();
    assert_eq!(scene.slack.messages("T1", "C1").len(), 1);
    life.end().await;
}

#[tokio::test]
async fn signs_replace_each_other() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    let ts = scene.slack.say("T1", "D1", "U1", "work!");
    let target = outgoing("D1", Some(&ts), "").target;
    life.hear().await;
    let signs = || {
        let message = scene.slack.messages("T1", "D1").remove(0);
        let signs = message["reactions"].as_array().cloned().unwrap_or_default();
        let names = signs
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    life.outbound.react(&target, &ts, Some("👀")).await;
    assert_eq!(signs(), ["eyes"]);
    life.outbound.react(&target, &ts, Some("✅")).await;
    assert_eq!(signs(), ["white_check_mark"]);
    life.outbound.react(&target, &ts, None).await;
    assert!(signs().is_empty());
    life.outbound.typing(&target).await;
    life.outbound.typing(&target).await;
    assert_eq!(scene.slack.statuses("T1", "D1"), ["is thinking…"]);
    // A message takes it away, and where the app may not, it asks once.
    let method = "assistant.threads.setStatus";
    scene
        .slack
        .fail_next(method, SlackFault::Error("missing_scope".to_owned()));
    for _ in 0..3 {
        let message = outgoing("D1", Some(&ts), "working");
        life.outbound.send(&message).await.unwrap();
        life.outbound.typing(&target).await;
    }
    assert_eq!(scene.slack.calls_of(method).len(), 2);
    life.end().await;
}

#[tokio::test]
async fn failures_mean_what_they_say() {
    let mut scene = SlackHarness::new();
    scene.timing.call = Duration::from_millis(400);
    let life = scene.live().await;
    let message = outgoing("D1", None, "hello");
    scene.slack.fail_next(POST, SlackFault::RateLimited(7));
    let limited = life.outbound.send(&message).await.unwrap_err();
    let SendError::NotSent { retry_after, .. } = limited else {
        panic!("{limited:?}");
    };
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
    for (word, expected) in [
        ("is_archived", "refused"),
        ("restricted_action", "refused"),
        ("invalid_blocks", "markup"),
        ("token_revoked", "not sent"),
        ("service_unavailable", "not sent"),
        ("internal_error", "no answer"),
    ] {
        scene
            .slack
            .fail_next(POST, SlackFault::Error(word.to_owned()));
        let error = life.outbound.send(&message).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{word}: {error}");
    }
    for fault in [
        SlackFault::Status(500),
        SlackFault::CutBefore,
        SlackFault::HangBefore,
    ] {
        scene.slack.fail_next(POST, fault.clone());
        let error = life.outbound.send(&message).await.unwrap_err();
        assert!(
            matches!(error, SendError::Unclear(_)),
            "{fault:?}: {error:?}"
        );
    }
    assert!(scene.slack.answers("T1", "D1").is_empty());
    // A server that is gone certainly took nothing.
    drop(scene.slack);
    let error = life.outbound.send(&message).await.unwrap_err();
    assert!(matches!(error, SendError::NotSent { .. }), "{error:?}");
    life.kill().await;
}

#[tokio::test]
async fn history_tells_what_arrived() {
    let mut scene = SlackHarness::new();
    scene.timing.call = Duration::from_millis(600);
    let life = scene.live().await;
    let root = scene.slack.say("T1", "C1", "U1", "among ourselves");
    for thread in [None, Some(root.as_str())] {
        for (fault, arrived) in [
            (SlackFault::CutBefore, false),
            (SlackFault::CutAfter, true),
            (SlackFault::HangAfter, true),
        ] {
            let mut message = outgoing("C1", thread, "hello");
            message.key = format!("{thread:?} {fault:?}");
            scene.slack.fail_next(POST, fault.clone());
            let error = life.outbound.send(&message).await.unwrap_err();
            assert!(matches!(error, SendError::Unclear(_)), "{error:?}");
            let found = life.outbound.look_up(&message).await.unwrap();
            assert_eq!(
                matches!(found, DeliveryLookup::Yes(Some(_))),
                arrived,
                "{fault:?} {found:?}"
            );
            assert_eq!(found == DeliveryLookup::No, !arrived, "{fault:?} {found:?}");
        }
    }
    // When history cannot be asked, that is an error and not an answer.
    let history = "conversations.history";
    scene.slack.fail_next(history, SlackFault::RateLimited(3));
    let asked = life.outbound.look_up(&outgoing("C1", None, "x")).await;
    assert!(matches!(asked, Err(SendError::NotSent { .. })), "{asked:?}");
    life.end().await;
}

#[tokio::test]
async fn the_page_does_not_matter_to_who_looks() {
    let mut scene = SlackHarness::new();
    let life = scene.live().await;
    let message = outgoing("D1", None, "the one");
    life.outbound.send(&message).await.unwrap();
    for number in 0..450 {
        let said = hermes_testkit::slack::PostedMessage::new("T1", "D1", "U1", &number.to_string());
        scene.slack.say_unheard(&said);
    }
    let found = life.outbound.look_up(&message).await.unwrap();
    assert!(matches!(found, DeliveryLookup::Yes(_)), "{found:?}");
    let mut other = message;
    other.key = "another".to_owned();
    assert_eq!(
        life.outbound.look_up(&other).await.unwrap(),
        DeliveryLookup::No
    );
    life.end().await;
}

fn file(scene: &SlackHarness, name: &str, bytes: &[u8]) -> OutMedia {
    let path = scene.home.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    OutMedia {
        path,
        kind: MediaKind::Document,
    }
}

#[tokio::test]
async fn files_are_sent_once() {
    let mut scene = SlackHarness::new();
    let life = scene.live().await;
    let root = scene.slack.say("T1", "C1", "U1", "the file?");
    let mut message = outgoing("C1", Some(&root), "*here*");
    message.media = Some(file(&scene, "a.txt", b"content"));
    // Before the last step nobody sees anything: such failures are clear.
    for (step, fault) in [
        ("files.getUploadURLExternal", SlackFault::CutAfter),
        ("upload", SlackFault::CutBefore),
        ("upload", SlackFault::Status(500)),
    ] {
        scene.slack.fail_next(step, fault);
        let error = life.outbound.send(&message).await.unwrap_err();
        assert!(
            matches!(error, SendError::NotSent { .. }),
            "{step}: {error:?}"
        );
    }
    let complete = "files.completeUploadExternal";
    scene.slack.fail_next(complete, SlackFault::CutAfter);
    let error = life.outbound.send(&message).await.unwrap_err();
    assert!(matches!(error, SendError::Unclear(_)), "{error:?}");
    let found = life.outbound.look_up(&message).await.unwrap();
    assert!(matches!(found, DeliveryLookup::Yes(Some(_))), "{found:?}");
    let shared = scene.slack.messages("T1", "C1");
    let shared = shared
        .iter()
        .find(|one| one.get("files").is_some())
        .unwrap();
    assert_eq!(shared["files"][0]["name"], "a.txt");
    assert_eq!(shared["thread_ts"], root.as_str());
    assert_eq!(shared["blocks"][0]["text"]["text"], "*here*");
    let sent = scene.slack.uploads().into_iter().find(|one| one.complete);
    assert_eq!(sent.unwrap().bytes.as_deref(), Some(&b"content"[..]));
    // Another with the same file: perhaps that one, so nobody can tell.
    message.key = "another".to_owned();
    assert_eq!(
        life.outbound.look_up(&message).await.unwrap(),
        DeliveryLookup::Unknown
    );
    message.media = Some(file(&scene, "b.txt", b"other"));
    assert_eq!(
        life.outbound.look_up(&message).await.unwrap(),
        DeliveryLookup::No
    );
    message.media = Some(file(&scene, "empty.txt", b""));
    let empty = life.outbound.send(&message).await;
    assert!(matches!(empty, Err(SendError::Refused(_))), "{empty:?}");
    life.end().await;
}

#[tokio::test]
async fn where_the_app_is_not_a_member_a_command_is_answered_by_its_address() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    scene.slack.slash("T1", "C1", "U1", "/hermes", "status");
    life.hear().await;
    let message = outgoing("C1", None, "All is well.");
    scene
        .slack
        .fail_next(POST, SlackFault::Error("not_in_channel".to_owned()));
    life.outbound.send(&message).await.unwrap();
    assert_eq!(
        scene.slack.ephemerals("T1", "C1")[0]["text"],
        "All is well."
    );
    scene
        .slack
        .fail_next(POST, SlackFault::Error("not_in_channel".to_owned()));
    let again = life.outbound.send(&message).await;
    assert!(matches!(again, Err(SendError::Refused(_))), "{again:?}");
    life.end().await;
}

#[tokio::test]
async fn replies_arrive_exactly_once_whatever_breaks() {
    let mut scene = SlackHarness::new();
    scene.timing.call = Duration::from_millis(500);
    let life = scene.live().await;
    let outbox = Outbox::new(
        life.delivery.clone(),
        Arc::new(SystemClock),
        Arc::new(SystemRng),
        OutboxPolicy {
            pause: Duration::from_millis(1),
            longest_pause: Duration::from_millis(5),
            ..OutboxPolicy::default()
        },
    );
    outbox.connect("slack", "", Arc::clone(&life.outbound));
    let texts: Vec<String> = (0..8).map(|number| format!("part {number}")).collect();
    let end = Final {
        turn: "turn-1".to_owned(),
        replies: vec![NewReply {
            session_key: "agent:main:slack:dm:D1".to_owned(),
            target: outgoing("D1", None, "").target,
            chunks: texts
                .iter()
                .map(|text| NewChunk {
                    text: text.clone(),
                    extra: None,
                })
                .collect(),
        }],
        ..Final::default()
    };
    life.delivery.finish(end).await.unwrap();
    for fault in [
        SlackFault::CutAfter,
        SlackFault::CutBefore,
        SlackFault::HangAfter,
        SlackFault::Status(502),
        SlackFault::Error("ratelimited".to_owned()),
    ] {
        scene.slack.fail_next(POST, fault);
    }
    scene
        .slack
        .fail_next("conversations.history", SlackFault::CutBefore);
    soon(async {
        while scene.slack.answers("T1", "D1").len() < texts.len() {
            outbox.pump().await.unwrap();
            tokio::task::yield_now().await;
        }
        while outbox.pump().await.unwrap().due > 0 {}
    })
    .await;
    let answers: Vec<Value> = scene.slack.messages("T1", "D1");
    let seen: Vec<&str> = answers
        .iter()
        .map(|one| one["text"].as_str().unwrap())
        .collect();
    assert_eq!(seen, texts, "in order, unmarked, once");
    life.end().await;
}

#[tokio::test]
async fn a_person_is_written_to_directly() {
    let mut scene = SlackHarness::new();
    let life = scene.live().await;
    let message = outgoing("U2", None, "The report is ready.");
    scene.slack.fail_next(POST, SlackFault::CutAfter);
    life.outbound.send(&message).await.unwrap_err();
    let found = life.outbound.look_up(&message).await.unwrap();
    assert!(matches!(found, DeliveryLookup::Yes(_)), "{found:?}");
    assert_eq!(scene.slack.answers("T1", "DU2"), ["The report is ready."]);
    assert_eq!(scene.slack.calls_of("conversations.open").len(), 1);
    let nobody = life.outbound.send(&outgoing("U404", None, "x")).await;
    assert!(matches!(nobody, Err(SendError::Refused(_))), "{nobody:?}");
    life.end().await;
}
