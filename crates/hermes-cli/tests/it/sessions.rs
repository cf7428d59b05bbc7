//! `hermes sessions`.

use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use hermes_testkit::process::FinishedProgram;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::hermes;

fn run(home: &TempHome, line: &[&str]) -> FinishedProgram {
    hermes(home).args(["sessions"]).args(line).run()
}

fn session(id: &str, started: f64, ended: bool, texts: &[&str]) -> String {
    let messages: Vec<Value> = texts
        .iter()
        .map(|text| json!({"role": "user", "content": text, "timestamp": started}))
        .collect();
    json!({
        "id": id, "source": "cli", "model": "vendor/big", "title": format!("Talk {id}"),
        "cwd": "/w/shop", "started_at": started, "ended_at": ended.then_some(started + 1.0),
        "messages": messages,
    })
    .to_string()
}

/// A home with two ended sessions and an open one, put there by `sessions import`.
fn home() -> TempHome {
    let home = TempHome::new();
    let lines = [
        session(
            "20250101_a",
            1_735_700_000.0,
            true,
            &[
                "about zeppelins",
                "sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            ],
        ),
        session("20250101_b", 1_735_800_000.0, true, &["about tea"]),
        session("20250102_c", 1_735_900_000.0, false, &["about coffee"]),
    ];
    let input = home.write("in.jsonl", lines.join("\n"));
    let report = run(&home, &["import", input.to_str().unwrap(), "--json"])
        .ok()
        .json();
    assert_eq!(report["imported_ids"].as_array().unwrap().len(), 3);
    home
}

#[test]
fn an_empty_home_has_no_sessions_and_gets_no_database() {
    let home = TempHome::new();
    assert_eq!(run(&home, &["list", "--json"]).ok().json(), json!([]));
    assert_eq!(run(&home, &["stats", "--json"]).ok().json()["sessions"], 0);
    assert_eq!(
        run(&home, &["search", "x", "--json"]).ok().json(),
        json!([])
    );
    assert_eq!(run(&home, &["show", "x"]).code, Some(4));
    assert_eq!(run(&home, &["delete", "x", "--yes"]).code, Some(4));
    assert_eq!(run(&home, &["repair"]).code, Some(4));
    assert_eq!(run(&home, &["prune", "--json"]).ok().json()["count"], 0);
    assert!(!home.join("state.db").exists());
}

#[test]
fn sessions_are_listed_shown_and_found() {
    let home = home();
    let list = run(&home, &["list", "--json"]).ok().json();
    let ids: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["20250102_c", "20250101_b", "20250101_a"]);
    let text = run(&home, &["list", "--limit", "1", "--workspace", "SHOP"])
        .ok()
        .stdout;
    assert!(
        text.contains("Talk 20250102_c") && !text.contains("20250101_b"),
        "{text}"
    );

    let shown = run(&home, &["show", "20250101_a"]).ok().stdout;
    assert!(
        shown.starts_with("# Talk 20250101_a") && shown.contains("about zeppelins"),
        "{shown}"
    );
    let json = run(&home, &["show", "Talk 20250101_b", "--json"])
        .ok()
        .json();
    assert_eq!(json["messages"][0]["content"], "about tea");
    let ambiguous = run(&home, &["show", "2025"]);
    assert_eq!(ambiguous.code, Some(64));
    assert!(ambiguous.stdout.is_empty() && ambiguous.stderr.contains("20250101_a"));

    let hits = run(&home, &["search", "zeppelins", "--json"]).ok().json();
    assert_eq!(hits[0]["snippet"], "about >>>zeppelins<<<  ");
    assert!(run(&home, &["search", "nothing"]).ok().stdout.is_empty());
    assert!(
        run(&home, &["stats"])
            .ok()
            .stdout
            .starts_with("3 sessions, 4 messages")
    );
}

#[test]
fn names_change_and_collide() {
    let home = home();
    let named = run(&home, &["rename", "20250101_a", "High", "tea", "--json"])
        .ok()
        .json();
    assert_eq!(
        named,
        json!({"session_id": "20250101_a", "title": "High tea"})
    );
    assert_eq!(
        run(&home, &["rename", "20250101_b", "High tea"]).code,
        Some(64)
    );
    assert_eq!(run(&home, &["rename", "nobody", "x"]).code, Some(4));
    assert_eq!(run(&home, &["rename"]).code, Some(64));
    assert_eq!(run(&home, &["no-such-thing"]).code, Some(64));
}

