//! Components between us and a server: failing name resolution, load balancers without stickiness,
//! compression.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_core::task;
use hermes_mcp::{HttpClients, HttpTarget, Op, ServerTarget};
use hermes_testkit::mcp_server::{Fault, FaultyServer};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::rig::{Rig, bump, http_target, spec};

/// A name service that is sometimes unavailable.
#[derive(Clone, Default)]
struct Names {
    away: Arc<AtomicBool>,
}

impl Resolve for Names {
    fn resolve(&self, _: Name) -> Resolving {
        let away = self.away.load(Ordering::SeqCst);
        Box::pin(async move {
            if away {
                return Err("the name service is away".into());
            }
            let here: Addrs = Box::new(std::iter::once(SocketAddr::from(([127, 0, 0, 1], 0))));
            Ok(here)
        })
    }
}

/// A target whose client is built by the test.
fn target(
    url: &str,
    build: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync + 'static,
) -> ServerTarget {
    // Installs the TLS provider.
    drop(http_target(url, false));
    ServerTarget::Http(HttpTarget {
        url: url.parse().unwrap(),
        headers: HeaderMap::new(),
        clients: Arc::new(HttpClients::new(move || {
            build(reqwest::Client::builder().no_proxy())
                .build()
                .unwrap()
        })),
        tokens: None,
    })
}

#[tokio::test]
async fn a_name_that_does_not_resolve_for_a_while_costs_nothing_but_time() {
    let server = FaultyServer::start();
    let names = Names::default();
    let url = format!("http://flapping.test:{}/mcp", server.address().port());
    let resolver = names.clone();
    let target = target(&url, move |client| client.dns_resolver(resolver.clone()));
    let mut rig = Rig::start(spec(&target, |_| {}));
    rig.ready().await;
    for round in 1..=2 {
        names.away.store(true, Ordering::SeqCst);
        // Closes the open connections, so that the name is resolved again.
        server.restart();
        rig.server.reconnect();
        rig.until(|status| {
            let why = status.state.why().unwrap_or_default();
            why.contains("name service")
        })
        .await;
        let call = rig.op(bump());
        let back = async { names.away.store(false, Ordering::SeqCst) };
        let (result, ()) = tokio::join!(call, back);
        // Certainly not sent, so even a write is sent once the name resolves again.
        result.unwrap();
        assert_eq!(server.counts().effects, round);
        assert_eq!(server.counts().sessions, round + 1);
    }
    rig.stop().await;
}

/// Forwards every connection to one of several servers.
struct Balancer {
    url: String,
    pods: Vec<SocketAddr>,
    next: AtomicUsize,
    /// Whether each connection is forwarded to another instance than the one before.
    rotates: AtomicBool,
    lines: Mutex<CancellationToken>,
}

impl Balancer {
    async fn before(pods: &[&FaultyServer]) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Arc::new(Self {
            url: format!("http://{}/mcp", listener.local_addr().unwrap()),
            pods: pods.iter().map(|pod| pod.address()).collect(),
            next: AtomicUsize::new(0),
            rotates: AtomicBool::new(false),
            lines: Mutex::default(),
        });
        let balancer = this.clone();
        drop(task::spawn("balancer", async move {
            while let Ok((client, _)) = listener.accept().await {
                balancer.carry(client);
            }
        }));
        this
    }

    fn carry(&self, mut client: TcpStream) {
        let rotates = usize::from(self.rotates.load(Ordering::SeqCst));
        let at = self.next.fetch_add(rotates, Ordering::SeqCst);
        let pod = self.pods[at % self.pods.len()];
        let line = self.lines.lock().unwrap().clone();
        drop(task::spawn("balanced-line", async move {
            let carried = async {
                let mut pod = TcpStream::connect(pod).await?;
                tokio::io::copy_bidirectional(&mut client, &mut pod).await
            };
            // A broken connection is broken on both sides; no error is reported.
            let _ = line.run_until_cancelled(carried).await;
        }));
    }

    /// From now on the other instance serves, and the old connections end.
    fn turn(&self) {
        self.next.fetch_add(1, Ordering::SeqCst);
        std::mem::take(&mut *self.lines.lock().unwrap()).cancel();
    }
}

