//! The gateway's API server beside the original's and beside a bare server that only passes on:
//! start, memory, conversations per second.
//!
//! Who asks and who answers live in this process and do next to nothing, so that what is left of
//! the processors is the program's. Every conversation is a new one, and its rows are counted in
//! the database afterwards.

mod client;
mod model;
mod running;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use self::client::Client;
use self::model::BenchModel;
use self::running::{BenchGateway, KEY, home};
use super::programs::{Programs, Who};
use super::report::{BenchReport, BenchTarget, Row, median, percentile};

const STARTS: usize = 5;
/// Whatever is started beside the server settles.
const SETTLE: Duration = Duration::from_secs(2);
/// Conversations one after the other before memory is looked at.
const CONVERSATIONS: usize = 100;
/// How long clients talk at each number of them.
const LOAD: Duration = Duration::from_secs(5);
const CLIENTS: [usize; 3] = [1, 16, 64];
/// A model that takes its time.
const SLOW_MS: u64 = 2000;

/// One new conversation: no two begin alike.
fn talk(client: &mut Client, number: usize) -> Result<()> {
    let body = json!({"messages": [{"role": "user", "content": format!("ping {number}")}]});
    let answer = client.post("/v1/chat/completions", KEY, &body)?;
    let text = &answer["choices"][0]["message"]["content"];
    ensure!(text == model::ANSWER, "the answer is {answer}");
    Ok(())
}

/// What a load came to.
struct Load {
    per_second: f64,
    /// Processor time of the program for each of them, in ms.
    work: f64,
    /// Milliseconds of each conversation.
    took: Vec<f64>,
}

/// Clients that talk without a pause, each on a connection of its own.
fn load(gateway: &BenchGateway, clients: usize, counter: &AtomicUsize) -> Result<Load> {
    let over = AtomicBool::new(false);
    let worked = gateway.worked()?;
    let begun = Instant::now();
    let results: Vec<Result<Vec<f64>>> = std::thread::scope(|scope| {
        let run = || -> Result<Vec<f64>> {
            let mut client = Client::new(gateway.port)?;
            let mut took = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let one = Instant::now();
                talk(&mut client, counter.fetch_add(1, Ordering::Relaxed))?;
                took.push(one.elapsed().as_secs_f64() * 1000.0);
            }
            Ok(took)
        };
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(run)).collect();
        std::thread::sleep(LOAD);
        over.store(true, Ordering::Relaxed);
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Vec<f64>>>| {
            thread.join().unwrap_or_else(|_| bail!("a client panicked"))
        };
        threads.into_iter().map(join).collect()
    });
    let elapsed = begun.elapsed().as_secs_f64();
    let mut took = Vec::new();
    for result in results {
        took.extend(result?);
    }
    Ok(Load {
        per_second: took.len() as f64 / elapsed,
        work: (gateway.worked()? - worked) / took.len() as f64,
        took,
    })
}

