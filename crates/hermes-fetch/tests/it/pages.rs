//! Pages as they come over the wire.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use hermes_fetch::page::{self, WebPageError};
use hermes_testkit::web_server::{Page, WebServer};
use tokio_util::sync::CancellationToken;

use crate::{WANT, open};

#[tokio::test]
async fn encodings_packing_and_relative_redirects() {
    let (sjis, ..) = encoding_rs::SHIFT_JIS.encode("<title>題</title><p>こんにちは世界");
    let (latin, ..) = encoding_rs::WINDOWS_1252.encode("<p>Übergröße – 5 €");
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all("<p>gepackt".as_bytes()).unwrap();
    let (sjis, latin, packed) = (
        sjis.into_owned(),
        latin.into_owned(),
        packer.finish().unwrap(),
    );
    let server = WebServer::start(move |asked| match asked.path.as_str() {
        "/a/start" => Page::redirect("../sjis?x=1#part"),
        "/sjis?x=1" => Page::new("text/html; charset=Shift_JIS", sjis.clone()),
        "/latin" => Page::new("text/html", latin.clone()),
        "/packed" => {
            assert!(asked.header("accept-encoding").unwrap().contains("gzip"));
            assert!(asked.header("user-agent").unwrap().contains("Hermes"));
            Page::new("text/html; charset=utf-8", packed.clone()).header("content-encoding", "gzip")
        }
        _ => Page::html("<p>gone").status(404),
    });
    let read = async |path: &str| {
        let fetched = open()
            .get(&server.url(path), &WANT, &CancellationToken::new())
            .await
            .unwrap();
        (
            fetched.url.path().to_owned(),
            fetched.status,
            page::read(fetched).await.unwrap(),
        )
    };
    let (path, status, page) = read("/a/start").await;
    assert_eq!((path.as_str(), status), ("/sjis", 200));
    assert_eq!(
        (page.title.as_str(), page.text.as_str()),
        ("題", "こんにちは世界")
    );
    assert_eq!(read("/latin").await.2.text, "Übergröße – 5 €");
    assert_eq!(read("/packed").await.2.text, "gepackt");
    assert_eq!(read("/nothing").await.1, 404);
}

#[tokio::test]
async fn things_that_are_no_text() {
    let server = WebServer::start(|asked| match asked.path.as_str() {
        "/png" => Page::new("application/octet-stream", &b"\x89PNG\r\n\x1a\n0000"[..]),
        "/pdf" => Page::endless("application/pdf", &b"%PDF-1.4 "[..]),
        _ => Page::new("application/zip", &b"PK\x03\x04"[..]),
    });
    let read = async |path: &str| {
        let fetched = open()
            .get(&server.url(path), &WANT, &CancellationToken::new())
            .await
            .unwrap();
        page::read(fetched).await.unwrap_err()
    };
    assert!(matches!(read("/png").await, WebPageError::Image { .. }));
    assert!(matches!(read("/pdf").await, WebPageError::TooLarge { .. }));
    assert!(matches!(read("/zip").await, WebPageError::Binary { .. }));
}
