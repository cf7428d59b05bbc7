//! Servers that are killed, restarted and made to lose sessions, in turn, under steady load: `cargo
//! xtask soak`.

mod load;
mod resources;
mod status_check;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::{SystemClock, SystemRng};
use hermes_core::task;
use hermes_mcp::{McpManager, ServerSpec, ServerTarget};
use hermes_testkit::mcp_server::FaultyServer;
use hermes_testkit::mcp_server::combination::Transport;
use hermes_testkit::mcp_server::peers::{self, Peer, Peers, RealServer};
use hermes_testkit::mcp_server::proxy::ShapeProxy;
use tempfile::TempDir;
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;

use crate::rig::{http, http_target, named, stdio_target};
use load::{Load, Member, Tally};
use resources::{Memory, ProcessResources, marked_processes};

/// Duration of the run; `cargo xtask soak` sets it.
const MINUTES: &str = "HERMES_SOAK_MINUTES";
/// Load without faults before measuring, and after it.
const WARM_UP_TIME: Duration = Duration::from_secs(10);
const COOL_DOWN_TIME: Duration = Duration::from_secs(5);
/// In the environment of children, to find leftover ones.
const MARK: &str = "HERMES_SOAK_SCRATCH";

const PEERS: [Peer; 6] = [
    Peer::Everything,
    Peer::EverythingSse,
    Peer::Gateway3,
    Peer::Gateway4,
    Peer::PythonLegacy,
    Peer::PythonModern,
];
/// Real servers behind a proxy that loses sessions in the shapes of the generator.
const PROXIED: [(Peer, Transport); 2] = [
    (Peer::PythonLegacy, Transport::Http),
    (Peer::PythonSse, Transport::Sse),
];
/// Timeout of a call behind the proxy: some shapes give no answer at all.
const PROXIED_TIMEOUT: Duration = Duration::from_secs(5);
const CHILD: &str = "Child";
const FAULTY: &str = "Faulty";

/// The servers.
struct Stage {
    real: Vec<(String, RealServer)>,
    faulty: Arc<FaultyServer>,
    proxies: Vec<Arc<Proxied>>,
    scratch: TempDir,
    specs: Vec<ServerSpec>,
    members: Vec<Member>,
}

/// A real server, and the proxy in front of it.
struct Proxied {
    name: String,
    transport: Transport,
    proxy: ShapeProxy,
    server: RealServer,
}

impl Stage {
    fn set(peers: &Peers) -> Self {
        let scratch = TempDir::new().unwrap();
        let faulty = FaultyServer::start();
        faulty.forget_requests();
        let mut stage = Self {
            real: Vec::new(),
            faulty: Arc::new(faulty),
            proxies: Vec::new(),
            scratch,
            specs: Vec::new(),
            members: Vec::new(),
        };
        for peer in PEERS {
            let server = peers.start(peer);
            let target = http_target(&server.url(), peer == Peer::EverythingSse);
            let writes = !matches!(peer, Peer::Everything | Peer::EverythingSse);
            let name = format!("{peer:?}");
            stage.add(&name, &target, writes);
            stage.real.push((name, server));
        }
        for (peer, transport) in PROXIED {
            stage.add_proxied(peers, peer, transport);
        }
        let (program, args) = peers.python_stdio(false, &stage.effects());
        let mut child = stdio_target(&program, args, stage.scratch.path());
        if let ServerTarget::Stdio(child) = &mut child {
            let scratch = stage.scratch.path().to_string_lossy().into_owned();
            child.env.insert(MARK.to_owned(), scratch);
        }
        stage.add(CHILD, &child, true);
        stage.add(FAULTY, &http(&stage.faulty.clone()), true);
        stage
    }

    fn add(&mut self, name: &str, target: &ServerTarget, writes: bool) {
        self.specs.push(named(name, target, |settings| {
            settings.timeout = Duration::from_mins(1);
        }));
        self.members.push(Member {
            name: name.to_owned(),
            writes,
            excused: false,
        });
    }

    fn add_proxied(&mut self, peers: &Peers, peer: Peer, transport: Transport) {
        let server = peers.start(peer);
        let proxy = ShapeProxy::start_here(&server.url());
        let name = format!("Proxied{peer:?}");
        let target = http_target(&proxy.url(), transport != Transport::Http);
        self.add(&name, &target, true);
        if let (Some(spec), Some(member)) = (self.specs.last_mut(), self.members.last_mut()) {
            spec.settings.timeout = PROXIED_TIMEOUT;
            // A read without an answer cannot be distinguished from a slow one.
            member.excused = true;
        }
        self.proxies.push(Arc::new(Proxied {
            name,
            transport,
            proxy,
            server,
        }));
    }

    fn effects(&self) -> std::path::PathBuf {
        self.scratch.path().join("effects")
    }

