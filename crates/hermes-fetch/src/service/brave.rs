//! Brave Search: `GET /res/v1/web/search`.

use reqwest::Method;
use reqwest::header::HeaderMap;

use super::{SEARCH_TIMEOUT, ServiceError, ServiceRequest, WebHit, header, list, text};

const USUAL: &str = "https://api.search.brave.com";
/// Limit of the service.
const MAX_RESULTS: usize = 20;

pub(super) async fn search(
    ask: &ServiceRequest<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<WebHit>, ServiceError> {
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
        .append_pair("count", &limit.clamp(1, MAX_RESULTS).to_string());
    let answer = ask
        .json(Method::GET, url, headers, None, SEARCH_TIMEOUT)
        .await?;
    Ok(list(&answer, "/web/results")
        .iter()
        .map(|hit| WebHit {
            title: plain(&text(hit, "title")),
            url: text(hit, "url"),
            description: plain(&text(hit, "description")),
        })
        .collect())
}

/// Removes the tags that Brave puts around matches.
fn plain(text: &str) -> String {
    text.replace("<strong>", "").replace("</strong>", "")
}
