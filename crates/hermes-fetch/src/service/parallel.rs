//! Parallel: `POST /v1/search`, `POST /v1/extract`.

use serde_json::json;

use super::{
    EXTRACT_TIMEOUT, Extracted, SEARCH_TIMEOUT, ServiceError, ServiceRequest, WebHit, hits, joined,
    list, pages, text,
};

/// Known limit of the service.
const MAX_RESULTS: usize = 20;

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
        "advanced_settings": { "max_results": limit.min(MAX_RESULTS) },
    });
    let answer = ask.post("/v1/search", body, SEARCH_TIMEOUT).await?;
    let found = list(&answer, "/results");
    Ok(hits(found, |hit| joined(hit, "excerpts", " ")))
}

pub(super) async fn extract(
    ask: &ServiceRequest<'_>,
    urls: &[String],
) -> Result<Vec<Extracted>, ServiceError> {
    let body = json!({ "urls": urls, "advanced_settings": { "full_content": true } });
    let answer = ask.post("/v1/extract", body, EXTRACT_TIMEOUT).await?;
    let read = pages(list(&answer, "/results"), |page| {
        match text(page, "full_content") {
            whole if whole.is_empty() => joined(page, "excerpts", "\n\n"),
            whole => whole,
        }
    });
    let failed = list(&answer, "/errors").iter().map(|page| {
        let why = [text(page, "content"), text(page, "error_type")];
        let why = why.into_iter().find(|why| !why.is_empty());
        let why = why.unwrap_or_else(|| "Parallel could not read it".to_owned());
        Extracted::failed(text(page, "url"), why)
    });
    Ok(read.chain(failed).collect())
}
