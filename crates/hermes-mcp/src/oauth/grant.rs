//! Requests to the token endpoint.

use serde_json::{Map, Value};
use url::Url;

use super::error::OAuthError;
use super::http::{OAuthHttp, OAuthResponse, display_url, unavailable};
use super::identity::{Identity, explanation};
use super::tokens::Meta;

/// Why the token endpoint issued no token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GrantError {
    /// An OAuth error such as `invalid_grant`: the server processed and refused the request.
    Denied { code: String, text: String },
    /// The endpoint does not exist (any more).
    Moved(OAuthError),
    /// Anything else; the grant may still be valid.
    Other(OAuthError),
}

impl From<OAuthError> for GrantError {
    fn from(error: OAuthError) -> Self {
        Self::Other(error)
    }
}

/// Requests tokens. `form` is the grant; client and resource are added here.
pub(crate) async fn grant(
    http: &OAuthHttp,
    meta: &Meta,
    identity: &Identity,
    form: &[(&str, &str)],
) -> Result<Map<String, Value>, GrantError> {
    let Some(endpoint) = meta.text("token_endpoint") else {
        return Err(OAuthError::refused(format!(
            "the metadata of {} names no token_endpoint",
            meta.issuer()
        ))
        .into());
    };
    let endpoint = http.check(endpoint)?;
    let (credentials, header) = identity.credentials();
    let mut form = form.to_vec();
    form.extend(credentials);
    if let Some(resource) = meta.resource() {
        form.push(("resource", resource));
    }
    let answer = http.post_form(&endpoint, &form, header).await?;
    granted(&endpoint, &answer)
}

/// The object of a successful response.
fn granted(endpoint: &Url, answer: &OAuthResponse) -> Result<Map<String, Value>, GrantError> {
    if answer.is_transient() {
        return Err(unavailable(endpoint, answer).into());
    }
    let Some(object) = answer.object() else {
        // Probably a proxy's page, not a response of the authorization server.
        let error = OAuthError::transient(format!(
            "{} answered HTTP {} without JSON",
            display_url(endpoint),
            answer.status
        ));
        return Err(match answer.status {
            404 | 405 | 410 => GrantError::Moved(error),
            _ => GrantError::Other(error),
        });
    };
    // Some servers report errors with 200.
    if let Some(code) = object.get("error").and_then(Value::as_str) {
        return Err(GrantError::Denied {
            code: code.to_owned(),
            text: format!(
                "{} answered HTTP {}{}",
                display_url(endpoint),
                answer.status,
                explanation(&object)
            ),
        });
    }
    if !answer.is_success() {
        return Err(OAuthError::transient(format!(
            "{} answered HTTP {} without a reason",
            display_url(endpoint),
            answer.status
        ))
        .into());
    }
    let kind = object
        .get("token_type")
        .and_then(Value::as_str)
        .unwrap_or("Bearer");
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err(OAuthError::refused(format!(
            "{} gave a token of type {kind:?}; only Bearer is supported",
            display_url(endpoint)
        ))
        .into());
    }
    Ok(object)
}
