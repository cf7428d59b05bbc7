use proptest::prelude::*;

use super::*;

fn url() -> Url {
    "https://example.org/dir/page".parse().unwrap()
}

fn html(text: &str) -> Result<WebPage, WebPageError> {
    read_bytes(
        text.as_bytes(),
        Some("text/html; charset=utf-8"),
        &url(),
        false,
    )
}

const ARTICLE: &str = r#"<!doctype html><html><head><title>Tides | A site</title>
<meta property="og:title" content="Tides"><style>p { color: red }</style></head><body>
<nav><a href="/">Home</a> <a href="/about">About</a></nav>
<article><h1>Tides</h1>
<p>The tide rises and falls twice a day, because the earth turns below two bulges of water that the moon
and, less so, the sun draw up. Sailors have known this for as long as there have been sailors, and tables
of the tides are among the oldest printed matter there is.</p>
<h2>Spring and neap</h2>
<p>When sun and moon pull together, at new and full moon, the range is largest; when they pull at right
angles it is smallest. <a href="../more">Read more</a> about <em>why</em>.</p>
<ul><li>spring tide</li><li>neap tide</li></ul>
<table><tr><th>port</th><th>range</th></tr><tr><td>Brest</td><td>5.9 m</td></tr></table>
<pre><code>range = high - low</code></pre>
<p>In narrow bays the water has nowhere to go, and the range grows to more than ten metres; in the open
ocean it is barely one. The Mediterranean hardly knows tides at all, which is why Caesar's fleet was
caught by them.</p></article>
<footer>Imprint, cookies, a newsletter</footer><script>track()</script></body></html>"#;

#[test]
fn an_article_becomes_markdown() {
    let page = html(ARTICLE).unwrap();
    assert_eq!(page.title, "Tides");
    for part in [
        "## Spring and neap",
        "twice a day",
        "[Read more](https://example.org/more)",
        "spring tide",
        "Brest",
        "range = high - low",
    ] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    for part in ["newsletter", "track()", "color: red", "About"] {
        assert!(!page.text.contains(part), "{part}: {}", page.text);
    }
}

#[test]
fn a_page_that_is_no_article_is_read_whole() {
    let items: Vec<String> = (0..60)
        .map(|n| format!("<li><a href='/item/{n}'>Item {n}</a></li>"))
        .collect();
    let items = items.concat();
    let page = html(&format!(
        "<title>A list</title><body><div><ul>{items}</ul></div><p>Short.</p></body>"
    ))
    .unwrap();
    assert_eq!(page.title, "A list");
    assert!(page.text.contains("Item 0") && page.text.contains("Item 59"));
}

#[test]
fn pages_without_text_say_why() {
    assert_eq!(
        html("<html><body><div id=root></div><script src=/app.js></script></body></html>"),
        Err(WebPageError::Empty { scripted: true })
    );
    assert_eq!(html(""), Err(WebPageError::Empty { scripted: false }));
    let image = read_bytes(b"\x89PNG\r\n\x1a\n", Some("text/html"), &url(), false);
    assert!(image.unwrap_err().to_string().contains("vision_analyze"));
    let binary = read_bytes(b"PK\x03\x04", Some("application/zip"), &url(), false);
    assert!(binary.unwrap_err().to_string().contains("application/zip"));
    let cut = read_bytes(b"%PDF-1.4", Some("application/pdf"), &url(), true);
    assert!(matches!(cut, Err(WebPageError::TooLarge { .. })));
}

#[test]
fn json_and_text_stay_what_they_are() {
    let page = read_bytes(
        b"{\"b\":1,\"a\":[2]}",
        Some("application/json"),
        &url(),
        false,
    )
    .unwrap();
    assert_eq!(page.text, "{\"b\":1,\"a\":[2]}");
    let long = format!("{{\"z\":\"{}\",\"a\":1}}", "x".repeat(500));
    let page = read_bytes(long.as_bytes(), Some("application/json"), &url(), false).unwrap();
    assert!(page.text.starts_with("{\n  \"z\""), "{}", page.text);
    let page = read_bytes(b"a\r\n\r\n\r\n\r\nb  \n", Some("text/plain"), &url(), false).unwrap();
    assert_eq!(page.text, "a\n\nb");
}

#[test]
fn inline_images_become_words() {
    for (text, expected) in [
        (
            "a ![A cat](data:image/png;base64,AAAA) b",
            "a [IMAGE: A cat] b",
        ),
        ("a ![](data:image/png;base64,AAAA=) b", "a [IMAGE] b"),
        ("a (data:image/gif;base64,R0lG) b", "a [IMAGE] b"),
        ("a data:image/svg+xml;utf8,%3Csvg%3E b", "a [IMAGE] b"),
        ("![x](<data:image/png;base64,AA> \"title\")!", "[IMAGE: x]!"),
        ("![x](https://a.test/x.png)", "![x](https://a.test/x.png)"),
        (
            "what is data:image/png about",
            "what is data:image/png about",
        ),
        ("data:image/png;base64,AAAA", "[IMAGE]"),
    ] {
        assert_eq!(drop_inline_images(text), expected, "{text}");
    }
}

