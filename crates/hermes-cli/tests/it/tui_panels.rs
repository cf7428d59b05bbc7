//! Panels of the full interface, driven by keys at a terminal.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use hermes_testkit::mcp_server::FaultyServer;
use hermes_testkit::model_server::{ModelServer, Reply, ServedModel};
use hermes_testkit::terminal::Terminal;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::CliHarness;
use crate::tools_files::changed_project;
use crate::tui::{at, quit, ready, say, typed};

const DOWN: &str = "\x1b[B";
const ESC: &str = "\x1b";
const ENTER: &str = "\r";
const DELETE: &str = "\x1b[3~";
const CTRL_K: &str = "\x0b";
const CTRL_P: &str = "\x10";
const CTRL_R: &str = "\x12";
const CTRL_S: &str = "\x13";
const CTRL_T: &str = "\x14";

fn open(setup: &CliHarness) -> Terminal {
    let terminal = at(&setup.home).size(100, 30).start();
    ready(&terminal);
    terminal
}

/// Opens a panel by its command and waits for what is in it.
fn panel(terminal: &mut Terminal, command: &str, shows: &str) {
    say(terminal, command);
    terminal.wait_until(&format!("the panel of {command} with {shows}"), |rows| {
        rows.first().is_some_and(|row| row.starts_with("──"))
            && rows.iter().any(|row| row.contains(shows))
    });
    assert!(terminal.alternate_screen());
}

/// One key at the pace of a person: what comes faster is taken for a paste.
fn press(terminal: &mut Terminal, key: &str) {
    std::thread::sleep(Duration::from_millis(30));
    terminal.press(key);
}

/// Closes what covers the conversation.
fn close(terminal: &mut Terminal) {
    press(terminal, ESC);
    terminal.wait_for("? keys");
}

#[test]
fn a_model_is_tested_kept_and_left() {
    let setup = CliHarness::new();
    let call = json!({"number": 7});
    setup.server.push(Reply::text("ready"));
    setup
        .server
        .push(Reply::tool_call("c1", "report_number", &call));
    let mut terminal = open(&setup);
    panel(&mut terminal, "/model", "needs a key");
    terminal.wait_for("in use");
    press(&mut terminal, CTRL_T);
    terminal.wait_for("answers and calls tools");
    press(&mut terminal, CTRL_S);
    terminal.wait_for("is the default of new conversations");
    close(&mut terminal);
    assert_eq!(quit(terminal).0, 0);
}

/// Whoever looks for an own server by other words than ours, or by its address, finds the way to it.
#[test]
fn an_own_endpoint_is_found_by_what_people_type() {
    let setup = CliHarness::new();
    let mut terminal = open(&setup);
    for words in ["custom", "endpoint", "base_url"] {
        panel(&mut terminal, "/model", "needs a key");
        typed(&mut terminal, words);
        terminal.wait_until(&format!("the row, by {words}"), |rows| {
            let has = |text: &str| rows.iter().any(|row| row.contains(text));
            has("type an address") && !has("ANTHROPIC_API_KEY")
        });
        press(&mut terminal, ESC);
        close(&mut terminal);
    }
    panel(&mut terminal, "/model", "needs a key");
    typed(&mut terminal, "http://127.0.0.1:9/v1");
    terminal.wait_for("type an address");
    press(&mut terminal, ENTER);
    terminal.wait_for("address of the server, such as http://host:8000/v1: http://127.0.0.1:9/v1");
}

#[test]
fn enter_on_a_provider_without_a_key_asks_for_it() {
    let setup = CliHarness::new();
    setup.server.serve_models([ServedModel::new("some/model")]);
    let mut terminal = at(&setup.home)
        .size(100, 30)
        .env("OPENROUTER_BASE_URL", setup.server.base_url())
        .start();
    ready(&terminal);
    panel(&mut terminal, "/model", "needs a key");
    typed(&mut terminal, "openrouter");
    terminal.wait_for("OPENROUTER_API_KEY");
    press(&mut terminal, ENTER);
    terminal.wait_for("never shown");
    press(&mut terminal, "sk-or-v1-0123456789abcdef0123456789abcdef");
    terminal.wait_for("*****");
    std::thread::sleep(Duration::from_millis(120));
    press(&mut terminal, ENTER);
    terminal.wait_for("the key is in .env");
}

#[test]
fn the_panel_leads_to_an_own_endpoint() {
    let setup = CliHarness::new();
    let own = ModelServer::start();
    own.serve_models([ServedModel::new("house-model")]);
    own.push_default(Reply::text("from your own house"));
    let mut terminal = open(&setup);
    panel(&mut terminal, "/model", "needs a key");
    typed(&mut terminal, "type an address");
    press(&mut terminal, ENTER);
    terminal.wait_for("address of the server");
    press(&mut terminal, &own.base_url());
    std::thread::sleep(Duration::from_millis(120));
    press(&mut terminal, ENTER);
    terminal.wait_for("choose one");
    // The list has gone to what was found.
    terminal.wait_for("›   house-model");
    press(&mut terminal, ENTER);
    terminal.wait_for("? keys");
    terminal.wait_for("is the default of new conversations");
    say(&mut terminal, "who are you?");
    terminal.wait_for("from your own house");
    assert_eq!(quit(terminal).0, 0);
    let config = setup.home.read("config.yaml");
    assert!(config.contains(&own.base_url()), "{config}");
}

