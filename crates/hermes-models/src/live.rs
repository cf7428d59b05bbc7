//! Querying servers: model lists, local servers, the context window of a local model.
//!
//! Every query is bounded in time and size; a missing answer is an error or `None`, never a hang.

mod local;
mod parse;

use std::time::Duration;

use hermes_core::model::WireFormat;
use hermes_core::usage::Prices;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::providers::endpoint;
use crate::quirks::AuthStyle;

pub(crate) use local::by_port;
pub(crate) use local::{CONNECT_TIMEOUT, PROBE_TIMEOUT, candidates, discover, probe_loaded};
pub use local::{LocalProbe, LocalServerInfo, probe};

/// Four times the largest known list.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// How long a list of models may take.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// A model as described by a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedModel {
    pub id: String,
    pub context_length: Option<u32>,
    pub max_output: Option<u32>,
    pub images: Option<bool>,
    pub tools: Option<bool>,
    pub prices: Option<Prices>,
    /// Already in memory (local servers).
    pub loaded: Option<bool>,
    pub size_bytes: Option<u64>,
}

/// The endpoint to query.
#[derive(Clone, Debug)]
pub struct ModelEndpoint {
    pub base_url: String,
    pub format: WireFormat,
    pub auth: AuthStyle,
    pub key: Option<SecretString>,
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("{url} cannot be reached: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("{url} did not answer within {} s", .after.as_secs())]
    TimedOut { url: String, after: Duration },
    #[error("{url} answered {status}{}", detail(.message))]
    Refused {
        url: String,
        status: u16,
        message: String,
    },
    #[error("{url} answered with something that is not a list of models")]
    Unreadable { url: String },
}

fn detail(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    }
}

/// The models of an endpoint, in its own order.
pub async fn models(
    http: &reqwest::Client,
    endpoint: &ModelEndpoint,
    within: Duration,
) -> Result<Vec<ListedModel>, ListError> {
    let url = list_url(endpoint);
    let body = bounded(&url, within, get(http, &url, Some(endpoint))).await?;
    parse::list(&body).ok_or(ListError::Unreadable { url })
}

fn list_url(endpoint: &ModelEndpoint) -> String {
    let base = endpoint::tidy(&endpoint.base_url);
    // Base URLs of the Anthropic format end before the version.
    if endpoint.format == WireFormat::AnthropicMessages && !base.ends_with("/v1") {
        format!("{base}/v1/models")
    } else {
        format!("{base}/models")
    }
}

async fn bounded(
    url: &str,
    within: Duration,
    answer: impl Future<Output = Result<Value, ListError>>,
) -> Result<Value, ListError> {
    tokio::time::timeout(within, answer)
        .await
        .unwrap_or_else(|_| {
            Err(ListError::TimedOut {
                url: url.to_owned(),
                after: within,
            })
        })
}

async fn get(
    http: &reqwest::Client,
    url: &str,
    endpoint: Option<&ModelEndpoint>,
) -> Result<Value, ListError> {
    let mut request = http.get(url);
    if let Some(endpoint) = endpoint {
        request = authorize(request, endpoint);
    }
    answer(url, request).await
}

fn authorize(
    mut request: reqwest::RequestBuilder,
    endpoint: &ModelEndpoint,
) -> reqwest::RequestBuilder {
    for (name, value) in &endpoint.headers {
        if !value.contains('{') {
            request = request.header(name, value);
        }
    }
    if endpoint.format == WireFormat::AnthropicMessages {
        request = request.header("anthropic-version", "2023-06-01");
    }
    let Some(key) = &endpoint.key else {
        return request;
    };
    let key = key.expose_secret();
    match endpoint.auth {
        AuthStyle::Bearer => request.bearer_auth(key),
        AuthStyle::XApiKey => request.header("x-api-key", key),
        AuthStyle::ApiKey => request.header("api-key", key),
        AuthStyle::None => request,
    }
}

async fn answer(url: &str, request: reqwest::RequestBuilder) -> Result<Value, ListError> {
    let unreachable = |error: reqwest::Error| ListError::Unreachable {
        url: url.to_owned(),
        reason: root_cause(&error),
    };
    let mut response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_BODY {
            return Err(ListError::Unreadable {
                url: url.to_owned(),
            });
        }
    }
    if !status.is_success() {
        return Err(ListError::Refused {
            url: url.to_owned(),
            status: status.as_u16(),
            message: parse::error_message(&body),
        });
    }
    serde_json::from_slice(&body).map_err(|_| ListError::Unreadable {
        url: url.to_owned(),
    })
}

/// The innermost cause: outer ones repeat the URL.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
