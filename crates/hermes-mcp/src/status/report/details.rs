//! The detailed report on one server.

use chrono::{DateTime, Utc};

use super::{LinkReport, ServerReport, ago, doing, reconnects, span, state_text};
use crate::transport::link::Era;

/// Number of lines of a child's stderr that are shown.
const TAIL_LINES: usize = 8;

/// One fact per line.
pub fn details(report: &ServerReport, now: DateTime<Utc>) -> String {
    let mut rows = Rows(vec![format!(
        "{}: {}",
        report.name,
        state_text(report.state)
    )]);
    let target = report.target.as_deref().unwrap_or("?");
    let transport = report.transport;
    rows.add(
        "transport",
        transport.map(|kind| format!("{}, {target}", kind.name())),
    );
    if let Some(link) = &report.link {
        add_state(&mut rows, report, link, now);
        add_traffic(&mut rows, link, now);
        add_child(&mut rows, link);
    }
    for problem in &report.problems {
        rows.add("problem", Some(problem.to_string()));
    }
    for remark in &report.remarks {
        rows.add("remark", Some(remark.clone()));
    }
    rows.0.join("\n")
}

struct Rows(Vec<String>);

impl Rows {
    fn add(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.0.push(format!("  {name:<14}{value}"));
        }
    }
}

fn add_state(rows: &mut Rows, report: &ServerReport, link: &LinkReport, now: DateTime<Utc>) {
    let since = link.since.format("%Y-%m-%d %H:%M:%S UTC");
    rows.add("since", Some(format!("{since} ({})", ago(link.since, now))));
    rows.add("now", Some(doing(report, now)));
    rows.add("why", link.why.clone());
    rows.add("server", link.server.clone());
    let era = match link.era {
        None => "",
        Some(Era::Legacy) => " (with handshake)",
        Some(Era::Modern) => " (stateless)",
    };
    let version = link.protocol_version.as_ref();
    rows.add("protocol", version.map(|version| format!("{version}{era}")));
    rows.add("epoch", Some(link.epoch.to_string()));
    rows.add(
        "tools",
        Some(format!(
            "{} offered to the model, {} on the server",
            report.tools, link.tools_offered
        )),
    );
    let expires = link.token_expires_in;
    rows.add(
        "token",
        expires.map(|seconds| format!("expires in {}", span(seconds))),
    );
}

fn add_traffic(rows: &mut Rows, link: &LinkReport, now: DateTime<Utc>) {
    rows.add("last success", Some(link.success(now)));
    rows.add("last failure", link.failure(now));
    let p95 = link.rtt_p95_ms.or(link.rtt_p50_ms).unwrap_or(0.0);
    let rtt = link.rtt_p50_ms;
    rows.add(
        "round trip",
        rtt.map(|p50| format!("p50 {p50} ms, p95 {p95} ms")),
    );
    let in_flight = format!("{}, {} waiting", link.inflight, link.queued);
    rows.add("in flight", Some(in_flight));
    rows.add("breaker", Some(link.breaker.name().to_owned()));
    let reasons: Vec<String> = reconnects(link)
        .map(|(reason, count)| format!("{count}x {reason}"))
        .collect();
    rows.add("reconnects", Some(reasons.join(", ")));
    let asked: Vec<String> = link
        .requests
        .iter()
        .map(|(what, count)| format!("{count}x {what}"))
        .collect();
    rows.add("asked of us", Some(asked.join(", ")));
}

fn add_child(rows: &mut Rows, link: &LinkReport) {
    let uptime = span(link.uptime.unwrap_or(0.0));
    let pid = link.child_pid;
    rows.add("child", pid.map(|pid| format!("pid {pid}, up {uptime}")));
    let Some(tail) = &link.stderr_tail else {
        return;
    };
    let mut lines: Vec<&str> = tail.lines().rev().take(TAIL_LINES).collect();
    lines.reverse();
    rows.add("stderr", Some(lines.join("\n                ")));
}
