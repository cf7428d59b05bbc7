//! Real servers, killed and started again in turn, under steady load: `cargo xtask soak`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_core::task;
use hermes_mcp::actor::{CallOptions, ServerHandle};
use hermes_mcp::op::Op;
use hermes_testkit::mcp_server::peers::{self, Peer, RealServer};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::rig::{Rig, call, http_target, spec, stdio_target};

/// How long it runs; `cargo xtask soak` sets it.
const MINUTES: &str = "HERMES_SOAK_MINUTES";
/// Between two calls, over all servers.
const PACE: Duration = Duration::from_millis(50);
/// Between two kills, over all servers.
const KILLS: Duration = Duration::from_secs(3);
const PEERS: [Peer; 6] = [
    Peer::Everything,
    Peer::EverythingSse,
    Peer::Gateway3,
    Peer::Gateway4,
    Peer::PythonLegacy,
    Peer::PythonModern,
];

/// What became of the calls.
#[derive(Default)]
struct Tally {
    reads: usize,
    reads_failed: BTreeMap<String, usize>,
    acknowledged: BTreeSet<String>,
    unknown: BTreeSet<String>,
    /// Known not to have run.
    refused: BTreeMap<String, usize>,
}

impl Tally {
    fn failed(&self) -> usize {
        self.reads_failed.values().sum()
    }
}

/// What the process holds.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    rss_kib: usize,
    files: usize,
    children: usize,
}

impl Holdings {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let rss = rss.unwrap().trim().trim_end_matches(" kB");
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let children = tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
            .map(|children| children.split_whitespace().count())
            .sum();
        Self {
            rss_kib: rss.parse().unwrap(),
            files: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            children,
        }
    }
}

#[derive(Clone)]
struct Member {
    name: String,
    handle: ServerHandle,
    /// Whether it has `bump` with a token.
    writes: bool,
}

/// One call; reads and writes take turns.
async fn one(member: Member, number: usize, tally: Arc<Mutex<Tally>>) {
    let token = format!("{}-{number}", member.name);
    let write = member.writes && number.is_multiple_of(2);
    let op = if write {
        call("bump", json!({"token": token}))
    } else {
        Op::ListResources
    };
    let result = member.handle.call(op, CallOptions::default()).await;
    let mut tally = tally.lock().unwrap();
    if !write {
        tally.reads += 1;
    }
    match result {
        Ok(_) if write => drop(tally.acknowledged.insert(token)),
        Ok(_) => {}
        Err(error) if write && error.outcome_unknown => drop(tally.unknown.insert(token)),
        Err(error) => {
            let counts = if write {
                &mut tally.refused
            } else {
                &mut tally.reads_failed
            };
            *counts.entry(format!("{error}")).or_default() += 1;
        }
    }
}

/// Kills and starts the servers in turn until told to stop.
fn restarts(servers: &mut [RealServer], stop: &AtomicBool) -> usize {
    let mut count = 0;
    for at in (0..servers.len()).cycle() {
        // The pace of the scenario, not a way to wait for something.
        std::thread::sleep(KILLS);
        if stop.load(Ordering::Relaxed) {
            return count;
        }
        servers[at].restart();
        count += 1;
    }
    count
}

