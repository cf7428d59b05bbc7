//! What a failed call means. The one place of this crate that reads error texts.
//!
//! [`rules::RULES`] is an ordered table; the first row that matches decides. Each row has one
//! fixture in the tests.

#[cfg(test)]
mod fixtures;
mod limits;
mod meaning;
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

use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::model::ErrorClass;
use serde_json::Value;

pub use report::Report;
pub use transport::{Transport, TransportKind};

pub(crate) use limits::output_cap;

/// An error as its words and its JSON, for who looks for names in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorAnswer<'a> {
    /// Lower case.
    pub(crate) text: &'a str,
    pub(crate) json: &'a Value,
}

/// What is known about the call that failed. Some errors say nothing, and only its size hints
/// at the cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// Rough size of the prompt in tokens.
    pub prompt_tokens: u32,
    /// The window of the model; 0: unknown.
    pub context_length: u32,
    /// Tokens that are asked for the answer; 0: unknown.
    pub answer_tokens: u32,
    /// People's messages show images.
    pub shown_images: bool,
    /// The model thinks for minutes; a lost connection then says nothing about size.
    pub slow_reasoner: bool,
}

impl Situation {
    /// Whether the prompt fills more than `percent` of the window.
    fn fills(&self, percent: u64) -> bool {
        self.context_length > 0
            && u64::from(self.prompt_tokens) * 100 > u64::from(self.context_length) * percent
    }

    /// Whether the size of the call alone explains a refusal: the prompt is near the window or over
    /// it, or leaves no room for the answer that is asked for.
    fn is_near_the_window(&self) -> bool {
        let asked = u64::from(self.prompt_tokens) + u64::from(self.answer_tokens);
        self.fills(70) || (self.fills(45) && asked > u64::from(self.context_length))
    }
}

/// What an error means and what it states.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The row of the table that decided.
    pub rule: &'static str,
    pub class: ErrorClass,
    /// What the provider said, shortened and without secrets.
    pub message: String,
    pub retry_after: Option<Duration>,
    /// Window or output cap in tokens, by class.
    pub limit: Option<u32>,
    /// The window, where an error of another class states it.
    pub window: Option<u32>,
    /// The report that was judged.
    pub report: Report,
}

impl Verdict {
    /// The error, if one of our own optional fields may be its cause. `images`: whether any were sent;
    /// without them, an error that speaks of images means something else.
    pub(crate) fn about_a_field(&self, images: bool) -> Option<ErrorAnswer<'_>> {
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

/// Judges an error answer. `headers` yields a header by its lower-case name.
pub fn answer(
    status: Option<u16>,
    headers: &dyn Fn(&str) -> Option<String>,
    body: &[u8],
    situation: &Situation,
    now: DateTime<Utc>,
) -> Verdict {
    let report = Report::read(status, body);
    judge(report, headers, situation, now)
}

/// Judges an error object inside a successful answer.
pub fn inline(error: &Value, situation: &Situation, now: DateTime<Utc>) -> Verdict {
    let report = Report::from_json(None, error);
    judge(report, &|_| None, situation, now)
}

fn judge(
    mut report: Report,
    headers: &dyn Fn(&str) -> Option<String>,
    situation: &Situation,
    now: DateTime<Utc>,
) -> Verdict {
    report.comes_back = retry::stated(headers, &report, now).is_some();
    let rule = rules::first_match(&report, situation);
    let window = limits::window(&report.text).or_else(|| limits::stated_window(&report.json));
    let limit = match rule.class {
        ErrorClass::ContextOverflow => window,
        ErrorClass::OutputCap if rule.name == "answer does not fit" => limits::room(&report.text),
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
    Verdict {
        rule: rule.name,
        class: rule.class,
        message: report.shown(),
        retry_after,
        limit,
        window: window.filter(|_| rule.name == "answer does not fit"),
        report,
    }
}
