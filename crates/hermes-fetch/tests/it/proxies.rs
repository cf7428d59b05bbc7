//! Behind a proxy: names are checked beforehand, as far as they can be.

use std::sync::Arc;

use hermes_fetch::{BlockedUrl, FetchError, Fetcher, GuardPolicy, HttpBuilder, UrlGuard};
use hermes_testkit::web_server::{Page, WebServer};
use tokio_util::sync::CancellationToken;

use crate::{Directory, WANT};

fn through(proxy: String) -> HttpBuilder {
    Arc::new(move || {
        drop(rustls::crypto::ring::default_provider().install_default());
        let proxy = reqwest::Proxy::all(&proxy)
            .unwrap()
            .no_proxy(reqwest::NoProxy::from_string("direct.test"));
        Ok(reqwest::Client::builder().no_proxy().proxy(proxy))
    })
}

fn fetcher(proxy: &WebServer, allow_private: bool) -> Fetcher {
    let names = Directory::default()
        .with("proxy.test", &["127.0.0.1"])
        .with("public.test", &["93.184.216.34"])
        .with("inner.test", &["10.0.0.1"])
        .with("direct.test", &["127.0.0.1"])
        .with("changing.test", &["93.184.216.34", "10.0.0.1"]);
    let policy = GuardPolicy {
        allow_private,
        proxies: vec!["proxy.test".to_owned()],
        ..GuardPolicy::default()
    };
    let guard = UrlGuard::with_names(policy, Arc::new(names));
    Fetcher::new(
        guard,
        through(format!("http://proxy.test:{}", proxy.port())),
    )
}

#[tokio::test]
async fn a_proxy_may_live_inside_but_what_it_is_asked_for_may_not() {
    let proxy = WebServer::start(|asked| match asked.path.as_str() {
        "http://public.test/in" => Page::redirect("http://inner.test/"),
        _ => Page::html("by proxy"),
    });
    let fetcher = fetcher(&proxy, false);
    let get = async |url: &str| fetcher.get(url, &WANT, &CancellationToken::new()).await;
    assert_eq!(get("http://public.test/").await.unwrap().body, b"by proxy");
    assert_eq!(proxy.asked()[0].path, "http://public.test/");
    for url in [
        "http://inner.test/",
        "http://public.test/in",
        "http://10.0.0.1/",
        "http://proxy.test/",
    ] {
        let error = get(url).await.unwrap_err();
        assert!(
            matches!(error.blocked(), Some(BlockedUrl::Private { .. })),
            "{url}: {error:?}"
        );
    }
    // Exempt from the proxy: connected to directly, and judged in that moment.
    let direct = get(&format!("http://direct.test:{}/", proxy.port())).await;
    assert!(
        matches!(direct, Err(FetchError::Blocked(BlockedUrl::Private { .. }))),
        "{direct:?}"
    );
    let unknown = get("http://unknown.test/").await;
    assert!(
        matches!(unknown, Err(FetchError::UncheckedBehindProxy { .. })),
        "{unknown:?}"
    );
    let inside = proxy
        .asked()
        .iter()
        .any(|asked| asked.path.contains("inner") || asked.path.contains("unknown"));
    assert!(!inside);
}

#[tokio::test]
async fn with_private_addresses_allowed_the_proxy_decides() {
    let proxy = WebServer::start(|_| Page::html("by proxy"));
    let fetcher = fetcher(&proxy, true);
    let get = async |url: &str| fetcher.get(url, &WANT, &CancellationToken::new()).await;
    assert!(get("http://unknown.test/").await.is_ok());
    assert!(get("http://inner.test/").await.is_ok());
    let metadata = get("http://metadata.google.internal/").await;
    assert!(matches!(
        metadata,
        Err(FetchError::Blocked(BlockedUrl::Metadata { .. }))
    ));
}
