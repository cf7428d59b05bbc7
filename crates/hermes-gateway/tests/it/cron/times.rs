//! When jobs run.

use std::time::Duration;

use hermes_config::Zone;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::harness::{CronFiles, ModelStep, WallClock, every, once};

const NOON: &str = "2027-01-10T12:00:00Z";

fn answer() -> ModelStep {
    ModelStep::Answer("done".to_owned())
}

#[tokio::test(start_paused = true)]
async fn hour_after_hour() {
    let ground = CronFiles::with(&json!([every("a", 30, NOON)]));
    let clock = WallClock::at("2027-01-10T11:59:30Z");
    let life = ground.life(answer(), clock);
    let stop = life.cancel.clone();
    tokio::select! {
        () = life.scheduler.run(&stop) => {}
        () = tokio::time::sleep(Duration::from_mins(125)) => {}
    }
    let started: Vec<String> = ground
        .history()
        .into_iter()
        .rev()
        .map(|run| run.claimed_at)
        .collect();
    assert_eq!(
        started,
        [
            "2027-01-10T12:00:00+00:00",
            "2027-01-10T12:30:00+00:00",
            "2027-01-10T13:00:00+00:00",
            "2027-01-10T13:30:00+00:00",
            "2027-01-10T14:00:00+00:00",
        ]
    );
    assert!(ground.history().iter().all(|run| run.status == "completed"));
    assert_eq!(ground.mail().len(), 5);
    let beat = std::fs::read_to_string(ground.dir.path().join("ticker_heartbeat")).unwrap();
    assert!(beat.parse::<f64>().unwrap() > 1_799_582_400.0, "{beat}");
}

