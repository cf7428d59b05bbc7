//! Ways to make a fetch reach what it must not, each through a real server.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use hermes_config::Home;
use hermes_config::schema::WebsiteBlocklist;
use hermes_fetch::{
    BlockedUrl, Blocklist, FetchError, FetchOptions, Fetcher, GuardPolicy, UrlGuard,
};
use hermes_testkit::web_server::{Page, WebServer};
use tokio_util::sync::CancellationToken;

use crate::{Directory, WANT, http, internet, open};

async fn get(fetcher: &Fetcher, url: &str) -> Result<hermes_fetch::FetchResponse, FetchError> {
    fetcher.get(url, &WANT, &CancellationToken::new()).await
}

#[tokio::test]
async fn loopback_is_closed_by_default_and_nothing_is_asked() {
    let server = WebServer::start(|_| Page::html("secret"));
    let fetcher = Fetcher::new(UrlGuard::new(GuardPolicy::default()), http());
    let port = server.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0",
    ] {
        let found = get(&fetcher, &format!("http://{host}:{port}/")).await;
        assert!(
            matches!(found, Err(FetchError::Blocked(BlockedUrl::Private { .. }))),
            "{host}: {found:?}"
        );
    }
    assert!(server.asked().is_empty());
    let page = get(&open(), &server.url("/")).await.unwrap();
    assert_eq!((page.status, page.body.as_slice()), (200, &b"secret"[..]));
}

#[tokio::test]
async fn no_redirect_leads_inside() {
    let inner = WebServer::start(|_| Page::html("inside"));
    let port = inner.port();
    let targets = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("//127.0.0.1:{port}/"),
        format!("http://inner.test:{port}/"),
        format!("http://user:pw@start.test:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://metadata.google.internal/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://start.test/".to_owned(),
        "http://start.test:22/".to_owned(),
    ];
    let to = targets.clone();
    let server = WebServer::start(move |asked| {
        let at: usize = asked.path.trim_start_matches("/to/").parse().unwrap();
        Page::redirect(&to[at])
    });
    // 127.0.0.2 is the same machine, but not the test's internet.
    let names = Directory::default()
        .with("start.test", &["127.0.0.1"])
        .with("inner.test", &["127.0.0.2"]);
    let fetcher = Fetcher::new(internet(Arc::new(names)), http());
    for (at, target) in targets.iter().enumerate() {
        let url = format!("http://start.test:{}/to/{at}", server.port());
        let error = get(&fetcher, &url).await.unwrap_err();
        assert!(error.blocked().is_some(), "{target}: {error:?}");
    }
    assert_eq!(server.asked().len(), targets.len());
    assert!(inner.asked().is_empty());
}

#[tokio::test]
async fn a_name_that_changes_its_mind_gains_nothing() {
    let server = WebServer::start(|asked| match asked.path.as_str() {
        "/again" => Page::redirect("/final"),
        _ => Page::html("the page"),
    });
    let port = server.port();
    // Harmless at first, inside at the second look.
    let names = Arc::new(Directory::default().with("rebind.test", &["127.0.0.1", "127.0.0.2"]));
    let fetcher = Fetcher::new(internet(Arc::clone(&names)), http());
    let page = get(&fetcher, &format!("http://rebind.test:{port}/"))
        .await
        .unwrap();
    assert_eq!(page.body, b"the page");
    assert_eq!(
        names.asked(),
        ["rebind.test"],
        "what was checked is what was connected to"
    );
    let again = get(&fetcher, &format!("http://rebind.test:{port}/")).await;
    assert!(
        matches!(again, Err(FetchError::Blocked(BlockedUrl::Private { .. }))),
        "{again:?}"
    );

    let names = Arc::new(Directory::default().with("rebind.test", &["127.0.0.1", "127.0.0.2"]));
    let fetcher = Fetcher::new(internet(names), http());
    let hop = get(&fetcher, &format!("http://rebind.test:{port}/again")).await;
    assert!(
        matches!(hop, Err(FetchError::Blocked(BlockedUrl::Private { .. }))),
        "{hop:?}"
    );
    assert!(server.asked().iter().all(|asked| asked.path != "/final"));
}

#[tokio::test]
async fn one_bad_address_among_good_ones_refuses_the_name() {
    let server = WebServer::start(|_| Page::html("x"));
    for answer in [
        "127.0.0.1+10.0.0.1",
        "::ffff:10.1.2.3",
        "64:ff9b::a00:1",
        "127.0.0.1+169.254.169.254",
    ] {
        let names = Arc::new(Directory::default().with("mixed.test", &[answer]));
        let fetcher = Fetcher::new(internet(names), http());
        let found = get(&fetcher, &format!("http://mixed.test:{}/", server.port())).await;
        assert!(
            matches!(found, Err(FetchError::Blocked(_))),
            "{answer}: {found:?}"
        );
    }
    assert!(server.asked().is_empty());
    let names = Arc::new(Directory::default());
    let fetcher = Fetcher::new(internet(names), http());
    let found = get(&fetcher, "http://nowhere.test/").await;
    assert!(
        matches!(found, Err(FetchError::NoSuchHost { .. })),
        "{found:?}"
    );
}

