//! Brave Search: `GET /res/v1/web/search`.

use reqwest::Method;
use reqwest::header::HeaderMap;

use super::{Ask, Hit, SEARCH_TIME, ServiceError, header, list, text};

const USUAL: &str = "https://api.search.brave.com";
/// What the service allows.
const MOST: usize = 20;

pub(super) async fn search(
    ask: &Ask<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<Hit>, ServiceError> {
    let key = ask.key(ask.access().brave.as_ref())?;
    let mut headers = HeaderMap::new();
    header(&mut headers, "x-subscription-token", key)?;
    let mut url = ask.url(
        ask.access().brave_url.as_deref(),
        USUAL,
        "/res/v1/web/search",
    )?;
    url.query_pairs_mut()
        .append_pair("q", query)
        .append_pair("count", &limit.clamp(1, MOST).to_string());
    let answer = ask
        .json(Method::GET, url, headers, None, SEARCH_TIME)
        .await?;
    Ok(list(&answer, "/web/results")
        .iter()
        .map(|hit| Hit {
            title: plain(&text(hit, "title")),
            url: text(hit, "url"),
            description: plain(&text(hit, "description")),
        })
        .collect())
}

/// Without the marks that Brave puts around found words.
fn plain(text: &str) -> String {
    text.replace("<strong>", "").replace("</strong>", "")
}
