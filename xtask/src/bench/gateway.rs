//! The gateway's API server beside the original's: start, memory, conversations per second.

mod client;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use self::client::Client;
use super::programs::{Programs, Who, configure};
use super::report::{Report, Row, Target, median, percentile};
use super::server::Server;

const KEY: &str = "bench-key-0123456789abcdef";
/// How long a program may take until it answers.
const START: Duration = Duration::from_mins(1);
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

/// A gateway that runs.
struct Gateway {
    child: Child,
    port: u16,
}

impl Gateway {
    /// Returns when it answers, and how long that took.
    fn start(programs: &Programs, who: Who, home: &Path) -> Result<(Self, Duration)> {
        let port = free_port()?;
        let env =
            format!("API_SERVER_ENABLED=true\nAPI_SERVER_KEY={KEY}\nAPI_SERVER_PORT={port}\n");
        std::fs::write(home.join("home/.env"), env)?;
        let log = std::fs::File::create(home.join("gateway.log"))?;
        let begun = Instant::now();
        let child = Command::new(programs.path(who))
            .args(["gateway", "run"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HERMES_HOME", home.join("home"))
            .env("HOME", home.join("user"))
            .env("HERMES_GATEWAY_LOCK_DIR", home.join("locks"))
            .env("LANG", "C.UTF-8")
            .current_dir(home.join("work"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| programs.path(who).display().to_string())?;
        let mut gateway = Self { child, port };
        loop {
            if Client::new(port)
                .and_then(|mut client| client.get("/health"))
                .is_ok()
            {
                return Ok((gateway, begun.elapsed()));
            }
            if let Some(status) = gateway.child.try_wait()? {
                let log = std::fs::read_to_string(home.join("gateway.log"))?;
                bail!("{who:?} ended with {status}\n{log}");
            }
            ensure!(begun.elapsed() < START, "{who:?} does not answer");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resident memory now, in MB.
    fn resident(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kb = line.and_then(|line| line.split_whitespace().nth(1));
        let kb: f64 = kb.context("VmRSS")?.parse()?;
        Ok(kb / 1024.0)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A stop in order is not measured here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn home(programs: &Programs, name: &str, who: Who, server: &Server) -> Result<std::path::PathBuf> {
    let home = programs.home(name, who)?;
    configure(&home, server)?;
    let path = home.join("home/config.yaml");
    let mut config = std::fs::read_to_string(&path)?;
    config.push_str("gateway:\n  api_server:\n    max_concurrent_runs: 0\n");
    std::fs::write(&path, config)?;
    Ok(home)
}

/// One new conversation: no two begin alike.
fn talk(client: &mut Client, number: usize) -> Result<()> {
    let body = json!({"messages": [{"role": "user", "content": format!("ping {number}")}]});
    let answer = client.post("/v1/chat/completions", KEY, &body)?;
    let text = &answer["choices"][0]["message"]["content"];
    ensure!(text == "pong", "the answer is {answer}");
    Ok(())
}

/// What a load came to.
struct Load {
    per_second: f64,
    /// Milliseconds of each conversation.
    took: Vec<f64>,
}

/// Clients that talk without a pause, each on a connection of its own.
fn load(gateway: &Gateway, clients: usize, counter: &AtomicUsize) -> Result<Load> {
    let over = AtomicBool::new(false);
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
        took,
    })
}

/// Rows of conversations in the database, seen by another process.
fn stored(home: &Path) -> Result<usize> {
    let program = "import sqlite3,sys; c=sqlite3.connect('file:'+sys.argv[1]+'?mode=ro',uri=True); \
                   print(c.execute(\"select count(*) from messages where role in ('user','assistant')\").fetchone()[0])";
    let output = Command::new("python3")
        .args(["-c", program])
        .arg(home.join("home/state.db"))
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.parse()
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Time to ready, memory, throughput.
pub(super) fn conversations(programs: &Programs, report: &mut Report) -> Result<()> {
    let server = programs.serve("gateway", &json!({"default": {"text": "pong"}}))?;
    let mut figures: BTreeMap<Who, BTreeMap<String, f64>> = BTreeMap::new();
    for who in programs.agents() {
        let home = home(programs, "gateway", who, &server)?;
        let figure = figures.entry(who).or_default();
        // The first start makes what later ones find.
        let mut ready = Vec::new();
        for _ in 0..STARTS {
            let (gateway, took) = Gateway::start(programs, who, &home)?;
            ready.push(took.as_secs_f64() * 1000.0);
            drop(gateway);
        }
        figure.insert("ready".to_owned(), median(&ready[1..]));
        let (gateway, _) = Gateway::start(programs, who, &home)?;
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
        }
        figure.insert("loaded".to_owned(), gateway.resident()?);
        let told = counter.load(Ordering::Relaxed);
        let rows = stored(&home)?;
        ensure!(
            rows == 2 * told,
            "{who:?}: {told} conversations, {rows} rows"
        );
        server.calls();
    }
    add(report, &figures);
    Ok(())
}

fn add(report: &mut Report, figures: &BTreeMap<Who, BTreeMap<String, f64>>) {
    let value = |who: Who, key: &str| figures.get(&who).and_then(|all| all.get(key)).copied();
    let mut row = |name: String, unit: &'static str, key: &str, target: Target| {
        report.add(Row {
            name,
            unit,
            ours: value(Who::Ours, key).unwrap_or(f64::NAN),
            original: value(Who::Original, key),
            bare: None,
            target,
        });
    };
    row(
        "gateway: time to ready".to_owned(),
        "ms",
        "ready",
        Target::AtMost(100.0),
    );
    row(
        "gateway: memory, idle".to_owned(),
        "MB",
        "idle",
        Target::AtMost(20.0),
    );
    let after = format!("gateway: memory after {CONVERSATIONS} conversations");
    row(after, "MB", "after", Target::AtMost(30.0));
    for clients in CLIENTS {
        let (rate, late) = if clients == 64 {
            (Target::AtLeast(1000.0), Target::AtMost(150.0))
        } else {
            (Target::None, Target::None)
        };
        let name = format!("gateway: conversations per second, {clients} clients");
        row(name, "/s", &format!("rate {clients}"), rate);
        let name = format!("gateway: p95, {clients} clients");
        row(name, "ms", &format!("p95 {clients}"), late);
    }
    row(
        "gateway: memory after the load".to_owned(),
        "MB",
        "loaded",
        Target::None,
    );
}

/// Model calls that are under way at the same time, against a model that takes its time.
pub(super) fn in_flight(programs: &Programs, report: &mut Report) -> Result<()> {
    let script: Value = json!({"default": {"text": "pong", "delay_ms": SLOW_MS}});
    let mut most: BTreeMap<Who, BTreeMap<String, f64>> = BTreeMap::new();
    for who in programs.agents() {
        let server = programs.serve("gateway-slow", &script)?;
        let home = home(programs, "gateway-slow", who, &server)?;
        let (gateway, _) = Gateway::start(programs, who, &home)?;
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
        target: Target::AtLeast(64.0),
    });
    Ok(())
}
