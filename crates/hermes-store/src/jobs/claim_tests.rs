use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::{DateTime, TimeDelta, Utc};
use hermes_config::Zone;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

const NOON: &str = "2027-01-10T12:00:00Z";

fn who(name: &str) -> Claimant {
    Claimant {
        by: name.to_owned(),
        lease: TimeDelta::minutes(30),
    }
}

fn table(jobs: &Value) -> (tempfile::TempDir, JobTable) {
    let dir = tempfile::tempdir().unwrap();
    let table = JobTable::new(dir.path());
    std::fs::write(table.path(), json!({ "jobs": jobs }).to_string()).unwrap();
    (dir, table)
}

fn every(id: &str, minutes: u64, next: &str) -> Value {
    json!({"id": id, "name": id, "schedule": {"kind": "interval", "minutes": minutes},
           "repeat": {"times": null, "completed": 0}, "next_run_at": next})
}

fn once(id: &str, run_at: &str) -> Value {
    json!({"id": id, "name": id, "schedule": {"kind": "once", "run_at": run_at},
           "repeat": {"times": 1, "completed": 0}, "next_run_at": run_at})
}

fn ids(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(Job::id).collect()
}

fn take(table: &JobTable, now: &str) -> ClaimedJobs {
    table
        .claim_due(&at(now), &who("me:1"), 9, |_| false)
        .unwrap()
}

#[test]
fn what_is_due_is_taken_once_and_what_is_not_stays() {
    let mut paused = every("paused", 60, "2027-01-10T11:00:00Z");
    paused["enabled"] = json!(false);
    let (_dir, table) = table(&json!([
        every("a", 60, "2027-01-10T12:00:00Z"),
        every("later", 60, "2027-01-10T12:00:01Z"),
        paused,
        once("b", "2027-01-10T11:59:00Z"),
        {"id": "odd", "schedule": "soon"},
        7,
    ]));
    assert_eq!(ids(&take(&table, NOON).jobs), ["a", "b"]);
    assert_eq!(ids(&take(&table, NOON).jobs), [""; 0]);
    let a = table.get("a").unwrap();
    assert_eq!(a.text("next_run_at"), "2027-01-10T13:00:00+00:00");
    let b = table.get("b").unwrap();
    assert_eq!(b.fields()["run_claim"]["by"], "me:1");
    assert_eq!(b.fields()["repeat"]["completed"], 1);
    assert_eq!(table.list().unwrap().len(), 5, "nothing is lost");
}

#[test]
fn of_many_who_look_at_once_one_takes_it() {
    let (_dir, table) = table(&json!([
        every("a", 60, "2027-01-10T12:00:00Z"),
        once("b", "2027-01-10T12:00:00Z"),
    ]));
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| taken.fetch_add(take(&table, NOON).jobs.len(), Ordering::SeqCst));
        }
    });
    assert_eq!(taken.into_inner(), 2);
}

#[test]
fn a_job_that_was_missed_for_days_runs_once() {
    let (_dir, table) = table(&json!([
        every("a", 10, "2027-01-01T00:00:00Z"),
        {"id": "c", "schedule": {"kind": "cron", "expr": "0 9 * * *"},
         "next_run_at": "2027-01-01T09:00:00+00:00"},
    ]));
    assert_eq!(ids(&take(&table, NOON).jobs), ["a", "c"]);
    assert_eq!(ids(&take(&table, NOON).jobs), [""; 0]);
    let next = |id: &str| table.get(id).unwrap().text("next_run_at");
    assert_eq!(next("a"), "2027-01-10T12:10:00+00:00");
    assert_eq!(next("c"), "2027-01-11T09:00:00+00:00");
}

#[test]
fn no_more_are_taken_than_can_run_and_the_rest_stays_due() {
    let due = "2027-01-10T12:00:00Z";
    let (_dir, table) = table(&json!([every("a", 5, due), every("b", 5, due)]));
    let some = |limit| {
        table
            .claim_due(&at(NOON), &who("me"), limit, |_| false)
            .unwrap()
    };
    let first = some(1);
    assert_eq!((ids(&first.jobs), first.more), (vec!["a"], true));
    let second = some(1);
    assert_eq!((ids(&second.jobs), second.more), (vec!["b"], false));
}

#[test]
fn while_a_run_goes_on_its_next_times_are_left_out() {
    let due = "2027-01-10T12:00:00Z";
    let (_dir, table) = table(&json!([every("a", 5, due), once("b", due)]));
    let taken = table.claim_due(&at(NOON), &who("me"), 9, |_| true).unwrap();
    assert_eq!((taken.jobs.len(), ids(&taken.busy)), (0, vec!["a"]));
    assert_eq!(
        table.get("a").unwrap().text("next_run_at"),
        "2027-01-10T12:05:00+00:00"
    );
    let stored = table.get("b").unwrap();
    assert_eq!(stored.fields()["repeat"]["completed"], 0);
}

