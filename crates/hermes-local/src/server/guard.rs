//! Access control: clients must know the token and use the server's own address.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HOST, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::chat::ServerState;
use super::error::ServerError;

pub(super) async fn authorize(
    State(app): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    // A web page may reach loopback under a host name of its own choice.
    if !host.is_some_and(|host| is_here(host, app.port)) {
        let message = "this server answers to 127.0.0.1 and localhost only";
        return ServerError::new(StatusCode::MISDIRECTED_REQUEST, message)
            .code("wrong_host")
            .into_response();
    }
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let token = given.and_then(bearer);
    if token.is_some_and(|token| same(token, app.token.as_bytes())) {
        return next.run(request).await;
    }
    let message = "wrong or missing token: send the one of the run file as Authorization: Bearer …";
    ServerError::new(StatusCode::UNAUTHORIZED, message)
        .code("invalid_api_key")
        .into_response()
}

fn is_here(host: &str, port: u16) -> bool {
    let Some((name, given)) = host.rsplit_once(':') else {
        return false;
    };
    let named = name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost");
    named && given.parse() == Ok(port)
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// Constant-time comparison.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differences) == 0
}