#[test]
fn pages_made_to_hurt_are_read_without_being_parsed() {
    let deep = format!(
        "{}the middle{}",
        "<div>".repeat(200_000),
        "</div>".repeat(200_000)
    );
    assert_eq!(html(&deep).unwrap().text, "the middle");
    let unclosed: Vec<String> = (0..3_000).map(|n| format!("<b class=c{n}>")).collect();
    let unclosed = unclosed.concat();
    let multiplied = format!("{unclosed}{}", "<p>word".repeat(100_000));
    assert!(html(&multiplied).unwrap().text.contains("word"));
    let almost = format!("{}text{}", "<div>".repeat(290), "</div>".repeat(290));
    assert!(html(&almost).unwrap().text.contains("text"));
    let tables = format!("{}text", "<table><tr><td>".repeat(290));
    assert!(html(&tables).unwrap().text.contains("text"));
    // Each of these ends in the rare way; looking for the usual end each time took minutes.
    let comments = format!("{}text", "<!--x--!>".repeat(400_000));
    assert_eq!(html(&comments).unwrap().text, "text");
    for (comment, text) in [
        ("a<!-->b", "ab"),
        ("a<!--->b", "ab"),
        ("a<!-- x --->b", "ab"),
        ("a<!-- -- > -->b", "ab"),
        ("a<!-- --!> b -->c", "a b -->c"),
    ] {
        let page = format!("{}{comment}", "<div>".repeat(400));
        assert_eq!(html(&page).unwrap().text, text, "{comment}");
    }
    let lists = format!("{}text", "<ul><li><blockquote>".repeat(140));
    assert!(html(&lists).unwrap().text.contains("text"));
}

#[test]
fn scripts_cannot_hide_in_pages_that_are_not_parsed() {
    let page = html(&format!(
        "{}<script>bad()</SCRIPT >good 1 < 2 &amp; 3<!-- gone --><style>x</style>",
        "<div>".repeat(5_000)
    ))
    .unwrap();
    assert_eq!(page.text, "good 1 < 2 & 3");
}

/// Pieces of pages, put together at random.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<p>"),
        Just("</p>"),
        Just("<div class=content>"),
        Just("</div>"),
        Just("<table>"),
        Just("<tr><td>"),
        Just("</table>"),
        Just("<a href='x'>"),
        Just("</a>"),
        Just("<b>"),
        Just("</b>"),
        Just("<script>"),
        Just("</script>"),
        Just("<!--"),
        Just("-->"),
        Just("<ul><li>"),
        Just("</ul>"),
        Just("<pre><code>"),
        Just("</code></pre>"),
        Just("<h1>"),
        Just("</h1>"),
        Just("<img src=data:image/png;base64,AAAA alt=x>"),
        Just("<svg><path d='M0'/>"),
        Just("</svg>"),
        Just("<math><mi>"),
        Just("<select><option>"),
        Just("<template>"),
        Just("&amp;&nbsp;&#x0;&bogus;"),
        Just("<form>"),
        Just("<iframe>"),
        Just("<br>"),
        Just("<html lang=en>"),
        Just("<body>"),
        Just("<title>t</title>"),
        Just("<meta charset=x>"),
        Just("<script type=application/ld+json>{\"@context\":"),
        Just("word, words and more words "),
        Just("日本語 ünïcode \u{202e}\u{0}"),
        Just("<"),
        Just(">"),
        Just("\"'"),
        Just("```[x](y)![z]"),
        Just("<noscript>"),
        Just("<article>"),
        Just("</article>"),
        Just("<blockquote>"),
    ];
    prop::collection::vec(piece, 0..120).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_page_makes_the_reader_panic(text in soup()) {
        if let Ok(page) = html(&text) {
            prop_assert!(!page.text.is_empty());
            prop_assert!(!page.text.contains("data:image/png;base64"));
        }
    }

    #[test]
    fn no_bytes_do_either(bytes in prop::collection::vec(any::<u8>(), 0..600), kind in 0..6_usize) {
        let kinds = ["text/html", "text/plain", "application/json", "application/pdf", "", "text/html; charset=utf-16"];
        let _ = read_bytes(&bytes, Some(kinds[kind]), &url(), false);
        let _ = drop_inline_images(&String::from_utf8_lossy(&bytes));
    }
}