/// Rows of conversations in the database and how many of those there are, seen by another process.
fn stored(home: &Path) -> Result<(usize, usize)> {
    let program = "import sqlite3,sys; c=sqlite3.connect('file:'+sys.argv[1]+'?mode=ro',uri=True); \
                   print(*c.execute(\"select count(*), count(distinct session_id) from messages \
                   where role in ('user','assistant')\").fetchone())";
    let output = Command::new("python3")
        .args(["-c", program])
        .arg(home.join("home/state.db"))
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counted = text.trim().split_once(' ').and_then(|(rows, sessions)| {
        let sessions = sessions.parse().ok()?;
        Some((rows.parse().ok()?, sessions))
    });
    counted.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Time to ready, memory, throughput.
pub(super) fn conversations(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let model = BenchModel::start()?;
    let url = model.base_url();
    let mut figures: BTreeMap<Who, BTreeMap<String, f64>> = BTreeMap::new();
    for who in programs.all() {
        let home = home(programs, "gateway", who, &url)?;
        let calls = model.calls();
        let figure = figures.entry(who).or_default();
        // The first start makes what later ones find.
        let mut ready = Vec::new();
        for _ in 0..STARTS {
            let (gateway, took) = BenchGateway::start(programs, who, &home, &url)?;
            ready.push(took.as_secs_f64() * 1000.0);
            drop(gateway);
        }
        figure.insert("ready".to_owned(), median(&ready[1..]));
        let (gateway, _) = BenchGateway::start(programs, who, &home, &url)?;
        std::thread::sleep(SETTLE);
        figure.insert("idle".to_owned(), gateway.resident()?);
        let counter = AtomicUsize::new(0);
        let mut client = Client::new(gateway.port)?;
        for _ in 0..CONVERSATIONS {
            talk(&mut client, counter.fetch_add(1, Ordering::Relaxed))?;
        }
        figure.insert("after".to_owned(), gateway.resident()?);
        for clients in CLIENTS {
            let load = load(&gateway, clients, &counter)?;
            figure.insert(format!("rate {clients}"), load.per_second);
            figure.insert(format!("p95 {clients}"), percentile(&load.took, 0.95));
            figure.insert(format!("work {clients}"), load.work);
        }
        figure.insert("loaded".to_owned(), gateway.resident()?);
        let told = counter.load(Ordering::Relaxed);
        let asked = model.calls() - calls;
        ensure!(
            asked >= told,
            "{who:?}: {told} conversations, {asked} calls of the model"
        );
        if who != Who::Bare {
            let (rows, sessions) = stored(&home)?;
            ensure!(
                rows == 2 * told && sessions == told,
                "{who:?}: {told} conversations, {rows} rows in {sessions} sessions"
            );
        }
    }
    add(report, &figures);
    Ok(())
}

fn add(report: &mut BenchReport, figures: &BTreeMap<Who, BTreeMap<String, f64>>) {
    let value = |who: Who, key: &str| figures.get(&who).and_then(|all| all.get(key)).copied();
    let mut row = |name: String, unit: &'static str, key: &str, target: BenchTarget| {
        report.add(Row {
            name,
            unit,
            ours: value(Who::Ours, key).unwrap_or(f64::NAN),
            original: value(Who::Original, key),
            bare: value(Who::Bare, key),
            target,
        });
    };
    row(
        "gateway: time to ready".to_owned(),
        "ms",
        "ready",
        BenchTarget::AtMost(100.0),
    );
    row(
        "gateway: memory, idle".to_owned(),
        "MB",
        "idle",
        BenchTarget::AtMost(20.0),
    );
    let after = format!("gateway: memory after {CONVERSATIONS} conversations");
    row(after, "MB", "after", BenchTarget::AtMost(30.0));
    for clients in CLIENTS {
        let (rate, late) = if clients == 64 {
            (BenchTarget::AtLeast(1000.0), BenchTarget::AtMost(150.0))
        } else {
            (BenchTarget::None, BenchTarget::None)
        };
        let name = format!("gateway: conversations per second, {clients} clients");
        row(name, "/s", &format!("rate {clients}"), rate);
        let name = format!("gateway: p95, {clients} clients");
        row(name, "ms", &format!("p95 {clients}"), late);
        let name = format!("gateway: processor time per conversation, {clients} clients");
        row(name, "ms", &format!("work {clients}"), BenchTarget::None);
    }
    row(
        "gateway: memory after the load".to_owned(),
        "MB",
        "loaded",
        BenchTarget::None,
    );
}

/// Model calls that are under way at the same time, against a model that takes its time.
pub(super) fn in_flight(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let script: Value = json!({"default": {"text": "pong", "delay_ms": SLOW_MS}});
    let mut most: BTreeMap<Who, BTreeMap<String, f64>> = BTreeMap::new();
    for who in programs.agents() {
        let server = programs.serve("gateway-slow", &script)?;
        let url = &server.base_url;
        let home = home(programs, "gateway-slow", who, url)?;
        let (gateway, _) = BenchGateway::start(programs, who, &home, url)?;
        std::thread::scope(|scope| -> Result<()> {
            let one = |number: usize| {
                let port = gateway.port;
                move || Client::new(port).and_then(|mut client| talk(&mut client, number))
            };
            let threads: Vec<_> = (0..64).map(|number| scope.spawn(one(number))).collect();
            for thread in threads {
                thread
                    .join()
                    .unwrap_or_else(|_| bail!("a client panicked"))?;
            }
            Ok(())
        })?;
        let calls = server.calls();
        let mut edges: Vec<(u64, i64)> = Vec::new();
        for call in &calls {
            edges.extend([(call.arrived, 1), (call.answered, -1)]);
        }
        edges.sort_unstable();
        let (mut now, mut peak) = (0, 0);
        for (_, step) in edges {
            now += step;
            peak = peak.max(now);
        }
        most.entry(who)
            .or_default()
            .insert("most".to_owned(), peak as f64);
    }
    report.add(Row {
        name: "gateway: model calls in flight, 64 clients".to_owned(),
        unit: "",
        ours: most[&Who::Ours]["most"],
        original: most.get(&Who::Original).map(|all| all["most"]),
        bare: None,
        target: BenchTarget::AtLeast(64.0),
    });
    Ok(())
}
