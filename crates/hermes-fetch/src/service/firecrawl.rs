//! Firecrawl, hosted or self-hosted: `POST /v2/search`, `POST /v2/scrape`.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::{
    EXTRACT_TIME, Extracted, SEARCH_TIME, ServiceError, ServiceRequest, WebHit, bearer, list, text,
};

const USUAL: &str = "https://api.firecrawl.dev";
/// Maximum number of pages read concurrently.
const AT_ONCE: usize = 3;

async fn post(
    ask: &ServiceRequest<'_>,
    path: &str,
    body: Value,
    time: Duration,
) -> Result<Value, ServiceError> {
    let access = ask.access();
    let mut headers = HeaderMap::new();
    match &access.firecrawl {
        Some(key) => bearer(&mut headers, key)?,
        None if access.firecrawl_url.is_some() => {}
        None => drop(ask.key(None)?),
    }
    let url = ask.url(access.firecrawl_url.as_deref(), USUAL, path)?;
    let answer = ask.post(url, headers, &body, time).await?;
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
    let answer = post(ask, "/v2/search", body, SEARCH_TIME).await?;
    // Older instances return a plain list.
    let hits = match list(&answer, "/data/web") {
        [] => list(&answer, "/data"),
        hits => hits,
    };
    Ok(hits
        .iter()
        .map(|hit| WebHit {
            title: text(hit, "title"),
            url: text(hit, "url"),
            description: text(hit, "description"),
        })
        .collect())
}

pub(super) async fn extract(ask: &ServiceRequest<'_>, urls: &[String]) -> Vec<Extracted> {
    stream::iter(urls.to_vec())
        .map(|url| async move {
            let body = json!({ "url": url, "formats": ["markdown"] });
            match post(ask, "/v2/scrape", body, EXTRACT_TIME).await {
                Ok(answer) => page(ask, &url, &answer),
                Err(error) => failed(&url, error.to_string()),
            }
        })
        .buffered(AT_ONCE)
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
        return failed(url, format!("Blocked: the page redirects: {blocked}"));
    }
    Extracted {
        url: url.to_owned(),
        title: text(metadata, "title"),
        text: Ok(text(data, "markdown")),
    }
}

fn failed(url: &str, why: String) -> Extracted {
    Extracted {
        url: url.to_owned(),
        title: String::new(),
        text: Err(why),
    }
}
