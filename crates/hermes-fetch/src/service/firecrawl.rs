//! Firecrawl, hosted or self-hosted: `POST /v2/search`, `POST /v2/scrape`.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};

use super::{
    EXTRACT_TIMEOUT, Extracted, SEARCH_TIMEOUT, ServiceError, ServiceRequest, WebHit, hits, list,
    text,
};

/// Maximum number of pages read concurrently.
const MAX_CONCURRENT_PAGES: usize = 3;

async fn post(
    ask: &ServiceRequest<'_>,
    path: &str,
    body: Value,
    time: Duration,
) -> Result<Value, ServiceError> {
    let answer = ask.post(path, body, time).await?;
    if answer.get("success").and_then(Value::as_bool) == Some(false) {
        let why = match text(&answer, "error") {
            why if why.is_empty() => "it failed without a reason".to_owned(),
            why => why,
        };
        return Err(ServiceError::Refused(format!("Firecrawl: {why}")));
    }
    Ok(answer)
}

pub(super) async fn search(
    ask: &ServiceRequest<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<WebHit>, ServiceError> {
    let body = json!({ "query": query, "limit": limit });
    let answer = post(ask, "/v2/search", body, SEARCH_TIMEOUT).await?;
    // Older instances return a plain list.
    let found = match list(&answer, "/data/web") {
        [] => list(&answer, "/data"),
        found => found,
    };
    Ok(hits(found, |hit| text(hit, "description")))
}

pub(super) async fn extract(ask: &ServiceRequest<'_>, urls: &[String]) -> Vec<Extracted> {
    stream::iter(urls.to_vec())
        .map(|url| async move {
            let body = json!({ "url": url, "formats": ["markdown"] });
            match post(ask, "/v2/scrape", body, EXTRACT_TIMEOUT).await {
                Ok(answer) => page(ask, &url, &answer),
                Err(error) => Extracted::failed(url, error.to_string()),
            }
        })
        .buffered(MAX_CONCURRENT_PAGES)
        .collect()
        .await
}

/// The page, unless the service was redirected to a forbidden address.
fn page(ask: &ServiceRequest<'_>, url: &str, answer: &Value) -> Extracted {
    let data = answer.get("data").unwrap_or(answer);
    let metadata = data.get("metadata").unwrap_or(&Value::Null);
    let final_url = ["url", "sourceURL"]
        .iter()
        .map(|name| text(metadata, name))
        .find(|found| !found.is_empty())
        .unwrap_or_else(|| url.to_owned());
    let guard = ask.services.pages.as_ref();
    if let (Some(guard), Ok(target)) = (guard, final_url.parse())
        && let Err(blocked) = guard.check_redirect(&target)
    {
        let why = format!("Blocked: the page redirects: {blocked}");
        return Extracted::failed(url.to_owned(), why);
    }
    Extracted {
        url: url.to_owned(),
        title: text(metadata, "title"),
        text: Ok(text(data, "markdown")),
    }
}
