//! Endpoints that serve a model in another format than the one that was spoken.

use std::sync::Arc;

use futures_util::StreamExt;
use hermes_config::home::Home;
use hermes_core::message::Message;
use hermes_core::model::{Collector, ErrorClass, ModelClient, ModelError, WireFormat};
use hermes_models::quirks::Quirks;
use hermes_models::{FieldRuleCache, HttpModelClient};
use hermes_testkit::model_server::{ModelServer, Reply};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{parts, request};

const CHAT: WireFormat = WireFormat::ChatCompletions;
const RESPONSES: WireFormat = WireFormat::Responses;

fn client(server: &ModelServer, format: WireFormat, home: &Home) -> HttpModelClient {
    let other = if format == CHAT { RESPONSES } else { CHAT };
    let mut parts = parts(&server.base_url(), format);
    parts.other = Some(Quirks::new(other));
    parts.fields = Arc::new(FieldRuleCache::new(home));
    HttpModelClient::new(parts)
}

async fn ask(client: &HttpModelClient) -> Result<String, ModelError> {
    let mut stream = client.stream(request([Message::user("hi")]), CancellationToken::new());
    let mut collector = Collector::default();
    while let Some(event) = stream.next().await {
        collector.push(&event?);
    }
    Ok(collector.finish().0.text)
}

fn paths(server: &ModelServer) -> Vec<String> {
    let path = |path: &str| path.rsplit("/v1").next().unwrap_or_default().to_owned();
    server
        .requests()
        .iter()
        .map(|request| path(&request.path))
        .collect()
}

fn refusals() -> Vec<(WireFormat, Reply)> {
    let said = |status, text: &str| Reply::error(status, text);
    vec![
        (
            CHAT,
            said(
                404,
                "This model is only supported in v1/responses and not in v1/chat/completions.",
            ),
        ),
        (
            CHAT,
            said(
                400,
                "The chatCompletion operation does not work with the specified model, m.",
            ),
        ),
        (
            CHAT,
            Reply::json(
                400,
                &json!({"error": {"code": "unsupported_api_for_model", "message": "model m is not accessible"}}),
            ),
        ),
        (
            CHAT,
            Reply::json(
                400,
                &json!({"error": {"param": "reasoning_effort", "message": "Function tools with reasoning_effort are not supported for m in /v1/chat/completions. Please use /v1/responses instead."}}),
            ),
        ),
        (
            CHAT,
            Reply::json(
                200,
                &json!({"error": "Unexpected endpoint or method. (POST /v1/chat/completions)"}),
            ),
        ),
        (
            RESPONSES,
            said(
                404,
                "This model is only supported in v1/chat/completions and not in v1/responses.",
            ),
        ),
        (RESPONSES, Reply::json(404, &json!({"detail": "Not Found"}))),
        (RESPONSES, Reply::http(404, "404 page not found")),
        (RESPONSES, Reply::http(405, "")),
        (
            RESPONSES,
            said(
                404,
                "Unknown request URL: POST /v1/responses. Please check the URL for typos.",
            ),
        ),
    ]
}

#[tokio::test]
async fn the_other_format_is_spoken_and_remembered() {
    for (format, refusal) in refusals() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::at(place.path());
        let server = ModelServer::start();
        server.push_all([
            refusal.clone(),
            Reply::text("one"),
            Reply::text("two"),
            Reply::text("three"),
        ]);
        let (from, to) = match format {
            CHAT => ("/chat/completions", "/responses"),
            _ => ("/responses", "/chat/completions"),
        };
        let first = client(&server, format, &home);
        assert_eq!(ask(&first).await.as_deref(), Ok("one"), "{refusal:?}");
        assert_eq!(paths(&server), [from, to], "{refusal:?}");
        // In this process, and in the next.
        assert_eq!(ask(&first).await.as_deref(), Ok("two"));
        assert_eq!(
            ask(&client(&server, format, &home)).await.as_deref(),
            Ok("three")
        );
        assert_eq!(paths(&server), [from, to, to, to], "{refusal:?}");
    }
}

#[tokio::test]
async fn what_the_first_format_was_refused_with_is_said() {
    let place = tempfile::tempdir().unwrap();
    let home = Home::at(place.path());
    let server = ModelServer::start();
    server.push_all([
        Reply::http(404, "no such page"),
        Reply::http(404, "nor this"),
        Reply::error(400, "messages: roles must alternate"),
    ]);
    let client = client(&server, CHAT, &home);
    let error = ask(&client).await.unwrap_err();
    assert_eq!(error.message, "no such page");
    // Nothing was learnt, and other errors are no reason to try.
    let error = ask(&client).await.unwrap_err();
    assert_eq!(error.message, "messages: roles must alternate");
    assert_eq!(
        paths(&server),
        ["/chat/completions", "/responses", "/chat/completions"]
    );
}

/// A field that both formats could do without is given up in the first when there is no second.
#[tokio::test]
async fn a_server_without_the_other_format_gets_its_fields_dropped() {
    let place = tempfile::tempdir().unwrap();
    let home = Home::at(place.path());
    let server = ModelServer::start();
    server.push_all([
        Reply::error(400, "stream_options is not supported for m in /v1/chat/completions. Please use /v1/responses instead."),
        Reply::http(404, "404 page not found"),
        Reply::text("one"),
    ]);
    let client = client(&server, CHAT, &home);
    assert_eq!(ask(&client).await.as_deref(), Ok("one"));
    assert_eq!(
        paths(&server),
        ["/chat/completions", "/responses", "/chat/completions"]
    );
    assert!(server.requests()[2].body.get("stream_options").is_none());
}

#[tokio::test]
async fn trouble_in_the_other_format_is_said_as_such() {
    let place = tempfile::tempdir().unwrap();
    let home = Home::at(place.path());
    let server = ModelServer::start();
    server.push_all([
        Reply::error(404, "This model is only supported in v1/responses"),
        Reply::rate_limited(3),
    ]);
    let error = ask(&client(&server, CHAT, &home)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::RateLimit);
}

/// A server that changed its mind is followed.
#[tokio::test]
async fn the_way_back_is_found() {
    let place = tempfile::tempdir().unwrap();
    let home = Home::at(place.path());
    let server = ModelServer::start();
    server.push_all([
        Reply::error(404, "This model is only supported in v1/responses"),
        Reply::text("one"),
        Reply::error(404, "This model is only supported in v1/chat/completions"),
        Reply::text("two"),
        Reply::text("three"),
    ]);
    let client = client(&server, CHAT, &home);
    for answer in ["one", "two", "three"] {
        assert_eq!(ask(&client).await.as_deref(), Ok(answer));
    }
    let (chat, responses) = ("/chat/completions", "/responses");
    assert_eq!(paths(&server), [chat, responses, responses, chat, chat]);
}
