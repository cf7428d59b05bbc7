//! Servers to measure against, as a program: `server faulty [delay in ms] | everything | python |
//! stdio`.
//!
//! The first line it prints names its address; `delayed_url` is the same server behind a connection
//! that delays every request. Then it reads commands, one JSON object per line, and answers each:
//! `{"do": "expire" | "restart" | "down" | "up" | "counts" | "effects"}`, `{"do": "loss", "shape":
//! 0…17}`, `{"do": "reset"}` (the next call is executed and its answer is lost), `{"do": "lose",
//! "at": n}` (sessions are lost in the n-th way of the matrix sample), `{"do": "marks"}` (the
//! tokens of the executed calls). It exits at the end of its standard input. `stdio` is an MCP
//! server on its own pipes that only echoes.
#![expect(
    clippy::print_stdout,
    reason = "a program of the bench talks to whoever started it"
)]

use std::error::Error;
use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use hermes_core::task;
use hermes_testkit::mcp_server::combination::{Combination, Expected, Scenario, Scope, Transport};
use hermes_testkit::mcp_server::peers::{self, Peer, RealServer};
use hermes_testkit::mcp_server::{Fault, FaultyServer, Loss};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("stdio") => echo_on_pipes(),
        Some("faulty") => {
            let delay = args.next().map(|text| text.parse()).transpose()?;
            faulty(delay.map(Duration::from_millis))
        }
        Some("everything") => real(Peer::Everything),
        Some("python") => real(Peer::PythonLegacy),
        _ => Err("usage: server faulty [delay in ms] | everything | python | stdio".into()),
    }
}

/// Answers commands until they end.
fn orders(mut obey: impl FnMut(&str, &Value) -> Value) -> Outcome {
    for line in stdin().lock().lines() {
        let order: Value = serde_json::from_str(&line?)?;
        let answer = obey(order["do"].as_str().unwrap_or_default(), &order);
        println!("{answer}");
    }
    Ok(())
}

fn faulty(delay: Option<Duration>) -> Outcome {
    let server = FaultyServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let delayed = match delay {
        Some(delay) => Some(runtime.block_on(long_line(server.address(), delay))?),
        None => None,
    };
    println!("{}", json!({"url": server.url(), "delayed_url": delayed}));
    orders(|name, order| {
        match name {
            "expire" => drop(server.expire_sessions()),
            "restart" => drop(server.restart()),
            "down" => drop(server.go_down()),
            "up" => drop(server.come_up()),
            "reset" => drop(server.fault("tools/call", Fault::ResetAfter)),
            "lose" => {
                let at = order["at"].as_u64().unwrap_or_default() as usize;
                let how = sampled(at);
                server.lose_sessions_in(&how);
                let certain = how.expected() == Expected::FirstCall;
                return json!({"how": how.to_string(), "certain": certain});
            }
            "marks" => return json!({"marks": server.marks()}),
            "loss" => {
                let at = order["shape"].as_u64().unwrap_or_default() as usize;
                let shape = Loss::ALL[at % Loss::ALL.len()];
                server.lose_sessions_as(shape);
                return json!({"shape": format!("{shape:?}")});
            }
            _ => {}
        }
        let counts = server.counts();
        json!({"sessions": counts.sessions, "initializes": counts.initializes,
               "effects": counts.effects, "calls": counts.calls, "peak": counts.peak,
               "listening": counts.listening, "connections": counts.connections})
    })
}

/// One of the ways to lose a session by which programs are compared: always the same ones, and only
/// those that a client can be expected to handle.
fn sampled(at: usize) -> Combination {
    const SEED: u64 = 60;
    let drawn = (0..).map(|at| Combination::draw(SEED, at, Transport::Http, Scenario::ProxyKeeps));
    drawn
        .filter(|how| how.scope != Scope::Pings && how.expected() != Expected::Free)
        .nth(at)
        .unwrap_or_else(|| unreachable!("the generator never ends"))
}

fn real(peer: Peer) -> Outcome {
    let installed = peers::require("bench").ok_or("run `cargo xtask setup` first")?;
    let mut server: RealServer = installed.start(peer);
    println!("{}", json!({"url": server.url()}));
    orders(|name, _| {
        match name {
            "restart" => server.restart(),
            "expire" => server.forget_sessions(),
            _ => {}
        }
        json!({"effects": server.effects()})
    })
}

/// A connection to `server` that delays every piece of a request by `delay`.
async fn long_line(server: SocketAddr, delay: Duration) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    drop(task::spawn("long-line", async move {
        while let Ok((client, _)) = listener.accept().await {
            drop(task::spawn("long-line", async move {
                // A broken connection is broken on both sides; no error is reported.
                let _ = carry(client, server, delay).await;
            }));
        }
    }));
    Ok(url)
}

async fn carry(client: TcpStream, server: SocketAddr, delay: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (send, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(64);
    let reading = async move {
        let mut piece = vec![0; 65536];
        loop {
            let count = from_client.read(&mut piece).await?;
            let due = Instant::now() + delay;
            if count == 0 || send.send((due, piece[..count].to_vec())).await.is_err() {
                return Ok(());
            }
        }
    };
    let writing = async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            to_server.write_all(&piece).await?;
        }
        to_server.shutdown().await
    };
    let back = async {
        tokio::io::copy(&mut from_server, &mut to_client)
            .await
            .map(drop)
    };
    tokio::select! {
        result = async { tokio::try_join!(reading, writing).map(drop) } => result,
        result = back => result,
    }
}

/// The minimum of a server, so that mainly the client is measured.
fn echo_on_pipes() -> Outcome {
    for line in stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let params = &message["params"];
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1.0.0"}}),
            Some("tools/list") => json!({"tools": [{
                "name": "echo", "description": "Says the text again.",
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}]}),
            Some("tools/call") => json!({
                "content": [{"type": "text", "text": params["arguments"]["text"]}],
                "isError": false}),
            Some("ping") => json!({}),
            _ => Value::Null,
        };
        let mut answer = json!({"jsonrpc": "2.0", "id": message["id"]});
        match (&message["id"], result) {
            (Value::Null, _) => continue,
            (id, Value::Null) if !id.is_null() => {
                answer["error"] = json!({"code": -32601, "message": "Method not found"});
            }
            (_, result) => answer["result"] = result,
        }
        let mut out = stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
