//! Jobs from the command line, without a gateway, and beside the original.

use hermes_testkit::model_server::Reply;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{CliHarness, hermes};

fn cron(setup: &CliHarness, words: &[&str]) -> hermes_testkit::process::FinishedProgram {
    hermes(&setup.home).args(["cron"]).args(words).run()
}

/// Makes a job due.
fn make_due(setup: &CliHarness) {
    let mut file: Value = serde_json::from_str(&setup.home.read("cron/jobs.json")).unwrap();
    for job in file["jobs"].as_array_mut().unwrap() {
        job["next_run_at"] = json!("2026-01-01T00:00:00+00:00");
    }
    setup.home.write("cron/jobs.json", file.to_string());
}

#[test]
fn a_job_is_made_changed_put_off_and_thrown_away() {
    let setup = CliHarness::with_config("timezone: Europe/Berlin\n");
    let made = cron(
        &setup,
        &[
            "create",
            "0 9 * * 1-5",
            "Sum up the news",
            "--name",
            "digest",
            "--skill",
            "a",
            "--json",
        ],
    )
    .ok()
    .json();
    assert_eq!(made["schedule"]["expr"], "0 9 * * 1-5");
    assert_eq!(made["skills"], json!(["a"]));
    assert_eq!(made["model_snapshot"], "scripted-model");
    let next = made["next_run_at"].as_str().unwrap();
    assert!(next.contains("T09:00:00+0"), "{next}");
    let id = made["id"].as_str().unwrap();
    let edited = cron(
        &setup,
        &[
            "edit",
            "Digest",
            "--add-skill",
            "b",
            "--remove-skill",
            "a",
            "--deliver",
            "telegram,local",
            "--repeat",
            "3",
            "--json",
        ],
    )
    .ok()
    .json();
    assert_eq!(
        (edited["skills"].clone(), edited["repeat"]["times"].clone()),
        (json!(["b"]), json!(3))
    );
    let shown = cron(&setup, &["list"]).ok();
    assert!(shown.stdout.contains("digest") && shown.stdout.contains("to: telegram,local"));
    assert!(shown.stderr.contains("isn't running"), "{}", shown.stderr);
    drop(cron(&setup, &["pause", id, "--reason", "holiday"]).ok());
    assert_eq!(cron(&setup, &["list", "--json"]).ok().json(), json!([]));
    let all = cron(&setup, &["list", "--all", "--json"]).ok().json();
    assert_eq!(
        (all[0]["state"].clone(), all[0]["paused_reason"].clone()),
        (json!("paused"), json!("holiday"))
    );
    assert_eq!(cron(&setup, &["run", id]).code, Some(5), "it is paused");
    drop(cron(&setup, &["resume", "digest"]).ok());
    let status = cron(&setup, &["status", "--json"]).ok().json();
    assert_eq!(
        (status["state"].clone(), status["active"].clone()),
        (json!("stopped"), json!(1))
    );
    setup
        .home
        .write(format!("cron/output/{id}/2026-01-01_00-00-00.md"), "old");
    drop(cron(&setup, &["remove", "digest"]).ok());
    assert!(!setup.home.exists(format!("cron/output/{id}")));
    for (words, code) in [
        (&["remove", "digest"][..], 4),
        (&["edit", "digest", "--name", "x"], 4),
        (&["run", "digest"], 4),
        (&["create", "sometimes", "x"], 64),
        (&["create", "every 1h"], 64),
        (&["create", "2020-01-01T00:00", "x"], 64),
        (&["create", "every 1h", "run hermes gateway restart"], 64),
        (&["create", "every 1h", "x", "--script", "../evil.sh"], 64),
        (&["create", "every 1h", "x", "--no-agent"], 64),
        (&["frobnicate"], 64),
    ] {
        assert_eq!(cron(&setup, words).code, Some(code), "{words:?}");
    }
}

