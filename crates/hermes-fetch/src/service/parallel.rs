//! Parallel: `POST /v1/search`, `POST /v1/extract`.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::{
    EXTRACT_TIME, Extracted, SEARCH_TIME, ServiceError, ServiceRequest, WebHit, header, joined,
    list, text,
};

const USUAL: &str = "https://api.parallel.ai";
/// Known limit of the service.
const MOST: usize = 20;

async fn post(
    ask: &ServiceRequest<'_>,
    path: &str,
    body: Value,
    time: Duration,
) -> Result<Value, ServiceError> {
    let key = ask.key(ask.access().parallel.as_ref())?;
    let mut headers = HeaderMap::new();
    header(&mut headers, "x-api-key", key)?;
    let url = ask.url(ask.access().parallel_url.as_deref(), USUAL, path)?;
    ask.post(url, headers, &body, time).await
}

/// The current name of the mode; users' settings may still contain the beta names.
fn mode(configured: Option<&str>) -> &'static str {
    match configured
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
        .as_str()
    {
        "turbo" => "turbo",
        "fast" => "fast",
        "one-shot" | "basic" => "basic",
        _ => "advanced",
    }
}

pub(super) async fn search(
    ask: &ServiceRequest<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<WebHit>, ServiceError> {
    let body = json!({
        "objective": query,
        "search_queries": [query],
        "mode": mode(ask.access().parallel_mode.as_deref()),
        "advanced_settings": { "max_results": limit.min(MOST) },
    });
    let answer = post(ask, "/v1/search", body, SEARCH_TIME).await?;
    Ok(list(&answer, "/results")
        .iter()
        .map(|hit| WebHit {
            title: text(hit, "title"),
            url: text(hit, "url"),
            description: joined(hit, "excerpts", " "),
        })
        .collect())
}

pub(super) async fn extract(
    ask: &ServiceRequest<'_>,
    urls: &[String],
) -> Result<Vec<Extracted>, ServiceError> {
    let body = json!({ "urls": urls, "advanced_settings": { "full_content": true } });
    let answer = post(ask, "/v1/extract", body, EXTRACT_TIME).await?;
    let read = list(&answer, "/results").iter().map(|page| Extracted {
        url: text(page, "url"),
        title: text(page, "title"),
        text: Ok(match text(page, "full_content") {
            whole if whole.is_empty() => joined(page, "excerpts", "\n\n"),
            whole => whole,
        }),
    });
    let failed = list(&answer, "/errors").iter().map(|page| {
        let why = [text(page, "content"), text(page, "error_type")];
        let why = why.into_iter().find(|why| !why.is_empty());
        Extracted {
            url: text(page, "url"),
            title: String::new(),
            text: Err(why.unwrap_or_else(|| "Parallel could not read it".to_owned())),
        }
    });
    Ok(read.chain(failed).collect())
}
