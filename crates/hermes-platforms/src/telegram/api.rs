//! Calls of the Bot API. Each is one request with a hard deadline, and a failure tells what is
//! certain.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::wire::{ApiEnvelope, Parameters};
use crate::form::MultipartForm;
use crate::platform::SendError;

/// The longest answer that is read: a hundred updates are less.
const MAX_ANSWER: usize = 32 * 1024 * 1024;

/// The API client of one bot, with its own connections.
#[derive(Clone)]
pub(super) struct TelegramApi {
    client: reqwest::Client,
    base: String,
}

/// The outcome of a failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TelegramCallError {
    /// The request did not leave.
    #[error("no connection: {0}")]
    NotConnected(String),
    /// The request may have been read.
    #[error("{0}")]
    Lost(String),
    /// Telegram answered, and the answer is no.
    #[error("{description} ({code})")]
    Refused {
        code: u16,
        description: String,
        retry_after: Option<Duration>,
        migrate_to: Option<i64>,
    },
}

impl TelegramApi {
    pub(super) fn new(client: reqwest::Client, base: &str) -> Self {
        Self {
            client,
            base: base.to_owned(),
        }
    }

    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &Value,
        deadline: Duration,
    ) -> Result<T, TelegramCallError> {
        let request = self
            .client
            .post(format!("{}/{method}", self.base))
            .header(CONTENT_TYPE, "application/json")
            .body(params.to_string());
        self.run(method, request, deadline).await
    }

    pub(super) async fn upload<T: DeserializeOwned>(
        &self,
        method: &str,
        form: MultipartForm,
        deadline: Duration,
    ) -> Result<T, TelegramCallError> {
        let request = self.client.post(format!("{}/{method}", self.base));
        self.run(method, form.into_request(request), deadline).await
    }

    async fn run<T: DeserializeOwned>(
        &self,
        method: &str,
        request: reqwest::RequestBuilder,
        deadline: Duration,
    ) -> Result<T, TelegramCallError> {
        let talk = async {
            let response = request.send().await.map_err(|error| failed(&error))?;
            let status = response.status().as_u16();
            let body = read(response).await?;
            understand(method, status, &body)
        };
        tokio::time::timeout(deadline, talk)
            .await
            .unwrap_or_else(|_| {
                Err(TelegramCallError::Lost(format!(
                    "{method}: no answer within {} s",
                    deadline.as_secs()
                )))
            })
    }

    /// A file as a stream.
    pub(super) async fn get(&self, url: &str) -> Result<reqwest::Response, TelegramCallError> {
        let answer = self.client.get(url).send().await;
        answer.map_err(|error| failed(&error))
    }
}

async fn read(mut response: reqwest::Response) -> Result<Vec<u8>, TelegramCallError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(TelegramCallError::Lost("an answer without end".to_owned()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The address has the token in it, and stays out of every text.
pub(super) fn failed(error: &reqwest::Error) -> TelegramCallError {
    let mut text = String::new();
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    if error.is_connect() {
        return TelegramCallError::NotConnected(text);
    }
    TelegramCallError::Lost(if text.is_empty() {
        "the connection broke".to_owned()
    } else {
        format!("the connection broke: {text}")
    })
}

fn understand<T: DeserializeOwned>(
    method: &str,
    status: u16,
    body: &[u8],
) -> Result<T, TelegramCallError> {
    let Ok(envelope) = serde_json::from_slice::<ApiEnvelope>(body) else {
        // An intermediary answered.
        return Err(TelegramCallError::Lost(format!(
            "{method}: an invalid answer (status {status})"
        )));
    };
    if envelope.ok {
        return T::deserialize(envelope.result).map_err(|error| {
            TelegramCallError::Lost(format!("{method}: an unknown answer: {error}"))
        });
    }
    let Parameters {
        retry_after,
        migrate_to_chat_id,
    } = envelope.parameters.unwrap_or_default();
    Err(TelegramCallError::Refused {
        code: envelope.error_code.unwrap_or(status),
        description: envelope.description.unwrap_or_default(),
        retry_after: retry_after.map(Duration::from_secs),
        migrate_to: migrate_to_chat_id,
    })
}

impl TelegramCallError {
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(super) fn says(&self, words: &str) -> bool {
        matches!(self, Self::Refused { description, .. }
            if description.to_ascii_lowercase().contains(words))
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The meaning for a message.
    pub(super) fn of_send(self) -> SendError {
        let error = self.to_string();
        match self {
            Self::NotConnected(_) => SendError::NotSent {
                error,
                retry_after: None,
            },
            Self::Lost(_) => SendError::Unclear(error),
            Self::Refused {
                code, retry_after, ..
            } => match code {
                429 => SendError::NotSent { error, retry_after },
                // The token is invalid, not the message, which waits for a new token.
                401 | 404 => SendError::NotSent {
                    error,
                    retry_after: None,
                },
                400 if error.contains("can't parse entities") => SendError::Markup(error),
                // These may have been executed.
                500.. => SendError::Unclear(error),
                _ => SendError::Refused(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> SendError {
        let error = understand::<Value>("sendMessage", 400, body.as_bytes()).unwrap_err();
        error.of_send()
    }

    #[test]
    fn failures_mean_what_is_certain() {
        let too_many = r#"{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 7","parameters":{"retry_after":7}}"#;
        assert!(matches!(
            refused(too_many),
            SendError::NotSent { retry_after: Some(after), .. } if after.as_secs() == 7
        ));
        for (code, text, wanted) in [
            (400, "Bad Request: can't parse entities: x", "Markup"),
            (400, "Bad Request: chat not found", "Refused"),
            (403, "Forbidden: bot was blocked by the user", "Refused"),
            (401, "Unauthorized", "NotSent"),
            (500, "Internal Server Error", "Unclear"),
        ] {
            let body = format!(r#"{{"ok":false,"error_code":{code},"description":"{text}"}}"#);
            let error = format!("{:?}", refused(&body));
            assert!(error.starts_with(wanted), "{code}: {error}");
        }
        // An error page of a proxy does not tell whether the request was executed.
        assert!(matches!(refused("<html>"), SendError::Unclear(_)));
    }
}
