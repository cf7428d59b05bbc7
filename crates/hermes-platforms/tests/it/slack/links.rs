//! Connections that break, hang, end and are refused.

use std::time::Duration;

use hermes_platforms::slack::platform_with;
use hermes_platforms::{AdapterLink, Arrival, HealthReporter};
use hermes_testkit::slack::SlackFault;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::harness::{SlackHarness, outgoing, soon};

#[tokio::test]
async fn nothing_is_acknowledged_before_it_is_stored() {
    let scene = SlackHarness::new();
    scene.slack.retry_after(Duration::from_millis(200));
    let platform = platform_with(
        scene.settings(),
        scene.home.path(),
        Arc::new(hermes_core::clock::SystemClock),
        Arc::new(hermes_core::clock::SystemRng),
        scene.timing,
    )
    .unwrap();
    let (arrivals, mut coming) = mpsc::channel::<Arrival>(8);
    let cancel = CancellationToken::new();
    let (health, _condition) = HealthReporter::new();
    let link = AdapterLink {
        arrivals,
        health,
        cancel: cancel.clone(),
    };
    let running = hermes_core::task::spawn("inbound", platform.inbound.run(link));
    soon(scene.slack.wait_for(|slack| slack.sockets() == 1)).await;
    let ts = scene.slack.say("T1", "D1", "U1", "hello");
    // It could not be stored: Slack brings it again.
    let first = soon(coming.recv()).await.unwrap();
    assert!(scene.slack.acks().is_empty());
    drop(first.stored);
    let second = soon(coming.recv()).await.unwrap();
    assert_eq!(
        (first.message.message_id, &second.message.message_id),
        (ts.clone(), &ts)
    );
    assert!(scene.slack.acks().is_empty());
    second.stored.send(true).unwrap();
    soon(scene.slack.wait_for(|slack| slack.acks().len() == 1)).await;
    cancel.cancel();
    soon(running).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_replaced() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    scene.slack.say("T1", "D1", "U1", "before");
    assert_eq!(life.hear().await.text, "before");
    // Half open: the other end is there and says nothing, and reads nothing.
    scene.slack.freeze_sockets();
    scene.slack.say("T1", "D1", "U1", "into the void");
    assert_eq!(life.hear().await.text, "into the void");
    assert_eq!(scene.slack.sockets_ever(), 2);
    scene.slack.say("T1", "D1", "U1", "after");
    assert_eq!(life.hear().await.text, "after");
    life.end().await;
}

#[tokio::test]
async fn a_connection_that_breaks_is_replaced() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    for round in 0..3 {
        scene.slack.cut_sockets();
        let text = format!("round {round}");
        scene.slack.say("T1", "D1", "U1", &text);
        assert_eq!(life.hear().await.text, text);
    }
    life.end().await;
}

#[tokio::test]
async fn a_warning_brings_the_next_connection_before_the_end_of_this_one() {
    let mut scene = SlackHarness::new();
    let mut life = scene.live().await;
    scene.slack.disconnect("warning");
    soon(scene.slack.wait_for(|slack| slack.sockets() == 2)).await;
    // Both bring messages, and everything comes once.
    let texts: Vec<String> = (0..10).map(|number| format!("{number}")).collect();
    for text in &texts {
        scene.slack.say("T1", "D1", "U1", text);
    }
    let mut heard = Vec::new();
    for _ in &texts {
        heard.push(life.hear().await.text);
    }
    heard.sort();
    assert_eq!(heard, texts);
    soon(scene.slack.wait_for(|slack| slack.sockets() == 1)).await;
    scene.slack.disconnect("refresh_requested");
    soon(scene.slack.wait_for(|slack| slack.sockets_ever() == 3)).await;
    scene.slack.say("T1", "D1", "U1", "end");
    assert_eq!(life.hear().await.text, "end");
    assert!(life.rest().is_empty());
    life.end().await;
}