#[tokio::test]
async fn a_balancer_that_turns_to_a_pod_without_the_session() {
    let (one, two) = (FaultyServer::start(), FaultyServer::start());
    let balancer = Balancer::before(&[&one, &two]).await;
    let mut rig = Rig::start(spec(&http_target(&balancer.url, false), |_| {}));
    rig.ready().await;
    assert_eq!(rig.text("bump", json!({})).await, "1");
    for turn in 1..=6 {
        balancer.turn();
        // A read, because the connection may break under it.
        let read = rig.op(Op::ListResources).await;
        assert!(read.is_ok(), "turn {turn}: {read:?}");
        assert!(rig.op(bump()).await.is_ok(), "turn {turn}");
    }
    let sessions = one.counts().sessions + two.counts().sessions;
    assert_eq!(sessions, 7, "one new session per turn");
    assert_eq!(one.counts().effects + two.counts().effects, 7);
    rig.stop().await;
}

/// Every request reaches another instance than the one before. The handshake repeats what is safe
/// to repeat; calls may be refused, but only with certainty, and without a storm of requests.
#[tokio::test]
async fn a_balancer_without_sticky_sessions_is_no_storm() {
    let (one, two) = (FaultyServer::start(), FaultyServer::start());
    let balancer = Balancer::before(&[&one, &two]).await;
    balancer.rotates.store(true, Ordering::SeqCst);
    // Every request uses a new connection.
    let target = target(&balancer.url, |client| client.pool_max_idle_per_host(0));
    let mut rig = Rig::start(spec(&target, |settings| {
        settings.timeout = Duration::from_secs(3);
    }));
    rig.ready().await;
    let mut done = 0;
    for _ in 0..3 {
        match rig.op(bump()).await {
            Ok(_) => done += 1,
            Err(error) => assert!(!error.outcome_unknown, "{error:?}"),
        }
    }
    let made = one.counts().initializes + two.counts().initializes;
    assert!(made <= 12, "{made} handshakes for three calls");
    assert_eq!(one.counts().effects + two.counts().effects, done);
    balancer.rotates.store(false, Ordering::SeqCst);
    rig.server.reconnect();
    rig.ready().await;
    assert!(rig.op(bump()).await.is_ok());
    rig.stop().await;
}

/// A gzip body that would exhaust the memory.
fn bomb() -> Vec<u8> {
    let mut bits = Bits::default();
    // One last block with fixed codes: a byte, then "the same 258 bytes again" very often.
    bits.put(0b1, 1);
    bits.put(0b01, 2);
    bits.put_code(0x30 + u32::from(b' '), 8);
    for _ in 0..300_000 {
        bits.put_code(0b1100_0101, 8);
        bits.put_code(0, 5);
    }
    bits.put_code(0, 7);
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    gzip.extend(bits.bytes);
    gzip
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    used: usize,
}

impl Bits {
    /// Lowest bit first.
    fn put(&mut self, value: u32, count: usize) {
        for at in 0..count {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let bit = (value >> at) & 1;
            *self.bytes.last_mut().unwrap() |= (bit as u8) << (self.used % 8);
            self.used += 1;
        }
    }

    /// Codes are written highest bit first.
    fn put_code(&mut self, value: u32, count: usize) {
        self.put(value.reverse_bits() >> (32 - count), count);
    }
}

#[tokio::test]
async fn a_gzip_bomb_is_unpacked_to_the_limit_only() {
    for (kind, limit) in [
        ("application/json", "larger than 64 MiB"),
        ("text/event-stream", "more than 16 MiB"),
    ] {
        let server = FaultyServer::start();
        let rig = Rig::to(&server).await;
        let body = bomb();
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: gzip\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.extend(body);
        server.fault("tools/call", Fault::Raw(answer));
        let error = rig.op(bump()).await.unwrap_err();
        assert!(error.failure.text.contains(limit), "{error:?}");
        assert!(error.outcome_unknown, "{kind}: {error:?}");
        let seen = server.seen_of("tools/call");
        assert_eq!(seen[0].header("accept-encoding"), None);
        assert_eq!(rig.text("bump", json!({})).await, "1", "{kind}");
        rig.stop().await;
    }
}
