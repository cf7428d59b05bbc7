//! Server reports for the user: as JSON, as a table, and in detail.

mod details;
mod now;

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::redact;
use serde::{Deserialize, Serialize};

use crate::actor::state::status::{LastError, ServerStatus};
use crate::actor::state::{BreakerState, LinkState, ReportedState};
use crate::config::{Problem, ServerEntry};
use crate::status::metrics::Counters;
use crate::tools::catalogue::Catalogue;
use crate::transport::link::TransportKind;

pub use details::details;
pub(crate) use now::remedy;
pub use now::{doing, line};

/// The report on one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerReport {
    pub name: String,
    pub transport: Option<TransportKind>,
    /// The URL or command line, without secrets.
    pub target: Option<String>,
    pub enabled: bool,
    /// `invalid` when its settings cannot be used; otherwise the state of the link.
    pub state: ReportedState,
    /// Number of tools offered to the model.
    pub tools: usize,
    /// Problems with its settings.
    pub problems: Vec<Problem>,
    /// Oddities in the tools that it offers.
    pub remarks: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkReport>,
}

/// The part that changes at run time. Times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    pub since: DateTime<Utc>,
    pub why: Option<String>,
    /// Number of the connection attempt that is running, or of the last one that failed.
    pub attempt: Option<u32>,
    pub epoch: u64,
    pub era: Option<crate::transport::link::Era>,
    pub protocol_version: Option<String>,
    pub server: Option<String>,
    pub tools_offered: usize,
    pub last_ok: Option<DateTime<Utc>>,
    pub call_failed: bool,
    pub last_error: Option<crate::actor::state::status::LastError>,
    pub rtt_p50_ms: Option<f64>,
    pub rtt_p95_ms: Option<f64>,
    pub inflight: usize,
    pub queued: usize,
    pub breaker: BreakerState,
    pub next_attempt_in: Option<f64>,
    pub needs_auth: bool,
    pub token_expires_in: Option<f64>,
    pub child_pid: Option<u32>,
    pub uptime: Option<f64>,
    pub stderr_tail: Option<String>,
    /// Requests from the server, by method and outcome.
    pub requests: BTreeMap<String, u64>,
    pub counters: Counters,
}

impl ServerReport {
    pub fn new(
        entry: &ServerEntry,
        live: Option<(ServerStatus, Counters)>,
        catalogue: &Catalogue,
    ) -> Self {
        let config = entry.config.as_ref();
        let state = match (&live, config) {
            (_, None) => ReportedState::Invalid,
            (Some((status, _)), _) => status.state,
            (None, Some(_)) => ReportedState::Stopped,
        };
        let own = |remark: &&crate::tools::catalogue::Remark| remark.server == entry.name;
        Self {
            name: entry.name.clone(),
            transport: config.map(crate::config::ServerConfig::kind),
            target: config.map(|config| config.transport.target()),
            enabled: config.is_none_or(|config| config.enabled),
            state,
            tools: catalogue.count(&entry.name),
            problems: entry.problems.clone(),
            remarks: catalogue
                .remarks
                .iter()
                .filter(own)
                .map(|remark| remark.text.clone())
                .collect(),
            link: live.map(|(status, counters)| LinkReport::new(status, counters)),
        }
    }

    /// The same report after some time without new information.
    #[must_use]
    pub(crate) fn later(mut self, passed: Duration) -> Self {
        let passed = passed.as_secs_f64();
        if let Some(link) = &mut self.link {
            for left in [&mut link.next_attempt_in, &mut link.token_expires_in] {
                *left = left.map(|left| (left - passed).max(0.0));
            }
            link.uptime = link.uptime.map(|uptime| uptime + passed);
        }
        self
    }

    /// Adds the fields that only the state contains.
    #[must_use]
    pub(crate) fn in_state(mut self, state: &LinkState) -> Self {
        if let (
            Some(link),
            LinkState::Connecting { attempt } | LinkState::Backoff { attempt, .. },
        ) = (&mut self.link, state)
        {
            link.attempt = Some(*attempt);
        }
        self
    }

    /// Number of calls made.
    fn calls(&self) -> u64 {
        let link = self.link.as_ref();
        link.map_or(0, |link| link.counters.calls.values().sum())
    }

    /// The table row, one cell for each of [`COLUMNS`].
    pub fn cells(&self, now: DateTime<Utc>) -> [String; 7] {
        let last_ok = self.link.as_ref().and_then(|link| link.last_ok);
        [
            self.name.clone(),
            self.transport.map_or("-", TransportKind::name).to_owned(),
            state_text(self.state).to_owned(),
            format!(
                "{}{}",
                self.tools,
                if self.keeps_tools() { "*" } else { "" }
            ),
            last_ok.map_or_else(|| "-".to_owned(), |at| ago(at, now)),
            self.calls().to_string(),
            detail(self, now),
        ]
    }

    /// Whether the model still sees the tools although the server is down.
    fn keeps_tools(&self) -> bool {
        self.tools > 0 && !self.is_up()
    }

    /// Whether a connection attempt is running, so that its condition is unknown.
    pub fn is_connecting(&self) -> bool {
        self.state == ReportedState::Connecting
    }

    /// Whether calls can be made.
    pub fn is_up(&self) -> bool {
        matches!(
            self.state,
            ReportedState::Ready | ReportedState::Degraded | ReportedState::Recycled
        )
    }
}

