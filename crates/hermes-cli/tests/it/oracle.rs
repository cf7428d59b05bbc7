//! The pinned original on the same home: before us, after us, and at the same time.

use std::time::{Duration, Instant};

use hermes_testkit::model_server::Reply;
use hermes_testkit::oracle::{self, Oracle};
use hermes_testkit::process::finish;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::CliHarness;

/// What the original reads from a session: role and content of each row it would replay.
const CONVERSATION: &str = r#"
import json, sys
from hermes_state import SessionDB
db = SessionDB()
rows = db.get_messages_as_conversation(sys.argv[1])
print(json.dumps([[r["role"], r.get("content") or "", [c["function"]["name"] for c in r.get("tool_calls") or []]] for r in rows]))
"#;

const INTEGRITY: &str = r#"
import sqlite3, os
db = sqlite3.connect(os.path.join(os.environ["HERMES_HOME"], "state.db"))
print(db.execute("PRAGMA integrity_check").fetchone()[0])
"#;

fn assert_sound(oracle: &Oracle, setup: &CliHarness) {
    assert_eq!(
        oracle.run(&setup.home, INTEGRITY, []).ok().stdout.trim(),
        "ok"
    );
}

fn session_ids(listing: &Value) -> Vec<String> {
    let rows = listing["sessions"]
        .as_array()
        .or(listing.as_array())
        .expect("a list of sessions");
    rows.iter()
        .map(|row| row["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn we_go_on_where_the_original_stopped() {
    oracle::scenario("we_go_on_where_the_original_stopped", |oracle| {
        let setup = CliHarness::new();
        let note =
            json!({"action": "add", "target": "memory", "content": "the boat is called Wanda"});
        setup
            .server
            .push(Reply::tool_call("c1", "memory", &note).reasoning("worth keeping"));
        setup
            .server
            .push(Reply::text("I will remember Wanda. 日本語 too."));
        setup.server.push_default(Reply::text("an answer"));
        let theirs = oracle.hermes(&setup.home, ["chat", "-q", "my boat is called Wanda", "-Q"]);
        assert_eq!(theirs.code, Some(0), "{}{}", theirs.stdout, theirs.stderr);

        let listing = setup.run(["sessions", "list", "--json"]).ok().json();
        let ids = session_ids(&listing);
        assert_eq!(ids.len(), 1, "{listing}");
        let found = setup
            .run(["sessions", "search", "Wanda", "--json"])
            .ok()
            .json()
            .to_string();
        assert!(found.contains(&ids[0]), "{found}");

        let done = setup
            .run(["chat", "-q", "what is my boat called?", "-r", &ids[0]])
            .ok();
        assert_eq!(done.stdout, "an answer\n");
        let sent = setup.server.last_request();
        let texts = sent.body_text();
        for piece in [
            "my boat is called Wanda",
            "I will remember Wanda. 日本語 too.",
        ] {
            assert!(texts.contains(piece), "{piece} is missing in {texts}");
        }
        assert_eq!(sent.tool_results().len(), 1);

        let seen = oracle.json(&setup.home, CONVERSATION, [ids[0].as_str()]);
        let roles: Vec<&str> = seen
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row[0].as_str().unwrap())
            .collect();
        assert_eq!(
            roles,
            [
                "user",
                "assistant",
                "tool",
                "assistant",
                "user",
                "assistant"
            ]
        );
        assert_sound(oracle, &setup);
    });
}

#[test]
fn the_original_goes_on_where_we_stopped() {
    oracle::scenario("the_original_goes_on_where_we_stopped", |oracle| {
        let setup = CliHarness::new();
        let note = json!({"action": "add", "target": "user", "content": "prefers tea"});
        setup
            .server
            .push(Reply::tool_call("c1", "memory", &note).reasoning("a preference"));
        setup.server.push(Reply::text("Noted: tea. ✓"));
        setup.server.push_default(Reply::text("their answer"));
        let ours = setup
            .run(["chat", "-q", "I prefer tea", "--json"])
            .ok()
            .json();
        let id = ours["session_id"].as_str().unwrap();

        let listed = oracle.hermes(&setup.home, ["sessions", "list"]);
        assert_eq!(listed.code, Some(0), "{}", listed.stderr);
        assert!(listed.stdout.contains(&id[..15]), "{}", listed.stdout);
        let exported = oracle.hermes(&setup.home, ["sessions", "export", "-"]);
        assert!(
            exported.stdout.contains("I prefer tea"),
            "{}{}",
            exported.stdout,
            exported.stderr
        );

        let seen = oracle.json(&setup.home, CONVERSATION, [id]);
        let expected = json!([
            ["user", "I prefer tea", []],
            ["assistant", "", ["memory"]],
            ["tool", seen[2][1], []],
            ["assistant", "Noted: tea. ✓", []],
        ]);
        assert_eq!(seen, expected);

        let resumed = oracle.hermes(
            &setup.home,
            ["chat", "-q", "what do I prefer?", "-Q", "--resume", id],
        );
        assert!(
            resumed.stdout.contains("their answer"),
            "{}{}",
            resumed.stdout,
            resumed.stderr
        );
        let sent = setup.server.last_request().body_text();
        assert!(
            sent.contains("I prefer tea") && sent.contains("Noted: tea. ✓"),
            "{sent}"
        );
        assert!(
            sent.contains("prefers tea"),
            "our memory reaches their prompt: {sent}"
        );
        assert_sound(oracle, &setup);

        // And back to us once more.
        let _ = setup.run(["chat", "-q", "again", "-r", id]).ok();
        assert!(
            setup
                .server
                .last_request()
                .body_text()
                .contains("what do I prefer?")
        );
    });
}

/// Appends numbered rows to its own session until a file appears; prints how many.
const WRITER: &str = r#"
import os, sys, time
from hermes_state import SessionDB
db = SessionDB()
db.create_session("python-writer", "cli", model="m")
stop = sys.argv[1]
n = 0
while not os.path.exists(stop):
    db.append_message("python-writer", "user", f"python row {n}")
    n += 1
    time.sleep(0.002)
print(n)
"#;

const ROWS: &str = r#"
import json, sys
from hermes_state import SessionDB
db = SessionDB()
print(json.dumps([m["content"] for m in db.get_messages(sys.argv[1])]))
"#;

#[test]
fn both_write_for_a_minute_and_no_row_is_lost_or_doubled() {
    let name = "both_write_for_a_minute_and_no_row_is_lost_or_doubled";
    let Some(oracle) = oracle::require(name) else {
        return;
    };
    let setup = CliHarness::new();
    setup
        .server
        .answer_with(|request| Reply::text(&format!("re: {}", request.last_user_text())));
    let first = setup
        .run(["chat", "-q", "our question 0", "--json"])
        .ok()
        .json();
    let id = first["session_id"].as_str().unwrap().to_owned();

    let stop = setup.home.work().join("stop");
    let writer = oracle
        .interpreter(&setup.home)
        .args(["-c", WRITER, stop.to_str().unwrap()])
        .spawn();
    let end = Instant::now() + Duration::from_mins(1);
    let mut asked = 1;
    while Instant::now() < end {
        let question = format!("our question {asked}");
        let _ = setup.run(["chat", "-q", &question, "-r", &id]).ok();
        asked += 1;
    }
    std::fs::write(&stop, "").unwrap();
    let written: usize = finish(writer).ok().stdout.trim().parse().unwrap();
    assert!(written > 0 && asked > 1);

    let theirs = oracle.json(&setup.home, ROWS, ["python-writer"]);
    let expected: Vec<Value> = (0..written)
        .map(|n| json!(format!("python row {n}")))
        .collect();
    assert_eq!(theirs.as_array().unwrap(), &expected);
    let ours = oracle.json(&setup.home, ROWS, [id.as_str()]);
    let expected: Vec<Value> = (0..asked)
        .flat_map(|n| {
            [
                json!(format!("our question {n}")),
                json!(format!("re: our question {n}")),
            ]
        })
        .collect();
    assert_eq!(ours.as_array().unwrap(), &expected);
    assert_sound(&oracle, &setup);
}
