//! Tavily: `POST /search`, `POST /extract`.

use reqwest::header::HeaderMap;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{
    EXTRACT_TIME, Extracted, SEARCH_TIME, ServiceError, ServiceRequest, WebHit, bearer, list, text,
};

const USUAL: &str = "https://api.tavily.com";
/// Limit of the service.
const MOST: usize = 20;

async fn post(
    ask: &ServiceRequest<'_>,
    path: &str,
    mut body: Value,
    time: std::time::Duration,
) -> Result<Value, ServiceError> {
    let key = ask.key(ask.access().tavily.as_ref())?;
    let mut headers = HeaderMap::new();
    bearer(&mut headers, key)?;
    // Relays set up for older clients expect the key here.
    body["api_key"] = key.expose_secret().into();
    let url = ask.url(ask.access().tavily_url.as_deref(), USUAL, path)?;
    ask.post(url, headers, &body, time).await
}

pub(super) async fn search(
    ask: &ServiceRequest<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<WebHit>, ServiceError> {
    let body = json!({
        "query": query,
        "max_results": limit.min(MOST),
        "include_raw_content": false,
        "include_images": false,
    });
    let answer = post(ask, "/search", body, SEARCH_TIME).await?;
    Ok(list(&answer, "/results")
        .iter()
        .map(|hit| WebHit {
            title: text(hit, "title"),
            url: text(hit, "url"),
            description: text(hit, "content"),
        })
        .collect())
}

pub(super) async fn extract(
    ask: &ServiceRequest<'_>,
    urls: &[String],
) -> Result<Vec<Extracted>, ServiceError> {
    let body = json!({ "urls": urls, "include_images": false, "format": "markdown" });
    let answer = post(ask, "/extract", body, EXTRACT_TIME).await?;
    let read = list(&answer, "/results").iter().map(|page| Extracted {
        url: text(page, "url"),
        title: text(page, "title"),
        text: Ok(text(page, "raw_content")),
    });
    let failed = list(&answer, "/failed_results")
        .iter()
        .map(|page| Extracted {
            url: text(page, "url"),
            title: String::new(),
            text: Err(match text(page, "error") {
                why if why.is_empty() => "Tavily could not read it".to_owned(),
                why => why,
            }),
        });
    Ok(read.chain(failed).collect())
}
