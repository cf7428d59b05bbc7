//! Exa: `POST /search`, `POST /contents`.

use serde_json::{Value, json};

use super::{
    EXTRACT_TIMEOUT, Extracted, SEARCH_TIMEOUT, ServiceError, ServiceRequest, WebHit, hits, joined,
    list, pages, text,
};

/// Limit of the service.
const MAX_RESULTS: usize = 100;

pub(super) async fn search(
    ask: &ServiceRequest<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<WebHit>, ServiceError> {
    let body = json!({
        "query": query,
        "numResults": limit.min(MAX_RESULTS),
        "contents": { "highlights": true },
    });
    let answer = ask.post("/search", body, SEARCH_TIMEOUT).await?;
    let found = list(&answer, "/results");
    Ok(hits(found, |hit| joined(hit, "highlights", " ")))
}

pub(super) async fn extract(
    ask: &ServiceRequest<'_>,
    urls: &[String],
) -> Result<Vec<Extracted>, ServiceError> {
    let body = json!({ "urls": urls, "text": true });
    let answer = ask.post("/contents", body, EXTRACT_TIMEOUT).await?;
    let read = pages(list(&answer, "/results"), |page| text(page, "text"));
    let failed = list(&answer, "/statuses")
        .iter()
        .filter(|status| text(status, "status") == "error")
        .map(|status| {
            let tag = status.pointer("/error/tag").and_then(Value::as_str);
            let tag = tag.unwrap_or("no reason given");
            Extracted::failed(text(status, "id"), format!("Exa could not read it ({tag})"))
        });
    Ok(read.chain(failed).collect())
}