#[test]
fn a_job_runs_here_and_leaves_its_traces() {
    let setup = CliHarness::new();
    setup
        .server
        .push_default(Reply::text("The news: **none**."));
    drop(
        cron(
            &setup,
            &["create", "every 1h", "Sum up the news", "--name", "digest"],
        )
        .ok(),
    );
    let ran = cron(&setup, &["run", "digest", "--json"]).ok().json();
    assert_eq!(ran["response"], "The news: **none**.");
    assert_eq!(ran["delivery"], "none");
    let output = std::fs::read_to_string(ran["output"].as_str().unwrap()).unwrap();
    assert!(
        output.starts_with("# Cron Job: digest\n\n**Job ID:** "),
        "{output}"
    );
    assert!(
        output.ends_with("## Response\n\nThe news: **none**.\n"),
        "{output}"
    );
    let request = &setup.server.model_requests()[0];
    assert!(
        request
            .body
            .to_string()
            .contains("You are doing a scheduled job.")
    );
    let tools = request.body["tools"].to_string();
    assert!(tools.contains("\"terminal\""));
    for not_here in ["cronjob", "clarify", "send_message"] {
        assert!(!tools.contains(&format!("\"{not_here}\"")), "{not_here}");
    }
    let job = &cron(&setup, &["list", "--json"]).ok().json()[0];
    assert_eq!(
        (
            job["last_status"].clone(),
            job["repeat"]["completed"].clone()
        ),
        (json!("ok"), json!(1))
    );
    let history = cron(&setup, &["history", "digest", "--json"]).ok().json();
    assert_eq!(
        (history[0]["status"].clone(), history[0]["source"].clone()),
        (json!("completed"), json!("direct"))
    );
    let sessions = setup
        .run(["sessions", "list", "--all", "--json"])
        .ok()
        .json();
    let session = &sessions[0];
    assert_eq!(session["source"], "cron");
    assert!(
        session["title"].as_str().unwrap().starts_with("digest · "),
        "{session}"
    );
    // Nothing is due any more.
    assert_eq!(cron(&setup, &["tick", "--json"]).ok().json(), json!([]));
    // A single run counts as a success, and is gone.
    drop(cron(&setup, &["create", "1d", "once only", "--name", "single"]).ok());
    assert_eq!(
        cron(&setup, &["run", "single", "--json"]).ok().json()["ok"],
        true
    );
    assert_eq!(cron(&setup, &["run", "single"]).code, Some(4));
}

#[test]
fn nobody_is_there_to_approve() {
    let setup = CliHarness::with_config("approvals:\n  mode: manual\n");
    let victim = setup.home.work().join("victim");
    std::fs::create_dir(&victim).unwrap();
    let command = json!({"command": format!("rm -rf {}", victim.display())});
    setup
        .server
        .push(Reply::tool_call("c1", "terminal", &command));
    setup.server.push(Reply::text("I was not allowed to."));
    let dir = setup.home.work().display().to_string();
    drop(
        cron(
            &setup,
            &[
                "create",
                "every 1h",
                "clean up",
                "--name",
                "c",
                "--workdir",
                &dir,
            ],
        )
        .ok(),
    );
    let ran = cron(&setup, &["run", "c", "--json"]).ok().json();
    assert_eq!(ran["response"], "I was not allowed to.");
    assert!(victim.exists());
}