impl LinkReport {
    fn new(status: ServerStatus, counters: Counters) -> Self {
        let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let seconds = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
        let clean = |text: String| redact::secrets(&text).into_owned();
        Self {
            since: status.since,
            why: status.why.map(clean),
            attempt: None,
            epoch: status.epoch,
            era: status.era,
            protocol_version: status.protocol_version,
            server: status.server,
            tools_offered: status.tools,
            last_ok: status.last_ok,
            call_failed: status.call_failed,
            last_error: status.last_error.map(|error| LastError {
                text: clean(error.text),
                ..error
            }),
            rtt_p50_ms: status.rtt_p50.map(millis),
            rtt_p95_ms: status.rtt_p95.map(millis),
            inflight: status.inflight,
            queued: status.queued,
            breaker: status.breaker,
            next_attempt_in: status.next_attempt_in.map(seconds),
            needs_auth: status.needs_auth,
            token_expires_in: status.token_expires_in.map(seconds),
            child_pid: status.child_pid,
            uptime: status.uptime.map(seconds),
            stderr_tail: status.stderr_tail.map(clean),
            requests: status.requests,
            counters,
        }
    }
}

/// Headings of [`ServerReport::cells`].
pub const COLUMNS: [&str; 7] = [
    "NAME",
    "TRANSPORT",
    "STATE",
    "TOOLS",
    "LAST OK",
    "CALLS",
    "DETAIL",
];

/// One line per server, with a heading and a total.
pub fn table(reports: &[ServerReport], now: DateTime<Utc>) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(reports.iter().map(|report| report.cells(now)));
    let mut out = String::new();
    for row in &rows {
        let widths = (0..row.len()).map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        });
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out.push_str(&summary(reports));
    if let Some(remark) = remark(reports) {
        out.push('\n');
        out.push_str(remark);
    }
    out
}

/// `2 ok · 1 down · 1 off`; servers that are still connecting are counted separately.
pub fn summary(reports: &[ServerReport]) -> String {
    let count = |states: &[ReportedState]| {
        let of_these = |report: &&ServerReport| states.contains(&report.state);
        reports.iter().filter(of_these).count()
    };
    let up = count(&[ReportedState::Ready, ReportedState::Recycled]);
    let connecting = count(&[ReportedState::Connecting]);
    let examined = count(&[ReportedState::Degraded]);
    let off = count(&[ReportedState::Disabled]);
    let down = reports.len() - up - connecting - examined - off;
    let mut parts = vec![format!("{up} ok")];
    for (number, word) in [(examined, "being examined"), (connecting, "connecting")] {
        if number > 0 {
            parts.push(format!("{number} {word}"));
        }
    }
    parts.push(format!("{down} down · {off} off"));
    parts.join(" · ")
}

/// The footnote to the mark at a number of tools, where that mark is used.
pub fn remark(reports: &[ServerReport]) -> Option<&'static str> {
    reports
        .iter()
        .any(ServerReport::keeps_tools)
        .then_some("* the model still sees these tools; calls say that the server is down")
}

/// The state as shown to users.
fn state_text(state: ReportedState) -> &'static str {
    match state {
        ReportedState::Ready => "connected",
        ReportedState::Backoff => "down",
        ReportedState::NeedsAuth => "needs login",
        ReportedState::Recycled => "asleep",
        ReportedState::Disabled => "off",
        ReportedState::Degraded => "in doubt",
        ReportedState::Invalid
        | ReportedState::Connecting
        | ReportedState::Parked
        | ReportedState::Stopped => state.name(),
    }
}

/// The most important fact about the server, in a few words.
fn detail(report: &ServerReport, now: DateTime<Utc>) -> String {
    if let Some(problem) = report.problems.iter().find(|problem| problem.fatal) {
        return problem.text.clone();
    }
    let Some(link) = &report.link else {
        return String::new();
    };
    let mut parts = Vec::new();
    match report.state {
        ReportedState::Ready if link.failed_last() => {
            parts.extend(link.failure(now).map(|text| format!("failed {text}")));
        }
        ReportedState::Ready | ReportedState::Recycled => {}
        ReportedState::NeedsAuth => parts.push(remedy(&report.name, link.needs_auth)),
        ReportedState::Degraded | ReportedState::Connecting => parts.push(doing(report, now)),
        _ => {
            let next = link.next_attempt_in;
            parts.extend(next.map(|seconds| format!("next try in {}", span(seconds))));
            parts.extend(link.why.as_deref().map(one_line));
        }
    }
    if let Some(pid) = link.child_pid {
        parts.push(format!("pid {pid}"));
    }
    let renewed: u64 = reconnects(link).map(|(_, count)| count).sum();
    if renewed > 0 {
        parts.push(format!("reconnected {renewed}x"));
    }
    if link.breaker != BreakerState::Closed {
        parts.push(format!("breaker {}", link.breaker.name()));
    }
    parts.join(", ")
}

fn reconnects(link: &LinkReport) -> impl Iterator<Item = (&str, u64)> {
    link.counters
        .reconnects
        .iter()
        .filter(|(reason, _)| reason.as_str() != "start")
        .map(|(reason, count)| (reason.as_str(), *count))
}

fn one_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    match line.char_indices().nth(120) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

fn ago(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let seconds = (now - at).num_seconds().max(0);
    if seconds < 2 {
        "now".to_owned()
    } else {
        format!("{} ago", span(seconds as f64))
    }
}

fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..=119 => format!("{whole}s"),
        120..=7199 => format!("{}m", whole / 60),
        7200..=172_799 => format!("{}h", whole / 3600),
        _ => format!("{}d", whole / 86_400),
    }
}

#[cfg(test)]
mod tests;
