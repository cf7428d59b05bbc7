//! SearXNG, self-hosted metasearch: `GET /search?format=json`.

use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::{SEARCH_TIMEOUT, ServiceError, ServiceRequest, WebHit, list, text};

pub(super) async fn search(
    ask: &ServiceRequest<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<WebHit>, ServiceError> {
    let Some(base) = ask.access().searxng_url.as_deref() else {
        return Err(ServiceError::NotSetUp {
            service: ask.backend.title(),
            variable: "SEARXNG_URL",
        });
    };
    let mut url = ask.url(Some(base), "", "/search")?;
    url.query_pairs_mut()
        .append_pair("q", query)
        .append_pair("format", "json")
        .append_pair("pageno", "1");
    let answer = ask
        .json(Method::GET, url, HeaderMap::new(), None, SEARCH_TIMEOUT)
        .await;
    let answer = answer.map_err(|error| match error {
        ServiceError::Status {
            service,
            status: 403,
            ..
        } => ServiceError::Status {
            service,
            status: 403,
            message: "its settings must list json under search.formats".to_owned(),
        },
        other => other,
    })?;
    let mut hits: Vec<&Value> = list(&answer, "/results").iter().collect();
    let score = |hit: &Value| hit.get("score").and_then(Value::as_f64).unwrap_or(0.0);
    // Equal ones keep the order of the service.
    hits.sort_by(|a, b| score(b).total_cmp(&score(a)));
    Ok(hits
        .into_iter()
        .take(limit)
        .map(|hit| WebHit {
            title: text(hit, "title"),
            url: text(hit, "url"),
            description: text(hit, "content"),
        })
        .collect())
}
