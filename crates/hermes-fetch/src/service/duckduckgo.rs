//! DuckDuckGo without a key: the page it serves to browsers without scripts.

use bytes::Bytes;
use dom_query::Document;
use reqwest::Method;
use reqwest::header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use url::Url;
use url::form_urlencoded;

use super::{SEARCH_TIMEOUT, ServiceError, ServiceRequest, WebHit};

const USUAL: &str = "https://html.duckduckgo.com";
/// Maximum number of pages requested to fill a large limit.
const MAX_PAGES: usize = 3;
/// The plain page is served to such browsers.
const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";

pub(super) async fn search(
    ask: &ServiceRequest<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<WebHit>, ServiceError> {
    let mut hits: Vec<WebHit> = Vec::new();
    let mut form = vec![
        ("q".to_owned(), query.to_owned()),
        ("b".to_owned(), String::new()),
    ];
    for _ in 0..MAX_PAGES {
        let page = fetch(ask, &form).await?;
        let known = hits.len();
        for hit in page.hits {
            if hits.iter().all(|other| other.url != hit.url) {
                hits.push(hit);
            }
        }
        match page.next {
            Some(next) if hits.len() < limit && hits.len() > known => form = next,
            _ => break,
        }
    }
    Ok(hits)
}

struct ResultPage {
    hits: Vec<WebHit>,
    /// The form behind "next page".
    next: Option<Vec<(String, String)>>,
}

async fn fetch(
    ask: &ServiceRequest<'_>,
    form: &[(String, String)],
) -> Result<ResultPage, ServiceError> {
    let url = ask.url(ask.access().duckduckgo_url.as_deref(), USUAL, "/html/")?;
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(BROWSER));
    headers.insert(ACCEPT, HeaderValue::from_static("text/html"));
    headers.insert(ACCEPT_LANGUAGE, HeaderValue::from_static("en-US,en;q=0.9"));
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    );
    let body = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(form)
        .finish();
    let answer = ask
        .send(
            Method::POST,
            url,
            headers,
            Some(Bytes::from(body)),
            SEARCH_TIMEOUT,
        )
        .await?;
    parse(&String::from_utf8_lossy(&answer.body), answer.status)
}

fn parse(html: &str, status: u16) -> Result<ResultPage, ServiceError> {
    let page = Document::from(html);
    if status == 202
        || page
            .select(".anomaly-modal__modal, #challenge-form")
            .exists()
    {
        return Err(ServiceError::Refused(
            "DuckDuckGo wants to see a person before it answers more; wait a while, \
             or the person can set up another search service (BRAVE_SEARCH_API_KEY, SEARXNG_URL, …)"
                .to_owned(),
        ));
    }
    let mut hits = Vec::new();
    for result in &page.select(".result:not(.result--ad)") {
        let link = result.select_single("a.result__a");
        let Some(url) = link.attr("href").and_then(|href| target(&href)) else {
            continue;
        };
        hits.push(WebHit {
            title: words(&link.text()),
            url,
            description: words(&result.select_single(".result__snippet").text()),
        });
    }
    if hits.is_empty()
        && !page
            .select("#links, .no-results, .results, .serp__results")
            .exists()
    {
        return Err(ServiceError::Unreadable {
            service: "DuckDuckGo",
            why: "the page holds no list of results".to_owned(),
        });
    }
    Ok(ResultPage {
        hits,
        next: next(&page),
    })
}

/// The target of a result's link, which may redirect through DuckDuckGo itself.
fn target(href: &str) -> Option<String> {
    let base = Url::parse("https://duckduckgo.com/").ok()?;
    let url = base.join(href).ok()?;
    let own = url
        .host_str()
        .is_some_and(|host| host == "duckduckgo.com" || host.ends_with(".duckduckgo.com"));
    let url = if own {
        // Advertisements redirect through /y.js.
        let inner = url.query_pairs().find(|(name, _)| name == "uddg")?.1;
        Url::parse(&inner).ok()?
    } else {
        url
    };
    matches!(url.scheme(), "http" | "https").then(|| url.to_string())
}

fn next(page: &Document) -> Option<Vec<(String, String)>> {
    page.select(".nav-link form").iter().find_map(|form| {
        let fields: Vec<(String, String)> = form
            .select("input[name]")
            .iter()
            .filter_map(|field| {
                Some((
                    field.attr("name")?.to_string(),
                    field.attr_or("value", "").to_string(),
                ))
            })
            .collect();
        // The form for the previous page has no increasing offset.
        let forward = fields
            .iter()
            .any(|(name, value)| name == "s" && value.parse::<u32>().is_ok_and(|at| at > 0));
        (forward && fields.iter().any(|(name, _)| name == "q")).then_some(fields)
    })
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"<div class="serp__results"><div id="links" class="results">
      <div class="result results_links results_links_deep result--ad"><h2><a class="result__a" href="//duckduckgo.com/y.js?ad=1">Buy</a></h2></div>
      <div class="result results_links results_links_deep web-result"><div class="links_main links_deep result__body">
        <h2 class="result__title"><a rel="nofollow" class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fwww.rust%2Dlang.org%2F%3Fa%3D1&amp;rut=abc">Rust
          <b>Language</b></a></h2>
        <a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">A language &amp; its <b>tools</b>.</a></div></div>
      <div class="result web-result"><h2><a class="result__a" href="https://doc.rust-lang.org/book/">The Book</a></h2></div>
      <div class="nav-link"><form action="/html/" method="post"><input type="submit" value="Next">
        <input type="hidden" name="q" value="rust"><input type="hidden" name="s" value="10"><input type="hidden" name="vqd" value="4-1"></form></div>
      </div></div>"#;

    #[test]
    fn results_are_read_and_advertisements_are_not() {
        let page = parse(PAGE, 200).unwrap();
        assert_eq!(
            page.hits,
            [
                WebHit {
                    title: "Rust Language".to_owned(),
                    url: "https://www.rust-lang.org/?a=1".to_owned(),
                    description: "A language & its tools.".to_owned(),
                },
                WebHit {
                    title: "The Book".to_owned(),
                    url: "https://doc.rust-lang.org/book/".to_owned(),
                    description: String::new(),
                },
            ]
        );
        let next = page.next.unwrap();
        assert!(next.contains(&("s".to_owned(), "10".to_owned())));
        assert!(next.contains(&("vqd".to_owned(), "4-1".to_owned())));
    }

    #[test]
    fn a_challenge_and_a_foreign_page_are_told_apart_from_no_results() {
        let challenge = r#"<form id="challenge-form"><div class="anomaly-modal__modal">…"#;
        assert!(matches!(
            parse(challenge, 200),
            Err(ServiceError::Refused(_))
        ));
        assert!(matches!(parse(PAGE, 202), Err(ServiceError::Refused(_))));
        assert!(matches!(
            parse("<h1>moved</h1>", 200),
            Err(ServiceError::Unreadable { .. })
        ));
        let nothing = parse(
            r#"<div id="links"><div class="no-results">No results.</div></div>"#,
            200,
        )
        .unwrap();
        assert!(nothing.hits.is_empty() && nothing.next.is_none());
    }
}
