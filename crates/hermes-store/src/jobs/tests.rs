use std::fs as std_fs;
use std::os::unix::fs::PermissionsExt as _;

use chrono::{DateTime, FixedOffset, Utc};
use pretty_assertions::assert_eq;

use super::parse_schedule;
use super::*;

struct At;

impl Clock for At {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 250_000_000).unwrap()
    }
}

struct Sevens;

impl Rng for Sevens {
    fn next_u64(&self) -> u64 {
        0x7777_7777_7777_7777
    }
}

fn table(text: &str) -> (tempfile::TempDir, JobTable) {
    let dir = tempfile::tempdir().unwrap();
    let table = JobTable::with_sources(dir.path().join("cron"), Arc::new(At), Arc::new(Sevens));
    if !text.is_empty() {
        std_fs::create_dir_all(dir.path().join("cron")).unwrap();
        std_fs::write(table.path(), text).unwrap();
        std_fs::set_permissions(table.path(), std_fs::Permissions::from_mode(0o644)).unwrap();
    }
    (dir, table)
}

fn stored(table: &JobTable) -> Value {
    serde_json::from_slice(&std_fs::read(table.path()).unwrap()).unwrap()
}

#[test]
fn a_new_job_has_the_original_field_order_and_an_id() {
    let (_dir, table) = table("");
    let schedule = parse_schedule("every 2h", &Utc::now()).unwrap();
    let job = table
        .add(Job::new(
            "digest",
            "Sum up",
            &schedule,
            "2027-01-01T00:00:00+00:00",
        ))
        .unwrap();
    assert_eq!(job.id(), "777777777777");
    let text = std_fs::read_to_string(table.path()).unwrap();
    assert!(text.starts_with(
        "{\n  \"jobs\": [\n    {\n      \"id\": \"777777777777\",\n      \"name\": \"digest\","
    ));
    assert!(
        text.ends_with("\"updated_at\": \"2027-01-15T08:00:00.250000+00:00\"\n}"),
        "{text}"
    );
    assert_eq!(
        std_fs::metadata(table.path()).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(table.get("DIGEST").unwrap(), job);
    assert!(matches!(table.add(job).unwrap_err(), JobError::IdTaken(_)));
}

const EDGE: &str = r#"[{"id":"aaaaaaaaaaaa","name":"legacy naive","prompt":"p","schedule":{"kind":"interval","minutes":30},"deliver":["telegram","discord"],"future_field":{"x":1}},
 {"job_id":"bbbbbbbbbbbb","name":null,"prompt":null,"skill":"plan","schedule":{"kind":"cron","expr":"0 9 * * *"},"enabled":false}, 7]"#;

#[test]
fn old_shapes_are_read_as_they_are_and_repaired_by_the_next_write() {
    let (_dir, table) = table(&format!("\u{feff}{EDGE}"));
    let jobs = table.list().unwrap();
    assert_eq!(jobs.len(), 2);
    assert_eq!(jobs[0].deliver(), "telegram,discord");
    assert_eq!(jobs[0].schedule_display(), "?");
    assert_eq!(jobs[1].id(), "bbbbbbbbbbbb");
    assert_eq!(jobs[1].name(), "plan");
    assert_eq!(jobs[1].state(), "paused");
    assert_eq!(jobs[1].to_json()["skills"], json!(["plan"]));
    assert_eq!(
        jobs[1].schedule().unwrap(),
        JobSchedule::Cron {
            expr: "0 9 * * *".to_owned()
        }
    );
    table
        .update("legacy naive", |job| {
            job.set("state", json!("paused"));
            Ok(())
        })
        .unwrap();
    let stored = stored(&table);
    assert_eq!(stored["jobs"][0]["deliver"], "telegram,discord");
    assert_eq!(stored["jobs"][0]["future_field"], json!({"x": 1}));
    assert_eq!(stored["jobs"][0]["state"], "paused");
    let second: Vec<&String> = stored["jobs"][1].as_object().unwrap().keys().collect();
    assert_eq!(
        second,
        ["id", "name", "prompt", "skill", "schedule", "enabled"]
    );
    assert_eq!(stored["jobs"][2], 7, "what we do not understand stays");
}

