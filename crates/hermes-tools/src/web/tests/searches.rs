//! `web_search`.

use hermes_core::tool::ToolErrorKind;
use hermes_fetch::GuardPolicy;
use hermes_fetch::service::ServiceAccess;
use hermes_testkit::web_server::{Page, WebServer};
use serde_json::{Value, json};

use super::fake::WebHarness;

fn searxng() -> WebServer {
    WebServer::start(|asked| {
        if asked.path.contains("broken") {
            return Page::html("oops").status(500);
        }
        let results: Vec<Value> = (1..=9)
            .map(|n| json!({ "title": format!("T{n}"), "url": format!("https://e.test/{n}"), "content": "c", "score": 10 - n }))
            .collect();
        Page::json(&json!({ "results": results }))
    })
}

fn rig(server: &WebServer) -> WebHarness {
    let access = ServiceAccess {
        searxng_url: Some(server.url("")),
        ..ServiceAccess::default()
    };
    let policy = GuardPolicy {
        secrets: ["a-secret-of-this-home".to_owned()].into(),
        ..GuardPolicy::default()
    };
    WebHarness::with(policy, access)
}

#[tokio::test]
async fn a_configured_service_on_a_private_address_is_asked() {
    let server = searxng();
    let answer = rig(&server)
        .done("web_search", json!({ "query": " tides ", "limit": "2" }))
        .await;
    assert_eq!(
        answer,
        json!({ "success": true, "data": { "web": [
            { "title": "T1", "url": "https://e.test/1", "description": "c", "position": 1 },
            { "title": "T2", "url": "https://e.test/2", "description": "c", "position": 2 },
        ] } })
    );
    let all = rig(&server)
        .done("web_search", json!({ "query": "tides" }))
        .await;
    assert_eq!(all["data"]["web"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn failures_are_data() {
    let server = searxng();
    let rig = rig(&server);
    let (kind, text) = rig
        .refused("web_search", json!({ "query": "broken" }))
        .await;
    assert_eq!(kind, ToolErrorKind::Failed);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["success"], false);
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("SearXNG answered 500")
    );
    for args in [
        json!({}),
        json!({ "query": "  " }),
        json!({ "query": "x".repeat(3_000) }),
    ] {
        assert_eq!(
            rig.refused("web_search", args).await.0,
            ToolErrorKind::BadArguments
        );
    }
    let leak = json!({ "query": "what is a-secret-of-this-home" });
    assert_eq!(
        rig.refused("web_search", leak).await.0,
        ToolErrorKind::Denied
    );
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn settings_that_cannot_be_followed_are_mentioned() {
    let server = searxng();
    let mut rig = rig(&server);
    rig.deps.settings.search_backend = "tavily".into();
    rig.done("web_search", json!({ "query": "tides" })).await;
    let progress = rig.progress.lock().unwrap().join("\n");
    assert!(
        progress.contains("TAVILY_API_KEY") && progress.contains("SearXNG"),
        "{progress}"
    );
}