#[tokio::test]
async fn it_tries_for_ever_to_connect() {
    let mut scene = SlackHarness::new();
    let open = "apps.connections.open";
    for fault in [
        SlackFault::RateLimited(1),
        SlackFault::Status(503),
        SlackFault::CutBefore,
        SlackFault::Error("internal_error".to_owned()),
        SlackFault::Error("too_many_websockets".to_owned()),
    ] {
        scene.slack.fail_next(open, fault);
    }
    scene.slack.fail_next("auth.test", SlackFault::CutBefore);
    scene.slack.refuse_sockets(true);
    let mut life = scene.begin().await;
    let tried = |slack: &hermes_testkit::slack::FakeSlack| slack.calls_of(open).len() > 7;
    soon(scene.slack.wait_for(tried)).await;
    scene.slack.say("T1", "D1", "U1", "hello?");
    scene.slack.refuse_sockets(false);
    assert_eq!(life.hear().await.text, "hello?");
    life.end().await;
}

#[tokio::test]
async fn only_a_token_that_is_of_no_use_ends_it() {
    let mut scene = SlackHarness::new();
    scene.slack.add_workspace("T2");
    scene.slack.add_channel("T2", "D9", "im");
    scene.tokens = vec!["xoxb-T1", "xoxb-T2"];
    // One workspace threw us out: the other goes on.
    scene.slack.revoke("xoxb-T2", "account_inactive");
    let mut life = scene.live().await;
    scene.slack.say("T1", "D1", "U1", "hello");
    assert_eq!(life.hear().await.text, "hello");
    life.end().await;
    scene.slack.revoke("xoxb-T1", "token_revoked");
    let why = scene.begin().await.hopeless().await;
    assert!(
        why.contains("token_revoked") && why.contains("SLACK_BOT_TOKEN"),
        "{why}"
    );
    let mut scene = SlackHarness::new();
    scene
        .slack
        .revoke(hermes_testkit::slack::APP_TOKEN, "invalid_auth");
    let why = scene.begin().await.hopeless().await;
    assert!(
        why.contains("invalid_auth") && why.contains("SLACK_APP_TOKEN"),
        "{why}"
    );
}

#[tokio::test]
async fn a_token_revoked_while_it_runs_ends_it_at_the_next_connection() {
    let mut scene = SlackHarness::new();
    let life = scene.live().await;
    scene
        .slack
        .revoke(hermes_testkit::slack::APP_TOKEN, "token_revoked");
    scene.slack.cut_sockets();
    assert!(life.hopeless().await.contains("token_revoked"));
}

#[tokio::test]
async fn lives_that_are_killed_lose_nothing_and_double_nothing() {
    let mut scene = SlackHarness::new();
    scene.slack.retry_after(Duration::from_millis(400));
    let mut heard = Vec::new();
    let mut said = Vec::new();
    for round in 0..6 {
        let mut life = scene.live().await;
        for number in 0..8 {
            let text = format!("{round}/{number}");
            scene.slack.say("T1", "D1", "U1", &text);
            said.push(text);
        }
        // Killed somewhere in the middle.
        for _ in 0..round {
            heard.push(life.hear().await.text);
        }
        heard.extend(life.rest());
        // What was stored and not told to the test is in the store.
        life.kill().await;
    }
    let life = scene.live().await;
    soon(scene.slack.wait_for(|slack| slack.unacked() == 0)).await;
    let stored = life.delivery.waiting(1000).await.unwrap();
    let mut texts: Vec<String> = stored
        .iter()
        .map(|one| one.message.payload["text"].as_str().unwrap().to_owned())
        .collect();
    texts.sort();
    said.sort();
    assert_eq!(texts, said);
    heard.dedup();
    assert!(heard.iter().all(|text| said.contains(text)));
    life.outbound
        .send(&outgoing("D1", None, "alive"))
        .await
        .unwrap();
    life.end().await;
}