#[tokio::test]
async fn circles_end() {
    let server = WebServer::start(|asked| Page::redirect(&format!("{}x", asked.path)));
    let found = get(&open(), &server.url("/")).await;
    assert_eq!(found.unwrap_err(), FetchError::TooManyRedirects);
    assert_eq!(server.asked().len(), 11);
    let server = WebServer::start(|_| Page::redirect("http://[broken"));
    assert!(matches!(
        get(&open(), &server.url("/")).await,
        Err(FetchError::BadRedirect(_))
    ));
}

#[tokio::test]
async fn bombs_and_endless_pages_are_cut() {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&vec![b'a'; 64 << 20]).unwrap();
    let bomb = packer.finish().unwrap();
    let server = WebServer::start(move |asked| match asked.path.as_str() {
        "/bomb" => Page::new("text/plain", bomb.clone()).header("content-encoding", "gzip"),
        "/liar" => Page::new("text/plain", "not packed").header("content-encoding", "gzip"),
        "/strange" => Page::new("text/plain", "x").header("content-encoding", "br"),
        _ => Page::endless("text/plain", vec![b'x'; 64 << 10]),
    });
    for path in ["/bomb", "/endless"] {
        let page = get(&open(), &server.url(path)).await.unwrap();
        assert!(page.truncated, "{path}");
        assert_eq!(page.body.len(), WANT.max_bytes, "{path}");
    }
    assert!(matches!(
        get(&open(), &server.url("/liar")).await,
        Err(FetchError::Broken(_))
    ));
    assert_eq!(
        get(&open(), &server.url("/strange")).await.unwrap_err(),
        FetchError::Encoding("br".to_owned())
    );
}

#[tokio::test]
async fn silence_has_an_end() {
    let server = WebServer::start(|asked| match asked.path.as_str() {
        "/never" => Page::silence(),
        _ => Page::stalls("text/html", "<p>and then"),
    });
    let guard = open().guard().clone();
    let fetcher = Fetcher::with_idle(guard, http(), Duration::from_millis(200));
    let stalled = get(&fetcher, &server.url("/stalls")).await;
    assert!(
        matches!(stalled, Err(FetchError::TimedOut { .. })),
        "{stalled:?}"
    );
    let want = FetchOptions {
        timeout: Duration::from_millis(200),
        ..WANT
    };
    let never = fetcher
        .get(&server.url("/never"), &want, &CancellationToken::new())
        .await;
    assert!(
        matches!(never, Err(FetchError::TimedOut { .. })),
        "{never:?}"
    );
    let dead = get(&fetcher, "http://127.0.0.1:9000/").await;
    assert!(
        matches!(dead, Err(FetchError::Unreachable { .. })),
        "{dead:?}"
    );
}

#[tokio::test]
async fn a_fetch_can_be_stopped() {
    let server = WebServer::start(|_| Page::silence());
    let cancel = CancellationToken::new();
    let (fetcher, url) = (open(), server.url("/"));
    let fetch = fetcher.get(&url, &WANT, &cancel);
    let stop = async {
        while server.asked().is_empty() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (found, ()) = tokio::join!(fetch, stop);
    assert_eq!(found.unwrap_err(), FetchError::Cancelled);
}

#[tokio::test]
async fn the_blocklist_holds_at_every_hop() {
    let server = WebServer::start(|asked| match asked.path.as_str() {
        "/" => Page::redirect(&format!(
            "http://bad.test:{}/page",
            asked.header("host").unwrap().rsplit_once(':').unwrap().1
        )),
        _ => Page::html("ads"),
    });
    let dir = tempfile::tempdir().unwrap();
    let list = WebsiteBlocklist {
        enabled: true,
        domains: vec!["bad.test".to_owned()],
        shared_files: Vec::new(),
    };
    let names = Directory::default()
        .with("good.test", &["127.0.0.1"])
        .with("bad.test", &["127.0.0.1"]);
    let list = Blocklist::fixed(&Home::at(dir.path()), list);
    let guard = internet(Arc::new(names)).with_blocklist(Arc::new(list));
    let fetcher = Fetcher::new(guard, http());
    let error = get(&fetcher, &format!("http://good.test:{}/", server.port()))
        .await
        .unwrap_err();
    assert!(
        matches!(error.blocked(), Some(BlockedUrl::Website { .. })),
        "{error:?}"
    );
    assert_eq!(server.asked().len(), 1);
}