#[test]
fn a_key_is_taken_unseen_and_kept_for_the_owner_alone() {
    let setup = CliHarness::new();
    setup.server.serve_models([ServedModel::new("some/model")]);
    let mut terminal = at(&setup.home)
        .size(100, 30)
        .env("OPENROUTER_BASE_URL", setup.server.base_url())
        .start();
    ready(&terminal);
    panel(&mut terminal, "/model", "needs a key");
    typed(&mut terminal, "openrouter");
    terminal.wait_for("OPENROUTER_API_KEY");
    press(&mut terminal, CTRL_K);
    terminal.wait_for("never shown");
    press(&mut terminal, "sk-or-v1-0123456789abcdef0123456789abcdef");
    terminal.wait_for("*****");
    std::thread::sleep(Duration::from_millis(120));
    press(&mut terminal, ENTER);
    terminal.wait_for("the key is in .env");
    let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(!bytes.contains("0123456789abcdef"), "it was drawn");
    let file = setup.home.join(".env");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("OPENROUTER_API_KEY"), "{text}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    press(&mut terminal, ESC);
    close(&mut terminal);
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn conversations_are_found_renamed_deleted_and_gone_on_with() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("the zebra answers"));
    for question in ["about tapirs", "about llamas"] {
        let _ = setup.run(["chat", "-q", question]).ok();
    }
    let mut terminal = open(&setup);
    panel(&mut terminal, "/sessions", "about tapirs");
    typed(&mut terminal, "tapirs");
    terminal.wait_gone("about llamas");
    press(&mut terminal, CTRL_R);
    terminal.wait_for("new title:");
    typed(&mut terminal, "Long noses");
    press(&mut terminal, ENTER);
    terminal.wait_for("renamed to");
    // By what was said, though no title has it.
    press(&mut terminal, ESC);
    terminal.wait_for("about llamas");
    typed(&mut terminal, "zebra");
    terminal.wait_for("said in");
    press(&mut terminal, ESC);
    terminal.wait_gone("said in");
    typed(&mut terminal, "llamas");
    terminal.wait_gone("Long noses");
    press(&mut terminal, DELETE);
    terminal.wait_for("y yes");
    press(&mut terminal, "y");
    terminal.wait_for("is deleted");
    press(&mut terminal, ESC);
    terminal.wait_for("Long noses");
    typed(&mut terminal, "noses");
    press(&mut terminal, ENTER);
    terminal.wait_for("the zebra answers");
    assert!(!terminal.alternate_screen());
    assert_eq!(quit(terminal).0, 0);
    let listed = setup.run(["sessions", "list", "--json"]).ok();
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let titles: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["title"].as_str())
        .collect();
    assert_eq!(titles, ["Long noses"]);
}

