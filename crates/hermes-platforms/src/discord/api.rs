//! Calls of Discord's REST API and the classification of their failures.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use super::limits::{DiscordRateLimits, RateLimitRoute};
use crate::form::MultipartForm;
use crate::http::{HttpError, PlatformHttp, RenewableClient};
use crate::platform::SendError;

/// Answers larger than this are not Discord's.
const MAX_ANSWER: usize = 16 << 20;
/// The format required by Discord.
const AGENT: &str = concat!("DiscordBot (hermes, ", env!("CARGO_PKG_VERSION"), ")");

/// A call failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum DiscordCallError {
    /// It certainly was not done, and may be later.
    #[error("{error}")]
    NotDone {
        error: String,
        retry_after: Option<Duration>,
    },
    /// The outcome is unknown.
    #[error("{0}")]
    Unclear(String),
    /// Discord refused it.
    #[error("Discord says {message} ({status}, code {code})")]
    Refused {
        status: u16,
        code: u64,
        message: String,
        /// Which part of the body is wrong.
        errors: Value,
    },
    #[error("Discord does not know the token: set DISCORD_BOT_TOKEN to the one of the bot's page")]
    Unauthorized,
}

impl DiscordCallError {
    pub(super) fn code(&self) -> u64 {
        match self {
            Self::Refused { code, .. } => *code,
            _ => 0,
        }
    }

    /// The meaning for a message to send.
    pub(super) fn into_send_error(self) -> SendError {
        match self {
            Self::NotDone { error, retry_after } => SendError::NotSent { error, retry_after },
            Self::Unclear(error) => SendError::Unclear(error),
            // The token may be replaced; the message waits for that.
            Self::Unauthorized => SendError::NotSent {
                error: self.to_string(),
                retry_after: Some(Duration::from_mins(5)),
            },
            Self::Refused { .. } => SendError::Refused(self.to_string()),
        }
    }
}

pub(super) struct DiscordApi {
    base: String,
    token: String,
    deadline: Duration,
    transfer: Duration,
    client: RenewableClient,
    limits: DiscordRateLimits,
}

