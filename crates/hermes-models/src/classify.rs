//! Classification of failed calls. The only module of this crate that matches error texts.
//!
//! [`rules::RULES`] is an ordered table; the first row that matches decides. Each row has one
//! fixture in the tests.

#[cfg(test)]
mod fixtures;
mod limits;
mod overflow;
mod repeated;
mod report;
mod retry;
mod rules;
#[cfg(test)]
mod strangers;
mod transport;
#[cfg(test)]
mod vendors;
mod wording;

use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::model::ErrorClass;
use serde_json::Value;

pub(crate) use report::ErrorReport;
pub(crate) use transport::{TransportError, TransportErrorKind};

pub(crate) use limits::output_cap;

/// An error as lower-case text and as JSON, for searching names in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorAnswer<'a> {
    /// Lower case.
    pub(crate) text: &'a str,
    pub(crate) json: &'a Value,
}

/// Servers with a small window are usually started with 4,096 to 16,384 tokens.
const SUSPICIOUS_PROMPT: u32 = 14_000;

/// What is known about the failed call. Some errors state no cause, and only the size of the call
/// hints at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallContext {
    /// Rough size of the prompt in tokens.
    pub prompt_tokens: u32,
    /// The window of the model; 0: unknown.
    pub context_length: u32,
    /// The window is a guess: nothing says how large it is.
    pub window_assumed: bool,
    /// Maximum tokens requested for the answer; 0: unknown.
    pub answer_tokens: u32,
    /// User messages contain images.
    pub shown_images: bool,
    /// The model reasons for minutes, so a lost connection says nothing about size.
    pub slow_reasoner: bool,
}

impl CallContext {
    /// Whether the prompt fills more than `percent` of the window.
    fn fills(&self, percent: u64) -> bool {
        self.context_length > 0
            && u64::from(self.prompt_tokens) * 100 > u64::from(self.context_length) * percent
    }

    /// Whether the size of the call alone explains a refusal: the prompt is near the window or over
    /// it, or leaves no space for the requested answer.
    fn is_near_window(&self) -> bool {
        let asked = u64::from(self.prompt_tokens) + u64::from(self.answer_tokens);
        self.fills(70) || (self.fills(45) && asked > u64::from(self.context_length))
    }

    /// Whether the size of the call may explain a refusal that nothing else explains. Digits,
    /// hexadecimal text and rare scripts have twice as many tokens as estimated, and a server may
    /// have a window that nobody stated.
    pub(crate) fn may_overflow(&self) -> bool {
        self.fills(45) || (self.window_assumed && self.prompt_tokens >= SUSPICIOUS_PROMPT)
    }
}

/// The meaning of an error, and the values it states.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ErrorVerdict {
    /// The rule that matched.
    pub rule: &'static str,
    pub class: ErrorClass,
    /// The provider's message, shortened and without secrets.
    pub message: String,
    pub retry_after: Option<Duration>,
    /// Window or output cap in tokens, by class.
    pub limit: Option<u32>,
    /// The context window, if an error of another class states it.
    pub window: Option<u32>,
    /// The parsed error.
    pub report: ErrorReport,
}

impl ErrorVerdict {
    /// The error, if one of our optional fields may have caused it. `images`: whether any were
    /// sent; without them, an error about images means something else.
    pub(crate) fn field_complaint(&self, images: bool) -> Option<ErrorAnswer<'_>> {
        let elsewhere = !images
            && matches!(
                self.class,
                ErrorClass::ImagesUnsupported | ErrorClass::ImageTooLarge
            );
        let open = elsewhere
            || matches!(
                self.class,
                ErrorClass::Format | ErrorClass::Unknown | ErrorClass::ToolContentRejected
            )
            || matches!(
                self.rule,
                "output cap"
                    | "answer limit"
                    | "reasoning echo"
                    | "thought signature"
                    | "by size"
                    | "by numbers"
                    | "bare 400, large prompt"
            );
        let wrong_request = self
            .report
            .status
            .is_none_or(|status| matches!(status, 400 | 404 | 405 | 409 | 415 | 422 | 500..=502));
        (open && wrong_request).then_some(ErrorAnswer {
            text: &self.report.text,
            json: &self.report.json,
        })
    }
}

/// Classifies an error response. `headers` returns a header by its lower-case name.
pub(crate) fn answer(
    status: Option<u16>,
    headers: &dyn Fn(&str) -> Option<String>,
    body: &[u8],
    situation: &CallContext,
    now: DateTime<Utc>,
) -> ErrorVerdict {
    let report = ErrorReport::read(status, body);
    judge(report, headers, situation, now)
}

/// Judges an error object inside a successful answer.
pub(crate) fn inline(error: &Value, situation: &CallContext, now: DateTime<Utc>) -> ErrorVerdict {
    let report = ErrorReport::from_json(None, error);
    judge(report, &|_| None, situation, now)
}

fn judge(
    mut report: ErrorReport,
    headers: &dyn Fn(&str) -> Option<String>,
    situation: &CallContext,
    now: DateTime<Utc>,
) -> ErrorVerdict {
    report.states_retry_time = retry::stated(headers, &report, now).is_some();
    let rule = rules::first_match(&report, situation);
    let window = limits::window(&report.text).or_else(|| limits::stated_window(&report.json));
    let limit = match rule.class {
        ErrorClass::ContextOverflow => window,
        ErrorClass::OutputCap if rule.name == "answer does not fit" => {
            limits::available_output(&report.text)
        }
        ErrorClass::OutputCap if rule.name == "affordable answer" => {
            limits::affordable(&report.text)
        }
        ErrorClass::OutputCap => limits::output_cap(&report.text),
        ErrorClass::LongContextTier => Some(200_000),
        _ => None,
    };
    let retry_after = matches!(
        rule.class,
        ErrorClass::RateLimit
            | ErrorClass::UpstreamRateLimit
            | ErrorClass::Overloaded
            | ErrorClass::Server
            | ErrorClass::Billing
    )
    .then(|| retry::after(headers, &report, now))
    .flatten();
    ErrorVerdict {
        rule: rule.name,
        class: rule.class,
        message: report.shown(),
        retry_after,
        limit,
        window: window.filter(|_| rule.name == "answer does not fit"),
        report,
    }
}
