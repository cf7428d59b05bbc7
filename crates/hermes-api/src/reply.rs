//! JSON responses and their headers.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{Response as Http, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::outcome::OutcomeReport;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("x-hermes-session-id");
pub(super) const SESSION_KEY: HeaderName = HeaderName::from_static("x-hermes-session-key");
pub(super) const COMPLETED: HeaderName = HeaderName::from_static("x-hermes-completed");
pub(super) const PARTIAL: HeaderName = HeaderName::from_static("x-hermes-partial");
pub(super) const ERROR: HeaderName = HeaderName::from_static("x-hermes-error");

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let (status, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, body),
        Err(error) => {
            tracing::error!("an answer of the API server cannot be written: {error}");
            let body = br#"{"error":{"message":"the answer cannot be written","type":"server_error","param":null,"code":null}}"#;
            (StatusCode::INTERNAL_SERVER_ERROR, body.to_vec())
        }
    };
    let mut response = Http::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Characters that are invalid in headers are removed.
pub(super) fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Which conversation it is.
pub(super) fn session_headers(session: &str, key: Option<&str>) -> Vec<(String, String)> {
    let id = (SESSION_ID.to_string(), session.to_owned());
    let key = key.map(|key| (SESSION_KEY.to_string(), key.to_owned()));
    std::iter::once(id).chain(key).collect()
}

pub(super) fn set_all(response: &mut Response, headers: &[(String, String)]) {
    for (name, value) in headers {
        if let Ok(name) = HeaderName::try_from(name.as_str()) {
            set(response, name, value);
        }
    }
}

/// A complete response that can be stored and sent again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredReply {
    pub(super) status: u16,
    pub(super) body: Value,
    pub(super) headers: Vec<(String, String)>,
    /// Nothing is missing from it.
    pub(super) complete: bool,
}

impl StoredReply {
    pub(super) fn new(status: StatusCode, body: Value) -> Self {
        Self {
            status: status.as_u16(),
            body,
            headers: Vec::new(),
            complete: true,
        }
    }

    pub(super) fn header(&mut self, name: &HeaderName, value: &str) {
        self.headers.push((name.to_string(), value.to_owned()));
    }

    /// Information for clients that do not read bodies.
    pub(super) fn verdict(&mut self, verdict: &OutcomeReport) {
        let Some(error) = &verdict.error else { return };
        self.complete = false;
        self.header(&COMPLETED, "false");
        let partial = if verdict.is_partial() {
            "true"
        } else {
            "false"
        };
        self.header(&PARTIAL, partial);
        let line: String = error.chars().take(200).collect();
        self.header(&ERROR, &line.replace(['\r', '\n'], " "));
    }

    pub(super) fn response(&self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        let mut response = json(status, &self.body);
        set_all(&mut response, &self.headers);
        response
    }
}