impl DiscordApi {
    pub(super) fn new(
        base: &str,
        token: &str,
        http: PlatformHttp,
        deadline: Duration,
        transfer: Duration,
    ) -> Result<Self, HttpError> {
        Ok(Self {
            base: base.to_owned(),
            token: token.to_owned(),
            deadline,
            transfer,
            client: RenewableClient::new(http)?,
            limits: DiscordRateLimits::default(),
        })
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    pub(super) fn http(&self) -> &PlatformHttp {
        self.client.http()
    }

    pub(super) fn client(&self) -> reqwest::Client {
        self.client.get()
    }

    /// Drops all connections: one of them may be dead without being detected.
    pub(super) fn renew(&self) {
        self.client.renew("discord");
    }

    /// One request.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, DiscordCallError> {
        let route = RateLimitRoute::new(method.as_str(), path);
        let mut request = self.request(method, path).timeout(self.deadline);
        if let Some(body) = body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.to_string());
        }
        self.send(&route, request).await
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, DiscordCallError> {
        let value = self.call(Method::GET, path, None).await?;
        serde_json::from_value(value)
            .map_err(|error| DiscordCallError::Unclear(format!("{path}: not understood: {error}")))
    }

    /// The same, but waits for rate limits and retries until the timeout. Only for idempotent
    /// requests.
    pub(super) async fn patiently(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        within: Duration,
    ) -> Result<Value, DiscordCallError> {
        let end = Instant::now() + within;
        let mut pause = Duration::from_millis(500);
        loop {
            let error = match self.call(method.clone(), path, body).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let wait = match &error {
                DiscordCallError::NotDone { retry_after, .. } => retry_after.unwrap_or(pause),
                DiscordCallError::Unclear(_) => pause,
                DiscordCallError::Refused { .. } | DiscordCallError::Unauthorized => {
                    return Err(error);
                }
            };
            if Instant::now() + wait >= end {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            pause = pause.saturating_mul(2);
        }
    }

    /// A message with a file.
    pub(super) async fn upload(
        &self,
        path: &str,
        body: &Value,
        file: &Path,
        mime: &str,
    ) -> Result<Value, DiscordCallError> {
        let form = MultipartForm::new(rand::random())
            .text("payload_json", body.to_string())
            .file("files[0]", file, mime)
            .await
            .map_err(|error| DiscordCallError::Refused {
                status: 0,
                code: 0,
                message: format!("{}: {error}", file.display()),
                errors: Value::Null,
            })?;
        let route = RateLimitRoute::new("POST", path);
        let request = self.request(Method::POST, path).timeout(self.transfer);
        self.send(&route, form.into_request(request)).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .client()
            .request(method, format!("{}{path}", self.base))
            .header(USER_AGENT, AGENT);
        // Interaction endpoints have their own token in the path.
        if path.starts_with("/interactions/") || path.starts_with("/webhooks/") {
            return request;
        }
        request.header(AUTHORIZATION, format!("Bot {}", self.token))
    }

    async fn send(
        &self,
        route: &RateLimitRoute,
        request: RequestBuilder,
    ) -> Result<Value, DiscordCallError> {
        if let Err(pause) = self.limits.acquire(route) {
            return Err(DiscordCallError::NotDone {
                error: "waiting for Discord's rate limit".to_owned(),
                retry_after: Some(pause),
            });
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => {
                let failed = failure(&error);
                if matches!(failed, DiscordCallError::Unclear(_)) {
                    self.renew();
                }
                return Err(failed);
            }
        };
        self.limits.update_from_headers(route, answer.headers());
        self.read(route, answer).await
    }

    async fn read(
        &self,
        route: &RateLimitRoute,
        mut answer: reqwest::Response,
    ) -> Result<Value, DiscordCallError> {
        let status = answer.status();
        let header = answer.headers().get("retry-after");
        let header = header.and_then(|value| value.to_str().ok()?.parse::<f64>().ok());
        let mut bytes = Vec::new();
        loop {
            match answer.chunk().await {
                Ok(Some(piece)) if bytes.len() + piece.len() <= MAX_ANSWER => {
                    bytes.extend_from_slice(&piece);
                }
                Ok(Some(_)) => {
                    return Err(DiscordCallError::Unclear("an endless answer".to_owned()));
                }
                Ok(None) => break,
                Err(error) => {
                    self.renew();
                    return Err(DiscordCallError::Unclear(plain(&error)));
                }
            }
        }
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match status {
            StatusCode::TOO_MANY_REQUESTS => {
                let seconds = body["retry_after"].as_f64().or(header).unwrap_or(1.0);
                let pause = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(1));
                self.limits
                    .refused(route, pause, body["global"] == Value::Bool(true));
                Err(DiscordCallError::NotDone {
                    error: "too many requests".to_owned(),
                    retry_after: Some(pause),
                })
            }
            StatusCode::UNAUTHORIZED => Err(DiscordCallError::Unauthorized),
            status if status.is_success() => Ok(body),
            status if status.is_server_error() => {
                Err(DiscordCallError::Unclear(status.to_string()))
            }
            status => Err(DiscordCallError::Refused {
                status: status.as_u16(),
                code: body["code"].as_u64().unwrap_or(0),
                message: body["message"].as_str().unwrap_or("no").to_owned(),
                errors: body["errors"].clone(),
            }),
        }
    }
}

fn failure(error: &reqwest::Error) -> DiscordCallError {
    if error.is_connect() || error.is_builder() {
        return DiscordCallError::NotDone {
            error: plain(error),
            retry_after: None,
        };
    }
    DiscordCallError::Unclear(plain(error))
}

/// The root cause, without the address, which may contain a secret.
pub(super) fn plain(error: &reqwest::Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    reason.to_string()
}
