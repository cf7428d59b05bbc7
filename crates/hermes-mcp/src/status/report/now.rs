//! The current activity of a server in words, for `hermes mcp status`.

use chrono::{DateTime, Utc};

use super::{LinkReport, ServerReport, ago, one_line, span, state_text};
use crate::actor::state::ReportedState;

/// One sentence on the current activity.
pub fn doing(report: &ServerReport, now: DateTime<Utc>) -> String {
    let Some(link) = &report.link else {
        return String::new();
    };
    let since = span((now - link.since).as_seconds_f64());
    match report.state {
        ReportedState::Ready if link.failed_last() => {
            "connected, but the last request failed; see the last failure".to_owned()
        }
        ReportedState::Ready => "healthy".to_owned(),
        ReportedState::Degraded => {
            let why = link.why.as_deref().map_or("unknown", |why| why.trim());
            format!(
                "not answering as it should: {}; being examined since {since}",
                one_line(why)
            )
        }
        ReportedState::Connecting => connecting(link, &since),
        ReportedState::Backoff => format!(
            "reconnecting, attempt {}{}",
            link.attempt.unwrap_or(0) + 1,
            next_try(link)
        ),
        ReportedState::Parked => {
            format!("given up for now{}, or with the next call", next_try(link))
        }
        ReportedState::NeedsAuth => format!("waiting: {}", remedy(&report.name, link.needs_auth)),
        ReportedState::Recycled => "asleep; the next call starts it".to_owned(),
        ReportedState::Invalid | ReportedState::Disabled | ReportedState::Stopped => String::new(),
    }
}

/// What the user can do after the server refused our credentials.
pub(crate) fn remedy(server: &str, logs_in: bool) -> String {
    if logs_in {
        return format!("log in with `hermes mcp login {server}`");
    }
    "check the credentials in its settings (`headers`, `env`)".to_owned()
}

/// Everything on one line: the state, the current activity, the last success, and the last failure
/// where it is the latest event.
pub fn line(report: &ServerReport, now: DateTime<Utc>) -> String {
    let mut text = state_text(report.state).to_owned();
    if let Some(problem) = report.problems.iter().find(|problem| problem.fatal) {
        return format!("{text}: {problem}");
    }
    let doing = doing(report, now);
    if !doing.is_empty() {
        text = format!("{text}: {doing}");
    }
    let Some(link) = report.link.as_ref().filter(|_| report.enabled) else {
        return text;
    };
    text = format!("{text}; last success {}", link.success(now));
    match link.failure(now).filter(|_| link.failed_last()) {
        Some(failure) => format!("{text}; last failure {failure}"),
        None => text,
    }
}

fn connecting(link: &LinkReport, since: &str) -> String {
    match (link.epoch, link.attempt.unwrap_or(1)) {
        (0, 0 | 1) => format!("connecting for {since}, no answer yet"),
        (0, attempt) => format!("connecting for {since}, attempt {attempt}"),
        (_, attempt) => format!("reconnecting for {since}, attempt {}", attempt.max(1)),
    }
}

fn next_try(link: &LinkReport) -> String {
    link.next_attempt_in.map_or_else(String::new, |seconds| {
        format!(", next try in {}", span(seconds))
    })
}

impl LinkReport {
    /// Whether the last request of a caller failed, or the latest event is a failure: a server that
    /// answers our probes but fails every call is not healthy.
    pub(super) fn failed_last(&self) -> bool {
        let failed = self.last_error.as_ref().map(|error| error.at);
        self.call_failed || (failed.is_some() && failed > self.last_ok)
    }

    /// The last failure: when and why.
    pub fn failure(&self, now: DateTime<Utc>) -> Option<String> {
        let error = self.last_error.as_ref()?;
        let http = error
            .http_status
            .map(|status| format!(", HTTP {status}"))
            .unwrap_or_default();
        let (when, text) = (ago(error.at, now), one_line(&error.text));
        Some(format!("{when} [{:?}{http}]: {text}", error.class))
    }

    /// When the last request succeeded.
    pub fn success(&self, now: DateTime<Utc>) -> String {
        self.last_ok
            .map_or_else(|| "never".to_owned(), |at| ago(at, now))
    }
}
