//! Error responses: OpenAI's error object.

use axum::http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use hermes_app::{HostError, HostErrorKind};
use hermes_core::redact;
use hermes_core::store::StoreError;
use serde_json::{Value, json};

use super::reply;

/// An error response.
#[derive(Clone, Debug)]
pub(crate) struct ApiError(Box<ErrorParts>);

#[derive(Clone, Debug)]
struct ErrorParts {
    status: StatusCode,
    message: String,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<String>,
    /// `hermes` inside the error object.
    more: Option<Value>,
    headers: HeaderMap,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let kind = match status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        Self(Box::new(ErrorParts {
            status,
            message: message.into(),
            kind,
            code: None,
            param: None,
            more: None,
            headers: HeaderMap::new(),
        }))
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The request is invalid.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    #[must_use]
    pub(super) fn code(mut self, code: &'static str) -> Self {
        self.0.code = Some(code);
        self
    }

    #[must_use]
    pub(super) fn param(mut self, param: impl Into<String>) -> Self {
        self.0.param = Some(param.into());
        self
    }

    #[must_use]
    pub(super) fn more(mut self, more: Value) -> Self {
        self.0.more = Some(more);
        self
    }

    #[must_use]
    pub(super) fn retry_after(mut self, seconds: u16) -> Self {
        self.0.headers.insert(RETRY_AFTER, seconds.into());
        self
    }

    #[must_use]
    pub(super) fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.0.headers.insert(name, value);
        }
        self
    }

    /// The error object, secrets hidden.
    pub(super) fn to_json(&self) -> Value {
        let mut error = json!({
            "message": redact::secrets(&self.0.message),
            "type": self.0.kind,
            "param": self.0.param,
            "code": self.0.code,
        });
        if let Some(more) = &self.0.more {
            error["hermes"] = more.clone();
        }
        json!({ "error": error })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = reply::json(self.0.status, &self.to_json());
        response.headers_mut().extend(self.0.headers);
        response
    }
}

impl From<HostError> for ApiError {
    fn from(refusal: HostError) -> Self {
        let (status, code) = match refusal.kind {
            HostErrorKind::NotConfigured => (StatusCode::SERVICE_UNAVAILABLE, "not_configured"),
            HostErrorKind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            HostErrorKind::Invalid => (StatusCode::BAD_REQUEST, "invalid_request"),
            HostErrorKind::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "agent_error"),
        };
        Self::new(status, refusal.message).code(code)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::NotFound(_) | StoreError::Ambiguous { .. } => {
                Self::missing(message).code("not_found")
            }
            StoreError::TitleTaken { .. } | StoreError::Invalid(_) => {
                Self::bad(message).code("invalid_request")
            }
            StoreError::Busy { .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
                .code("session_db_unavailable")
                .retry_after(1),
            _ => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, message).code("session_db_unavailable")
            }
        }
    }
}
