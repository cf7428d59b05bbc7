//! What scripts read: the output of every reading command against its schema in tests/schemas.
//! A test beside the commands keeps the list complete.

mod check;

use std::path::Path;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::Reply;
use serde_json::{Value, json};

use crate::{CliHarness, hermes};
use check::check;

fn schemas() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemas"))
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(schemas().join(name)).unwrap();
    let value = serde_json::from_str(&text);
    assert!(value.is_ok(), "{name}: {value:?}");
    value.unwrap()
}

/// A home in which every reading command has something to tell.
fn filled() -> CliHarness {
    let setup = CliHarness::with_config(
        "fallback_providers:\n  - provider: openrouter\n    model: a/b\nmcp_servers:\n  gone:\n    command: /nonexistent/server\n  off:\n    url: http://127.0.0.1:9/mcp\n    enabled: false\n",
    );
    let home = &setup.home;
    home.write(
        "skills/cat/tea/SKILL.md",
        "---\nname: tea\ndescription: makes tea\n---\nbody\n",
    );
    home.write("skill-bundles/drinks.yaml", "skills: [tea]\n");
    home.write("memories/MEMORY.md", "likes tea");
    home.write(
        "logs/agent.log",
        "2026-05-01 10:00:00,123 INFO [s1] agent.loop: begun\n",
    );
    home.write("profiles/work/config.yaml", "model: {}\n");
    home.write(
        "pending/memory/0a1b2c3d.json",
        json!({"id": "0a1b2c3d", "subsystem": "memory", "action": "add", "summary": "s", "origin": "cli",
               "created_at": 1.0, "payload": {"target": "memory", "content": "x"}})
        .to_string(),
    );
    home.env_file("OPENROUTER_API_KEY=sk-or-v1-0123456789abcdef\n");
    let note = json!({"action": "add", "target": "memory", "content": "the boat is called Wanda"});
    setup.server.push(Reply::tool_call("c1", "memory", &note));
    setup.server.push_default(Reply::text("pong"));
    drop(setup.run(["-z", "remember Wanda"]).ok());
    drop(setup.run(["approvals", "add", "git status"]).ok());
    drop(
        setup
            .run(["cron", "create", "every 1h", "make tea", "--name", "tea"])
            .ok(),
    );
    drop(setup.run(["cron", "run", "tea"]).ok());
    // A file of a project is changed, so that there is a snapshot of it.
    let file = home.work().join("notes.txt");
    std::fs::write(&file, "before").unwrap();
    let write = json!({"path": file, "content": "after"});
    setup
        .server
        .push(Reply::tool_call("c2", "write_file", &write));
    drop(setup.run(["-z", "write it", "--checkpoints"]).ok());
    setup
}

fn compare(command: &str, value: &Value, schema: &Value, failures: &mut Vec<String>) {
    for wrong in check(value, schema) {
        failures.push(format!("hermes {command}: {wrong}"));
    }
}

fn outputs(home: &TempHome, args: &[&str], lines: bool) -> Vec<Value> {
    let done = hermes(home).args(args).run();
    if lines {
        let values = done
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        values.collect()
    } else {
        vec![done.json()]
    }
}

/// The list: for each reading command its schema and one or more ways to call it.
fn each(mut visit: impl FnMut(&str, &Value, Vec<String>, bool)) {
    for (command, entry) in read("commands.json")["read"].as_object().unwrap() {
        let schema = read(entry["schema"].as_str().unwrap());
        let lines = entry["lines"] == true;
        for extra in entry["args"].as_array().unwrap() {
            let extra = extra.as_str().unwrap();
            let words = command.split(' ').chain(["--json"]).chain(extra.split(' '));
            let words: Vec<String> = words
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect();
            visit(command, &schema, words, lines);
        }
    }
}

#[test]
fn every_reading_command_keeps_its_schema() {
    let setup = filled();
    let mut failures = Vec::new();
    let list = hermes(&setup.home)
        .args(["sessions", "list", "--json"])
        .run()
        .ok()
        .json();
    let session = list[0]["id"].as_str().unwrap();
    each(|command, schema, words, lines| {
        let put = |word: &String| word.replace("{session}", session);
        let words: Vec<String> = words.iter().map(put).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let values = outputs(&setup.home, &words, lines);
        if values.is_empty() {
            failures.push(format!("hermes {command}: nothing to check"));
        }
        for value in values {
            compare(&words.join(" "), &value, schema, &mut failures);
        }
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// An empty home has no surprises: what there is fits too, and nothing is printed that is no JSON.
#[test]
fn an_empty_home_keeps_them_too() {
    let home = TempHome::new();
    let mut failures = Vec::new();
    each(|command, schema, words, lines| {
        let done = hermes(&home).args(&words).run();
        let texts: Vec<&str> = if lines {
            done.stdout.lines().collect()
        } else {
            vec![&done.stdout]
        };
        for text in texts.into_iter().filter(|text| !text.trim().is_empty()) {
            match serde_json::from_str(text) {
                Ok(value) => compare(&words.join(" "), &value, schema, &mut failures),
                Err(error) => failures.push(format!("hermes {command}: {error}: {text}")),
            }
        }
        if done.stdout.is_empty() && !lines && done.code == Some(0) {
            failures.push(format!("hermes {command}: 0, and nothing was printed"));
        }
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
