//! Calls of the Web API and the classification of their failures.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use serde_json::Value;

use crate::http::{HttpError, PlatformHttp, RenewableClient};
use crate::platform::SendError;

/// Answers larger than this are not Slack's.
const MAX_ANSWER: usize = 16 << 20;

/// A call failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum SlackCallError {
    /// It certainly was not done, and may be later.
    #[error("{error}")]
    NotDone {
        error: String,
        retry_after: Option<Duration>,
    },
    /// The outcome is unknown.
    #[error("{0}")]
    Unclear(String),
    /// Slack refused it, with its error code.
    #[error("Slack says {0}")]
    Refused(String),
}

impl SlackCallError {
    /// The token is of no use any more.
    pub(super) fn is_hopeless(&self) -> bool {
        const WORDS: [&str; 9] = [
            "invalid_auth",
            "not_authed",
            "account_inactive",
            "token_revoked",
            "token_expired",
            "not_allowed_token_type",
            "no_permission",
            "missing_scope",
            "app_uninstalled",
        ];
        matches!(self, Self::Refused(word) if WORDS.contains(&word.as_str()))
    }

    /// The meaning for a message to send.
    pub(super) fn into_send_error(self) -> SendError {
        let auth = self.is_hopeless();
        match self {
            Self::NotDone { error, retry_after } => SendError::NotSent { error, retry_after },
            Self::Unclear(error) => SendError::Unclear(error),
            // The token may be replaced; the message waits for that.
            Self::Refused(word) if auth && word != "missing_scope" => SendError::NotSent {
                error: format!("Slack says {word}: check SLACK_BOT_TOKEN"),
                retry_after: Some(Duration::from_mins(5)),
            },
            Self::Refused(word) if word.starts_with("invalid_blocks") => SendError::Markup(word),
            Self::Refused(word) => {
                let hint = if word == "missing_scope" {
                    ": the app lacks a scope (see docs/slack.md); add it and install the app again"
                } else {
                    ""
                };
                SendError::Refused(format!("Slack says {word}{hint}"))
            }
        }
    }
}

pub(super) struct SlackApi {
    base: String,
    deadline: Duration,
    client: RenewableClient,
}

impl SlackApi {
    pub(super) fn new(
        base: &str,
        http: PlatformHttp,
        deadline: Duration,
    ) -> Result<Self, HttpError> {
        Ok(Self {
            base: base.to_owned(),
            deadline,
            client: RenewableClient::new(http)?,
        })
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    pub(super) fn client(&self) -> reqwest::Client {
        self.client.get()
    }

    /// Drops all connections: one of them may be dead without being detected.
    pub(super) fn renew(&self) {
        self.client.renew("slack");
    }

    /// One request.
    pub(super) async fn call(
        &self,
        token: &str,
        method: &str,
        args: &Value,
    ) -> Result<Value, SlackCallError> {
        let request = self.client().post(format!("{}{method}", self.base));
        // Reading methods accept forms only.
        let request = if is_reading(method) {
            request
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form(args))
        } else {
            request
                .header(CONTENT_TYPE, "application/json; charset=utf-8")
                .body(args.to_string())
        };
        let request = request
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .timeout(self.deadline);
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => {
                let failed = failure(&error);
                if matches!(failed, SlackCallError::Unclear(_)) {
                    self.renew();
                }
                return Err(failed);
            }
        };
        self.read(method, answer).await
    }

    async fn read(&self, method: &str, answer: reqwest::Response) -> Result<Value, SlackCallError> {
        let status = answer.status();
        if status == reqwest::StatusCode::TOO_MANY_REQUESTS {
            return Err(SlackCallError::NotDone {
                error: format!("{method}: too many requests"),
                retry_after: Some(retry_after(&answer)),
            });
        }
        if !status.is_success() {
            return Err(SlackCallError::Unclear(format!(
                "{method}: status {status}"
            )));
        }
        let mut body = Vec::new();
        let mut answer = answer;
        loop {
            match answer.chunk().await {
                Ok(Some(piece)) if body.len() + piece.len() <= MAX_ANSWER => {
                    body.extend_from_slice(&piece);
                }
                Ok(Some(_)) => {
                    return Err(SlackCallError::Unclear(format!(
                        "{method}: an endless answer"
                    )));
                }
                Ok(None) => break,
                Err(error) => {
                    self.renew();
                    return Err(SlackCallError::Unclear(format!(
                        "{method}: {}",
                        plain(&error)
                    )));
                }
            }
        }
        let fields: Value = serde_json::from_slice(&body)
            .map_err(|_| SlackCallError::Unclear(format!("{method}: the answer is not JSON")))?;
        if fields["ok"] == true {
            return Ok(fields);
        }
        Err(refusal(fields["error"].as_str().unwrap_or("unknown_error")))
    }
}

/// Error codes with an uncertain outcome.
fn refusal(word: &str) -> SlackCallError {
    match word {
        // Documented: something may have been done before it failed.
        "fatal_error" | "internal_error" | "unknown_error" => {
            SlackCallError::Unclear(format!("Slack says {word}"))
        }
        "ratelimited"
        | "rate_limited"
        | "message_limit_exceeded"
        | "service_unavailable"
        | "request_timeout"
        | "team_added_to_org" => SlackCallError::NotDone {
            error: format!("Slack says {word}"),
            retry_after: None,
        },
        word => SlackCallError::Refused(word.to_owned()),
    }
}

fn is_reading(method: &str) -> bool {
    matches!(
        method,
        "conversations.history"
            | "conversations.replies"
            | "conversations.info"
            | "users.info"
            | "users.conversations"
            | "files.info"
            | "files.getUploadURLExternal"
    )
}

fn form(args: &Value) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in args.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::String(text) => drop(form.append_pair(name, text)),
            other => drop(form.append_pair(name, &other.to_string())),
        }
    }
    form.finish()
}

/// Only a failed connection certainly had no effect.
pub(super) fn failure(error: &reqwest::Error) -> SlackCallError {
    let text = plain(error);
    if error.is_connect() || error.is_builder() {
        return SlackCallError::NotDone {
            error: text,
            retry_after: None,
        };
    }
    SlackCallError::Unclear(text)
}

/// The error without the address, which may contain a ticket.
pub(super) fn plain(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        "no answer in time".to_owned()
    } else if error.is_connect() {
        "no connection".to_owned()
    } else {
        "the connection broke".to_owned()
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !more.contains("://") && !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

pub(super) fn retry_after(answer: &reqwest::Response) -> Duration {
    let seconds = answer
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.trim().parse::<u64>().ok());
    // Bounded: a wrong header must not silence a chat for a day.
    Duration::from_secs(seconds.unwrap_or(30).clamp(1, 600))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_mean_what_slack_documents() {
        let meant = |word| refusal(word).into_send_error();
        assert!(matches!(meant("channel_not_found"), SendError::Refused(_)));
        assert!(matches!(meant("invalid_blocks"), SendError::Markup(_)));
        assert!(matches!(meant("ratelimited"), SendError::NotSent { .. }));
        assert!(matches!(meant("token_revoked"), SendError::NotSent { .. }));
        assert!(matches!(meant("internal_error"), SendError::Unclear(_)));
        assert!(refusal("token_revoked").is_hopeless());
        assert!(!refusal("channel_not_found").is_hopeless());
    }

    #[test]
    fn a_form_has_every_argument_and_nothing_empty() {
        let args = json!({"channel": "C 1&", "limit": 5, "cursor": null, "all": true});
        assert_eq!(form(&args), "channel=C+1%26&limit=5&all=true");
    }
}