#[test]
fn servers_are_watched_reconnected_and_switched() {
    let server = FaultyServer::start();
    server.go_down();
    let config = format!("mcp_servers:\n  srv:\n    url: {}\n", server.url());
    let setup = CliHarness::with_config(&config);
    let mut terminal = open(&setup);
    panel(&mut terminal, "/mcp", "srv");
    terminal.wait_for("0 ok · 1 down");
    terminal.wait_for("next try in");
    server.come_up();
    press(&mut terminal, "r");
    terminal.wait_for("1 ok · 0 down");
    press(&mut terminal, "t");
    terminal.wait_for("srv answers in");
    press(&mut terminal, "v");
    terminal.wait_for("srv: ");
    terminal.wait_for("/ search");
    press(&mut terminal, "q");
    terminal.wait_for("TRANSPORT");
    // It goes down by itself and is seen without a key.
    server.go_down();
    press(&mut terminal, "r");
    terminal.wait_for("0 ok · 1 down");
    press(&mut terminal, "o");
    terminal.wait_for("0 down · 1 off");
    close(&mut terminal);
    let config = std::fs::read_to_string(setup.home.join("config.yaml")).unwrap();
    assert!(config.contains("enabled: false"), "{config}");
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn jobs_are_paused_and_removed() {
    let setup = CliHarness::new();
    let jobs = json!({"jobs": [{
        "id": "a1b2c3", "name": "digest", "prompt": "sum up", "enabled": true, "state": "scheduled",
        "schedule": {"kind": "cron", "expr": "0 8 * * *", "display": "0 8 * * *"},
        "schedule_display": "0 8 * * *", "next_run_at": "2030-01-01T08:00:00+00:00",
    }]});
    setup.home.write("cron/jobs.json", jobs.to_string());
    setup
        .home
        .write("cron/output/a1b2c3/2026-01-01_08-00-00.md", "# All quiet");
    let stored = || -> Value { serde_json::from_str(&setup.home.read("cron/jobs.json")).unwrap() };
    let mut terminal = open(&setup);
    panel(&mut terminal, "/cron", "digest");
    press(&mut terminal, ENTER);
    terminal.wait_for("All quiet");
    press(&mut terminal, "q");
    terminal.wait_for("SCHEDULE");
    press(&mut terminal, "p");
    terminal.wait_for("digest is paused");
    assert_eq!(stored()["jobs"][0]["state"], "paused");
    press(&mut terminal, "p");
    terminal.wait_for("scheduled again");
    assert_eq!(stored()["jobs"][0]["enabled"], true);
    press(&mut terminal, "d");
    terminal.wait_for("y yes");
    press(&mut terminal, "y");
    terminal.wait_for("digest is removed");
    assert_eq!(stored()["jobs"], json!([]));
    close(&mut terminal);
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn a_theme_is_seen_before_it_is_kept() {
    let setup = CliHarness::new();
    let mut terminal = at(&setup.home)
        .size(100, 30)
        .env("COLORTERM", "truecolor")
        .start();
    ready(&terminal);
    panel(&mut terminal, "/theme", "auto");
    press(&mut terminal, DOWN);
    press(&mut terminal, DOWN);
    terminal.wait_until("the cursor on dark", |rows| {
        rows.iter()
            .any(|row| row.contains("›") && row.contains("dark"))
    });
    // The colour of ordinary text of that theme.
    terminal.wait_for_bytes(b"38;2;230;230;230");
    close(&mut terminal);
    assert!(!setup.home.read("config.yaml").contains("theme"));
    panel(&mut terminal, "/theme", "auto");
    press(&mut terminal, DOWN);
    press(&mut terminal, DOWN);
    terminal.wait_until("the cursor on dark", |rows| {
        rows.iter()
            .any(|row| row.contains("›") && row.contains("dark"))
    });
    press(&mut terminal, ENTER);
    terminal.wait_for("? keys");
    assert!(setup.home.read("config.yaml").contains("theme: dark"));
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn a_project_goes_back_after_its_diff_was_seen() {
    let setup = changed_project();
    let mut terminal = open(&setup);
    panel(&mut terminal, "/rollback", "TAKEN");
    press(&mut terminal, ENTER);
    terminal.wait_for("after");
    press(&mut terminal, "q");
    terminal.wait_for("TAKEN");
    let file = setup.home.work().join("a.txt");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "after\n");
    press(&mut terminal, "r");
    terminal.wait_for("y yes");
    // No is what any other key means.
    press(&mut terminal, "n");
    terminal.wait_gone("y yes");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "after\n");
    press(&mut terminal, "r");
    terminal.wait_for("y yes");
    press(&mut terminal, "y");
    terminal.wait_for("is restored to checkpoint");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before\n");
    close(&mut terminal);
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn toolsets_and_skills_are_switched() {
    let setup = CliHarness::new();
    setup.home.write(
        "skills/dev/greet/SKILL.md",
        "---\nname: greet\ndescription: says hello\n---\n# How to greet\n\nWave.\n",
    );
    let mut terminal = open(&setup);
    panel(&mut terminal, "/skills", "greet");
    press(&mut terminal, ENTER);
    terminal.wait_for("How to greet");
    press(&mut terminal, "q");
    terminal.wait_for("on/off");
    press(&mut terminal, "\x0f");
    terminal.wait_for("greet is off");
    close(&mut terminal);
    panel(&mut terminal, "/tools", "in this conversation");
    press(&mut terminal, " ");
    terminal.wait_until("a set that is off", |rows| {
        rows.iter()
            .any(|row| row.ends_with(" is off") || row.contains(" is off "))
    });
    close(&mut terminal);
    let config = setup.home.read("config.yaml");
    assert!(
        config.contains("disabled") && config.contains("greet"),
        "{config}"
    );
    assert!(config.contains("platform_toolsets"), "{config}");
    assert_eq!(quit(terminal).0, 0);
}

#[test]
fn the_palette_runs_and_the_transcript_is_searched() {
    let setup = CliHarness::new();
    setup
        .server
        .push_default(Reply::text("first line\n\nthe needle is here"));
    let mut terminal = open(&setup);
    say(&mut terminal, "hello there");
    terminal.wait_for("needle is here");
    press(&mut terminal, CTRL_P);
    terminal.wait_for("Commands");
    typed(&mut terminal, "whole transcript");
    press(&mut terminal, ENTER);
    terminal.wait_for("Transcript");
    press(&mut terminal, "/");
    typed(&mut terminal, "needle");
    press(&mut terminal, ENTER);
    terminal.wait_for("1 of 1");
    press(&mut terminal, ESC);
    terminal.wait_for("/ search");
    close(&mut terminal);
    say(&mut terminal, "/usage");
    terminal.wait_for("Usage: this conversation");
    close(&mut terminal);
    assert_eq!(quit(terminal).0, 0);
}