#[tokio::test(start_paused = true)]
async fn once_a_day_also_when_clocks_change() {
    for (day, wanted) in [
        (
            "2027-03-27T00:00:00+01:00",
            [
                "2027-03-27T02:30:00+01:00",
                "2027-03-28T03:30:00+02:00",
                "2027-03-29T02:30:00+02:00",
            ],
        ),
        (
            "2027-10-30T00:00:00+02:00",
            [
                "2027-10-30T02:30:00+02:00",
                "2027-10-31T02:30:00+02:00",
                "2027-11-01T02:30:00+01:00",
            ],
        ),
    ] {
        let mut ground = CronFiles::with(&json!([
            {"id": "a", "prompt": "p", "schedule": {"kind": "cron", "expr": "30 2 * * *"}},
        ]));
        ground.zone = Zone::parse("Europe/Berlin").unwrap();
        ground.policy.tick = Duration::from_hours(6);
        let life = ground.life(answer(), WallClock::at(day));
        let stop = life.cancel.clone();
        tokio::select! {
            () = life.scheduler.run(&stop) => {}
            () = tokio::time::sleep(Duration::from_hours(72)) => {}
        }
        let started: Vec<String> = ground
            .history()
            .into_iter()
            .rev()
            .map(|run| run.claimed_at)
            .collect();
        assert_eq!(started, wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_at_once_than_allowed_and_all_in_the_end() {
    let jobs: Vec<_> = (0..7).map(|n| every(&format!("j{n}"), 60, NOON)).collect();
    let mut ground = CronFiles::with(&json!(jobs));
    ground.policy.parallel = 3;
    let act = ModelStep::Slowly(Duration::from_secs(40), "done".to_owned());
    let life = ground.life(act, WallClock::at(NOON));
    let reports = life.scheduler.tick(&life.cancel).await.unwrap();
    assert_eq!(reports.len(), 7);
    assert_eq!(
        life.program
            .most_busy
            .load(std::sync::atomic::Ordering::SeqCst),
        3
    );
    assert!(life.scheduler.running().is_empty());
    // The loop does not wait for its next look while more is due.
    let ground = {
        let jobs: Vec<_> = (0..7).map(|n| once(&format!("j{n}"), NOON)).collect();
        let mut ground = CronFiles::with(&json!(jobs));
        ground.policy.parallel = 3;
        ground
    };
    let act = ModelStep::Slowly(Duration::from_secs(5), "done".to_owned());
    let life = ground.life(act, WallClock::at(NOON));
    let stop = life.cancel.clone();
    tokio::select! {
        () = life.scheduler.run(&stop) => {}
        () = tokio::time::sleep(Duration::from_secs(20)) => {}
    }
    assert_eq!(ground.mail().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_long_run_is_not_started_twice() {
    let mut ground = CronFiles::with(&json!([every("a", 10, NOON)]));
    let act = ModelStep::Slowly(Duration::from_mins(25), "done".to_owned());
    ground.policy.inactivity = None;
    let life = ground.life(act.clone(), WallClock::at(NOON));
    let other = ground.life(act, WallClock::at(NOON));
    let stop = life.cancel.clone();
    tokio::select! {
        () = life.scheduler.run(&stop) => {}
        // Another process on the same home sees that it runs.
        () = other.scheduler.run(&stop) => {}
        () = tokio::time::sleep(Duration::from_mins(29)) => {}
    }
    assert_eq!(ground.history().len(), 1);
    assert_eq!(ground.mail().len(), 1);
    assert_eq!(
        ground.job("a").text("next_run_at"),
        "2027-01-10T12:30:00+00:00"
    );
}

#[tokio::test(start_paused = true)]
async fn a_single_long_run_keeps_its_claim() {
    let mut job = once("a", NOON);
    job["repeat"] = json!(null);
    let mut ground = CronFiles::with(&json!([job]));
    ground.policy.inactivity = None;
    let act = ModelStep::Slowly(Duration::from_hours(3), "done".to_owned());
    let life = ground.life(act.clone(), WallClock::at(NOON));
    let other = ground.life(act, WallClock::at(NOON));
    let stop = life.cancel.clone();
    tokio::select! {
        () = life.scheduler.run(&stop) => {}
        () = other.scheduler.run(&stop) => {}
        () = tokio::time::sleep(Duration::from_hours(4)) => {}
    }
    assert_eq!(ground.history().len(), 1);
    assert_eq!(ground.job("a").state(), "completed");
}

#[tokio::test(start_paused = true)]
async fn what_somebody_adds_is_seen_soon() {
    let mut ground = CronFiles::with(&json!([every("a", 600, "2027-01-10T20:00:00Z")]));
    ground.policy.poll = Duration::from_secs(5);
    ground.policy.tick = Duration::from_hours(1);
    let life = ground.life(answer(), WallClock::at(NOON));
    let stop = life.cancel.clone();
    let adding = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let job = json!({"jobs": [every("b", 600, NOON)]});
        std::fs::write(ground.table().path(), job.to_string()).unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
    };
    tokio::select! {
        () = life.scheduler.run(&stop) => {}
        () = adding => {}
    }
    assert_eq!(life.program.prompts(), ["do b"]);
}

/// The table is one file that is written whole: how often must not grow with what is due.
#[tokio::test(start_paused = true)]
async fn many_jobs_at_once_write_the_table_a_few_times() {
    let mut writes = Vec::new();
    for count in [40, 400] {
        let jobs: Vec<_> = (0..count)
            .map(|n| every(&format!("j{n}"), 60, NOON))
            .collect();
        let mut ground = CronFiles::with(&json!(jobs));
        ground.policy.parallel = 8;
        let life = ground.life(ModelStep::Answer("done".to_owned()), WallClock::at(NOON));
        let reports = life.scheduler.tick(&life.cancel).await.unwrap();
        assert_eq!(reports.len(), count);
        assert!(reports.iter().all(|report| report.error.is_none()));
        let ran = ground.table().list().unwrap();
        assert!(ran.iter().all(|job| job.text("last_status") == "ok"));
        writes.push(life.jobs.writes());
    }
    // One claim for all, and ends in groups. Each run on its own would be two writes.
    assert!(writes[1] < 100, "{writes:?} writes for 40 and 400 jobs");
}