#[test]
fn nothing_is_deleted_without_consent() {
    let home = home();
    home.write("sessions/20250101_a.jsonl", "old transcript");
    let asked = run(&home, &["delete", "20250101_a"]);
    assert_eq!(asked.code, Some(64));
    assert!(asked.stderr.contains("--yes"), "{}", asked.stderr);
    let deleted = run(&home, &["delete", "20250101_a", "--yes", "--json"])
        .ok()
        .json();
    assert_eq!(deleted["session_id"], "20250101_a");
    assert!(!home.join("sessions/20250101_a.jsonl").exists());

    let dry = run(
        &home,
        &["prune", "--older-than", "1d", "--dry-run", "--json"],
    )
    .ok()
    .json();
    assert_eq!(
        (&dry["count"], &dry["sessions"][0]["id"]),
        (&json!(1), &json!("20250101_b"))
    );
    assert_eq!(run(&home, &["prune", "--older-than", "1d"]).code, Some(64));
    assert_eq!(
        run(&home, &["prune", "--older-than", "soon"]).code,
        Some(64)
    );
    assert_eq!(
        run(
            &home,
            &[
                "prune",
                "--model",
                "BIG",
                "--max-messages",
                "0",
                "--yes",
                "--json"
            ]
        )
        .ok()
        .json()["count"],
        0
    );
    assert_eq!(
        run(&home, &["prune", "--yes", "--json"]).ok().json()["count"],
        1
    );
    assert_eq!(run(&home, &["stats", "--json"]).ok().json()["sessions"], 1);
}

#[test]
fn archived_sessions_leave_the_list_and_come_back() {
    let home = home();
    assert_eq!(run(&home, &["archive"]).code, Some(64));
    let _ = run(&home, &["archive", "20250102_c"]).ok();
    let done = run(
        &home,
        &[
            "archive",
            "--title",
            "talk",
            "--before",
            "2025-01-02T00:00:00Z",
            "--yes",
            "--json",
        ],
    )
    .ok()
    .json();
    assert_eq!(done["count"], 1);
    let count = |line: &[&str]| run(&home, line).ok().json().as_array().unwrap().len();
    assert_eq!(count(&["list", "--json"]), 1);
    assert_eq!(count(&["list", "--json", "--all"]), 3);
    let _ = run(&home, &["archive", "20250102_c", "--undo"]).ok();
    assert_eq!(count(&["list", "--json"]), 2);
}

#[test]
fn an_export_does_not_replace_a_device() {
    let home = home();
    let link = home.join("screen");
    std::os::unix::fs::symlink("/dev/stdout", &link).unwrap();
    let done = run(&home, &["export", link.to_str().unwrap()]).ok();
    assert_eq!(done.stdout.lines().count(), 3, "{}", done.stdout);
    assert!(link.is_symlink());
}

#[test]
fn an_export_can_be_read_elsewhere() {
    let home = home();
    let line = run(&home, &["export", "-", "--session-id", "20250101_a"]).ok();
    assert_eq!(line.json()["title"], "Talk 20250101_a");
    let hidden = run(
        &home,
        &["export", "-", "--session-id", "20250101_a", "--redact"],
    )
    .ok()
    .stdout;
    assert!(!hidden.contains("sk-ant-api03-aaaaaaaa"), "{hidden}");
    let file = home.join("out.jsonl");
    let _ = run(&home, &["export", file.to_str().unwrap()]).ok();
    let other = TempHome::new();
    let text = std::fs::read(&file).unwrap();
    let imported = hermes(&other)
        .args(["sessions", "import", "-"])
        .stdin(text)
        .run()
        .ok();
    assert!(
        imported.stdout.starts_with("3 sessions imported"),
        "{}",
        imported.stdout
    );
    let notes = home.join("notes");
    let _ = run(
        &home,
        &[
            "export",
            notes.to_str().unwrap(),
            "--format",
            "md",
            "--older-than",
            "1d",
        ],
    )
    .ok();
    assert_eq!(std::fs::read_dir(&notes).unwrap().count(), 3);

    let bad = home.write("bad.jsonl", "{\"id\": \"x\"}\n{\"id\": ");
    let refused = run(&other, &["import", bad.to_str().unwrap()]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("line 2"), "{}", refused.stderr);
    assert_eq!(run(&other, &["import", "/no/such/file"]).code, Some(4));
}

