//! Tavily: `POST /search`, `POST /extract`.

use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{
    EXTRACT_TIMEOUT, Extracted, SEARCH_TIMEOUT, ServiceError, ServiceRequest, WebHit, hits, list,
    pages, text,
};

/// Limit of the service.
const MAX_RESULTS: usize = 20;

async fn post(
    ask: &ServiceRequest<'_>,
    path: &str,
    mut body: Value,
    time: Duration,
) -> Result<Value, ServiceError> {
    if let Some(key) = &ask.access().tavily {
        // Relays set up for older clients expect the key here.
        body["api_key"] = key.expose_secret().into();
    }
    ask.post(path, body, time).await
}

pub(super) async fn search(
    ask: &ServiceRequest<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<WebHit>, ServiceError> {
    let body = json!({
        "query": query,
        "max_results": limit.min(MAX_RESULTS),
        "include_raw_content": false,
        "include_images": false,
    });
    let answer = post(ask, "/search", body, SEARCH_TIMEOUT).await?;
    let found = list(&answer, "/results");
    Ok(hits(found, |hit| text(hit, "content")))
}

pub(super) async fn extract(
    ask: &ServiceRequest<'_>,
    urls: &[String],
) -> Result<Vec<Extracted>, ServiceError> {
    let body = json!({ "urls": urls, "include_images": false, "format": "markdown" });
    let answer = post(ask, "/extract", body, EXTRACT_TIMEOUT).await?;
    let read = pages(list(&answer, "/results"), |page| text(page, "raw_content"));
    let failed = list(&answer, "/failed_results").iter().map(|page| {
        let why = match text(page, "error") {
            why if why.is_empty() => "Tavily could not read it".to_owned(),
            why => why,
        };
        Extracted::failed(text(page, "url"), why)
    });
    Ok(read.chain(failed).collect())
}