#[test]
fn a_failure_is_an_exit_code_and_a_record() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::error(401, "no such key"));
    drop(cron(&setup, &["create", "every 1h", "x", "--name", "f"]).ok());
    make_due(&setup);
    let ran = cron(&setup, &["tick", "--json"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert_eq!(ran.json()[0]["ok"], false);
    let job = &cron(&setup, &["list", "--json"]).ok().json()[0];
    assert_eq!(job["last_status"], "error");
    assert!(cron(&setup, &["history"]).ok().stdout.contains("failed"));
}

#[test]
fn scripts_run_under_the_gate() {
    let setup = CliHarness::new();
    setup
        .home
        .write("scripts/watch.sh", "echo \"disk at 91 %\"\n");
    setup.home.write("scripts/evil.sh", "rm -rf ~/precious\n");
    std::fs::create_dir(setup.home.user().join("precious")).unwrap();
    for name in ["watch", "evil"] {
        let script = format!("{name}.sh");
        let words = [
            "create",
            "every 1h",
            "--name",
            name,
            "--script",
            &script,
            "--no-agent",
        ];
        drop(cron(&setup, &words).ok());
    }
    let ran = cron(&setup, &["run", "watch", "--json"]).ok().json();
    assert_eq!(ran["response"], "disk at 91 %");
    assert_eq!(setup.server.model_requests().len(), 0);
    let ran = cron(&setup, &["run", "evil", "--json"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(setup.home.user().join("precious").exists());
}

const THEIR_JOBS: &str = "
import json
from cron.jobs import list_jobs
print(json.dumps([{k: j.get(k) for k in ('name', 'state', 'last_status', 'repeat', 'next_run_at')} for j in list_jobs(include_disabled=True)]))
";

const THEIR_TICK: &str = "
from cron.scheduler import tick
print(tick(verbose=False))
";

#[test]
fn the_original_and_we_work_on_one_table() {
    let Some(oracle) = oracle::require("cron::the_original_and_we_work_on_one_table") else {
        return;
    };
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("done, with love"));
    // Theirs, run by us.
    let job = ["every 2h", "Sum up", "--name", "theirs"];
    let words = ["cron", "create", "--deliver", "local"].into_iter();
    let made = oracle.hermes(&setup.home, words.chain(job));
    assert_eq!(made.code, Some(0), "{}{}", made.stdout, made.stderr);
    let ran = cron(&setup, &["run", "theirs", "--json"]).ok().json();
    assert_eq!(ran["response"], "done, with love");
    let theirs = oracle.json(&setup.home, THEIR_JOBS, []);
    assert_eq!(
        (
            theirs[0]["last_status"].clone(),
            theirs[0]["repeat"]["completed"].clone()
        ),
        (json!("ok"), json!(1))
    );
    let runs = oracle.hermes(&setup.home, ["cron", "runs"]);
    assert!(
        runs.stdout.contains("completed") && runs.stdout.contains("source=direct"),
        "{}",
        runs.stdout
    );
    // Ours, listed, changed and run by them.
    let made = cron(
        &setup,
        &[
            "create",
            "every 3h",
            "Look around",
            "--name",
            "ours",
            "--json",
        ],
    )
    .ok()
    .json();
    let id = made["id"].as_str().unwrap();
    let listed = oracle.hermes(&setup.home, ["cron", "list"]);
    assert!(
        listed.stdout.contains(id) && listed.stdout.contains("every 180m"),
        "{}",
        listed.stdout
    );
    let edited = oracle.hermes(&setup.home, ["cron", "edit", id, "--name", "renamed"]);
    assert_eq!(edited.code, Some(0), "{}{}", edited.stdout, edited.stderr);
    assert_eq!(
        cron(&setup, &["list", "--json"]).ok().json()[1]["name"],
        "renamed"
    );
    make_due(&setup);
    let ticked = oracle.run(&setup.home, THEIR_TICK, []).ok();
    assert_eq!(ticked.stdout.trim(), "2", "{}", ticked.stderr);
    let jobs = cron(&setup, &["list", "--json"]).ok().json();
    for job in jobs.as_array().unwrap() {
        assert_eq!(job["last_status"], "ok", "{job}");
    }
    let history = cron(&setup, &["history", "--json"]).ok().json();
    assert_eq!(history.as_array().unwrap().len(), 3);
    assert_eq!(history[0]["source"], "builtin");
    // Nothing is due for either now.
    assert_eq!(cron(&setup, &["tick", "--json"]).ok().json(), json!([]));
    // Ours again, after them.
    make_due(&setup);
    assert_eq!(
        cron(&setup, &["tick", "--json"])
            .ok()
            .json()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let theirs = oracle.run(&setup.home, THEIR_TICK, []).ok();
    assert_eq!(theirs.stdout.trim(), "0");
}

#[test]
fn a_job_runs_at_most_once_a_minute() {
    let home = hermes_testkit::home::TempHome::new();
    for schedule in [
        "every 0m",
        "every 0h",
        "every 0 minutes",
        "* * * * * *",
        "* * * * * */10",
        "0 9 * * * 0,30",
        "*/5 * * * * 1-3",
    ] {
        let run = hermes(&home)
            .args(["cron", "create", schedule, "do it"])
            .run();
        assert_eq!(run.code, Some(64), "{schedule}: {}", run.stderr);
        assert!(
            run.stderr.contains("at most once a minute"),
            "{}",
            run.stderr
        );
    }
}
