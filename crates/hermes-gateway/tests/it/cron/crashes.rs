//! Processes that end at the wrong moment, and processes that share a home.

use std::time::Duration;

use hermes_gateway::cron::JobDeliveryStatus;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::harness::{CrashPoint, CronFiles, ModelStep, SchedulerProcess, WallClock, every, once};

const NOON: &str = "2027-01-10T12:00:00Z";
const LATER: &str = "2027-01-10T12:05:00Z";

fn answer() -> ModelStep {
    ModelStep::Answer("the answer".to_owned())
}

fn finished(ground: &CronFiles) -> usize {
    let dir = ground.dir.path().join("finished");
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

/// A process that ends the moment its messenger dies.
async fn cut(ground: &CronFiles, fate: CrashPoint) {
    let life = ground.life(answer(), WallClock::at(NOON));
    *life.courier.fate.lock().unwrap() = fate;
    tokio::select! {
        reports = life.scheduler.tick(&life.cancel) => panic!("it lived: {reports:?}"),
        () = life.courier.died.cancelled() => {}
    }
    ground.bury(&life);
}

async fn next(ground: &CronFiles, now: &str) -> SchedulerProcess {
    let life = ground.life(ModelStep::Answer("another".to_owned()), WallClock::at(now));
    life.scheduler.tick(&life.cancel).await.unwrap();
    life
}

#[tokio::test(start_paused = true)]
async fn between_the_run_and_its_delivery_nothing_is_lost_or_doubled() {
    for fate in [CrashPoint::DiesBefore, CrashPoint::DiesAfter] {
        let mut both = every("a", 60, NOON);
        both["deliver"] = json!("telegram:1,telegram:2");
        both["repeat"] = json!({"times": 9, "completed": 0});
        let ground = CronFiles::with(&json!([both]));
        cut(&ground, fate).await;
        assert_eq!(finished(&ground), 1, "{fate:?}");
        let life = next(&ground, LATER).await;
        assert!(life.program.prompts().is_empty(), "it does not run again");
        let mail: Vec<String> = ground.mail().into_iter().map(|(place, _)| place).collect();
        assert_eq!(mail, ["telegram:1", "telegram:2"], "{fate:?}");
        assert!(ground.mail().iter().all(|(_, text)| text == "the answer"));
        let job = ground.job("a");
        assert_eq!(job.text("last_status"), "ok");
        assert_eq!(job.text("last_run_at"), "2027-01-10T12:00:00+00:00");
        assert_eq!(job.fields()["repeat"]["completed"], 1, "{fate:?}");
        assert_eq!(finished(&ground), 0);
        next(&ground, LATER).await;
        assert_eq!(ground.mail().len(), 2, "{fate:?}");
        assert_eq!(ground.job("a").fields()["repeat"]["completed"], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_cut_is_told_once_and_not_repeated() {
    let ground = CronFiles::with(&json!([every("a", 60, NOON), once("b", NOON)]));
    let life = ground.life(ModelStep::Hang, WallClock::at(NOON));
    tokio::select! {
        _ = life.scheduler.tick(&life.cancel) => panic!("it ended"),
        () = tokio::time::sleep(Duration::from_secs(30)) => {}
    }
    assert_eq!(life.scheduler.running(), ["a", "b"]);
    ground.bury(&life);
    let life = next(&ground, LATER).await;
    assert!(life.program.prompts().is_empty());
    let mail = ground.mail();
    assert_eq!(mail.len(), 2);
    assert!(
        mail.iter()
            .all(|(_, text)| text.contains("the program ended while the job ran")),
        "{mail:?}"
    );
    assert_eq!(ground.job("a").text("last_status"), "error");
    assert!(ground.table().get("b").is_err(), "a single run is spent");
    assert!(ground.history().iter().all(|run| run.status == "unknown"));
    next(&ground, LATER).await;
    assert_eq!(ground.mail().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn stopping_the_program_stops_jobs_and_says_so() {
    let ground = CronFiles::with(&json!([every("a", 60, NOON)]));
    let life = ground.life(ModelStep::Hang, WallClock::at(NOON));
    let stop = life.cancel.clone();
    let run = life.scheduler.run(&stop);
    tokio::pin!(run);
    tokio::select! {
        () = &mut run => panic!("it ended"),
        () = tokio::time::sleep(Duration::from_secs(30)) => {}
    }
    stop.cancel();
    run.await;
    assert_eq!(life.program.told.lock().unwrap().interrupts, 1);
    let job = ground.job("a");
    assert_eq!(job.text("last_status"), "error");
    assert!(job.text("last_error").contains("interrupted"));
    assert_eq!(ground.history()[0].status, "failed");
    assert_eq!(ground.mail().len(), 1);
    assert_eq!(finished(&ground), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_busy_only_delays() {
    let ground = CronFiles::with(&json!([every("a", 60, NOON)]));
    let life = ground.life(answer(), WallClock::at(NOON));
    *life.courier.fate.lock().unwrap() = CrashPoint::Stumbles;
    let reports = life.scheduler.tick(&life.cancel).await.unwrap();
    assert!(reports[0].delivery_error.as_ref().unwrap().contains("busy"));
    assert!(ground.mail().is_empty());
    life.scheduler.tick(&life.cancel).await.unwrap();
    assert_eq!(ground.mail().len(), 1);
    assert_eq!(ground.job("a").fields()["repeat"]["completed"], 1);
    assert_eq!(finished(&ground), 0);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_deliver_leaves_it_to_the_one_who_may() {
    let ground = CronFiles::with(&json!([every("a", 60, NOON)]));
    let gateway = ground.life(ModelStep::Panic, WallClock::at(NOON));
    let terminal = ground.life_of(answer(), WallClock::at(NOON), false);
    let report = terminal
        .scheduler
        .fire("a", &terminal.cancel)
        .await
        .unwrap();
    assert_eq!(report.delivery, JobDeliveryStatus::HandedOver(1));
    assert_eq!(ground.job("a").text("last_status"), "ok");
    assert_eq!(ground.history()[0].status, "completed");
    // The terminal lives on and looks again: it leaves it where it is.
    terminal.scheduler.tick(&terminal.cancel).await.unwrap();
    assert_eq!((ground.mail().len(), finished(&ground)), (0, 1));
    let reports = gateway.scheduler.tick(&gateway.cancel).await.unwrap();
    assert_eq!(reports[0].delivery, JobDeliveryStatus::Queued(1));
    assert_eq!((ground.mail().len(), finished(&ground)), (1, 0));
    assert_eq!(ground.job("a").fields()["repeat"]["completed"], 1);
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_one_runs_it() {
    for _ in 0..8 {
        let ground = CronFiles::with(&json!([every("a", 60, NOON), once("b", NOON)]));
        let act = ModelStep::Slowly(Duration::from_secs(3), "done".to_owned());
        let one = ground.life(act.clone(), WallClock::at(NOON));
        let two = ground.life(act, WallClock::at(NOON));
        let (first, second) = tokio::join!(
            one.scheduler.tick(&one.cancel),
            two.scheduler.tick(&two.cancel),
        );
        assert_eq!(first.unwrap().len() + second.unwrap().len(), 2);
        assert_eq!(ground.history().len(), 2);
        assert_eq!(ground.mail().len(), 2);
    }
}

/// Runs that were claimed and had not begun are due again, those that had begun are not; whether the
/// process was killed or stopped.
#[tokio::test(start_paused = true)]
async fn what_was_claimed_and_did_not_begin_runs_later() {
    for killed in [true, false] {
        let mut ground = CronFiles::with(&json!([
            every("a", 60, NOON),
            every("b", 60, NOON),
            once("c", NOON),
        ]));
        ground.policy.parallel = 1;
        let life = ground.life(ModelStep::Hang, WallClock::at(NOON));
        let stop = life.cancel.clone();
        let looking = life.scheduler.clone();
        let begun = async {
            while life.program.prompts().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        if killed {
            tokio::select! {
                _ = looking.tick(&life.cancel) => panic!("it hangs"),
                () = begun => {}
            }
        } else {
            let ended = tokio::join!(looking.run(&life.cancel), async {
                begun.await;
                stop.cancel();
            });
            let ((), ()) = ended;
        }
        ground.bury(&life);
        let first = life.program.prompts();
        assert_eq!(first, ["do a"], "killed: {killed}");
        let life = next(&ground, LATER).await;
        let mut later = life.program.prompts();
        later.sort();
        assert_eq!(later, ["do b", "do c"], "killed: {killed}");
        let life = next(&ground, LATER).await;
        assert_eq!(
            life.program.prompts(),
            [] as [String; 0],
            "killed: {killed}"
        );
    }
}