#[test]
fn a_single_run_is_left_to_whoever_refreshes_its_claim() {
    let mut job = once("b", "2027-01-10T12:00:00Z");
    job["repeat"] = Value::Null;
    let (_dir, table) = table(&json!([job]));
    assert_eq!(ids(&take(&table, NOON).jobs), ["b"]);
    // A process with another name cannot extend it.
    let later = at("2027-01-10T12:29:00Z");
    assert!(!table.refresh_claim("b", &later, &who("you:2")).unwrap());
    assert!(table.refresh_claim("b", &later, &who("me:1")).unwrap());
    assert!(take(&table, "2027-01-10T12:45:00Z").jobs.is_empty());
    // Nobody has said anything for longer than the lease.
    assert_eq!(ids(&take(&table, "2027-01-10T13:00:00Z").jobs), ["b"]);
    assert!(!table.refresh_claim("gone", &later, &who("me:1")).unwrap());
}

#[test]
fn a_claim_from_the_future_or_out_of_shape_does_not_hold_for_ever() {
    for claim in [
        json!({"at": "2031-01-01T00:00:00Z", "by": "x"}),
        json!({"at": 7}),
        json!("x"),
    ] {
        let mut job = once("b", "2027-01-10T12:00:00Z");
        job["run_claim"] = claim;
        let (_dir, table) = table(&json!([job]));
        assert_eq!(ids(&take(&table, NOON).jobs), ["b"]);
    }
}

#[test]
fn a_single_run_that_died_is_not_run_again() {
    let (_dir, table) = table(&json!([once("b", "2027-01-10T12:00:00Z")]));
    assert_eq!(ids(&take(&table, NOON).jobs), ["b"]);
    let taken = take(&table, "2027-01-10T18:00:00Z");
    assert!(taken.jobs.is_empty());
    assert!(table.list().unwrap().is_empty(), "spent, it goes");
}

#[test]
fn a_time_is_found_for_jobs_that_have_none() {
    let mut lost = every("a", 30, "");
    lost["next_run_at"] = json!(17);
    let mut late = once("b", "2027-01-10T11:59:30Z");
    late["next_run_at"] = Value::Null;
    let mut gone = once("c", "2027-01-09T11:59:30Z");
    gone["next_run_at"] = json!("yesterday");
    let (_dir, table) = table(&json!([lost, late, gone]));
    assert_eq!(ids(&take(&table, NOON).jobs), ["b"]);
    assert_eq!(
        table.get("a").unwrap().text("next_run_at"),
        "2027-01-10T12:30:00+00:00"
    );
}

#[test]
fn a_changed_time_zone_moves_a_job_and_a_change_of_season_does_not() {
    let berlin = Zone::parse("Europe/Berlin").unwrap();
    let take = |next: &str, now: &str| {
        let (dir, table) = table(&json!([
            {"id": "c", "schedule": {"kind": "cron", "expr": "0 21 * * *"}, "next_run_at": next},
        ]));
        let now = at(now).with_timezone(&berlin);
        let taken = table.claim_due(&now, &who("me"), 9, |_| false).unwrap();
        let next = table.get("c").unwrap().text("next_run_at");
        drop(dir);
        (taken.jobs.len(), next)
    };
    // Stored in Brisbane: 21:00 there is 12:00 in Berlin, where 21:00 is meant now.
    assert_eq!(
        take("2027-01-10T21:00:00+10:00", "2027-01-10T11:00:00Z"),
        (0, "2027-01-10T21:00:00+01:00".to_owned())
    );
    // The same moment, written with the offset of the other season: it is due.
    assert_eq!(
        take("2027-03-28T20:00:00+01:00", "2027-03-28T19:00:00Z"),
        (1, "2027-03-29T21:00:00+02:00".to_owned())
    );
    // Clocks went back while the gateway slept: 21:00+02:00 is 20:00 on the wall now, and the time
    // of the day before.
    assert_eq!(
        take("2027-10-30T21:00:00+02:00", "2027-10-31T18:00:00Z").0,
        1
    );
}

fn end(error: Option<&str>) -> RunResult {
    RunResult {
        error: error.map(str::to_owned),
        delivery_error: None,
    }
}

/// Records the end of one run.
fn finish(table: &JobTable, id: &str, now: &DateTime<Utc>, end: RunResult) -> JobAfterRun {
    let run = EndedRun {
        job: id.to_owned(),
        at: *now,
        end,
    };
    table.finish_runs(&[run]).unwrap().remove(0)
}

#[test]
fn the_end_of_a_run_is_recorded() {
    let (_dir, table) = table(&json!([every("a", 60, "2027-01-10T12:00:00Z")]));
    take(&table, NOON);
    let now = at("2027-01-10T12:07:00Z");
    let JobAfterRun::Kept(job) = finish(&table, "a", &now, end(Some("no net"))) else {
        panic!("it recurs");
    };
    assert_eq!(job.text("last_status"), "error");
    assert_eq!(job.text("last_error"), "no net");
    assert_eq!(job.text("last_run_at"), "2027-01-10T12:07:00+00:00");
    assert_eq!(job.fields()["repeat"]["completed"], 1);
    // The next time does not slip by the length of the run.
    assert_eq!(job.text("next_run_at"), "2027-01-10T13:00:00+00:00");
    let later = at("2027-01-10T12:08:00Z");
    let JobAfterRun::Kept(job) = finish(&table, "a", &later, end(None)) else {
        panic!("it recurs");
    };
    assert_eq!(
        (job.text("last_status").as_str(), job.text("last_error")),
        ("ok", String::new())
    );
    assert_eq!(finish(&table, "zz", &now, end(None)), JobAfterRun::Gone);
}

