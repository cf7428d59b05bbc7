//! `web_extract`.

use hermes_core::tool::ToolErrorKind;
use hermes_fetch::GuardPolicy;
use hermes_fetch::service::ServiceAccess;
use hermes_testkit::web_server::{Page, WebServer};
use serde_json::{Value, json};

use super::fake::WebHarness;

fn site() -> WebServer {
    WebServer::start(|asked| match asked.path.as_str() {
        "/short" => Page::html("<title>Short</title><p>Only this."),
        "/long" => {
            let lines: Vec<String> = (1..=2_000).map(|n| format!("line {n}")).collect();
            Page::new("text/plain", lines.join("\n"))
        }
        "/picture" => Page::new("image/png", &b"\x89PNG\r\n\x1a\n..."[..]),
        "/inline" => {
            Page::html("<p>before <img alt='a cat' src='data:image/png;base64,AAAA'> after")
        }
        "/silent" => Page::silence(),
        _ => Page::html("<p>nothing here").status(404),
    })
}

#[tokio::test]
async fn pages_come_with_the_keys_that_prompts_know() {
    let (rig, site) = (WebHarness::new(), site());
    let answer = rig
        .done("web_extract", json!({ "urls": [site.url("/short")] }))
        .await;
    assert_eq!(
        answer,
        json!({ "results": [{ "url": site.url("/short"), "title": "Short", "content": "Only this.", "error": null }] })
    );
}

#[tokio::test]
async fn each_page_has_its_own_error() {
    let (rig, site) = (WebHarness::new(), site());
    let urls = json!([
        site.url("/short"),
        site.url("/gone"),
        { "url": site.url("/picture"), "title": "a search result" },
        "http://169.254.169.254/",
        17,
        site.url("/short"),
    ]);
    let answer = rig.done("web_extract", json!({ "urls": urls })).await;
    let results = answer["results"].as_array().unwrap();
    let errors: Vec<&str> = results
        .iter()
        .map(|entry| entry["error"].as_str().unwrap_or("-"))
        .collect();
    for (error, part) in errors.iter().zip([
        "-",
        "no such page",
        "vision_analyze",
        "metadata",
        "not an address",
        "at most 5",
    ]) {
        assert!(error.contains(part), "{errors:?}");
    }
    assert_eq!(rig.progress.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn forgiving_about_the_list() {
    let (rig, site) = (WebHarness::new(), site());
    for urls in [
        json!(site.url("/short")),
        json!(format!("[\"{}\"]", site.url("/short"))),
        json!({ "href": site.url("/short") }),
    ] {
        let answer = rig.done("web_extract", json!({ "urls": urls })).await;
        assert_eq!(answer["results"][0]["title"], "Short", "{urls}");
    }
    for urls in [json!([]), Value::Null, json!(5)] {
        let (kind, _) = rig.refused("web_extract", json!({ "urls": urls })).await;
        assert_eq!(kind, ToolErrorKind::BadArguments, "{urls}");
    }
}

#[tokio::test]
async fn long_pages_are_kept_whole_beside_what_is_shown() {
    let (rig, site) = (WebHarness::new(), site());
    let answer = rig
        .done(
            "web_extract",
            json!({ "urls": [site.url("/long")], "char_limit": 10 }),
        )
        .await;
    let content = answer["results"][0]["content"].as_str().unwrap();
    assert!(content.starts_with("line 1\n") && content.contains("line 2000"));
    assert!(content.chars().count() < 3_000, "the least limit is 2000");
    let kept: Vec<_> = std::fs::read_dir(rig.path("cache/web"))
        .unwrap()
        .flatten()
        .collect();
    let path = kept[0].path();
    assert!(content.contains(&format!("read_file path=\"{}\"", path.display())));
    assert_eq!(
        std::fs::read_to_string(path).unwrap().lines().count(),
        2_000
    );
    let answer = rig
        .done(
            "web_extract",
            json!({ "urls": [site.url("/long")], "char_limit": 50_000 }),
        )
        .await;
    assert_eq!(
        answer["results"][0]["content"]
            .as_str()
            .unwrap()
            .lines()
            .count(),
        2_000
    );
}

#[tokio::test]
async fn inline_images_are_named() {
    let (rig, site) = (WebHarness::new(), site());
    let answer = rig
        .done("web_extract", json!({ "urls": [site.url("/inline")] }))
        .await;
    assert_eq!(
        answer["results"][0]["content"],
        "before [IMAGE: a cat] after"
    );
}

#[tokio::test]
async fn the_inside_is_refused_by_default() {
    let (rig, site) = (WebHarness::closed(), site());
    let (kind, text) = rig
        .refused(
            "web_extract",
            json!({ "urls": [site.url("/short"), "http://blocked.test/x"] }),
        )
        .await;
    assert_eq!(kind, ToolErrorKind::Denied);
    let answer: Value = serde_json::from_str(&text).unwrap();
    let error = answer["results"][0]["error"].as_str().unwrap();
    assert!(
        error.starts_with("Blocked:") && error.contains("security.allow_private_urls"),
        "{error}"
    );
    assert_eq!(
        answer["results"][1]["blocked_by_policy"],
        json!({ "host": "blocked.test", "rule": "blocked.test", "source": "config" })
    );
    assert!(site.asked().is_empty());
}

#[tokio::test]
async fn keys_in_addresses_are_not_sent() {
    let (rig, site) = (WebHarness::new(), site());
    for path in ["/?q=sk-abcdefghijklmnopqrst", "/?access_token=x"] {
        let (kind, _) = rig
            .refused("web_extract", json!({ "urls": [site.url(path)] }))
            .await;
        assert_eq!(kind, ToolErrorKind::Denied, "{path}");
    }
    assert!(site.asked().is_empty());
}

#[tokio::test]
async fn an_interrupt_ends_the_reading() {
    let (rig, site) = (WebHarness::new(), site());
    let read = rig.refused("web_extract", json!({ "urls": [site.url("/silent")] }));
    let stop = async {
        while site.asked().is_empty() {
            tokio::task::yield_now().await;
        }
        rig.cancel.cancel();
    };
    let ((kind, _), ()) = tokio::join!(read, stop);
    assert_eq!(kind, ToolErrorKind::Cancelled);
}

#[tokio::test]
async fn a_service_reads_only_what_we_would_read() {
    let service = WebServer::start(|asked| {
        let url = asked.json()["urls"][0].clone();
        Page::json(
            &json!({ "results": [{ "url": url, "title": "By service", "raw_content": "![x](data:image/png;base64,AA) text" }], "failed_results": [] }),
        )
    });
    let access = ServiceAccess {
        tavily: Some("key".to_owned().into()),
        tavily_url: Some(service.url("")),
        ..ServiceAccess::default()
    };
    let rig = WebHarness::with(GuardPolicy::default(), access);
    let answer = rig
        .done(
            "web_extract",
            json!({ "urls": ["http://10.0.0.1/", "https://1.1.1.1/x"] }),
        )
        .await;
    assert!(
        answer["results"][0]["error"]
            .as_str()
            .unwrap()
            .starts_with("Blocked")
    );
    assert_eq!(answer["results"][1]["title"], "By service");
    assert_eq!(answer["results"][1]["content"], "[IMAGE: x] text");
    assert_eq!(service.asked().len(), 1);
    assert_eq!(
        service.asked()[0].json()["urls"],
        json!(["https://1.1.1.1/x"])
    );
}
