//! Fakes of the services, in the shapes that their vendors document. The vendors' own SDKs are
//! pointed at them, too (`sdks.rs`).

use hermes_testkit::web_server::{Page, WebRequest, WebServer};
use serde_json::{Value, json};

pub(crate) const KEY: &str = "test-key-0123456789";

fn bearer(asked: &WebRequest) -> bool {
    asked.header("authorization") == Some(&format!("Bearer {KEY}"))
}

fn x_api_key(asked: &WebRequest) -> bool {
    asked.header("x-api-key") == Some(KEY)
}

fn count(body: &Value, name: &str, otherwise: u64) -> u64 {
    body.get(name).and_then(Value::as_u64).unwrap_or(otherwise)
}

fn urls(body: &Value) -> Vec<String> {
    let list = body["urls"].as_array().cloned().unwrap_or_default();
    list.iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// An address with `missing` in it cannot be read.
fn readable(url: &str) -> bool {
    !url.contains("missing")
}

pub(crate) fn tavily() -> WebServer {
    WebServer::start(|asked| {
        if !bearer(asked) {
            let error =
                json!({ "detail": { "error": "Unauthorized: missing or invalid API key." } });
            return Page::json(&error).status(401);
        }
        let body = asked.json();
        match asked.path.as_str() {
            "/search" => {
                let results: Vec<Value> = (1..=count(&body, "max_results", 5))
                    .map(|n| json!({
                        "title": format!("Result {n}"), "url": format!("https://example.org/{n}"),
                        "content": format!("about {}", body["query"].as_str().unwrap_or_default()),
                        "score": 0.9, "raw_content": null,
                    }))
                    .collect();
                Page::json(&json!({
                    "query": body["query"], "follow_up_questions": null, "answer": null, "images": [],
                    "results": results, "response_time": 0.8, "request_id": "123e4567",
                }))
            }
            "/extract" => {
                let (good, bad): (Vec<String>, Vec<String>) =
                    urls(&body).into_iter().partition(|url| readable(url));
                // In another order than asked for, as the service does.
                let results: Vec<Value> = good.iter().rev()
                    .map(|url| json!({ "url": url, "title": "A page", "raw_content": format!("# Text of {url}"), "images": [] }))
                    .collect();
                let failed: Vec<Value> = bad
                    .iter()
                    .map(|url| json!({ "url": url, "error": "404 Not Found" }))
                    .collect();
                Page::json(&json!({
                    "results": results, "failed_results": failed, "response_time": 0.2, "request_id": "123e4567",
                }))
            }
            _ => Page::json(&json!({ "detail": "Not Found" })).status(404),
        }
    })
}

pub(crate) fn exa() -> WebServer {
    WebServer::start(|asked| {
        if !x_api_key(asked) {
            return Page::json(&json!({ "error": "Invalid API key", "tag": "INVALID_API_KEY" }))
                .status(401);
        }
        let body = asked.json();
        match asked.path.as_str() {
            "/search" => {
                let results: Vec<Value> = (1..=count(&body, "numResults", 10))
                    .map(|n| {
                        let mut hit = json!({
                            "id": format!("https://example.org/{n}"), "title": format!("Result {n}"),
                            "url": format!("https://example.org/{n}"), "publishedDate": "2026-01-01T00:00:00.000Z",
                            "author": null,
                        });
                        if body["contents"]["highlights"].as_bool() == Some(true) || body["contents"]["highlights"].is_object() {
                            hit["highlights"] = json!(["first piece", "second piece"]);
                            hit["highlightScores"] = json!([0.5, 0.4]);
                        }
                        hit
                    })
                    .collect();
                Page::json(&json!({
                    "requestId": "b5947044", "resolvedSearchType": "neural", "results": results,
                    "costDollars": { "total": 0.005 },
                }))
            }
            "/contents" => {
                let (good, bad): (Vec<String>, Vec<String>) =
                    urls(&body).into_iter().partition(|url| readable(url));
                let results: Vec<Value> = good.iter()
                    .map(|url| json!({ "id": url, "url": url, "title": "A page", "text": format!("Text of {url}") }))
                    .collect();
                let statuses: Vec<Value> = good.iter()
                    .map(|url| json!({ "id": url, "status": "success", "source": "cached" }))
                    .chain(bad.iter().map(|url| json!({
                        "id": url, "status": "error", "error": { "tag": "CRAWL_NOT_FOUND", "httpStatusCode": 404 },
                    })))
                    .collect();
                Page::json(
                    &json!({ "requestId": "e492118c", "results": results, "statuses": statuses }),
                )
            }
            _ => Page::json(&json!({ "error": "Not found" })).status(404),
        }
    })
}

pub(crate) fn firecrawl() -> WebServer {
    WebServer::start(|asked| {
        if !bearer(asked) {
            return Page::json(
                &json!({ "success": false, "error": "Unauthorized: Invalid token" }),
            )
            .status(401);
        }
        let body = asked.json();
        match asked.path.as_str() {
            "/v2/search" => {
                let results: Vec<Value> = (1..=count(&body, "limit", 5))
                    .map(|n| json!({
                        "url": format!("https://example.org/{n}"), "title": format!("Result {n}"),
                        "description": "what it is about", "position": n,
                    }))
                    .collect();
                Page::json(
                    &json!({ "success": true, "data": { "web": results }, "creditsUsed": 2 }),
                )
            }
            "/v2/scrape" => {
                let url = body["url"].as_str().unwrap_or_default();
                if !readable(url) {
                    return Page::json(
                        &json!({ "success": false, "error": "The page was not found" }),
                    )
                    .status(404);
                }
                let end = if url.contains("sneaky") {
                    "http://169.254.169.254/"
                } else {
                    url
                };
                Page::json(&json!({
                    "success": true,
                    "data": {
                        "markdown": format!("# Text of {url}"),
                        "metadata": { "title": "A page", "language": "en", "sourceURL": url, "url": end, "statusCode": 200 },
                    },
                }))
            }
            _ => Page::json(&json!({ "success": false, "error": "Not found" })).status(404),
        }
    })
}

pub(crate) fn parallel() -> WebServer {
    WebServer::start(|asked| {
        if !x_api_key(asked) {
            let error =
                json!({ "type": "error", "error": { "ref_id": "r", "message": "Unauthorized" } });
            return Page::json(&error).status(401);
        }
        let body = asked.json();
        match asked.path.as_str() {
            "/v1/search" => {
                let results: Vec<Value> = (1..=count(&body["advanced_settings"], "max_results", 10))
                    .map(|n| json!({
                        "url": format!("https://example.org/{n}"), "title": format!("Result {n}"),
                        "publish_date": "2026-01-01", "excerpts": ["first piece", "second piece"],
                    }))
                    .collect();
                Page::json(
                    &json!({ "search_id": "search_1", "session_id": "s_1", "results": results, "warnings": null, "usage": [] }),
                )
            }
            "/v1/extract" => {
                let (good, bad): (Vec<String>, Vec<String>) =
                    urls(&body).into_iter().partition(|url| readable(url));
                let whole = body["advanced_settings"]["full_content"] == true;
                let results: Vec<Value> = good
                    .iter()
                    .map(|url| {
                        json!({
                            "url": url, "title": "A page", "excerpts": ["a piece"],
                            "full_content": whole.then(|| format!("Text of {url}")),
                        })
                    })
                    .collect();
                let errors: Vec<Value> = bad.iter()
                    .map(|url| json!({ "url": url, "error_type": "fetch_error", "http_status_code": 404, "content": null }))
                    .collect();
                Page::json(
                    &json!({ "extract_id": "extract_1", "session_id": "s_1", "results": results, "errors": errors, "warnings": null, "usage": [] }),
                )
            }
            _ => Page::json(&json!({ "type": "error", "error": { "message": "Not found" } }))
                .status(404),
        }
    })
}

pub(crate) fn brave() -> WebServer {
    WebServer::start(|asked| {
        if asked.header("x-subscription-token") != Some(KEY) {
            let error = json!({ "type": "ErrorResponse", "error": { "id": "1", "status": 422, "code": "SUBSCRIPTION_TOKEN_INVALID", "detail": "The provided subscription token is invalid." } });
            return Page::json(&error).status(422);
        }
        assert!(
            asked.path.starts_with("/res/v1/web/search?q="),
            "{}",
            asked.path
        );
        let wanted = asked
            .path
            .rsplit_once("count=")
            .map_or(20, |(_, n)| n.parse::<usize>().unwrap());
        assert!(wanted <= 20);
        let results: Vec<Value> = (1..=wanted)
            .map(|n| json!({
                "title": format!("Result <strong>{n}</strong>"), "url": format!("https://example.org/{n}"),
                "is_source_local": false, "description": "what <strong>it</strong> is about", "language": "en",
            }))
            .collect();
        Page::json(
            &json!({ "type": "search", "query": { "original": "q" }, "web": { "type": "search", "results": results } }),
        )
    })
}

pub(crate) fn searxng() -> WebServer {
    WebServer::start(|asked| {
        if !asked.path.contains("format=json") {
            return Page::html("<h1>403</h1>").status(403);
        }
        Page::json(&json!({
            "query": "q", "number_of_results": 0,
            "results": [
                { "url": "https://example.org/low", "title": "Low", "content": "less", "engine": "x", "score": 0.5, "category": "general" },
                { "url": "https://example.org/high", "title": "High", "content": "more", "engine": "x", "score": 4.0, "category": "general" },
                { "url": "https://example.org/none", "title": "None", "content": "least", "engine": "y" },
            ],
            "answers": [], "corrections": [], "infoboxes": [], "suggestions": [], "unresponsive_engines": [],
        }))
    })
}

pub(crate) fn duckduckgo() -> WebServer {
    WebServer::start(|asked| {
        let form = String::from_utf8_lossy(&asked.body).into_owned();
        let from: usize = form
            .split('&')
            .find_map(|pair| pair.strip_prefix("s="))
            .map_or(0, |n| n.parse().unwrap());
        let results: Vec<String> = (from + 1..=from + 10)
            .map(|n| format!(
                "<div class='result web-result'><h2><a class='result__a' href='//duckduckgo.com/l/?uddg=https%3A%2F%2Fexample.org%2F{n}&amp;rut=x'>Result {n}</a></h2>\
                 <a class='result__snippet'>about <b>it</b></a></div>"
            ))
            .collect();
        let next = from + 10;
        Page::html(&format!(
            "<div id='links'>{}<div class='nav-link'><form><input name='q' value='x'><input name='s' value='{next}'></form></div></div>",
            results.concat()
        ))
    })
}
