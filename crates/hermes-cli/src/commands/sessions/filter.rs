//! The filters that export, prune and archive share.

use chrono::{DateTime, Local, NaiveDate, NaiveDateTime, TimeZone as _};
use hermes_store::SessionFilter;

use crate::exit::Failure;

#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(super) struct FilterArgs {
    /// Select sessions started longer ago than AGE: 5h, 30m, 2d, 1w, a number of days, or a date
    #[arg(long, value_name = "AGE")]
    older_than: Option<String>,
    /// Select sessions started within the last AGE
    #[arg(long, value_name = "AGE")]
    newer_than: Option<String>,
    /// Select sessions started before TIME: a date, or an age
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
    /// Select sessions started at or after TIME
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
    /// Select sessions from this source (cli, telegram, cron, …)
    #[arg(long)]
    source: Option<String>,
    /// Select sessions whose title contains TITLE
    #[arg(long)]
    title: Option<String>,
    /// Select sessions that ended for this reason: cli_close, agent_close, new_session, …
    #[arg(long, value_name = "REASON")]
    end_reason: Option<String>,
    /// Select sessions of this directory or one below it
    #[arg(long)]
    cwd: Option<String>,
    /// Select sessions with at least N messages
    #[arg(long, value_name = "N")]
    min_messages: Option<i64>,
    /// Select sessions with at most N messages
    #[arg(long, value_name = "N")]
    max_messages: Option<i64>,
    /// Select sessions whose model name contains MODEL
    #[arg(id = "filter_model", long = "model", value_name = "MODEL")]
    model: Option<String>,
    /// Select sessions billed by this provider
    #[arg(id = "filter_provider", long = "provider", value_name = "PROVIDER")]
    provider: Option<String>,
    /// Select sessions of this user id on its platform
    #[arg(long)]
    user: Option<String>,
    /// Select sessions of this chat id on its platform
    #[arg(long)]
    chat_id: Option<String>,
    /// Select sessions of this kind of chat: dm, group, …
    #[arg(long)]
    chat_type: Option<String>,
    /// Select sessions whose git branch contains BRANCH
    #[arg(long)]
    branch: Option<String>,
    /// Select sessions with at least N tokens, input and output together
    #[arg(long, value_name = "N")]
    min_tokens: Option<i64>,
    /// Select sessions with at most N tokens, input and output together
    #[arg(long, value_name = "N")]
    max_tokens: Option<i64>,
    /// Select sessions that cost at least this
    #[arg(long, value_name = "USD")]
    min_cost: Option<f64>,
    /// Select sessions that cost at most this
    #[arg(long, value_name = "USD")]
    max_cost: Option<f64>,
    /// Select sessions with at least N tool calls
    #[arg(long, value_name = "N")]
    min_tool_calls: Option<i64>,
    /// Select sessions with at most N tool calls
    #[arg(long, value_name = "N")]
    max_tool_calls: Option<i64>,
}

impl FilterArgs {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What `hermes sessions prune` takes without any filter.
    pub(super) fn older_than_90_days() -> Self {
        Self {
            older_than: Some("90".to_owned()),
            ..Self::default()
        }
    }

