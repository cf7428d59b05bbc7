//! One long-lived process, real servers over every transport: killed between two turns, killed in
//! the middle of a call. The person gets answers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hermes_testkit::home::TempHome;
use hermes_testkit::mcp_server::peers::{self, Peer, Peers, RealServer};
use hermes_testkit::mcp_server::{FaultyServer, ReplyGate};
use hermes_testkit::model_server::{RecordedRequest, Reply};
use hermes_testkit::process::finish;
use pretty_assertions::assert_eq;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::with_server;
use crate::line_chat::Terminal;

/// Another program's doings can only be polled; a test that needs this long hangs.
const PATIENCE: Duration = Duration::from_mins(1);

fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The children that hermes has on its books.
fn children(home: &TempHome) -> Vec<Pid> {
    let text = std::fs::read_to_string(home.join("mcp-children.json")).unwrap_or_default();
    let entries: Value = serde_json::from_str(&text).unwrap_or_default();
    let pids = entries.as_array().into_iter().flatten();
    let pids = pids.filter_map(|entry| entry["pid"].as_i64());
    pids.filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
        .collect()
}

fn lives(pid: Pid) -> bool {
    let stat = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
    let stat = std::fs::read_to_string(stat.join("stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// A server that is somebody else's process, or a child of hermes.
enum RestartedServer {
    Away(Box<RealServer>),
    Child { effects: PathBuf },
}

impl RestartedServer {
    fn start(peers: &Peers, transport: &str, home: &TempHome) -> (Self, String) {
        let peer = match transport {
            "http" => Peer::PythonLegacy,
            "sse" => Peer::PythonSse,
            _ => {
                let effects = home.work().join("effects");
                let (program, args) = peers.python_stdio(false, &effects);
                let config = format!(
                    "    command: {}\n    args: {}\n",
                    program.display(),
                    json!(args)
                );
                return (Self::Child { effects }, config);
            }
        };
        let server = peers.start(peer);
        let config = format!("    url: {}\n    transport: {transport}\n", server.url());
        (Self::Away(Box::new(server)), config)
    }

    fn effects(&self) -> Vec<String> {
        match self {
            Self::Away(server) => server.effects(),
            Self::Child { effects } => {
                let text = std::fs::read_to_string(effects).unwrap_or_default();
                text.lines().map(str::to_owned).collect()
            }
        }
    }

    /// Ends it without a word. Somebody else starts theirs again, hermes starts its own.
    fn restart(&mut self, home: &TempHome) {
        match self {
            Self::Away(server) => server.restart(),
            Self::Child { .. } => {
                let pid = until("a child", || children(home).first().copied());
                kill_process(pid, Signal::KILL).unwrap();
                until("its death", || (!lives(pid)).then_some(()));
            }
        }
    }
}

/// `echo …` and `slow …` call that tool with the rest of the line; then it says what it got.
fn model(request: &RecordedRequest) -> Reply {
    let said = request.last_user_text();
    if request.ends_with_tool_result() {
        let results = request.tool_results();
        let last = results.last().unwrap();
        let unknown = last.text.contains("may or may not have taken effect");
        let got = if unknown { "unknown" } else { "answered" };
        return Reply::text(&format!("{said}: {got}"));
    }
    let (tool, token) = said.split_once(' ').unwrap();
    let arguments = match tool {
        "echo" => json!({"text": token}),
        _ => json!({"token": token, "seconds": 2}),
    };
    Reply::tool_call("c", &format!("mcp__srv__{tool}"), &arguments)
}

/// Both kinds of death, with the person at the terminal all the while.
fn killed_between_turns_and_under_calls(transport: &str, test: &str) {
    let Some(peers) = peers::require(test) else {
        return;
    };
    for always in [false, true] {
        let home = TempHome::new();
        let (mut server, config) = RestartedServer::start(&peers, transport, &home);
        let retry = if always { "    retry: always\n" } else { "" };
        let model_server = hermes_testkit::model_server::ModelServer::start();
        let more = format!("mcp_discovery_timeout: 60\nmcp_servers:\n  srv:\n{config}{retry}");
        home.use_server(&model_server.base_url(), &more);
        model_server.answer_with(model);
        let Some(mut terminal) = Terminal::open(&home, test) else {
            return;
        };
        terminal.type_line("echo one");
        terminal.wait_for("echo one: answered", 1);
        server.restart(&home);
        terminal.type_line("echo two");
        terminal.wait_for("echo two: answered", 1);
        terminal.type_line("slow three");
        until("the call begins", || {
            server.effects().contains(&"three".to_owned()).then_some(())
        });
        server.restart(&home);
        // Nobody may repeat it unasked; where that is allowed, it is answered.
        let got = if always { "answered" } else { "unknown" };
        terminal.wait_for(&format!("slow three: {got}"), 1);
        terminal.type_line("echo four");
        terminal.wait_for("echo four: answered", 1);
        let marks = server.effects();
        assert_eq!(marks.len(), if always { 2 } else { 1 }, "{marks:?}");
        let last = children(&home);
        terminal.type_line("/quit");
        let (code, screen) = terminal.leave();
        assert_eq!(code, Some(0), "{screen}");
        // The one call that was cut off is told as what it is; nothing else went wrong.
        let failed = screen.matches('✗').count();
        assert_eq!(failed, usize::from(!always), "{screen}");
        let left: Vec<Pid> = last.into_iter().filter(|pid| lives(*pid)).collect();
        assert!(left.is_empty(), "children are left: {left:?}");
    }
}

#[test]
fn a_child_killed_between_turns_and_under_a_call() {
    let test = "mcp::a_child_killed_between_turns_and_under_a_call";
    killed_between_turns_and_under_calls("stdio", test);
}

#[test]
fn a_server_over_http_killed_between_turns_and_under_a_call() {
    let test = "mcp::a_server_over_http_killed_between_turns_and_under_a_call";
    killed_between_turns_and_under_calls("http", test);
}

#[test]
fn a_server_over_sse_killed_between_turns_and_under_a_call() {
    let test = "mcp::a_server_over_sse_killed_between_turns_and_under_a_call";
    killed_between_turns_and_under_calls("sse", test);
}

/// The server hangs for good and a child ignores everything: the program leaves all the same, and
/// nothing of it stays.
#[test]
fn sigterm_ends_the_program_under_a_hanging_call() {
    let server = FaultyServer::start();
    let setup = with_server(&server, "");
    let stubborn = "trap '' TERM HUP INT; while :; do sleep 1000; done";
    let config = setup.home.read("config.yaml");
    setup.home.config(&format!(
        "{config}    timeout: 600\n  stubborn:\n    command: /bin/sh\n    args: {}\n",
        json!(["-c", stubborn])
    ));
    // Ready or not, it is there: the first turn waits for nobody.
    let config = setup.home.read("config.yaml");
    let config = config.replace("mcp_discovery_timeout: 30", "mcp_discovery_timeout: 2");
    setup.home.config(&config);
    setup
        .server
        .push(Reply::tool_call("c", "mcp__srv__slow", &json!({})));
    let child = setup.program(["-z", "go"]).spawn();
    server.block_until(|counts| counts.running == 1);
    let pids = until("the child", || {
        Some(children(&setup.home)).filter(|pids| !pids.is_empty())
    });
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    // The server never answers, so this ends only if nobody waits for it.
    let done = finish(child);
    assert_ne!(done.code, Some(0), "{}", done.stderr);
    until("the child's end", || {
        pids.iter().all(|pid| !lives(*pid)).then_some(())
    });
}

#[test]
fn switching_a_server_off_lets_its_call_finish() {
    let server = FaultyServer::start();
    let setup = with_server(&server, "");
    let gate: ReplyGate = server.gate("slow");
    setup.server.answer_with(|request| {
        let said = request.last_user_text();
        let offered = request.tool_names().iter().any(|name| name.contains("srv"));
        if request.ends_with_tool_result() || !offered {
            let heard = request
                .tool_results()
                .last()
                .map(|result| result.text.clone());
            let done = heard.is_some_and(|text| text.contains("slow but done"));
            return Reply::text(&format!("{said} offered={offered} done={done}"));
        }
        Reply::tool_call("c", "mcp__srv__slow", &json!({}))
    });
    let test = "mcp::switching_a_server_off_lets_its_call_finish";
    let Some(mut terminal) = Terminal::open(&setup.home, test) else {
        return;
    };
    terminal.type_line("one");
    server.block_until(|counts| counts.running == 1);
    let config = setup.home.read("config.yaml");
    setup.home.config(&format!("{config}    enabled: false\n"));
    gate.release();
    terminal.wait_for("one offered=true done=true", 1);
    // Read at a turn's beginning, like every change.
    let gone = (0..20).any(|turn| {
        terminal.type_line(&format!("turn-{turn}"));
        terminal.wait_for(&format!("turn-{turn} offered="), 1);
        terminal.shows(&format!("turn-{turn} offered=false"))
    });
    assert!(gone);
    terminal.type_line("/quit");
    terminal.leave();
    assert_eq!(server.counts().initializes, 1);
}
