//! Why there is no token.

use std::time::Duration;

use crate::failure::{Certainty, FailureClass, McpFailure};

/// What has to happen before there can be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OAuthErrorKind {
    /// A person has to log in.
    NeedsLogin,
    /// A person has to grant more.
    ScopeNeeded,
    /// Nothing: the authorization server is down or busy. Tokens are kept, waiting helps.
    Transient,
    /// The token files cannot be read or written.
    Store,
    /// Going on would be unsafe or is impossible: wrong issuer, wrong resource, bad settings.
    Refused,
    /// The person or the caller gave up.
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct OAuthError {
    pub kind: OAuthErrorKind,
    /// For people: what, where, what to do. Secrets cut out.
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

    /// `why`, and the command that helps.
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

    /// The same as a failure of the request that wanted the token.
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
