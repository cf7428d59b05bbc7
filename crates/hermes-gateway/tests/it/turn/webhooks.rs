//! Calls of other services: their answers go where the route says, and each is a conversation of its own.

use std::time::Duration;

use hermes_core::ids::SessionId;
use hermes_core::store::SessionStore as _;
use hermes_platforms::Posting;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::harness::{TurnHarness, incoming};

#[tokio::test]
async fn a_call_is_answered_where_its_route_says_and_is_over() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    for id in ["d1", "d2"] {
        let mut message = incoming(&format!("webhook:r:{id}"), id, id);
        message.source.platform = "webhook".to_owned();
        message.source.chat_type = "webhook".to_owned();
        message.source.user_id = Some("webhook:r".to_owned());
        message.native = json!({"answer_to": {"platform": "fake", "chat_id": "home"}});
        life.send(message).await;
    }
    life.rest().await;
    let mut texts = house.screen.texts("home");
    texts.sort_unstable();
    assert_eq!(texts, ["re: d1", "re: d2"]);
    life.say("other", "m1", "hello").await;
    life.rest().await;
    let post = life.gateway.post();
    assert_eq!(
        post.close_answered("webhook").await.unwrap(),
        0,
        "too early"
    );
    house.clock.advance(Duration::from_mins(11));
    assert_eq!(post.close_answered("webhook").await.unwrap(), 2);
    assert_eq!(post.close_answered("webhook").await.unwrap(), 0);
    let left: Vec<String> = post
        .known()
        .into_iter()
        .map(|one| one.target.chat_id)
        .collect();
    assert_eq!(left, ["other"]);
    let opened = life.program.opened.lock().unwrap().clone();
    for one in opened {
        let id = SessionId::new(one.id.as_str());
        let stored = life.store.load(&id).await.unwrap().unwrap();
        assert!(!one.unattended, "somebody reads the answers");
        let is_call = one.source == "webhook";
        assert_eq!(stored.ended, is_call, "{id}");
    }
    life.end().await;
}

#[tokio::test]
async fn where_nobody_reads_nobody_is_asked() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    let mut message = incoming("webhook:r:d1", "d1", "hello");
    message.source.platform = "webhook".to_owned();
    message.source.chat_type = "webhook".to_owned();
    message.native = json!({"answer_to": {"platform": "webhook", "chat_id": "log:r"}});
    life.send(message).await;
    life.rest().await;
    assert!(life.program.opened.lock().unwrap()[0].unattended);
    life.end().await;
}

#[tokio::test]
async fn words_of_others_name_no_files() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("other", "m1", "hello").await;
    life.rest().await;
    // Hidden places are refused to everybody.
    let dir = tempfile::Builder::new().prefix("files").tempdir().unwrap();
    let file = dir.path().canonicalize().unwrap().join("report.txt");
    std::fs::write(&file, "numbers").unwrap();
    let text = format!("Here:\nMEDIA:{}", file.display());
    let post = life.gateway.post();
    for (id, files) in [("strangers", false), ("ours", true)] {
        let posting = Posting {
            id: id.to_owned(),
            target: post.target(&format!("fake:{id}"), None).unwrap(),
            text: text.clone(),
            files,
            mirror: None,
        };
        post.send(posting).await.unwrap();
    }
    life.rest().await;
    assert_eq!(house.screen.texts("strangers"), [text.as_str()]);
    let bubbles = house.screen.bubbles.lock().unwrap().clone();
    let sent: Vec<&str> = bubbles
        .iter()
        .filter(|one| one.media.is_some())
        .map(|one| one.chat.as_str())
        .collect();
    assert_eq!(sent, ["ours"]);
    life.end().await;
}
