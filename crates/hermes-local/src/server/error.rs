//! Errors for clients: OpenAI's error object.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::generation::GenerationError;

#[derive(Clone, Debug)]
pub(super) struct ServerError {
    status: StatusCode,
    message: String,
    code: Option<&'static str>,
    param: Option<&'static str>,
    retry_after: Option<u16>,
}

impl ServerError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            code: None,
            param: None,
            retry_after: None,
        }
    }

    /// The client's request is invalid.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    #[must_use]
    pub(super) fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    #[must_use]
    pub(super) fn param(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    #[must_use]
    pub(super) fn retry_after(mut self, seconds: u16) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(super) fn to_json(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

impl IntoResponse for ServerError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.to_json())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<GenerationError> for ServerError {
    fn from(failure: GenerationError) -> Self {
        let message = failure.to_string();
        match failure {
            GenerationError::Tools(_) => Self::bad(message).param("tools").code("invalid_schema"),
            GenerationError::Chat(error) if error.is_about_messages() => Self::bad(message)
                .param("messages")
                .code("invalid_messages"),
            GenerationError::TooLong { .. } => Self::bad(message)
                .param("messages")
                .code("context_length_exceeded"),
            GenerationError::TooFewTokens { .. } => Self::bad(message)
                .param("max_tokens")
                .code("max_tokens_too_small"),
            GenerationError::Cancelled => Self::new(StatusCode::SERVICE_UNAVAILABLE, message),
            GenerationError::Chat(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, message).code("chat_template_failed")
            }
            GenerationError::Engine(_)
            | GenerationError::Unspeakable
            | GenerationError::Panicked => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, message).code("model_failed")
            }
        }
    }
}
