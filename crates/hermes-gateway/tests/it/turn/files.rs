//! Files and recordings, in both directions.

use std::path::Path;
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_gateway::Transcriber;
use hermes_platforms::MediaKind;
use pretty_assertions::assert_eq;

use super::harness::{TurnHarness, file, incoming};

struct FakeTranscriber {
    echoes: bool,
}

impl Transcriber for FakeTranscriber {
    fn transcribe<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(std::future::ready(Ok("spoken words".to_owned())))
    }

    fn echoes(&self) -> bool {
        self.echoes
    }
}

#[tokio::test]
async fn what_was_heard_is_shown_where_that_is_wanted() {
    for echoes in [true, false] {
        let mut house = TurnHarness::new("");
        house.transcriber = Some(Arc::new(FakeTranscriber { echoes }));
        let life = house.life().await;
        let mut message = incoming("c", "m1", "");
        message.media = vec![file("f", "voice.ogg", MediaKind::Voice)];
        life.send(message).await;
        life.sees("c", "re: spoken words").await;
        life.rest().await;
        let texts = house.screen.texts("c");
        let echoed = texts.iter().any(|text| text == "🎙️ spoken words");
        assert_eq!(echoed, echoes, "{texts:?}");
        life.end().await;
    }
}

#[tokio::test]
async fn what_a_platform_takes_is_no_limit_for_what_it_brings() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    let mut message = incoming("c", "m1", "look");
    let mut large = file("f", "large.bin", MediaKind::Document);
    large.bytes = Some(house.capabilities.limits.file_bytes + 1);
    message.media = vec![large];
    life.send(message).await;
    life.sees("c", "stored at").await;
    life.rest().await;
    let texts = house.screen.texts("c").concat();
    assert!(!texts.contains("could not be fetched"), "{texts}");
    life.end().await;
}

#[tokio::test]
async fn a_platform_without_files_gets_none() {
    let dir = tempfile::Builder::new().prefix("shown").tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    std::fs::write(&path, "notes").unwrap();
    let mut house = TurnHarness::new("");
    house.capabilities.limits.file_bytes = 0;
    let life = house.life().await;
    life.say("c", "m1", &format!("give {}", path.display()))
        .await;
    life.sees("c", "no files can be sent there").await;
    life.rest().await;
    let bubbles = house.screen.bubbles.lock().unwrap().clone();
    assert!(bubbles.iter().all(|one| one.media.is_none()), "{bubbles:?}");
    life.end().await;
}
