//! What goes to the services and what is made of their answers.

use hermes_fetch::GuardPolicy;
use hermes_fetch::UrlGuard;
use hermes_fetch::service::{ServiceAccess, ServiceError, Services, WebBackend, WebHit};
use hermes_testkit::web_server::{Page, WebServer};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::open;
use crate::vendors::{self, KEY};

fn services(access: ServiceAccess) -> Services {
    Services::new(open(), access).guarded_by(UrlGuard::new(GuardPolicy::default()))
}

async fn search(
    services: &Services,
    backend: WebBackend,
    limit: usize,
) -> Result<Vec<WebHit>, ServiceError> {
    services
        .search(backend, "tides & waves", limit, &CancellationToken::new())
        .await
}

fn key() -> secrecy::SecretString {
    KEY.to_owned().into()
}

fn with(backend: WebBackend, server: &WebServer) -> ServiceAccess {
    let url = Some(server.url(""));
    let mut access = ServiceAccess::default();
    match backend {
        WebBackend::Tavily => (access.tavily, access.tavily_url) = (Some(key()), url),
        WebBackend::Exa => (access.exa, access.exa_url) = (Some(key()), url),
        WebBackend::Parallel => (access.parallel, access.parallel_url) = (Some(key()), url),
        WebBackend::Firecrawl => (access.firecrawl, access.firecrawl_url) = (Some(key()), url),
        WebBackend::Brave => (access.brave, access.brave_url) = (Some(key()), url),
        WebBackend::Searxng => access.searxng_url = Some(server.url("/")),
        WebBackend::DuckDuckGo => access.duckduckgo_url = url,
        WebBackend::Native => {}
    }
    access
}

#[tokio::test]
async fn each_service_finds() {
    for (backend, server, first) in [
        (WebBackend::Tavily, vendors::tavily(), "about tides & waves"),
        (WebBackend::Exa, vendors::exa(), "first piece second piece"),
        (
            WebBackend::Parallel,
            vendors::parallel(),
            "first piece second piece",
        ),
        (
            WebBackend::Firecrawl,
            vendors::firecrawl(),
            "what it is about",
        ),
        (WebBackend::Brave, vendors::brave(), "what it is about"),
        (WebBackend::DuckDuckGo, vendors::duckduckgo(), "about it"),
    ] {
        let services = services(with(backend, &server));
        let hits = search(&services, backend, 3).await.unwrap();
        assert_eq!(hits.len(), 3, "{backend:?}");
        let hit = WebHit {
            title: "Result 1".to_owned(),
            url: "https://example.org/1".to_owned(),
            description: first.to_owned(),
        };
        assert_eq!(hits[0], hit, "{backend:?}");
    }
}

#[tokio::test]
async fn what_is_sent() {
    let tavily = vendors::tavily();
    search(
        &services(with(WebBackend::Tavily, &tavily)),
        WebBackend::Tavily,
        50,
    )
    .await
    .unwrap();
    assert_eq!(
        tavily.asked()[0].json(),
        json!({ "query": "tides & waves", "max_results": 20, "include_raw_content": false, "include_images": false, "api_key": KEY })
    );
    let exa = vendors::exa();
    search(&services(with(WebBackend::Exa, &exa)), WebBackend::Exa, 7)
        .await
        .unwrap();
    assert_eq!(
        exa.asked()[0].json(),
        json!({ "query": "tides & waves", "numResults": 7, "contents": { "highlights": true } })
    );
    let parallel = vendors::parallel();
    let access = ServiceAccess {
        parallel_mode: Some("one-shot".to_owned()),
        ..with(WebBackend::Parallel, &parallel)
    };
    search(&services(access), WebBackend::Parallel, 7)
        .await
        .unwrap();
    assert_eq!(
        parallel.asked()[0].json(),
        json!({ "objective": "tides & waves", "search_queries": ["tides & waves"], "mode": "basic", "advanced_settings": { "max_results": 7 } })
    );
    let brave = vendors::brave();
    search(
        &services(with(WebBackend::Brave, &brave)),
        WebBackend::Brave,
        99,
    )
    .await
    .unwrap();
    assert_eq!(
        brave.asked()[0].path,
        "/res/v1/web/search?q=tides+%26+waves&count=20"
    );
    let searxng = vendors::searxng();
    let hits = search(
        &services(with(WebBackend::Searxng, &searxng)),
        WebBackend::Searxng,
        2,
    )
    .await
    .unwrap();
    assert_eq!(
        searxng.asked()[0].path,
        "/search?q=tides+%26+waves&format=json&pageno=1"
    );
    let titles: Vec<&str> = hits.iter().map(|hit| hit.title.as_str()).collect();
    assert_eq!(titles, ["High", "Low"]);
    let duck = vendors::duckduckgo();
    let hits = search(
        &services(with(WebBackend::DuckDuckGo, &duck)),
        WebBackend::DuckDuckGo,
        25,
    )
    .await
    .unwrap();
    assert_eq!(hits.len(), 25);
    assert_eq!(duck.asked().len(), 3);
    assert_eq!(
        String::from_utf8_lossy(&duck.asked()[0].body),
        "q=tides+%26+waves&b="
    );
}

