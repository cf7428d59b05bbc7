//! Any jobs.json: what is read is written back, including unknown fields.
#![expect(clippy::panic, reason = "a fuzz target fails like a test")]

use chrono::{DateTime, FixedOffset};
use serde_json::Value;

use super::{Job, JobFile, JobSchedule, json, next, parse_schedule};

const WRITTEN_AT: &str = "2026-11-17T08:00:00+00:00";
/// In an unusual time zone, on a day when the clocks go back.
const NOW: &str = "2026-10-25T02:30:00.5+05:45";

/// A jobs.json.
pub fn jobs(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        for line in text.lines().take(4) {
            schedules(line);
        }
    }
    let Ok(mut read) = JobFile::parse(data) else {
        return;
    };
    for job in &read.jobs {
        accessors(job);
    }
    let before = read.jobs.clone();
    let other = read.other.clone();
    read.repair(|| "0123456789ab".to_owned());
    for (old, new) in before.iter().zip(&read.jobs) {
        assert_fields_survive(old, new);
    }
    let repaired = read.jobs.clone();

    let text = read.into_text(WRITTEN_AT);
    assert!(text.is_ascii(), "{text}");
    let Ok(mut again) = JobFile::parse(text.as_bytes()) else {
        panic!("cannot be read back: {text}");
    };
    assert_eq!(again.jobs, repaired);
    for (field, value) in &other {
        if field != "updated_at" {
            assert_eq!(again.other.get(field), Some(value), "{field}");
        }
    }
    again.repair(|| panic!("every job has an id: {text}"));
    assert_eq!(again.into_text(WRITTEN_AT), text, "written twice");
}

/// No job may cause a panic; the output about it is valid JSON.
fn accessors(stored: &Value) {
    let Some(job) = Job::from_stored(stored) else {
        return;
    };
    let _ = job.deliver();
    let shown = job.to_json();
    assert_eq!(shown["id"], job.id());
    let again = Job::from_stored(&shown).map(|job| job.to_json());
    assert_eq!(again, Some(shown), "shown twice");
    if let Ok(schedule) = job.schedule() {
        runs_later(&schedule);
    }
}

/// An accepted schedule is stored and read back unchanged.
fn schedules(text: &str) {
    let Ok(parsed) = parse_schedule(text, &now()) else {
        return;
    };
    let stored = parsed.to_json();
    assert_eq!(
        JobSchedule::from_stored(&stored).ok().as_ref(),
        Some(&parsed.schedule),
        "{stored}"
    );
    runs_later(&parsed.schedule);
}

fn runs_later(schedule: &JobSchedule) {
    let Some(next) = schedule.next_after(&now()) else {
        return;
    };
    let Ok(next) = DateTime::parse_from_rfc3339(&next) else {
        // Years beyond 9999 have no such form.
        return;
    };
    assert!(next >= now() - next::GRACE, "{schedule:?}: {next}");
}

fn now() -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(NOW).unwrap_or_default()
}

/// A repair changes the id and `deliver`, and nothing else.
fn assert_fields_survive(old: &Value, new: &Value) {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        assert_eq!(old, new);
        return;
    };
    let known = ["id", "job_id", "deliver"];
    let others = |fields: &serde_json::Map<String, Value>| -> Vec<(String, Value)> {
        let others = fields
            .iter()
            .filter(|(field, _)| !known.contains(&field.as_str()));
        others
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect()
    };
    assert_eq!(others(after), others(before));
    assert!(!json::pretty_ascii(&after["id"]).is_empty());
}