#[test]
fn the_last_run_takes_the_job_with_it() {
    let mut twice = every("a", 60, "2027-01-10T12:00:00Z");
    twice["repeat"] = json!({"times": 2, "completed": 0});
    let (_dir, table) = table(&json!([twice, once("b", "2027-01-10T12:00:00Z")]));
    assert_eq!(take(&table, NOON).jobs.len(), 2);
    let now = at("2027-01-10T12:01:00Z");
    let finish = |id: &str, now| finish(&table, id, now, end(None));
    assert!(matches!(finish("a", &now), JobAfterRun::Kept(_)));
    let later = at("2027-01-10T12:02:00Z");
    assert_eq!(finish("a", &later), JobAfterRun::Removed);
    assert_eq!(finish("b", &now), JobAfterRun::Removed);
    assert!(table.list().unwrap().is_empty());
}

#[test]
fn a_single_job_without_a_count_is_completed() {
    let mut job = once("b", "2027-01-10T12:00:00Z");
    job["repeat"] = Value::Null;
    let (_dir, table) = table(&json!([job]));
    take(&table, NOON);
    let now = at("2027-01-10T12:01:00Z");
    finish(&table, "b", &now, end(None));
    let job = table.get("b").unwrap();
    assert_eq!((job.state().as_str(), job.enabled()), ("completed", false));
    assert!(job.fields()["run_claim"].is_null());
    assert!(take(&table, "2027-01-10T12:02:00Z").jobs.is_empty());
}

#[test]
fn what_a_person_changes_during_a_run_stands() {
    let (_dir, table) = table(&json!([
        every("a", 60, "2027-01-10T12:00:00Z"),
        once("b", "2027-01-10T12:00:00Z"),
        every("c", 60, "2027-01-10T12:00:00Z"),
    ]));
    take(&table, NOON);
    let set = |id: &str, field: &'static str, value: Value| {
        table
            .update(id, |job| {
                job.set(field, value);
                Ok(())
            })
            .unwrap()
    };
    set("a", "state", json!("paused"));
    set("a", "enabled", json!(false));
    set("b", "next_run_at", json!("2027-01-11T08:00:00+00:00"));
    // Asked to run again while it runs.
    set("c", "next_run_at", json!("2027-01-10T12:00:30+00:00"));
    let now = at("2027-01-10T12:01:00Z");
    for id in ["a", "b", "c"] {
        finish(&table, id, &now, end(None));
    }
    assert_eq!(table.get("a").unwrap().state(), "paused");
    let b = table.get("b").unwrap();
    assert_eq!(b.fields()["repeat"]["completed"], 0, "it may run then");
    assert_eq!(ids(&take(&table, "2027-01-10T12:01:00Z").jobs), ["c"]);
    assert_eq!(ids(&take(&table, "2027-01-11T08:00:00Z").jobs), ["b", "c"]);
}

#[test]
fn a_person_runs_a_job_now() {
    let mut paused = every("p", 60, "2027-01-10T15:00:00Z");
    paused["enabled"] = json!(false);
    let mut old = once("old", "2027-01-01T00:00:00Z");
    old["repeat"]["completed"] = json!(1);
    let (_dir, table) = table(&json!([
        every("a", 60, "2027-01-10T15:00:00Z"),
        once("b", "2027-01-11T12:00:00Z"),
        paused,
        old,
    ]));
    let now = at(NOON);
    let take_now = |id: &str| table.claim_now(id, &now, &who("me"), |_| false);
    assert_eq!(
        take_now("A").unwrap().text("next_run_at"),
        "2027-01-10T13:00:00+00:00"
    );
    assert!(matches!(take_now("a"), Err(JobClaimError::Running(_))));
    assert_eq!(take_now("b").unwrap().fields()["repeat"]["completed"], 1);
    assert!(matches!(take_now("b"), Err(JobClaimError::Running(_))));
    assert!(matches!(take_now("p"), Err(JobClaimError::Paused(_))));
    assert!(matches!(take_now("old"), Err(JobClaimError::Exhausted(_))));
    assert!(matches!(
        take_now("zz"),
        Err(JobClaimError::Job(JobError::NotFound(_)))
    ));
    let running = table.claim_now("a", &at("2027-01-10T14:00:00Z"), &who("me"), |_| true);
    assert!(matches!(running, Err(JobClaimError::Running(_))));
    assert_eq!(finish(&table, "b", &now, end(None)), JobAfterRun::Removed);
}