#[test]
fn damage_is_found_and_mended() {
    let home = home();
    assert!(run(&home, &["repair"]).ok().stdout.contains("sound"));
    assert_eq!(
        run(&home, &["optimize", "--json"]).ok().json()["indexes"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    std::fs::write(home.join("state.db"), "rubbish ".repeat(1000)).unwrap();
    let listed = run(&home, &["list"]);
    assert_eq!(listed.code, Some(1));
    assert!(
        listed.stderr.contains("hermes sessions repair"),
        "{}",
        listed.stderr
    );
    // Nothing was looked at, so nothing is said to have been done.
    for words in [["prune", "--older-than=1d"], ["archive", "--older-than=1d"]] {
        let done = run(&home, &[words[0], words[1], "--yes"]);
        assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""));
    }
    let report = run(&home, &["repair", "--json"]);
    assert_eq!(report.code, Some(1));
    assert_eq!(report.json()["healthy"], false);
    assert!(std::path::Path::new(report.json()["backup"].as_str().unwrap()).exists());
    let told = run(&home, &["repair"]);
    assert_eq!(told.code, Some(1));
    assert!(
        told.stdout.contains("put this one aside: mv "),
        "{}",
        told.stdout
    );
}

#[test]
fn the_original_lists_what_was_imported() {
    let Some(oracle) = oracle::require("cli: the original lists what was imported") else {
        return;
    };
    let home = home();
    let list = oracle.hermes(&home, ["sessions", "list"]).ok();
    assert!(list.stdout.contains("Talk 20250102_c"), "{}", list.stdout);
    let theirs = oracle.hermes(&home, ["sessions", "export", "-"]).ok();
    let again = TempHome::new();
    let ours = hermes(&again)
        .args(["sessions", "import", "-", "--json"])
        .stdin(theirs.stdout)
        .run();
    assert_eq!(
        ours.ok().json()["imported_ids"].as_array().unwrap().len(),
        3
    );
}

/// Sessions are shown by their first words, so they can be named by them.
#[test]
fn a_session_without_a_title_is_found_by_its_first_words() {
    let setup = crate::CliHarness::new();
    setup
        .server
        .push_default(hermes_testkit::model_server::Reply::text("ok"));
    let _ = setup.run(["-z", "how tall is the tower in Pisa"]).ok();
    let shown = setup
        .run(["sessions", "show", "how tall is the tower"])
        .ok();
    assert!(shown.stdout.contains("Pisa"), "{}", shown.stdout);
    assert_eq!(setup.run(["sessions", "show", "how deep"]).code, Some(4));
    let mode =
        std::os::unix::fs::MetadataExt::mode(&setup.home.join("state.db").metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
}

/// Lists cut titles off. What they show can be typed, and so can the words that began the session.
#[test]
fn a_session_is_found_by_the_beginning_of_its_title() {
    let setup = crate::CliHarness::new();
    setup
        .server
        .push_default(hermes_testkit::model_server::Reply::text("ok"));
    let _ = setup.run(["-z", "how tall is the tower in Pisa"]).ok();
    let _ = setup.run(["-z", "what floats on the canal"]).ok();
    let title = "Buildings of Tuscany that lean more than they should";
    let _ = setup.run(["sessions", "rename", "how tall", title]).ok();
    for words in [
        "Buildings of Tuscany that lean more…",
        "buildings of",
        "how tall is",
    ] {
        let shown = setup.run(["sessions", "show", words]).ok();
        assert!(shown.stdout.contains("Pisa"), "{words}: {}", shown.stdout);
    }
    assert_eq!(setup.run(["sessions", "show", "how deep"]).code, Some(4));
}