    /// `now` in seconds since the epoch. The tighter of two bounds counts.
    pub(super) fn build(self, now: f64) -> Result<SessionFilter, Failure> {
        let bounds = |flags: [(&str, &Option<String>); 2], tighter: fn(f64, f64) -> f64| {
            let mut bound: Option<f64> = None;
            for (flag, text) in flags {
                if let Some(text) = text {
                    let time = point_in_time(text, now).ok_or_else(|| {
                        Failure::usage(format!(
                            "{flag} {text:?} is not a time: use 5h, 30m, 2d, 1w, a number of days, \
                             2026-07-05 or \"2026-07-05 14:30\""
                        ))
                    })?;
                    bound = Some(bound.map_or(time, |bound| tighter(bound, time)));
                }
            }
            Ok::<_, Failure>(bound)
        };
        let before = [
            ("--older-than", &self.older_than),
            ("--before", &self.before),
        ];
        let after = [("--newer-than", &self.newer_than), ("--after", &self.after)];
        let started_before = bounds(before, f64::min)?;
        let started_after = bounds(after, f64::max)?;
        if let (Some(before), Some(after)) = (started_before, started_after)
            && after >= before
        {
            return Err(Failure::usage(
                "the time range is empty: --after/--newer-than must be earlier than \
                 --before/--older-than",
            ));
        }
        Ok(SessionFilter {
            started_before,
            started_after,
            source: self.source,
            title: self.title,
            end_reason: self.end_reason,
            cwd: self.cwd,
            min_messages: self.min_messages,
            max_messages: self.max_messages,
            model: self.model,
            provider: self.provider,
            user: self.user,
            chat_id: self.chat_id,
            chat_type: self.chat_type,
            branch: self.branch,
            min_tokens: self.min_tokens,
            max_tokens: self.max_tokens,
            min_cost: self.min_cost,
            max_cost: self.max_cost,
            min_tool_calls: self.min_tool_calls,
            max_tool_calls: self.max_tool_calls,
            archived: None,
            include_open: false,
        })
    }
}

/// An age (that long before `now`) or a date, local unless it says otherwise.
fn point_in_time(text: &str, now: f64) -> Option<f64> {
    let text = text.trim();
    if let Some(age) = age(text) {
        return Some(now - age);
    }
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.timestamp_micros() as f64 / 1e6);
    }
    let formats = [
        "%Y-%m-%d %H:%M",
        "%Y-%m-%dT%H:%M",
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%dT%H:%M:%S",
    ];
    let naive = formats
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
        .or_else(|| {
            NaiveDate::parse_from_str(text, "%Y-%m-%d")
                .ok()?
                .and_hms_opt(0, 0, 0)
        })?;
    let local = Local.from_local_datetime(&naive).earliest()?;
    Some(local.timestamp() as f64)
}

/// Seconds of `5h`, `30 min`, `2d`, `1 week`; a bare number is days.
fn age(text: &str) -> Option<f64> {
    let text = text.to_lowercase();
    let end = text
        .find(|ch: char| !ch.is_ascii_digit() && ch != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = match text[end..].trim() {
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
        "" | "d" | "day" | "days" => 86_400.0,
        "w" | "wk" | "wks" | "week" | "weeks" => 604_800.0,
        _ => return None,
    };
    Some(number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_dates_are_understood() {
        let cases = [
            ("90", Some(86_400.0 * 90.0)),
            ("5h", Some(18_000.0)),
            ("30 min", Some(1800.0)),
            ("1.5d", Some(129_600.0)),
            ("1week", Some(604_800.0)),
            ("h", None),
            ("5x", None),
            ("-1", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(age(text), seconds, "{text}");
        }
        assert_eq!(
            point_in_time("2026-07-05T14:30:00Z", 0.0),
            Some(1_783_261_800.0)
        );
        assert!(point_in_time("2026-07-05", 0.0) < point_in_time("2026-07-05 14:30", 0.0));
        assert_eq!(point_in_time("soon", 0.0), None);
    }

    #[test]
    fn the_tighter_bound_counts_and_an_empty_window_is_refused() {
        let args = FilterArgs {
            older_than: Some("1d".to_owned()),
            before: Some("2d".to_owned()),
            newer_than: Some("5d".to_owned()),
            ..FilterArgs::default()
        };
        let filter = args.clone().build(1e6).unwrap();
        assert_eq!(filter.started_before, Some(1e6 - 172_800.0));
        assert_eq!(filter.started_after, Some(1e6 - 432_000.0));
        let inverted = FilterArgs {
            newer_than: Some("1h".to_owned()),
            ..args
        };
        assert!(inverted.build(1e6).is_err());
    }
}
