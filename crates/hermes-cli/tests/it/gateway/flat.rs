//! Thousands of turns in hundreds of chats with MCP servers leave nothing behind.
//!
//! `cargo xtask flat` runs the long one; `HERMES_FLAT_PROGRAM` is the program to look at, and
//! `HERMES_FLAT_TURNS` how many turns there are. Nobody begins anew: at the end every conversation
//! is ten times as long as after the warm-up. Both looks are at a gateway that has come to rest.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hermes_testkit::mcp_server::peers::{self, Peer, Peers, RealServer};
use serde_json::{Value, json};

use super::harness::{GatewayHarness, MemoryUse};

/// How long what is only kept for a while (threads, connections) may stay.
const PATIENCE: Duration = Duration::from_mins(3);

/// The gateway has looked twice at itself, and given back what it does not need.
const LOOKED: Duration = Duration::from_secs(2);

/// Turns that run at the same time.
const TURNS: usize = 64;
/// Whom a turn talks to: the platform and the model.
const PEERS: usize = 2;
/// Sockets that do not depend on turns: MCP over HTTP, polling, signals.
const OTHERS: usize = 16;

#[test]
#[ignore = "minutes long by design: cargo xtask flat"]
fn memory_stays_flat() {
    let turns = std::env::var("HERMES_FLAT_TURNS").ok();
    let turns = turns.map_or(10_000, |turns| turns.parse().expect("a number of turns"));
    let program = std::env::var_os("HERMES_FLAT_PROGRAM");
    let program = PathBuf::from(program.unwrap_or_else(|| env!("CARGO_BIN_EXE_hermes").into()));
    let Some(run) = run("gateway::flat::memory_stays_flat", &program, turns, 200) else {
        return;
    };
    let grown = 100 * run.end.rss_kb / run.warm.rss_kb;
    assert!(grown <= 110, "memory grew to {grown} %: {run:?}");
}

#[test]
fn descriptors_threads_and_children_stay() {
    let test = "gateway::flat::descriptors_threads_and_children_stay";
    run(test, Path::new(env!("CARGO_BIN_EXE_hermes")), 240, 40);
}

#[derive(Debug)]
struct MemoryRun {
    /// After a tenth of the turns.
    warm: MemoryUse,
    end: MemoryUse,
}

fn servers(peers: &Peers, web: &RealServer, effects: &Path) -> Value {
    let (everything, args) = peers.everything_stdio();
    let (python, more) = peers.python_stdio(true, effects);
    json!({
        "everything": {"command": everything, "args": args},
        "python": {"command": python, "args": more},
        "web": {"url": web.url()},
    })
}

#[expect(
    clippy::print_stderr,
    reason = "minutes long: how it fares is of interest"
)]
fn run(test: &str, program: &Path, turns: usize, chats: usize) -> Option<MemoryRun> {
    let peers = peers::require(test)?;
    let web = peers.start(Peer::Everything);
    let scratch = tempfile::tempdir().unwrap();
    let servers = servers(&peers, &web, &scratch.path().join("effects"));
    let mut town = GatewayHarness::new(program, i64::try_from(chats).unwrap(), &servers);
    let rounds = turns.div_ceil(chats);
    let warm_up = rounds.div_ceil(10).max(3);
    // Connections that nobody uses are kept for a while: as many as were used at the same time.
    let kept = TURNS.min(chats) * PEERS + OTHERS;
    let mut most: Option<MemoryUse> = None;
    let mut warm = None;
    for round in 1..=rounds {
        town.say(round, "echo");
        town.hear(round);
        let now = town.weight();
        eprintln!("{:6} turns: {now:?}", round * chats);
        if round <= warm_up {
            most = Some(most.map_or(now, |most| most.max(now)));
        }
        if round == warm_up {
            settles(&town);
            warm = Some(town.weight());
        }
    }
    let (mut most, warm) = (most.unwrap(), warm.unwrap());
    settles(&town);
    most.sockets = most.sockets.max(kept);
    // Pools give back what nobody used for a while.
    let end = Instant::now() + PATIENCE;
    let mut now = town.weight();
    while !now.is_within(most) {
        assert!(
            Instant::now() < end,
            "grown from {most:?} to {now:?}\n{}",
            town.log()
        );
        std::thread::sleep(Duration::from_millis(200));
        now = town.weight();
    }
    eprintln!("warm {warm:?}, at the end {now:?}");
    everybody_was_answered(&town, rounds, chats);
    town.end();
    Some(MemoryRun { warm, end: now })
}

fn everybody_was_answered(town: &GatewayHarness, rounds: usize, chats: usize) {
    for chat in 1..=chats {
        let texts = town.telegram.texts(i64::try_from(chat).unwrap());
        let answers: Vec<String> = texts
            .iter()
            .filter(|text| text.contains("answer "))
            .cloned()
            .collect();
        let wanted: Vec<String> = (1..=rounds)
            .map(|round| format!("answer {chat} {round}: heard"))
            .collect();
        pretty_assertions::assert_eq!(answers, wanted);
    }
}

/// Nothing is open or waits. The file that says so is written now and then: what it says is of this
/// round once the gateway has looked again.
fn settles(town: &GatewayHarness) {
    std::thread::sleep(LOOKED);
    let end = Instant::now() + PATIENCE;
    loop {
        let status = town.status();
        assert_eq!(status["running"], true, "{status}");
        if status["active"] == 0 && status["queued"] == 0 {
            return;
        }
        assert!(Instant::now() < end, "{status}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
