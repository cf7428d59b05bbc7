//! Servers that need time, and servers that never answer.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use hermes_testkit::mcp_server::FaultyServer;
use hermes_testkit::model_server::Reply;
use hermes_testkit::process::FinishedProgram;
use pretty_assertions::assert_eq;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::line_chat::Terminal;
use crate::{CliHarness, hermes};

/// Answers after `$1` has done its work: a server that is fetched first needs seconds.
const SERVER: &str = r#"
eval "$1"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"look","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) answer '{"content":[{"type":"text","text":"looked"}]}' ;;
  esac
done
"#;

const TOOL: &str = "mcp__npx_thing__look";

/// A home with a server that does `first` before it answers anything.
fn with_slow_server(first: &str) -> CliHarness {
    let setup = CliHarness::new();
    let script = setup.home.join("server.sh");
    std::fs::write(&script, SERVER).unwrap();
    let config = setup.home.read("config.yaml");
    setup.home.config(&format!(
        "{config}mcp_servers:\n  npx-thing:\n    command: /bin/sh\n    args: {}\n",
        json!([script, first])
    ));
    setup.server.push_default(Reply::text("done"));
    setup
}

#[track_caller]
fn assert_offered(setup: &CliHarness, done: &FinishedProgram) {
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let requests = setup.server.requests();
    let names = requests[0].tool_names();
    assert!(names.contains(&TOOL), "{names:?}\n{}", done.stderr);
}

#[test]
fn a_server_that_needs_four_seconds_is_there_in_a_oneshot_run() {
    let setup = with_slow_server("sleep 4");
    let done = setup.run(["-z", "hi"]);
    assert_offered(&setup, &done);
    assert_eq!(done.stdout, "done\n");
    let waiting = done
        .stderr
        .matches("waiting for MCP server npx-thing (1 s)");
    assert_eq!(waiting.count(), 1, "{}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
}

#[test]
fn a_server_that_needs_four_seconds_is_there_in_a_question() {
    let setup = with_slow_server("sleep 4");
    let done = setup.run(["chat", "-q", "hi", "--quiet"]);
    assert_offered(&setup, &done);
    assert!(!done.stderr.contains("waiting"), "{}", done.stderr);
}

#[test]
fn a_server_that_needs_four_seconds_is_there_in_a_job() {
    let setup = with_slow_server("sleep 4");
    let cron = |words: &[&str]| hermes(&setup.home).args(["cron"]).args(words).run();
    drop(cron(&["create", "0 9 * * *", "look around", "--name", "looker"]).ok());
    let done = cron(&["run", "looker"]);
    assert_offered(&setup, &done);
    assert!(
        done.stderr.contains("waiting for MCP server npx-thing"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_run_that_waits_for_a_server_can_be_stopped() {
    let server = FaultyServer::start();
    server.freeze();
    let setup = CliHarness::with_config(&format!(
        "mcp_servers:\n  srv:\n    url: {}\n",
        server.url()
    ));
    let mut child = setup.program(["-z", "hi"]).spawn();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut told = String::new();
    stderr.read_line(&mut told).unwrap();
    assert!(told.contains("waiting for MCP server srv"), "{told}");
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    // The server never answers: this ends only if nobody waits for it.
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(setup.server.requests().len(), 0);
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let held = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        holds()
    });
    assert!(held, "waited in vain for {what}");
}

/// Blocks the answer of a scripted model until the file is there.
fn await_file(path: &Path) {
    until("a file", || path.exists());
}

#[test]
fn a_server_that_comes_up_during_a_turn_joins_it() {
    let setup = with_slow_server("");
    let (gate, listed) = (setup.home.join("gate"), setup.home.join("listed"));
    let first = format!("while [ ! -e {} ]; do sleep 0.05; done", gate.display());
    let script = SERVER.replace(
        "tools/list\"'*)",
        &format!("tools/list\"'*) : > {};", listed.display()),
    );
    std::fs::write(setup.home.join("server.sh"), script).unwrap();
    let config = setup.home.read("config.yaml");
    let args = json!([setup.home.join("server.sh"), ""]).to_string();
    let with_gate = json!([setup.home.join("server.sh"), first]).to_string();
    setup.home.config(&config.replace(&args, &with_gate));
    setup.server.answer_with(move |request| {
        let steps = request.tool_results().len();
        let offered = request.tool_names().contains(&TOOL);
        std::fs::write(&gate, "").unwrap();
        await_file(&listed);
        if offered && steps > 0 {
            return Reply::text(&format!("joined={offered} later={}", steps > 0));
        }
        if offered || steps > 40 {
            return Reply::text("too early or never");
        }
        // Something to do between two looks at the tools.
        let items = json!([{"id": "1", "content": format!("step {steps}"), "status": "pending"}]);
        Reply::tool_call(&format!("c{steps}"), "todo", &json!({"todos": items}))
    });
    let test = "mcp::slow::a_server_that_comes_up_during_a_turn_joins_it";
    let Some(mut terminal) = Terminal::open(&setup.home, test) else {
        return;
    };
    terminal.type_line("go");
    terminal.wait_for("joined=true later=true", 1);
    assert!(terminal.shows("MCP server npx-thing is still starting"));
    terminal.type_line("/quit");
    terminal.leave();
}

/// Accepts connections and never answers.
fn black_holes(count: usize) -> (Vec<TcpListener>, String) {
    let holes: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let entries = holes.iter().enumerate().map(|(number, hole)| {
        let address = hole.local_addr().unwrap();
        format!("  hole{number}:\n    url: http://{address}/mcp\n")
    });
    let entries = entries.collect();
    (holes, entries)
}

#[test]
fn a_list_does_not_wait_for_servers_that_hang() {
    let server = FaultyServer::start();
    let (_holes, entries) = black_holes(12);
    let setup = CliHarness::with_config(&format!(
        "mcp_servers:\n  good:\n    url: {}\n{entries}",
        server.url()
    ));
    for command in ["list", "status"] {
        let json = setup.run(["mcp", command, "--json"]).ok().json();
        let states: Vec<&str> = json["servers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|server| server["state"].as_str().unwrap())
            .collect();
        assert_eq!(states[0], "ready");
        assert_eq!(states[1..], ["connecting"; 12]);
    }
    let shown = setup.run(["mcp", "list"]).ok();
    assert!(
        shown
            .stdout
            .ends_with("1 ok · 12 connecting · 0 down · 0 off\n"),
        "{}",
        shown.stdout
    );
    assert!(shown.stdout.contains("no answer yet"), "{}", shown.stdout);
    assert!(
        shown.stderr.contains("hermes mcp list --timeout 60"),
        "{}",
        shown.stderr
    );
}

#[test]
fn a_list_that_was_told_how_long_waits_as_told() {
    let setup = with_slow_server("sleep 1");
    let (_holes, entries) = black_holes(1);
    let config = setup.home.read("config.yaml");
    setup.home.config(&format!("{config}{entries}"));
    let json = setup
        .run(["mcp", "list", "--json", "--timeout", "3"])
        .ok()
        .json();
    assert_eq!(json["servers"][0]["state"], "ready");
    assert_eq!(json["servers"][1]["state"], "connecting");
}
