//! Errors of the OAuth client.

use std::time::Duration;

use crate::failure::{Certainty, FailureClass, McpFailure};

/// What is needed to get a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OAuthErrorKind {
    /// The user has to log in.
    NeedsLogin,
    /// The user has to grant more scopes.
    ScopeNeeded,
    /// Only time: the authorization server is down or busy. Tokens are kept.
    Transient,
    /// The token files cannot be read or written.
    Store,
    /// Continuing would be unsafe or impossible: wrong issuer, wrong resource, bad settings.
    Refused,
    /// The user or the caller cancelled.
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct OAuthError {
    pub kind: OAuthErrorKind,
    /// For display: the problem and what to do. Without secrets.
    pub text: String,
    pub retry_after: Option<Duration>,
}

impl OAuthError {
    pub fn new(kind: OAuthErrorKind, text: impl AsRef<str>) -> Self {
        Self {
            kind,
            text: hermes_core::redact::secrets(text.as_ref()).into_owned(),
            retry_after: None,
        }
    }

    pub(crate) fn transient(text: impl AsRef<str>) -> Self {
        Self::new(OAuthErrorKind::Transient, text)
    }

    pub(crate) fn refused(text: impl AsRef<str>) -> Self {
        Self::new(OAuthErrorKind::Refused, text)
    }

    pub(crate) fn store(text: impl AsRef<str>) -> Self {
        Self::new(OAuthErrorKind::Store, text)
    }

    /// `why`, and the command for logging in.
    pub(crate) fn needs_login(server: &str, why: &str) -> Self {
        Self::new(
            OAuthErrorKind::NeedsLogin,
            format!("{why}; log in with: hermes mcp login {server}"),
        )
    }

    #[must_use]
    pub(crate) fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// As a failure of the request that needed the token.
    pub fn into_failure(self, certainty: Certainty) -> McpFailure {
        let class = match self.kind {
            OAuthErrorKind::NeedsLogin => FailureClass::NeedsAuth,
            OAuthErrorKind::ScopeNeeded => FailureClass::ScopeNeeded,
            OAuthErrorKind::Transient => FailureClass::Throttled,
            OAuthErrorKind::Store | OAuthErrorKind::Refused => FailureClass::Permanent,
            OAuthErrorKind::Cancelled => FailureClass::Cancelled,
        };
        McpFailure {
            retry_after: self.retry_after,
            ..McpFailure::new(class, certainty, self.text)
        }
    }
}
