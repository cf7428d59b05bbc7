//! Retry times: from headers first, then from the text.

use std::sync::LazyLock;
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_http::retry_after;
use regex::Regex;

use super::ErrorReport;

/// Longer waits are ignored; weekly quotas are included.
const MAX_WAIT: Duration = Duration::from_hours(8 * 24);

const RESET_HEADERS: &[&str] = &[
    "x-ratelimit-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-unified-reset",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset",
];

static IN_TEXT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?:try again|retry|resets?|available|wait)(?: again)?(?: after| in| for)?:? (?:about )?((?:\d+(?:\.\d+)? ?(?:ms|milliseconds?|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d) ?)+)\b",
    )
    .ok()
});

/// When to retry, if the response states it or its counters imply it.
pub(super) fn after(
    headers: &dyn Fn(&str) -> Option<String>,
    report: &ErrorReport,
    now: DateTime<Utc>,
) -> Option<Duration> {
    stated(headers, report, now).or_else(|| {
        RESET_HEADERS
            .iter()
            .filter_map(|name| reset(&headers(name)?, now))
            .max()
            .filter(|wait| *wait <= MAX_WAIT)
    })
}

/// When to retry, if the response states it explicitly.
pub(super) fn stated(
    headers: &dyn Fn(&str) -> Option<String>,
    report: &ErrorReport,
    now: DateTime<Utc>,
) -> Option<Duration> {
    let milliseconds = headers("retry-after-ms")
        .and_then(|value| value.trim().parse::<f64>().ok())
        .and_then(|ms| seconds(ms / 1000.0));
    milliseconds
        .or_else(|| retry_after(&headers("retry-after")?, now))
        .or_else(|| span(report.wait.as_deref()?))
        .or_else(|| in_text(&report.text))
        .filter(|wait| *wait <= MAX_WAIT)
}

/// A reset header: a date, an epoch in seconds or milliseconds, a number of seconds, or a duration
/// such as `1m30s`.
fn reset(value: &str, now: DateTime<Utc>) -> Option<Duration> {
    let value = value.trim();
    if let Ok(date) = DateTime::parse_from_rfc3339(value) {
        return Some(until(date.with_timezone(&Utc), now));
    }
    let Ok(figure) = value.parse::<f64>() else {
        return span(value);
    };
    let epoch = if figure > 1e12 {
        DateTime::from_timestamp_millis(figure as i64)
    } else if figure > 1e9 {
        DateTime::from_timestamp(figure as i64, 0)
    } else {
        return seconds(figure);
    };
    Some(until(epoch?, now))
}

fn in_text(text: &str) -> Option<Duration> {
    span(IN_TEXT.as_ref()?.captures(text)?.get(1)?.as_str())
}

/// A duration such as `1m30s`, `20 seconds`, `1.5h`.
fn span(text: &str) -> Option<Duration> {
    let mut total = 0.0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let figure: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let end = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = &rest[..end];
        rest = rest[end..].trim_start();
        total += figure
            * match unit {
                "ms" | "millisecond" | "milliseconds" => 0.001,
                "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
                "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
                "h" | "hour" | "hours" => 3600.0,
                "d" | "day" | "days" => 86_400.0,
                _ => return None,
            };
    }
    seconds(total)
}

fn seconds(figure: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(figure).ok()
}

fn until(date: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    (date - now).to_std().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(name: &str, value: &str, text: &str) -> Option<f64> {
        let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let report = ErrorReport {
            text: text.into(),
            ..ErrorReport::default()
        };
        let header = |asked: &str| (asked == name).then(|| value.to_owned());
        after(&header, &report, now).map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn headers() {
        let cases = [
            ("retry-after", "20", Some(20.0)),
            ("retry-after", "Tue, 14 Nov 2023 22:14:20 GMT", Some(60.0)),
            ("retry-after", "Tue, 14 Nov 2023 22:00:00 GMT", Some(0.0)),
            ("retry-after", "soon", None),
            ("retry-after", "-5", None),
            ("retry-after", "99999999", None),
            ("retry-after-ms", "1500", Some(1.5)),
            ("x-ratelimit-reset", "1700000090", Some(90.0)),
            ("x-ratelimit-reset", "1700000090000", Some(90.0)),
            ("x-ratelimit-reset-tokens", "1m30s", Some(90.0)),
            ("x-ratelimit-reset-requests", "250ms", Some(0.25)),
            (
                "anthropic-ratelimit-tokens-reset",
                "2023-11-14T22:13:50Z",
                Some(30.0),
            ),
        ];
        for (name, value, expected) in cases {
            assert_eq!(wait(name, value, ""), expected, "{name}: {value}");
        }
    }

    #[test]
    fn texts() {
        let cases = [
            ("please try again in 1.5s.", Some(1.5)),
            ("try again in 2 minutes", Some(120.0)),
            ("retry after 30 seconds", Some(30.0)),
            ("your limit resets in 1h 30m", Some(5400.0)),
            ("try again later", None),
        ];
        for (text, expected) in cases {
            assert_eq!(wait("none", "", text), expected, "{text}");
        }
    }
}
