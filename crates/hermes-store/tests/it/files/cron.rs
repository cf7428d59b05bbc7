//! Cron expressions, generated: both programs see the same next run in one table of jobs.

use chrono::{DateTime, LocalResult, NaiveDateTime, TimeDelta, TimeZone as _, Utc};
use hermes_config::Zone;
use hermes_store::jobs::{JobSchedule, parse_schedule};
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use serde_json::{Value, json};

/// The library in local time without a zone: with one, it adds or subtracts extra hours when
/// the offset has changed in between, and a time of day does not stay one. From the 12th of
/// February it also counts to a 31st and passes the first of March, so it is asked from the end
/// of each month as well.
const NEXT: &str = "
import json, sys
from datetime import datetime, timedelta
from cron.jobs import parse_schedule
from croniter import croniter
def next_run(expr, now):
    found = croniter(expr, now).get_next(datetime)
    month = now
    while True:
        month = (month.replace(day=28) + timedelta(days=4)).replace(day=1, hour=0, minute=0, second=0)
        if month >= found:
            return found
        found = min(found, croniter(expr, month - timedelta(seconds=1)).get_next(datetime))
out = []
for expr, now in json.load(sys.stdin):
    try:
        parse_schedule(expr)
        out.append(next_run(expr, datetime.fromisoformat(now)).isoformat())
    except Exception as e:
        out.append(None)
print(json.dumps(out))
";

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "America/St_Johns",
];

/// A generator of its own, so that a failure names the same expression every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 >> 33).unwrap() % limit
    }

    fn item(&mut self, low: u32, high: u32) -> String {
        let mut value = || low + self.below(high - low + 1);
        let (one, other) = (value(), value());
        let step = 1 + self.below(high - low + 2);
        match self.below(8) {
            0 | 1 => "*".to_owned(),
            2 => format!("{one}"),
            3 => format!("{one}-{other}"),
            4 => format!("*/{step}"),
            5 => format!("{one}-{other}/{}", 1 + step % 6),
            6 => format!("{one}/{step}"),
            _ => format!("{low}-{high}"),
        }
    }

    fn expression(&mut self) -> String {
        let ranges = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
        let mut fields: Vec<String> = ranges
            .iter()
            .map(|(low, high)| {
                let items = 1 + self.below(6) / 4;
                let items: Vec<String> = (0..items).map(|_| self.item(*low, *high)).collect();
                items.join(",")
            })
            .collect();
        // With more than five fields the library does not know 7 as a Sunday; we do.
        let more = !fields[4].contains('7');
        if more && self.below(8) == 0 {
            fields.push(self.below(60).to_string());
            if self.below(2) == 0 {
                fields.push(self.item(2026, 2040));
            }
        }
        fields.join(" ")
    }

    fn moment(&mut self) -> DateTime<Utc> {
        let start = DateTime::parse_from_rfc3339("2026-01-01T00:00:00Z").unwrap();
        start.to_utc() + TimeDelta::seconds(self.below(4 * 366 * 86_400).into())
    }
}

#[test]
fn generated_expressions_run_when_the_original_runs_them() {
    let test = "files::cron::generated_expressions_run_when_the_original_runs_them";
    let Some(oracle) = oracle::require(test) else {
        return;
    };
    let mut dice = Dice(0x5eed_0017);
    let cases: Vec<(String, DateTime<Zone>)> = (0..1000)
        .map(|at| {
            let zone = Zone::parse(ZONES[at % ZONES.len()]).unwrap();
            (dice.expression(), dice.moment().with_timezone(&zone))
        })
        .collect();
    let asked: Value = cases
        .iter()
        .map(|(expr, now)| json!([expr, now.naive_local().format("%FT%T").to_string()]))
        .collect();
    let home = TempHome::new();
    let theirs: Value = oracle
        .interpreter(&home)
        .args(["-c", NEXT])
        .stdin(asked.to_string())
        .run()
        .ok()
        .json();
    let mut compared = 0;
    for ((expr, now), expected) in cases.iter().zip(theirs.as_array().unwrap()) {
        let at = format!("{expr} after {}", now.to_rfc3339());
        let schedule = JobSchedule::Cron { expr: expr.clone() };
        let next = schedule.next_after(now);
        let Some(expected) = expected.as_str() else {
            assert_eq!(next, None, "{at}");
            continue;
        };
        assert!(parse_schedule(expr, now).is_ok(), "{at}");
        let next = next.unwrap_or_else(|| panic!("never: {at}, theirs {expected}"));
        let next = DateTime::parse_from_rfc3339(&next).unwrap();
        assert!(next > *now, "{at}");
        let expected: NaiveDateTime = expected.parse().unwrap();
        let zone = now.timezone();
        let plain = |naive: &NaiveDateTime| {
            matches!(zone.from_local_datetime(naive), LocalResult::Single(_))
        };
        // An hour that comes twice or never has rules of ours.
        if plain(&expected) && plain(&now.naive_local()) {
            assert_eq!(next.with_timezone(&zone).naive_local(), expected, "{at}");
            compared += 1;
        }
    }
    assert!(compared > 750, "{compared}");
}

/// What is taken when a job is made can also be computed; what cannot be is refused.
#[test]
fn an_expression_that_is_taken_has_a_next_run() {
    let now = DateTime::parse_from_rfc3339("2027-01-08T10:00:00+01:00").unwrap();
    for expr in [
        "0 9 * * 7/2",
        "0 9 * * 7/7",
        "0 9 * * 5-7/2",
        "0 0 * * * 0 2030",
        "0 9 4-4 * *",
    ] {
        let parsed = parse_schedule(expr, &now).unwrap_or_else(|error| panic!("{error}"));
        assert!(parsed.schedule.next_after(&now).is_some(), "{expr}");
    }
    for expr in [
        "*/0 * * * *",
        "1-/2 * * * *",
        "-1 * * * *",
        "1,,2 * * * *",
        "0 9 * * 8",
        "0 9 * * * 0 1960",
        "0 9 * * * 0 2030 1",
    ] {
        assert!(parse_schedule(expr, &now).is_err(), "{expr}");
    }
}