#[test]
fn unknown_keys_of_the_file_survive() {
    let (_dir, table) = table(r#"{"version": 3, "jobs": [{"name": "a\tb"}], "updated_at": "x"}"#);
    table
        .update("a\tb", |job| {
            job.set("enabled", json!(false));
            Ok(())
        })
        .unwrap();
    let stored = stored(&table);
    let mode = std_fs::metadata(table.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "prompts are nobody else's business");
    assert_eq!(stored["version"], 3);
    assert_eq!(stored["jobs"][0]["id"], "777777777777");
}

#[test]
fn a_damaged_file_is_never_overwritten() {
    for text in ["{\"jobs\": [", "\"text\"", "{\"jobs\": {}}"] {
        let (_dir, table) = table(text);
        let error = table.remove("x").unwrap_err();
        assert!(matches!(error, JobError::Damaged { .. }), "{error}");
        assert_eq!(std_fs::read_to_string(table.path()).unwrap(), text);
    }
}

#[test]
fn names_must_be_unambiguous_and_ids_stay() {
    let (_dir, table) = table(r#"{"jobs": [{"id":"1","name":"x"},{"id":"2","name":"X"}]}"#);
    assert!(
        matches!(table.get("x").unwrap_err(), JobError::Ambiguous { ids, .. } if ids == ["1", "2"])
    );
    assert!(matches!(
        table.get("none").unwrap_err(),
        JobError::NotFound(_)
    ));
    let error = table
        .update("1", |job| {
            job.set("id", json!("3"));
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(error, JobError::IdChanged));
    assert_eq!(table.remove("2").unwrap().id(), "2");
    assert_eq!(table.list().unwrap().len(), 1);
}

#[test]
fn schedules_are_read_as_the_original_reads_them() {
    let zone = FixedOffset::east_opt(3_600).unwrap();
    let now = DateTime::parse_from_rfc3339("2027-01-01T10:00:00+01:00")
        .unwrap()
        .with_timezone(&zone);
    let cases = [
        (
            "30m",
            json!({"kind": "once", "run_at": "2027-01-01T10:30:00+01:00", "display": "once in 30m"}),
        ),
        (
            "2 hours",
            json!({"kind": "once", "run_at": "2027-01-01T12:00:00+01:00", "display": "once in 2 hours"}),
        ),
        (
            "every 1d",
            json!({"kind": "interval", "minutes": 1440, "display": "every 1440m"}),
        ),
        (
            "Every 90 min",
            json!({"kind": "interval", "minutes": 90, "display": "every 90m"}),
        ),
        (
            "0 9 * * 1-5",
            json!({"kind": "cron", "expr": "0 9 * * 1-5", "display": "0 9 * * 1-5"}),
        ),
        (
            "*/5 * * * * 30",
            json!({"kind": "cron", "expr": "*/5 * * * * 30", "display": "*/5 * * * * 30"}),
        ),
        (
            "2027-02-03T14:00",
            json!({"kind": "once", "run_at": "2027-02-03T14:00:00+01:00", "display": "once at 2027-02-03 14:00"}),
        ),
        (
            "2027-02-03",
            json!({"kind": "once", "run_at": "2027-02-03T00:00:00+01:00", "display": "once at 2027-02-03 00:00"}),
        ),
        (
            "2027-02-03 14:00:05.5-0530",
            json!({"kind": "once", "run_at": "2027-02-03T14:00:05.500000-05:30", "display": "once at 2027-02-03 14:00"}),
        ),
        (
            "2027-02-03T14:00Z",
            json!({"kind": "once", "run_at": "2027-02-03T14:00:00+00:00", "display": "once at 2027-02-03 14:00"}),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(
            parse_schedule(text, &now).unwrap().to_json(),
            expected,
            "{text}"
        );
    }
    for text in [
        "",
        "soon",
        "every",
        "every day",
        "0 9 * * MON",
        "61 * * * *",
        "*/0 * * * *",
        "* * * * * * *",
        "2027-13-01T00:00",
        "99999999999999999999m",
        "999999999999999d",
        "Tuesday",
    ] {
        assert!(parse_schedule(text, &now).is_err(), "{text}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_breaks_the_schedule_parser(
        text in proptest::prop_oneof![".{0,24}", "2027-01-0[1-9]T[0-9:+é-]{0,12}", "[0-9*/, -]{0,20}", "(every )?[0-9]{0,22}[mhdé]{0,3}"]
    ) {
        if let Ok(parsed) = parse_schedule(&text, &Utc::now()) {
            proptest::prop_assert!(JobSchedule::from_stored(&parsed.to_json()).is_ok());
        }
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60)) {
        let _ = json::parse_lenient(&bytes);
    }
}
