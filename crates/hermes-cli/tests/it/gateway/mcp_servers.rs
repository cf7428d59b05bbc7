//! MCP servers die, come back and forget while people talk to the gateway: everybody gets an
//! answer, and nothing is done twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use hermes_testkit::mcp_server::peers::{self, Peer};
use pretty_assertions::assert_eq;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::harness::GatewayHarness;

const CHATS: i64 = 12;
/// Longer than any step needs.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until calls of this round are at both servers.
fn until_begun(round: usize, effects: &dyn Fn() -> Vec<String>) {
    let end = Instant::now() + PATIENCE;
    let mark = |chat: i64| format!("t-{chat}-{round}");
    loop {
        let marks = effects();
        let begun = |odd: i64| {
            let chats = (1..=CHATS).filter(|chat| chat % 2 == odd);
            chats.into_iter().any(|chat| marks.contains(&mark(chat)))
        };
        if begun(0) && begun(1) {
            return;
        }
        assert!(Instant::now() < end, "round {round} never began: {marks:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills the server that is a child of the gateway.
fn kill_child(town: &GatewayHarness) {
    let child = *town.servers().first().expect("a server");
    kill_process(Pid::from_raw(child.cast_signed()).unwrap(), Signal::KILL).unwrap();
    let end = Instant::now() + PATIENCE;
    while town.servers().contains(&child) {
        assert!(Instant::now() < end, "it does not die");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn everybody_is_answered_while_servers_die_and_forget() {
    let test = "gateway::mcp_servers::everybody_is_answered_while_servers_die_and_forget";
    let Some(peers) = peers::require(test) else {
        return;
    };
    let mut http = peers.start(Peer::PythonLegacy);
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("effects");
    let (python, args) = peers.python_stdio(false, &file);
    let servers = json!({
        "python": {"command": python, "args": args},
        "http": {"url": http.url()},
    });
    let mut town = GatewayHarness::new(Path::new(env!("CARGO_BIN_EXE_hermes")), CHATS, &servers);
    let stdio_marks = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    town.say(1, "bump");
    town.hear(1);

    // Forgotten between two turns, and while calls run.
    http.forget_sessions();
    town.say(2, "bump");
    town.hear(2);
    town.say(3, "slow");
    let both = || [stdio_marks(), http.effects()].concat();
    until_begun(3, &both);
    http.forget_sessions();
    town.hear(3);

    // Dead between two turns.
    kill_child(&town);
    http.restart();
    town.say(4, "bump");
    town.hear(4);

    // Dead while calls run.
    town.say(5, "slow");
    let both = || [stdio_marks(), http.effects()].concat();
    until_begun(5, &both);
    kill_child(&town);
    http.restart();
    town.hear(5);

    // Away for a while: calls of that time fail or wait; afterwards all is well.
    http.kill();
    town.say(6, "bump");
    http.start();
    town.hear(6);
    town.say(7, "bump");
    town.hear(7);

    judge(&town, &[stdio_marks(), http.effects()].concat());
    town.end();
}

/// Every answer was seen once, and every mark was left once at most.
fn judge(town: &GatewayHarness, left: &[String]) {
    let mut marks: BTreeMap<&str, usize> = BTreeMap::new();
    for mark in left {
        *marks.entry(mark).or_default() += 1;
    }
    let twice: Vec<_> = marks.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "done twice: {twice:?}");
    for chat in 1..=CHATS {
        let texts = town.telegram.texts(chat);
        let seen = |wanted: &str| texts.iter().filter(|text| text.starts_with(wanted)).count();
        for round in 1..=7 {
            // What was cut off while it ran is told as such; the others work.
            let whole = [1, 2, 4, 7].contains(&round);
            let wanted = format!(
                "answer {chat} {round}:{}",
                if whole { " heard" } else { "" }
            );
            assert_eq!(seen(&wanted), 1, "{wanted}\n{texts:#?}\n{}", town.log());
            assert!(!whole || marks.contains_key(format!("t-{chat}-{round}").as_str()));
        }
    }
}
