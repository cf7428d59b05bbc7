use std::collections::BTreeMap;

use chrono::TimeDelta;
use hermes_config::{Env, Home, ProcessEnv};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::config;
use crate::transport::link::{Era, TransportKind};

fn entry(name: &str, entry: &Value) -> ServerEntry {
    let env = Env::from_process(&ProcessEnv::from_vars([("A", "b")]));
    config::server(name, entry, &env, &Home::at("/nowhere"))
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

fn status(state: ReportedState) -> ServerStatus {
    ServerStatus {
        name: "x".to_owned(),
        transport: TransportKind::Http,
        era: Some(Era::Legacy),
        protocol_version: Some("2025-11-25".to_owned()),
        server: Some("srv 1.2".to_owned()),
        state,
        since: now() - TimeDelta::minutes(5),
        why: (state == ReportedState::Backoff).then(|| "connection refused".to_owned()),
        epoch: 3,
        tools: 9,
        call_failed: false,
        last_ok: Some(now() - TimeDelta::seconds(12)),
        last_error: None,
        rtt_p50: Some(Duration::from_micros(1500)),
        rtt_p95: Some(Duration::from_millis(4)),
        inflight: 1,
        queued: 2,
        breaker: BreakerState::Closed,
        next_attempt_in: (state == ReportedState::Backoff).then(|| Duration::from_secs(38)),
        reconnects: [("start".to_owned(), 1), ("session_lost".to_owned(), 2)].into(),
        needs_auth: state == ReportedState::NeedsAuth,
        token_expires_in: Some(Duration::from_mins(59)),
        child_pid: None,
        uptime: Some(Duration::from_mins(5)),
        stderr_tail: None,
        requests: BTreeMap::default(),
    }
}

fn counters() -> Counters {
    Counters {
        calls: [
            ("call_tool/ok".to_owned(), 16),
            ("call_tool/error".to_owned(), 1),
        ]
        .into(),
        reconnects: status(ReportedState::Ready).reconnects,
        ..Counters::default()
    }
}

fn reports() -> Vec<ServerReport> {
    let catalogue = Catalogue::default();
    let http = json!({"url": "https://user:pw@host/mcp?k=1"});
    vec![
        ServerReport::new(
            &entry("wpcom", &http),
            Some((status(ReportedState::Ready), counters())),
            &catalogue,
        ),
        ServerReport::new(
            &entry("canny", &http),
            Some((status(ReportedState::Backoff), counters())),
            &catalogue,
        )
        .in_state(&LinkState::Backoff {
            attempt: 2,
            until: tokio::time::Instant::now(),
            why: String::new(),
        }),
        ServerReport::new(
            &entry("linear", &http),
            Some((status(ReportedState::NeedsAuth), Counters::default())),
            &catalogue,
        ),
        ServerReport::new(
            &entry("broken", &json!({"url": "ftp://x/"})),
            None,
            &catalogue,
        ),
    ]
}

#[test]
fn the_table_tells_the_story() {
    assert_eq!(
        table(&reports(), now()),
        "\
NAME    TRANSPORT  STATE        TOOLS  LAST OK  CALLS  DETAIL
wpcom   http       connected    0      12s ago  17     reconnected 2x
canny   http       down         0      12s ago  17     next try in 38s, connection refused, reconnected 2x
linear  http       needs login  0      12s ago  0      log in with `hermes mcp login linear`
broken  -          invalid      0      -        0      ftp:// is not supported; use http:// or https://
1 ok · 3 down · 0 off"
    );
}

#[test]
fn one_server_in_full() {
    assert_eq!(
        details(&reports()[1], now()),
        "\
canny: down
  transport     http, https://host/mcp?…
  since         2027-01-15 07:55:00 UTC (5m ago)
  now           reconnecting, attempt 3, next try in 38s
  why           connection refused
  server        srv 1.2
  protocol      2025-11-25 (with handshake)
  epoch         3
  tools         0 offered to the model, 9 on the server
  token         expires in 59m
  last success  12s ago
  round trip    p50 1.5 ms, p95 4 ms
  in flight     1, 2 waiting
  breaker       closed
  reconnects    2x session_lost"
    );
}

#[test]
fn json_has_everything_and_no_secret() {
    let text = serde_json::to_string(&reports()).unwrap();
    assert!(!text.contains("pw@") && !text.contains("k=1"), "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value[0]["link"]["rtt_p50_ms"], 1.5);
    assert_eq!(value[1]["link"]["next_attempt_in"], 38.0);
    assert_eq!(value[3]["state"], "invalid");
    assert_eq!(
        value[0]["link"]["counters"]["reconnects"]["session_lost"],
        2
    );
}

#[test]
fn spans_are_short() {
    let shown: Vec<String> = [0.4, 59.6, 150.0, 7200.0, 200_000.0].map(span).into();
    assert_eq!(shown, ["0s", "60s", "2m", "2h", "2d"]);
}

fn failure(seconds_ago: i64) -> LastError {
    LastError {
        at: now() - TimeDelta::seconds(seconds_ago),
        class: crate::failure::FailureClass::TimedOut,
        text: "no answer within 300 s".to_owned(),
        http_status: None,
    }
}

/// A server in the given state, with its last failure `failed` seconds ago and its last success 12
/// s ago.
fn in_state(state: ReportedState, failed: Option<i64>) -> ServerReport {
    let mut status = status(state);
    status.last_error = failed.map(failure);
    status.why = match state {
        ReportedState::Degraded => Some("HTTP 500 to a ping".to_owned()),
        _ => status.why,
    };
    if state == ReportedState::Connecting {
        status.epoch = 0;
        status.last_ok = None;
        status.since = now() - TimeDelta::seconds(3);
    }
    let http = json!({"url": "https://host/mcp"});
    let live = Some((status, Counters::default()));
    ServerReport::new(&entry("x", &http), live, &Catalogue::default())
}

#[test]
fn what_is_done_now_is_true_in_every_state() {
    for (state, failed, words) in [
        (ReportedState::Ready, None, "healthy"),
        (ReportedState::Ready, Some(60), "healthy"),
        (
            ReportedState::Ready,
            Some(5),
            "connected, but the last request failed; see the last failure",
        ),
        (
            ReportedState::Degraded,
            None,
            "not answering as it should: HTTP 500 to a ping; being examined since 5m",
        ),
        (
            ReportedState::Connecting,
            None,
            "connecting for 3s, no answer yet",
        ),
        (
            ReportedState::Backoff,
            None,
            "reconnecting, attempt 1, next try in 38s",
        ),
        (
            ReportedState::NeedsAuth,
            None,
            "waiting: log in with `hermes mcp login x`",
        ),
        (
            ReportedState::Recycled,
            None,
            "asleep; the next call starts it",
        ),
        (ReportedState::Disabled, None, ""),
    ] {
        assert_eq!(doing(&in_state(state, failed), now()), words, "{state:?}");
    }
}

#[test]
fn a_server_in_doubt_is_never_shown_as_connected() {
    let report = in_state(ReportedState::Degraded, Some(2));
    let shown = table(std::slice::from_ref(&report), now());
    assert!(!shown.contains("connected"), "{shown}");
    assert!(shown.contains("not answering as it should"), "{shown}");
    assert!(
        shown.contains("0 ok · 1 being examined · 0 down"),
        "{shown}"
    );
    let page = details(&report, now());
    assert!(page.starts_with("x: in doubt\n"), "{page}");
    assert!(
        page.contains("last failure  2s ago [TimedOut]: no answer within 300 s"),
        "{page}"
    );
}

#[test]
fn a_failure_after_the_last_success_is_in_the_table() {
    let shown = table(&[in_state(ReportedState::Ready, Some(5))], now());
    assert!(
        shown.contains("failed 5s ago [TimedOut]: no answer"),
        "{shown}"
    );
    let shown = table(&[in_state(ReportedState::Ready, Some(60))], now());
    assert!(!shown.contains("failed"), "{shown}");
}

#[test]
fn a_server_without_an_answer_is_counted_as_such() {
    let shown = table(&[in_state(ReportedState::Connecting, None)], now());
    assert!(
        shown.contains("connecting for 3s, no answer yet"),
        "{shown}"
    );
    assert!(
        shown.ends_with("0 ok · 1 connecting · 0 down · 0 off"),
        "{shown}"
    );
}

#[test]
fn one_line_has_the_present_and_the_past() {
    assert_eq!(
        line(&in_state(ReportedState::Ready, Some(60)), now()),
        "connected: healthy; last success 12s ago"
    );
    assert_eq!(
        line(&in_state(ReportedState::Degraded, Some(2)), now()),
        "in doubt: not answering as it should: HTTP 500 to a ping; being examined since 5m; \
         last success 12s ago; last failure 2s ago [TimedOut]: no answer within 300 s"
    );
    let off = entry("x", &json!({"url": "https://host/mcp", "enabled": false}));
    let live = Some((status(ReportedState::Disabled), Counters::default()));
    assert_eq!(
        line(&ServerReport::new(&off, live, &Catalogue::default()), now()),
        "off"
    );
    assert_eq!(
        line(&reports()[3], now()),
        "invalid: mcp_servers.broken.url: ftp:// is not supported; use http:// or https://"
    );
}

/// Ages in the report of another process are computed when it is read.
#[test]
fn a_report_is_read_back_and_grows_older() {
    let mut all = reports();
    for state in [
        ReportedState::Connecting,
        ReportedState::Ready,
        ReportedState::Degraded,
        ReportedState::Backoff,
        ReportedState::Parked,
        ReportedState::NeedsAuth,
    ] {
        all.push(in_state(state, Some(2)));
    }
    for report in all {
        let written = serde_json::to_value(&report).unwrap();
        let read: ServerReport = serde_json::from_value(written).unwrap();
        assert_eq!(read, report);
    }
    let seconds = 30;
    let later = in_state(ReportedState::Ready, Some(60)).later(Duration::from_secs(seconds));
    assert_eq!(
        line(&later, now() + TimeDelta::seconds(30)),
        "connected: healthy; last success 42s ago"
    );
}
