//! `vision_analyze`.

use base64::Engine as _;
use hermes_core::message::{Content, Message, Part};
use hermes_core::tool::{ToolErrorKind, ToolOutcome};
use hermes_testkit::web_server::{Page, WebServer};
use serde_json::json;

use super::super::{tools, vision_missing};
use super::fake::{Model, WebHarness};

/// A PNG of one red pixel.
fn pixel() -> Vec<u8> {
    let text = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap()
}

fn data_url() -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(pixel());
    format!("data:image/png;base64,{text}")
}

fn blind(rig: WebHarness, says: &[&'static str]) -> WebHarness {
    rig.models(
        Model::new("main", false, &[]),
        Model::new("helper", true, says),
    )
}

#[tokio::test]
async fn a_model_that_sees_gets_the_image() {
    let rig = WebHarness::new();
    std::fs::write(rig.path("x.png"), pixel()).unwrap();
    let site = WebServer::start(|_| Page::new("text/plain", pixel()));
    let path = rig.path("x.png").display().to_string();
    for source in [
        path.clone(),
        format!("file://{path}"),
        data_url(),
        site.url("/image"),
    ] {
        let outcome = rig
            .call(
                "vision_analyze",
                json!({ "image_url": source, "question": "What colour?" }),
            )
            .await;
        let ToolOutcome::Done(Content::Parts(parts)) = outcome else {
            panic!("{source}: {outcome:?}")
        };
        assert!(parts[0].as_text().unwrap().contains("What colour?"));
        let Part::Image { image_url, .. } = &parts[1] else {
            panic!("{source}: {parts:?}")
        };
        assert_eq!(image_url.url, data_url(), "{source}");
    }
    assert!(rig.models.helper.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn for_a_blind_one_a_helper_looks() {
    let rig = blind(WebHarness::new(), &["", "A red square."]);
    let answer = rig
        .done(
            "vision_analyze",
            json!({ "image_url": data_url(), "question": "What colour?" }),
        )
        .await;
    assert_eq!(
        answer,
        json!({ "success": true, "analysis": "A red square." })
    );
    let asked = rig.models.helper.asked.lock().unwrap();
    assert_eq!(asked.len(), 2, "an empty answer is asked for once more");
    let Message::User(user) = asked[0].messages[0].as_ref() else {
        panic!("one message of a person")
    };
    assert_eq!(user.content.image_count(), 1);
    assert!(user.content.text().contains("What colour?"));
    assert_eq!(
        rig.spent.lock().unwrap().len(),
        2,
        "what it cost is counted"
    );
    assert_eq!(rig.spent.lock().unwrap()[0].entry.task, "vision");
}

#[tokio::test]
async fn described_when_the_settings_say_so() {
    let mut rig = WebHarness::new();
    rig.deps.vision.described = true;
    let answer = rig
        .done("vision_analyze", json!({ "image_url": data_url() }))
        .await;
    assert_eq!(answer["analysis"], "A red square.");
}

#[tokio::test]
async fn sources_that_are_refused_say_why() {
    let rig = WebHarness::closed();
    let site = WebServer::start(|_| Page::new("image/png", pixel()));
    std::fs::write(
        rig.path("x.svg"),
        "<svg xmlns='http://www.w3.org/2000/svg'/>",
    )
    .unwrap();
    std::fs::write(rig.path("x.png"), "no image at all").unwrap();
    for (source, kind, part) in [
        (site.url("/"), ToolErrorKind::Denied, "Blocked"),
        (
            "http://169.254.169.254/x.png".to_owned(),
            ToolErrorKind::Denied,
            "metadata",
        ),
        (
            "https://blocked.test/x.png".to_owned(),
            ToolErrorKind::Denied,
            "blocklist",
        ),
        (
            rig.path("x.svg").display().to_string(),
            ToolErrorKind::Failed,
            "SVG",
        ),
        (
            rig.path("x.png").display().to_string(),
            ToolErrorKind::Failed,
            "not an image",
        ),
        ("/secret".to_owned(), ToolErrorKind::Failed, "credentials"),
        (
            "ftp://x.test/a.png".to_owned(),
            ToolErrorKind::BadArguments,
            "ftp",
        ),
        (
            "data:image/png,abc".to_owned(),
            ToolErrorKind::Failed,
            "base64",
        ),
        (" ".to_owned(), ToolErrorKind::BadArguments, "image_url"),
    ] {
        let (found, text) = rig
            .refused(
                "vision_analyze",
                json!({ "image_url": source, "question": "?" }),
            )
            .await;
        assert_eq!(found, kind, "{source}: {text}");
        assert!(text.contains(part), "{source}: {text}");
    }
    assert!(site.asked().is_empty());
    let mut rig = rig;
    rig.deps.files = None;
    let args = json!({ "image_url": rig.path("x.png").display().to_string() });
    assert_eq!(
        rig.refused("vision_analyze", args).await.0,
        ToolErrorKind::Denied
    );
}

#[tokio::test]
async fn a_server_in_trouble_is_asked_again() {
    let site = WebServer::start(|asked| match asked.path.as_str() {
        "/gone" => Page::html("").status(404),
        _ => Page::html("").status(503),
    });
    let rig = WebHarness::new();
    let (_, text) = rig
        .refused("vision_analyze", json!({ "image_url": site.url("/gone") }))
        .await;
    assert!(text.contains("no such page"), "{text}");
    assert_eq!(site.asked().len(), 1);
    let (_, text) = rig
        .refused("vision_analyze", json!({ "image_url": site.url("/busy") }))
        .await;
    assert!(text.contains("503"), "{text}");
    assert_eq!(site.asked().len(), 4);
}

#[test]
fn the_tool_is_there_when_somebody_sees() {
    let has = |rig: &WebHarness| {
        tools(rig.deps.clone())
            .iter()
            .any(|tool| tool.spec().name == "vision_analyze")
    };
    let sees = WebHarness::new();
    assert!(has(&sees));
    let helper = blind(WebHarness::new(), &[]);
    assert!(has(&helper));
    let nobody = WebHarness::new().models(
        Model::new("main", false, &[]),
        Model::new("helper", false, &[]),
    );
    assert!(!has(&nobody));
    assert!(
        vision_missing(nobody.deps.router.as_ref())
            .unwrap()
            .contains("auxiliary.vision")
    );
}
