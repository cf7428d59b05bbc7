//! Failures below HTTP: no response, or a broken one.

use hermes_core::model::ErrorClass;

use super::CallContext;

/// A failure of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TransportError {
    pub kind: TransportErrorKind,
    /// What happened, for people.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportErrorKind {
    /// Refused, no route, unknown host.
    Unreachable,
    /// The certificate was not accepted.
    Certificate,
    /// A phase took too long.
    Timeout,
    /// The connection broke while it was used.
    Broken,
    /// The request could not be built.
    Request,
    /// The response was not HTTP.
    Protocol,
}

impl TransportError {
    /// Converts an error of the HTTP client: its kind, then its causes.
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        let causes = causes(error);
        Self {
            kind: kind(error, &causes),
            message: message(&causes),
        }
    }

    pub(crate) fn class(&self, situation: &CallContext) -> ErrorClass {
        match self.kind {
            TransportErrorKind::Unreachable => ErrorClass::Unreachable,
            TransportErrorKind::Certificate => ErrorClass::TlsCertificate,
            // Some gateways close the connection on prompts that are too large instead of reporting
            // it.
            TransportErrorKind::Broken if situation.fills(60) && !situation.slow_reasoner => {
                ErrorClass::ContextOverflow
            }
            TransportErrorKind::Timeout | TransportErrorKind::Broken => ErrorClass::Timeout,
            TransportErrorKind::Request => ErrorClass::Format,
            TransportErrorKind::Protocol => ErrorClass::BadResponse,
        }
    }
}

/// The texts of the error and its causes, outermost first.
fn causes(error: &reqwest::Error) -> Vec<String> {
    let mut texts = Vec::new();
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        texts.push(error.to_string());
        next = error.source();
    }
    texts
}

fn kind(error: &reqwest::Error, causes: &[String]) -> TransportErrorKind {
    let all = causes.join("\n").to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| all.contains(word));
    if io_kind(error) == Some(std::io::ErrorKind::ConnectionRefused)
        || says(&[
            "connection refused",
            "dns error",
            "failed to lookup",
            "no route to host",
            "network is unreachable",
            "host unreachable",
        ])
    {
        TransportErrorKind::Unreachable
    } else if says(&[
        "invalid peer certificate",
        "unknownissuer",
        "certificate",
        "ca file",
    ]) {
        TransportErrorKind::Certificate
    } else if error.is_timeout() || says(&["timed out"]) {
        TransportErrorKind::Timeout
    } else if error.is_builder() {
        TransportErrorKind::Request
    } else if says(&["invalid http", "http2 error: protocol", "invalid status"]) {
        TransportErrorKind::Protocol
    } else {
        TransportErrorKind::Broken
    }
}

fn io_kind(error: &reqwest::Error) -> Option<std::io::ErrorKind> {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        next = error.source();
    }
    None
}

/// The innermost text is the most informative; outer ones repeat the URL, which may contain a key.
fn message(causes: &[String]) -> String {
    let innermost = causes.last().map(String::as_str).unwrap_or_default();
    hermes_core::redact::secrets(innermost).into_owned()
}
