//! Schedules: parsing user input, and the stored form.

use chrono::{
    DateTime, FixedOffset, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeDelta,
    TimeZone,
};
use serde_json::{Value, json};

use super::cron_fields;

/// A stored schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobSchedule {
    /// At one time. Without an offset (old records) it is local time.
    Once {
        run_at: String,
    },
    Interval {
        minutes: u64,
    },
    Cron {
        expr: String,
    },
}

/// A schedule as a person wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedSchedule {
    pub schedule: JobSchedule,
    pub display: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    #[error(
        "{0:?} is not a valid schedule. Write 30m, 2h or 1d (once, after that time), every 30m (repeatedly), 0 9 * * 1-5 (cron), or 2027-01-31T09:00 (once, at that time)"
    )]
    Unknown(String),
    #[error("{text:?} is not a valid duration: write a number with m, h or d, such as every 30m")]
    Duration { text: String },
    #[error(
        "{text:?} is too often: a job runs at most once a minute; write every 1m or more (in cron: at most one second of a minute)"
    )]
    TooOften { text: String },
    #[error("cron expression {expr:?}: {why}")]
    Cron { expr: String, why: String },
    #[error(
        "{text:?} is not a date and time; write 2027-01-31T09:00 or with an offset 2027-01-31T09:00+01:00"
    )]
    Timestamp { text: String },
    #[error("the stored schedule cannot be read: {0}")]
    Stored(String),
}

impl JobSchedule {
    pub(super) fn from_stored(value: &Value) -> Result<Self, ScheduleError> {
        let bad = || ScheduleError::Stored(value.to_string());
        let text = |key: &str| value[key].as_str().map(str::to_owned).ok_or_else(bad);
        match value["kind"].as_str() {
            Some("once") => Ok(Self::Once {
                run_at: text("run_at")?,
            }),
            Some("interval") => Ok(Self::Interval {
                // A file may contain values that cannot be entered: less than a minute never runs.
                minutes: value["minutes"]
                    .as_u64()
                    .filter(|it| *it > 0)
                    .ok_or_else(bad)?,
            }),
            Some("cron") => Ok(Self::Cron {
                expr: text("expr")?,
            }),
            _ => Err(bad()),
        }
    }

    pub fn is_recurring(&self) -> bool {
        !matches!(self, Self::Once { .. })
    }
}

impl ParsedSchedule {
    pub fn to_json(&self) -> Value {
        let display = &self.display;
        match &self.schedule {
            JobSchedule::Once { run_at } => {
                json!({ "kind": "once", "run_at": run_at, "display": display })
            }
            JobSchedule::Interval { minutes } => {
                json!({ "kind": "interval", "minutes": minutes, "display": display })
            }
            JobSchedule::Cron { expr } => {
                json!({ "kind": "cron", "expr": expr, "display": display })
            }
        }
    }
}

/// Parses user input. `now` provides the time zone for times without an offset.
pub fn parse_schedule<Tz: TimeZone>(
    text: &str,
    now: &DateTime<Tz>,
) -> Result<ParsedSchedule, ScheduleError> {
    let text = text.trim();
    let lower = text.to_lowercase();
    if let Some(duration) = lower.strip_prefix("every ") {
        let minutes = minutes(duration).ok_or_else(|| ScheduleError::Duration {
            text: text.to_owned(),
        })?;
        if minutes == 0 {
            return Err(ScheduleError::TooOften {
                text: text.to_owned(),
            });
        }
        return Ok(ParsedSchedule {
            schedule: JobSchedule::Interval { minutes },
            display: format!("every {minutes}m"),
        });
    }
    if looks_like_cron(text) {
        cron_fields::read(text).map_err(|why| ScheduleError::Cron {
            expr: text.to_owned(),
            why,
        })?;
        let second = text.split_whitespace().nth(5);
        if second.is_some_and(|field| field.parse::<u32>().is_err()) {
            return Err(ScheduleError::TooOften {
                text: text.to_owned(),
            });
        }
        return Ok(ParsedSchedule {
            schedule: JobSchedule::Cron {
                expr: text.to_owned(),
            },
            display: text.to_owned(),
        });
    }
    if text.contains('T') || looks_like_date(text) {
        let at = timestamp(text, &now.timezone()).ok_or_else(|| ScheduleError::Timestamp {
            text: text.to_owned(),
        })?;
        return Ok(ParsedSchedule {
            schedule: JobSchedule::Once {
                run_at: iso_time(&at),
            },
            display: format!("once at {}", at.format("%Y-%m-%d %H:%M")),
        });
    }
    let minutes = minutes(&lower).ok_or_else(|| ScheduleError::Unknown(text.to_owned()))?;
    let at = i64::try_from(minutes)
        .ok()
        .and_then(TimeDelta::try_minutes)
        .and_then(|delta| now.clone().checked_add_signed(delta))
        .ok_or_else(|| ScheduleError::Unknown(text.to_owned()))?;
    Ok(ParsedSchedule {
        schedule: JobSchedule::Once {
            run_at: iso_time(&at.fixed_offset()),
        },
        display: format!("once in {text}"),
    })
}