#[tokio::test]
async fn each_reader_answers_for_every_page_in_order() {
    let urls = [
        "https://a.test/1",
        "https://a.test/missing",
        "https://b.test/2",
    ]
    .map(str::to_owned);
    for (backend, server) in [
        (WebBackend::Tavily, vendors::tavily()),
        (WebBackend::Exa, vendors::exa()),
        (WebBackend::Parallel, vendors::parallel()),
        (WebBackend::Firecrawl, vendors::firecrawl()),
    ] {
        let services = services(with(backend, &server));
        let pages = services
            .extract(backend, &urls, &CancellationToken::new())
            .await;
        assert_eq!(pages.len(), 3, "{backend:?}");
        for (page, url) in pages.iter().zip(&urls) {
            assert_eq!(&page.url, url, "{backend:?}");
            assert_eq!(
                page.text.is_ok(),
                !url.contains("missing"),
                "{backend:?}: {page:?}"
            );
        }
        assert!(
            pages[2]
                .text
                .as_ref()
                .unwrap()
                .contains("Text of https://b.test/2"),
            "{backend:?}"
        );
        assert_eq!(pages[0].title, "A page");
    }
}

#[tokio::test]
async fn a_reader_that_was_led_inside_is_not_believed() {
    let server = vendors::firecrawl();
    let services = services(with(WebBackend::Firecrawl, &server));
    let urls = ["https://a.test/sneaky".to_owned()];
    let pages = services
        .extract(WebBackend::Firecrawl, &urls, &CancellationToken::new())
        .await;
    let error = pages[0].text.as_ref().unwrap_err();
    assert!(error.contains("metadata"), "{error}");
}

#[tokio::test]
async fn failures_are_told_without_the_key() {
    for backend in [
        WebBackend::Tavily,
        WebBackend::Exa,
        WebBackend::Parallel,
        WebBackend::Firecrawl,
        WebBackend::Brave,
        WebBackend::Searxng,
    ] {
        let error = search(&services(ServiceAccess::default()), backend, 3)
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains(backend.variable().unwrap()),
            "{error}"
        );
    }
    let server = vendors::tavily();
    let wrong = ServiceAccess {
        tavily: Some("wrong-key-0123456789".to_owned().into()),
        ..with(WebBackend::Tavily, &server)
    };
    let error = search(&services(wrong), WebBackend::Tavily, 3)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("401") && error.contains("Unauthorized"),
        "{error}"
    );
    assert!(!error.contains("wrong-key"), "{error}");

    let odd = WebServer::start(|asked| match asked.path.as_str() {
        "/search" => Page::html("<h1>Welcome"),
        _ => Page::redirect("http://elsewhere.test/"),
    });
    let access = with(WebBackend::Tavily, &odd);
    let error = search(&services(access), WebBackend::Tavily, 3)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ServiceError::Unreadable { .. }),
        "{error:?}"
    );
    let access = ServiceAccess {
        exa: Some(key()),
        exa_url: Some(odd.url("/moved")),
        ..ServiceAccess::default()
    };
    let error = search(&services(access), WebBackend::Exa, 3)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ServiceError::Status { status: 302, .. }),
        "keys do not follow redirects: {error:?}"
    );
    let access = ServiceAccess {
        searxng_url: Some("ftp://x".to_owned()),
        ..ServiceAccess::default()
    };
    let error = search(&services(access), WebBackend::Searxng, 3)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ServiceError::BadAddress { .. }),
        "{error:?}"
    );
    let access = ServiceAccess {
        searxng_url: Some("http://169.254.169.254".to_owned()),
        ..ServiceAccess::default()
    };
    let error = search(&services(access), WebBackend::Searxng, 3)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("metadata"), "{error}");
}