async fn load(members: &[Member], number: &mut usize, length: Duration, tally: &Arc<Mutex<Tally>>) {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = Instant::now() + length;
    let mut calls = Vec::new();
    while Instant::now() < end {
        ticks.tick().await;
        let member = members[*number % members.len()].clone();
        // Each member reads and writes in turn.
        let turn = *number / members.len();
        calls.push(task::spawn("soak-call", one(member, turn, tally.clone())));
        calls.retain(|call| !call.is_finished());
        *number += 1;
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask soak"]
async fn real_servers_restarted_under_load() {
    let Some(peers) = peers::require("real_servers_restarted_under_load") else {
        return;
    };
    let minutes: f64 = std::env::var(MINUTES).map_or(1.0, |text| text.parse().unwrap());
    let scratch = TempDir::new().unwrap();
    let mut servers: Vec<RealServer> =
        tokio::task::block_in_place(|| PEERS.iter().map(|peer| peers.start(*peer)).collect());
    let mut rigs = Vec::new();
    let mut members = Vec::new();
    for (peer, server) in PEERS.iter().zip(&servers) {
        let target = http_target(&server.url(), *peer == Peer::EverythingSse);
        let everything = matches!(peer, Peer::Everything | Peer::EverythingSse);
        rigs.push((format!("{peer:?}"), target, !everything));
    }
    let effects = scratch.path().join("effects");
    let (program, args) = peers.python_stdio(false, &effects);
    let child = stdio_target(&program, args, scratch.path());
    rigs.push(("Stdio".to_owned(), child, true));
    let mut running = Vec::new();
    for (name, target, writes) in rigs {
        let mut rig = Rig::start(spec(&target, |settings| {
            settings.timeout = Duration::from_secs(30);
        }));
        rig.ready().await;
        members.push(Member {
            name,
            handle: rig.server.clone(),
            writes,
        });
        running.push(rig);
    }
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut number = 0;
    load(&members, &mut number, Duration::from_secs(5), &tally).await;
    let before = Holdings::now();

    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let kills = tokio::task::spawn_blocking(move || {
        let count = restarts(&mut servers, &stopped);
        (servers, count)
    });
    load(
        &members,
        &mut number,
        Duration::from_secs_f64(minutes * 60.0),
        &tally,
    )
    .await;
    stop.store(true, Ordering::Relaxed);
    let (servers, kills) = kills.await.unwrap();
    load(&members, &mut number, Duration::from_secs(5), &tally).await;
    let after = Holdings::now();

    let mut marks: Vec<String> = servers.iter().flat_map(RealServer::effects).collect();
    marks.extend(lines(&effects));
    let reconnects: u64 = members
        .iter()
        .flat_map(|member| member.handle.status().reconnects.into_values())
        .sum();
    // The last handle ends what the server had of its own.
    drop(members);
    for rig in running {
        rig.stop().await;
    }
    drop(servers);
    let end = Holdings::now();
    let tally = tally.lock().unwrap();
    report(&tally, kills, reconnects, &marks, [before, after, end]);
    verdict(&tally, &marks, [before, after, end]);
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[expect(clippy::print_stdout, reason = "the report is what it was started for")]
fn report(tally: &Tally, kills: usize, reconnects: u64, marks: &[String], holdings: [Holdings; 3]) {
    let answered = tally.reads - tally.failed();
    let percent = 100.0 * answered as f64 / tally.reads as f64;
    println!("{kills} kills, {reconnects} connects");
    println!(
        "reads: {answered} of {} answered ({percent:.2} %)",
        tally.reads
    );
    for (why, count) in &tally.reads_failed {
        println!("  {count} x {why}");
    }
    println!(
        "writes: {} acknowledged, {} unknown, {} refused; {} effects",
        tally.acknowledged.len(),
        tally.unknown.len(),
        tally.refused.values().sum::<usize>(),
        marks.len()
    );
    for (why, count) in &tally.refused {
        println!("  {count} x {why}");
    }
    for (when, held) in ["warm", "after the load", "stopped"].iter().zip(holdings) {
        println!("{when}: {held:?}");
    }
}

fn verdict(tally: &Tally, marks: &[String], [before, after, end]: [Holdings; 3]) {
    let mut seen = BTreeSet::new();
    for mark in marks {
        assert!(seen.insert(mark), "{mark} ran twice");
        let told = tally.acknowledged.contains(mark) || tally.unknown.contains(mark);
        assert!(told, "{mark} ran and nobody was told");
    }
    for token in &tally.acknowledged {
        assert!(
            seen.contains(token),
            "{token} was acknowledged and did not run"
        );
    }
    assert!(tally.failed() * 1000 <= tally.reads, "reads were lost");
    assert!(after.files <= before.files + 16, "files leak");
    assert!(after.children <= before.children, "children leak");
    assert!(after.rss_kib <= before.rss_kib + 32 * 1024, "memory grows");
    assert_eq!(end.children, 0, "children are left");
}