/// As written by Python's `isoformat`: microseconds only if there are any.
pub fn iso_time(at: &DateTime<FixedOffset>) -> String {
    if at.timestamp_subsec_micros() == 0 {
        at.format("%Y-%m-%dT%H:%M:%S%:z").to_string()
    } else {
        at.format("%Y-%m-%dT%H:%M:%S%.6f%:z").to_string()
    }
}

/// `30m`, `2 hours`, `1d` → minutes.
fn minutes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim_start() {
        "m" | "min" | "mins" | "minute" | "minutes" => 1,
        "h" | "hr" | "hrs" | "hour" | "hours" => 60,
        "d" | "day" | "days" => 1_440,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn looks_like_cron(text: &str) -> bool {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let plain = |field: &&str| {
        field
            .chars()
            .all(|c| c.is_ascii_digit() || "*,/-".contains(c))
    };
    fields.len() >= 5 && fields[..5].iter().all(plain)
}

fn looks_like_date(text: &str) -> bool {
    text.get(..10)
        .is_some_and(|date| NaiveDate::parse_from_str(date, "%Y-%m-%d").is_ok())
}

fn timestamp<Tz: TimeZone>(text: &str, zone: &Tz) -> Option<DateTime<FixedOffset>> {
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Some(at);
    }
    let (text, offset) = split_offset(text)?;
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, time_of_day(time)?),
        None => (text, NaiveTime::MIN),
    };
    let date = ["%Y-%m-%d", "%Y%m%d"]
        .iter()
        .find_map(|format| NaiveDate::parse_from_str(date, format).ok())?;
    let naive = date.and_time(time);
    match offset {
        Some(offset) => offset.from_local_datetime(&naive).single(),
        None => in_zone(naive, zone),
    }
}

fn time_of_day(text: &str) -> Option<NaiveTime> {
    ["%H:%M:%S%.f", "%H:%M", "%H%M%S%.f", "%H%M"]
        .iter()
        .find_map(|format| NaiveTime::parse_from_str(text, format).ok())
}

/// Splits off a trailing `Z` or `±HH:MM`.
fn split_offset(text: &str) -> Option<(&str, Option<FixedOffset>)> {
    if let Some(rest) = text.strip_suffix(['Z', 'z']) {
        return Some((rest, FixedOffset::east_opt(0)));
    }
    let Some(time_at) = text.find(['T', ' ']) else {
        return Some((text, None));
    };
    let Some(at) = text[time_at..].find(['+', '-']) else {
        return Some((text, None));
    };
    let (rest, offset) = text.split_at(time_at + at);
    let digits: String = offset[1..].chars().filter(|c| *c != ':').collect();
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = match digits.len() {
        2 => (digits.parse::<i32>().ok()?, 0),
        4 => (digits[..2].parse().ok()?, digits[2..].parse().ok()?),
        _ => return None,
    };
    let seconds = (hours * 60 + minutes) * 60;
    let seconds = if offset.starts_with('-') {
        -seconds
    } else {
        seconds
    };
    Some((rest, Some(FixedOffset::east_opt(seconds)?)))
}

/// A wall-clock time in a zone. For an ambiguous time, the first; for a skipped one (in spring),
/// the instant after the same elapsed time.
pub(super) fn in_zone<Tz: TimeZone>(
    naive: NaiveDateTime,
    zone: &Tz,
) -> Option<DateTime<FixedOffset>> {
    match zone.from_local_datetime(&naive) {
        LocalResult::Single(at) | LocalResult::Ambiguous(at, _) => Some(at.fixed_offset()),
        LocalResult::None => {
            let earlier = naive.checked_sub_signed(TimeDelta::hours(3))?;
            let offset = zone.offset_from_local_datetime(&earlier).earliest()?.fix();
            offset.from_local_datetime(&naive).single()
        }
    }
}
