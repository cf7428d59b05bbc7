//! The outcome of a turn in OpenAI's terms.

use axum::http::StatusCode;
use hermes_core::event::TurnExit;
use hermes_core::model::ErrorClass;
use hermes_core::redact;
use hermes_core::usage::Usage;
use serde_json::{Value, json};

use super::error::ApiError;
use super::reply;
use super::turn::TurnResult;

/// SDKs retry after server errors; the turn has already retried what is possible.
const SHOULD_RETRY: axum::http::HeaderName = axum::http::HeaderName::from_static("x-should-retry");

/// OpenAI's code for a conversation that does not fit the model.
const CONTEXT: &str = "context_length_exceeded";

/// How much of an answer there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    Complete,
    Partial,
    Failed,
}

/// How an outcome is reported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OutcomeReport {
    /// OpenAI's finish reason.
    pub(super) finish: &'static str,
    pub(super) completion: Completion,
    /// Why it is not all it should be, secrets hidden.
    pub(super) error: Option<String>,
    pub(super) code: &'static str,
}

impl OutcomeReport {
    pub(super) fn new(outcome: &TurnResult) -> Self {
        let (finish, completion, error) = match &outcome.exit {
            TurnExit::Answered => ("stop", Completion::Complete, None),
            TurnExit::Interrupted => (
                "error",
                Completion::Partial,
                Some("the turn was interrupted".to_owned()),
            ),
            TurnExit::BudgetExhausted { calls } => (
                "length",
                Completion::Partial,
                Some(format!(
                    "the turn used its {calls} model calls; agent.max_turns sets their number"
                )),
            ),
            TurnExit::CostCapReached { usd } => (
                "length",
                Completion::Partial,
                Some(format!("the turn reached its limit of {usd} dollars")),
            ),
            TurnExit::Partial { why } => ("length", Completion::Partial, Some(why.clone())),
            TurnExit::Refused { message } => {
                ("content_filter", Completion::Failed, Some(message.clone()))
            }
            TurnExit::NoAnswer { why } => ("error", Completion::Failed, Some(why.clone())),
            TurnExit::Failed { message, .. }
            | TurnExit::ContextFull { message }
            | TurnExit::StoreFailed { message }
            | TurnExit::LoopStopped { message } => {
                ("error", Completion::Failed, Some(message.clone()))
            }
        };
        let code = match &outcome.exit {
            TurnExit::Interrupted => "interrupted",
            TurnExit::ContextFull { .. }
            | TurnExit::Failed {
                class: ErrorClass::ContextOverflow,
                ..
            } => CONTEXT,
            TurnExit::Refused { .. } => "content_filter",
            _ if finish == "length" => "output_truncated",
            _ => "agent_error",
        };
        Self {
            finish,
            completion,
            error: error.map(|error| redact::secrets(&error).into_owned()),
            code,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.completion == Completion::Complete
    }

    pub(super) fn is_partial(&self) -> bool {
        self.completion == Completion::Partial
    }

    pub(super) fn is_failed(&self) -> bool {
        self.completion == Completion::Failed
    }

    /// The block for incomplete answers.
    pub(super) fn block(&self) -> Value {
        json!({
            "completed": false,
            "partial": self.is_partial(),
            "failed": self.is_failed(),
            "error": self.error,
            "error_code": self.code,
        })
    }

    /// The conversation does not fit the model, compressed or not: only the client can send less.
    fn is_too_long(&self) -> bool {
        self.code == CONTEXT
    }

    /// The type of the error object.
    pub(super) fn kind(&self) -> &'static str {
        if self.is_too_long() {
            "invalid_request_error"
        } else {
            "agent_error"
        }
    }

    /// The code of a response that failed.
    pub(super) fn response_code(&self) -> &'static str {
        if self.is_too_long() {
            CONTEXT
        } else {
            "server_error"
        }
    }

    /// There is no answer.
    pub(super) fn error(&self, session: &str) -> ApiError {
        let message = self.error.clone().unwrap_or_default();
        let error = if self.is_too_long() {
            ApiError::bad(message).code(CONTEXT)
        } else {
            ApiError::new(StatusCode::BAD_GATEWAY, message).code("agent_incomplete")
        };
        error
            .more(self.block())
            .header(reply::SESSION_ID, session)
            .header(reply::COMPLETED, "false")
            .header(
                reply::PARTIAL,
                if self.is_partial() { "true" } else { "false" },
            )
            .header(SHOULD_RETRY, "false")
    }
}

/// As chat completions count.
pub(super) fn chat_usage(usage: &Usage) -> Value {
    let (prompt, completion) = (usage.prompt_tokens(), usage.output);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}

/// As the responses format counts.
pub(super) fn response_usage(usage: &Usage) -> Value {
    let (input, output) = (usage.prompt_tokens(), usage.output);
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": input + output,
    })
}