    /// One mark per execution of a write, on any server.
    fn marks(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.effects()).unwrap_or_default();
        let mut marks: Vec<String> = text.lines().map(str::to_owned).collect();
        marks.extend(self.faulty.marks());
        marks.extend(self.real.iter().flat_map(|(_, server)| server.effects()));
        marks.extend(self.proxies.iter().flat_map(|one| one.server.effects()));
        marks
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo xtask soak"]
async fn real_servers_restarted_under_load() {
    let Some(peers) = peers::require("real_servers_restarted_under_load") else {
        return;
    };
    let minutes: f64 = std::env::var(MINUTES).map_or(1.0, |text| text.parse().unwrap());
    let mut stage = block_in_place(|| Stage::set(&peers));
    let manager = Arc::new(McpManager::start(
        stage.specs.clone(),
        Arc::new(SystemClock),
        Arc::new(SystemRng),
    ));
    assert!(manager.wait_ready(Duration::from_mins(2)).await);
    let mut load = Load::new(&manager, stage.members.clone());
    load.run(WARM_UP_TIME).await;
    let before = ProcessResources::now();

    let stop = CancellationToken::new();
    let memory = task::spawn("soak-memory", Memory::watch(stop.clone()));
    let troubles = trouble::begin(&mut stage, &manager, &load, &stop);
    load.run(Duration::from_secs_f64(minutes * 60.0)).await;
    stop.cancel();
    let troubles = troubles.end(&mut stage).await;
    let memory = memory.await.unwrap().unwrap();
    load.run(COOL_DOWN_TIME).await;
    let after = ProcessResources::settled(before).await;

    let reconnects = manager.status().into_iter();
    let reconnects: u64 = reconnects.flat_map(|s| s.reconnects.into_values()).sum();
    let tally = load.end().await;
    manager.shutdown(Duration::from_secs(10)).await;
    let left = marked_processes(MARK, stage.scratch.path());
    let sessions = stage.faulty.live_sessions();
    let marks = stage.marks();
    drop(stage);
    let end = ProcessResources::childless().await;

    let report = Report {
        troubles,
        reconnects,
        marks,
        memory,
        resources: [before, after, end],
    };
    report.print(&tally);
    report.check(&tally);
    assert!(left.is_empty(), "processes are left: {left:?}");
    assert_eq!(sessions, 0, "sessions are left on the server");
}

struct Report {
    troubles: BTreeMap<&'static str, usize>,
    reconnects: u64,
    marks: Vec<String>,
    memory: Memory,
    /// After warm-up, after the load, after the end.
    resources: [ProcessResources; 3],
}

impl Report {
    #[expect(clippy::print_stdout, reason = "the report is what it was started for")]
    fn print(&self, tally: &Tally) {
        println!("{:?}, {} connects", self.troubles, self.reconnects);
        let answered = tally.reads - tally.lost.values().sum::<usize>();
        let percent = 100.0 * answered as f64 / tally.reads.max(1) as f64;
        println!(
            "reads: {answered} of {} answered ({percent:.2} %)",
            tally.reads
        );
        for (why, count) in &tally.lost {
            println!("  {count} x {why}");
        }
        for (why, count) in &tally.excused {
            println!("  not counted (away for long, or behind the proxy): {count} x {why}");
        }
        println!(
            "writes: {} acknowledged, {} unknown, {} refused; {} effects",
            tally.acknowledged.len(),
            tally.unknown.len(),
            tally.refused.values().sum::<usize>(),
            self.marks.len()
        );
        for (why, count) in &tally.refused {
            println!("  {count} x {why}");
        }
        for what in &tally.wrong_statuses {
            println!("the status was wrong: {what}");
        }
        for (when, held) in ["warm", "after", "stopped"].iter().zip(self.resources) {
            println!("{when}: {held:?}");
        }
        println!("{}", self.memory);
    }

    fn check(&self, tally: &Tally) {
        let mut seen = BTreeSet::new();
        for mark in &self.marks {
            assert!(seen.insert(mark), "{mark} ran twice");
            let reported = tally.acknowledged.contains(mark) || tally.unknown.contains(mark);
            assert!(reported, "{mark} ran and nobody was told");
        }
        for token in &tally.acknowledged {
            assert!(
                seen.contains(token),
                "{token} was acknowledged and did not run"
            );
        }
        let wrong_statuses = &tally.wrong_statuses;
        assert!(
            wrong_statuses.is_empty(),
            "the status was wrong: {wrong_statuses:#?}"
        );
        let lost: usize = tally.lost.values().sum();
        assert!(
            tally.reads > 0 && lost * 1000 <= tally.reads,
            "reads were lost"
        );
        let [before, after, end] = self.resources;
        assert!(after.fits(before), "something leaks: {before:?}, {after:?}");
        assert_eq!(end.children, 0, "children are left");
        self.memory.check();
        for (what, count) in &self.troubles {
            assert!(*count > 0, "no {what}: nothing was proven");
        }
    }
}
