//! Access control: key, browser origins, body sizes; and the headers of every response.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State as Extract};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, AUTHORIZATION, CONTENT_LENGTH,
    HeaderName, HeaderValue, ORIGIN, VARY,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use hermes_core::bytes::same;

use super::ApiState;
use super::error::ApiError;

/// The largest request.
pub(super) const MAX_BODY_BYTES: usize = 10_000_000;

const SECURITY: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; frame-ancestors 'none'",
    ),
    (
        "permissions-policy",
        "camera=(), microphone=(), geolocation=()",
    ),
    (
        "strict-transport-security",
        "max-age=31536000; includeSubDomains",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("x-xss-protection", "0"),
    ("referrer-policy", "no-referrer"),
];

pub(super) struct ServerKey(String);

impl ServerKey {
    pub(super) fn new(key: &str) -> Self {
        Self(key.to_owned())
    }

    fn fits(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(bearer);
        given.is_some_and(|given| same(given, self.0.as_bytes()))
    }
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// Combines the routes. `open` needs no key.
pub(super) fn around(
    open: Router<Arc<ApiState>>,
    closed: Router<Arc<ApiState>>,
    state: Arc<ApiState>,
) -> Router {
    closed
        .route_layer(from_fn_with_state(Arc::clone(&state), authorize))
        .merge(open)
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_this_way)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(Arc::clone(&state), every_answer))
        .with_state(state)
}

async fn nothing_here() -> ApiError {
    ApiError::missing("there is nothing at this path; GET /v1/capabilities lists what there is")
        .code("not_found")
}

async fn not_this_way() -> ApiError {
    let message = "this path does not take this method; GET /v1/capabilities lists what there is";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).code("method_not_allowed")
}

async fn authorize(
    Extract(state): Extract<Arc<ApiState>>,
    request: Request,
    next: Next,
) -> Response {
    if state.key.fits(request.headers()) {
        return next.run(request).await;
    }
    tracing::warn!(
        method = %request.method(),
        path = request.uri().path(),
        "the API server refused a request without the right key"
    );
    let message = "wrong or missing key: send API_SERVER_KEY as Authorization: Bearer …";
    ApiError::new(StatusCode::UNAUTHORIZED, message)
        .code("invalid_api_key")
        .into_response()
}

async fn every_answer(
    Extract(state): Extract<Arc<ApiState>>,
    request: Request,
    next: Next,
) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let allowed = origin.as_ref().map(|origin| allow(&state, origin));
    let mut response = match (&allowed, request.method()) {
        // A browser on a page of an unknown origin.
        (Some(None), _) => {
            let message = "this origin is not in API_SERVER_CORS_ORIGINS";
            ApiError::new(StatusCode::FORBIDDEN, message)
                .code("origin_not_allowed")
                .into_response()
        }
        (Some(Some(_)), &Method::OPTIONS) => Response::new(Body::empty()),
        _ if too_large(request.headers()) => body_too_large().into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in SECURITY {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    if let Some(Some(origin)) = allowed {
        cross_origin(headers, origin);
    }
    response
}

/// The CORS headers for an origin; `None`: not allowed.
fn allow(state: &ApiState, origin: &HeaderValue) -> Option<HeaderValue> {
    let origins = &state.settings.cors_origins;
    if origins.iter().any(|known| known == "*") {
        return Some(HeaderValue::from_static("*"));
    }
    let known = origins
        .iter()
        .any(|known| known.as_bytes() == origin.as_bytes());
    known.then(|| origin.clone())
}

fn cross_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    if origin != "*" {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    for (name, value) in [
        (
            ACCESS_CONTROL_ALLOW_METHODS,
            "GET, POST, PATCH, DELETE, OPTIONS",
        ),
        (
            ACCESS_CONTROL_ALLOW_HEADERS,
            "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Hermes-Session-Id, \
             X-Hermes-Session-Key",
        ),
        (
            ACCESS_CONTROL_EXPOSE_HEADERS,
            "X-Hermes-Session-Id, X-Hermes-Session-Key, X-Hermes-Completed, X-Hermes-Partial, \
             X-Hermes-Error, Retry-After",
        ),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// A body with a too large content length is not read; others are aborted while reading.
fn too_large(headers: &HeaderMap) -> bool {
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    length.and_then(|length| length.parse::<u64>().ok()) > Some(MAX_BODY_BYTES as u64)
}

pub(super) fn body_too_large() -> ApiError {
    let message = format!("the request is larger than {MAX_BODY_BYTES} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("body_too_large")
}
