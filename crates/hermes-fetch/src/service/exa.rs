//! Exa: `POST /search`, `POST /contents`.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::{
    EXTRACT_TIME, Extracted, SEARCH_TIME, ServiceError, ServiceRequest, WebHit, header, joined,
    list, text,
};

const USUAL: &str = "https://api.exa.ai";
/// Limit of the service.
const MOST: usize = 100;

async fn post(
    ask: &ServiceRequest<'_>,
    path: &str,
    body: Value,
    time: Duration,
) -> Result<Value, ServiceError> {
    let key = ask.key(ask.access().exa.as_ref())?;
    let mut headers = HeaderMap::new();
    header(&mut headers, "x-api-key", key)?;
    let url = ask.url(ask.access().exa_url.as_deref(), USUAL, path)?;
    ask.post(url, headers, &body, time).await
}

pub(super) async fn search(
    ask: &ServiceRequest<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<WebHit>, ServiceError> {
    let body = json!({
        "query": query,
        "numResults": limit.min(MOST),
        "contents": { "highlights": true },
    });
    let answer = post(ask, "/search", body, SEARCH_TIME).await?;
    Ok(list(&answer, "/results")
        .iter()
        .map(|hit| WebHit {
            title: text(hit, "title"),
            url: text(hit, "url"),
            description: joined(hit, "highlights", " "),
        })
        .collect())
}

pub(super) async fn extract(
    ask: &ServiceRequest<'_>,
    urls: &[String],
) -> Result<Vec<Extracted>, ServiceError> {
    let body = json!({ "urls": urls, "text": true });
    let answer = post(ask, "/contents", body, EXTRACT_TIME).await?;
    let read = list(&answer, "/results").iter().map(|page| Extracted {
        url: text(page, "url"),
        title: text(page, "title"),
        text: Ok(text(page, "text")),
    });
    let failed = list(&answer, "/statuses")
        .iter()
        .filter(|status| text(status, "status") == "error")
        .map(|status| {
            let tag = status.pointer("/error/tag").and_then(Value::as_str);
            Extracted {
                url: text(status, "id"),
                title: String::new(),
                text: Err(format!(
                    "Exa could not read it ({})",
                    tag.unwrap_or("no reason given")
                )),
            }
        });
    Ok(read.chain(failed).collect())
}
