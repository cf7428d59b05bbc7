//! Ids exchanged with clients: sessions, memory scopes, answers.

use axum::http::HeaderMap;
use axum::http::header::HeaderName;

use super::error::ApiError;
use super::input::JsonObjectBody;
use super::reply;

/// The longest name of a session or scope.
const MAX_NAME_CHARS: usize = 256;

/// The session and key requested by a client, by header or body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RequestedSession {
    pub(super) session: Option<String>,
    /// The scope of memory across sessions; returned unchanged.
    pub(super) key: Option<String>,
}

impl RequestedSession {
    pub(super) fn read(headers: &HeaderMap, body: &JsonObjectBody) -> Result<Self, ApiError> {
        let session = one(headers, body, &reply::SESSION_ID, "session_id")?;
        if let Some(id) = &session {
            check_session(id)?;
        }
        let key = one(headers, body, &reply::SESSION_KEY, "session_key")?;
        if let Some(key) = &key {
            check(key, "session key")?;
        }
        Ok(Self { session, key })
    }
}

fn one(
    headers: &HeaderMap,
    body: &JsonObjectBody,
    header: &HeaderName,
    field: &str,
) -> Result<Option<String>, ApiError> {
    let inside = body.text(field)?;
    let outside = match headers.get(header) {
        None => None,
        Some(value) => {
            let text = value.to_str().map_err(|_| {
                ApiError::bad(format!("the header {header} may only hold plain letters"))
            })?;
            Some(text.trim()).filter(|text| !text.is_empty())
        }
    };
    match (outside, inside) {
        (Some(outside), Some(inside)) if outside != inside => Err(ApiError::bad(format!(
            "the header {header} says {outside:?} and '{field}' in the body says {inside:?}; send \
             one of them"
        ))
        .param(field)
        .code("session_conflict")),
        (outside, inside) => Ok(outside.or(inside).map(str::to_owned)),
    }
}

/// Ids become names of files in the original.
pub(super) fn check_session(id: &str) -> Result<(), ApiError> {
    check(id, "session id")?;
    let mut chars = id.chars();
    let drive = chars.next().is_some_and(char::is_alphabetic) && chars.next() == Some(':');
    if drive || id.contains("..") || id.contains(['/', '\\']) {
        let message = "a session id may not look like a path (no /, \\, .. or drive letter)";
        return Err(ApiError::bad(message).code("invalid_session_id"));
    }
    Ok(())
}

fn check(name: &str, what: &str) -> Result<(), ApiError> {
    if name.chars().count() > MAX_NAME_CHARS {
        let message = format!("the {what} is longer than {MAX_NAME_CHARS} characters");
        return Err(ApiError::bad(message).code("invalid_session_id"));
    }
    if name.chars().any(char::is_control) {
        let message = format!("the {what} may not hold control characters");
        return Err(ApiError::bad(message).code("invalid_session_id"));
    }
    Ok(())
}

/// A prefix with random letters, like OpenAI's ids.
pub(super) fn fresh(prefix: &str, letters: usize) -> String {
    let random = format!("{:032x}", rand::random::<u128>());
    let mut id = String::with_capacity(prefix.len() + letters);
    id.push_str(prefix);
    id.push_str(&random[..letters.min(random.len())]);
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(header: Option<&str>, body: &serde_json::Value) -> Result<RequestedSession, ApiError> {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(reply::SESSION_ID, value.parse().unwrap());
        }
        RequestedSession::read(&headers, &JsonObjectBody(body.as_object().unwrap().clone()))
    }

    #[test]
    fn header_and_body_count_alike_and_must_agree() {
        let session = |header, body| read(header, &body).map(|named| named.session);
        let id = || Some("mine".to_owned());
        assert_eq!(session(Some("mine"), json!({})).unwrap(), id());
        assert_eq!(session(None, json!({"session_id": "mine"})).unwrap(), id());
        assert_eq!(
            session(Some("mine"), json!({"session_id": "mine"})).unwrap(),
            id()
        );
        assert_eq!(
            session(Some(" "), json!({"session_id": null})).unwrap(),
            None
        );
        let error = session(Some("mine"), json!({"session_id": "yours"})).unwrap_err();
        assert!(error.to_json().to_string().contains("session_conflict"));
    }

    #[test]
    fn names_that_could_lead_elsewhere_are_refused() {
        for id in ["../x", "a/b", "a\\b", "C:x", "a\nb", &"x".repeat(257)] {
            assert!(check_session(id).is_err(), "{id:?}");
        }
        for id in ["a", "agent:main:web", "2026_x-1", &"x".repeat(256)] {
            assert!(check_session(id).is_ok(), "{id:?}");
        }
        assert_eq!(fresh("chatcmpl-", 29).len(), 38);
    }
}
