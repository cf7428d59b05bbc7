//! `hermes logs`.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};

use hermes_testkit::home::TempHome;
use hermes_testkit::process::{FinishedProgram, finish};
use pretty_assertions::assert_eq;
use serde_json::Value;

use crate::hermes;

/// Lines of the original program and of this one.
const AGENT: &str = "\
2026-05-01 10:00:00,123 INFO [20260501_a] run_agent: begun
2026-05-01 10:00:01,000 WARNING gateway.run: slow
Traceback (most recent call last):
  ValueError: nope
2026-05-01 10:00:02,000 ERROR hermes_mcp::actor: link lost session=20260501_b
";

fn home() -> TempHome {
    let home = TempHome::new();
    home.write("logs/agent.log", AGENT);
    home.write("logs/mcp-stderr.log", "a server said something\n");
    home
}

fn run(home: &TempHome, args: &[&str]) -> FinishedProgram {
    hermes(home).args(["logs"]).args(args).run()
}

#[test]
fn the_last_lines_are_shown() {
    let home = home();
    assert_eq!(run(&home, &[]).ok().stdout, AGENT);
    assert_eq!(
        run(&home, &["agent", "-n", "2"])
            .ok()
            .stdout
            .lines()
            .count(),
        2
    );
    assert_eq!(
        run(&home, &["mcp"]).ok().stdout,
        "a server said something\n"
    );
}

#[test]
fn filters_keep_entries_whole() {
    let home = home();
    for (args, lines) in [
        (vec!["--level", "warning"], 4),
        (vec!["--level", "ERROR"], 1),
        (vec!["--session", "20260501_a"], 1),
        (vec!["--session", "20260501_b"], 1),
        (vec!["--component", "gateway"], 3),
        (vec!["--component", "mcp"], 1),
        (vec!["--component", "run_agent"], 1),
        (vec!["--since", "2026-05-01 10:00:01"], 4),
        (vec!["--since", "1h"], 0),
    ] {
        let shown = run(&home, &args).ok().stdout;
        assert_eq!(shown.lines().count(), lines, "{args:?}: {shown}");
    }
}

#[test]
fn entries_come_as_json() {
    let home = home();
    let shown = run(&home, &["--json", "-n", "2"]).ok().stdout;
    let entries: Vec<Value> = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0]["level"], "warning");
    assert_eq!(entries[0]["component"], "gateway.run");
    assert!(entries[0]["text"].as_str().unwrap().ends_with("nope"));
    assert_eq!(entries[1]["time"], "2026-05-01T10:00:02");
    let names = run(&home, &["list", "--json"]).ok().json();
    let names: Vec<&Value> = names
        .as_array()
        .unwrap()
        .iter()
        .map(|log| &log["name"])
        .collect();
    assert_eq!(names, ["agent", "mcp"]);
}

#[test]
fn what_is_not_there_is_4_and_what_makes_no_sense_64() {
    let home = home();
    let done = run(&home, &["gateway"]);
    assert_eq!(done.code, Some(4));
    assert!(done.stderr.contains("agent, mcp"), "{}", done.stderr);
    for args in [
        ["--since", "soon"],
        ["--level", "loud"],
        ["-n", "x"],
        ["../.env", "-f"],
    ] {
        assert_eq!(run(&home, &args).code, Some(64), "{args:?}");
    }
}

#[test]
fn following_survives_rotation_and_ends_with_its_reader() {
    let home = home();
    let path = home.join("logs/agent.log");
    let mut child = hermes(&home).args(["logs", "-n", "1", "-f"]).spawn();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("link lost"));
    let append = |text: &str| {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    append("2026-05-01 10:00:03,000 INFO agent: first\n");
    assert!(next().ends_with("first"));
    // What was written just before the file moved away is not lost either.
    append("2026-05-01 10:00:04,000 INFO agent: last of the old\n");
    std::fs::rename(&path, home.join("logs/agent.log.1")).unwrap();
    append("2026-05-01 10:00:05,000 INFO agent: first of the new\n");
    assert!(next().ends_with("last of the old"));
    assert!(next().ends_with("first of the new"));
    // Emptied in place, as some tools do.
    std::fs::write(&path, "").unwrap();
    append("2026-05-01 10:00:06,000 INFO agent: again\n");
    assert!(next().ends_with("again"));
    // The reader goes; nothing is written any more, and the program ends all the same.
    drop(lines);
    let done = finish(child);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_log_that_is_not_there_yet_can_be_followed() {
    let home = TempHome::new();
    let mut child = hermes(&home)
        .args(["logs", "gateway", "-f", "--json"])
        .spawn();
    home.write(
        "logs/gateway.log",
        "2026-05-01 10:00:00 INFO gateway.run: up\n",
    );
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let entry: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(entry["component"], "gateway.run");
    drop(lines);
    assert_eq!(finish(child).code, Some(0));
}

#[test]
fn the_level_of_the_config_counts() {
    for (level, wanted) in [("DEBUG", true), ("ERROR", false)] {
        let setup = crate::CliHarness::with_config(&format!("logging: {{level: {level}}}\n"));
        setup
            .server
            .push_default(hermes_testkit::model_server::Reply::text("ok"));
        let call = serde_json::json!({"command": "echo x"});
        setup
            .server
            .push(hermes_testkit::model_server::Reply::tool_call(
                "c1", "terminal", &call,
            ));
        let _ = setup.run(["-z", "hi"]).ok();
        let log = std::fs::read_to_string(setup.home.join("logs/agent.log")).unwrap_or_default();
        assert_eq!(
            log.contains(" DEBUG ") || log.contains(" INFO "),
            wanted,
            "{level}: {log}"
        );
    }
}
