//! The client over real sockets, against the scripted server.
#![expect(
    clippy::unwrap_used,
    reason = "test code: a broken precondition should end the test"
)]

mod connection;
mod faults;
mod fields;
mod formats;
mod shapes;
mod streams;
mod switching;

use std::sync::Arc;

use futures_util::StreamExt;
use hermes_core::clock::SystemClock;
use hermes_core::message::{AssistantMessage, Message};
use hermes_core::model::{
    Collector, ModelClient, ModelError, ModelEvent, ModelInfo, ModelRequest, Route, ToolChoice,
    WireFormat,
};
use hermes_core::usage::Usage;
use hermes_http::HttpSettings;
use hermes_models::quirks::Quirks;
use hermes_models::{ClientParts, HttpModelClient, PhaseTimeouts};
use hermes_testkit::model_server::ModelServer;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

const FORMATS: [WireFormat; 3] = [
    WireFormat::ChatCompletions,
    WireFormat::AnthropicMessages,
    WireFormat::Responses,
];

fn parts(base_url: &str, format: WireFormat) -> ClientParts {
    ClientParts {
        route: Route {
            provider: "prov".into(),
            model: "m".into(),
            base_url: base_url.into(),
            format,
            credential: None,
        },
        info: ModelInfo {
            context_length: 100_000,
            context_source: "config",
            max_output: None,
            images: true,
            tools: true,
            prices: None,
            local: true,
            small: false,
        },
        quirks: Quirks::new(format),
        other: None,
        credential: Some(SecretString::from("key-0123456789")),
        http: hermes_http::client(&HttpSettings::default()).unwrap(),
        timeouts: PhaseTimeouts::for_model(false, "m"),
        clock: Arc::new(SystemClock),
        fields: Arc::default(),
        windows: None,
    }
}

fn client(server: &ModelServer, format: WireFormat) -> HttpModelClient {
    HttpModelClient::new(parts(&server.base_url(), format))
}

fn request(log: impl IntoIterator<Item = Message>) -> ModelRequest {
    ModelRequest {
        session: "s".into(),
        system: "Be brief.".into(),
        messages: log.into_iter().map(Arc::new).collect(),
        tools: Vec::new().into(),
        tool_choice: ToolChoice::Auto,
        max_tokens: None,
        temperature: None,
        reasoning: None,
    }
}

async fn events(client: &HttpModelClient) -> Vec<Result<ModelEvent, ModelError>> {
    let request = request([Message::user("hi")]);
    let stream = client.stream(request, CancellationToken::new());
    stream.collect().await
}

async fn answer(client: &HttpModelClient) -> (AssistantMessage, Option<Usage>) {
    let mut collector = Collector::default();
    for event in events(client).await {
        collector.push(&event.unwrap());
    }
    collector.finish()
}

async fn failure(client: &HttpModelClient) -> ModelError {
    let last = events(client).await.pop();
    last.unwrap().unwrap_err()
}
