//! The faults injected into the servers under load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::task::{self, Panicked};
use hermes_mcp::McpManager;
use hermes_testkit::mcp_server::combination::{Combination, Expected, Scenario, Scope};
use hermes_testkit::mcp_server::peers::RealServer;
use hermes_testkit::mcp_server::{Fault, FaultyServer, Loss};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::load::{CallLog, Load};
use super::status_check::StatusCheck;
use super::{CHILD, FAULTY, Proxied, Stage};

/// Between two faults of a kind.
const RESTART_INTERVAL: Duration = Duration::from_secs(3);
const KILL_INTERVAL: Duration = Duration::from_secs(4);
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
const LOSS_INTERVAL: Duration = Duration::from_millis(500);
/// Seed of the random choices.
const SEED: u64 = 1616;
/// Maximum duration of a recovery: two unanswered calls, and a margin for a busy machine.
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(1);

type Real = Vec<(String, RealServer)>;

pub(super) struct Troubles {
    restarts: JoinHandle<Result<(Real, usize), Panicked>>,
    kills: JoinHandle<Result<usize, Panicked>>,
    expiries: JoinHandle<Result<usize, Panicked>>,
    losses: Vec<JoinHandle<Result<usize, Panicked>>>,
}

/// Starts all of them; they end soon after `stop`.
pub(super) fn begin(
    stage: &mut Stage,
    manager: &Arc<McpManager>,
    load: &Load,
    stop: &CancellationToken,
) -> Troubles {
    let real = std::mem::take(&mut stage.real);
    let (log, stop) = (load.log(), stop.clone());
    let status_check = StatusCheck::new(manager, &log);
    let losses = stage.proxies.iter().map(|proxied| {
        let losing = losses(
            Arc::clone(proxied),
            status_check.clone(),
            log.clone(),
            stop.clone(),
        );
        task::spawn("soak-losses", losing)
    });
    Troubles {
        losses: losses.collect(),
        restarts: task::spawn(
            "soak-restarts",
            restarts(real, status_check.clone(), log.clone(), stop.clone()),
        ),
        kills: task::spawn(
            "soak-kills",
            kills(manager.clone(), log.clone(), stop.clone()),
        ),
        expiries: task::spawn("soak-expiries", expiries(stage.faulty.clone(), log, stop)),
    }
}

impl Troubles {
    /// Returns the servers and the number of faults of each kind.
    pub(super) async fn end(self, stage: &mut Stage) -> BTreeMap<&'static str, usize> {
        let (real, restarts) = self.restarts.await.unwrap().unwrap();
        stage.real = real;
        let kills = self.kills.await.unwrap().unwrap();
        let expiries = self.expiries.await.unwrap().unwrap();
        let mut losses = 0;
        for losing in self.losses {
            losses += losing.await.unwrap().unwrap();
        }
        BTreeMap::from([
            ("losses", losses),
            ("restarts", restarts),
            ("kills", kills),
            ("expiries", expiries),
        ])
    }
}

/// Whether to continue: after the pause, and once the server has recovered from the last fault.
async fn next(pause: Duration, log: &CallLog, name: &str, stop: &CancellationToken) -> bool {
    let ready = async {
        // The pace of the scenario, not a way to wait for something.
        sleep(pause).await;
        log.answers_again(name).await;
    };
    stop.run_until_cancelled(ready).await.is_some()
}

/// Kills and starts the real servers in turn.
async fn restarts(
    mut real: Real,
    status_check: StatusCheck,
    log: Arc<CallLog>,
    stop: CancellationToken,
) -> (Real, usize) {
    let mut count = 0;
    for at in (0..real.len()).cycle() {
        let (name, server) = &mut real[at];
        if !next(RESTART_INTERVAL, &log, name, &stop).await {
            break;
        }
        let since = Instant::now();
        let lost = StatusCheck::now();
        block_in_place(|| server.kill());
        status_check.is_gone(name, lost).await;
        block_in_place(|| server.start());
        log.away(name, since);
        count += 1;
        let again = stop.run_until_cancelled(log.answers_again(name)).await;
        if again.is_some() {
            status_check.is_back(name, lost);
        }
    }
    (real, count)
}

/// Loses the sessions behind a proxy, in the shapes of the generator.
async fn losses(
    proxied: Arc<Proxied>,
    status_check: StatusCheck,
    log: Arc<CallLog>,
    stop: CancellationToken,
) -> usize {
    let name = &proxied.name;
    let scenarios = [Scenario::ProxyKeeps, Scenario::ProxyCloses, Scenario::Late];
    let drawn = (0..)
        .map(|at| Combination::draw(SEED, at, proxied.transport, scenarios[at % scenarios.len()]));
    let wanted = |how: &Combination| how.expected() != Expected::Free && how.scope != Scope::Pings;
    let mut count = 0;
    for how in drawn.filter(wanted) {
        if !next(LOSS_INTERVAL, &log, name, &stop).await {
            break;
        }
        let lost = StatusCheck::now();
        proxied.proxy.lose_sessions_in(&how);
        count += 1;
        let again = tokio::time::timeout(RECOVERY_TIMEOUT, log.answers_again(name));
        match stop.run_until_cancelled(again).await {
            None => break,
            Some(Ok(())) => status_check.is_back(name, lost),
            Some(Err(_)) => {
                log.wrong_statuses(format!("{name} never came back after {how}"));
                status_check.reconnect(name);
            }
        }
    }
    count
}

/// Kills the child of the stdio server.
async fn kills(manager: Arc<McpManager>, log: Arc<CallLog>, stop: CancellationToken) -> usize {
    let mut count = 0;
    while next(KILL_INTERVAL, &log, CHILD, &stop).await {
        let pid = manager.server(CHILD).and_then(|s| s.status().child_pid);
        let pid = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        // Between two children there is none.
        count += usize::from(pid.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok()));
    }
    count
}

/// Loses the sessions, in all shapes; occasionally the answer to a call is lost instead.
async fn expiries(server: Arc<FaultyServer>, log: Arc<CallLog>, stop: CancellationToken) -> usize {
    let mut count = 0;
    while next(EXPIRY_INTERVAL, &log, FAULTY, &stop).await {
        if count % 4 == 3 {
            server.fault("tools/call", Fault::ResetAfter);
        } else {
            server.lose_sessions_as(Loss::ALL[count % Loss::ALL.len()]);
            server.expire_sessions();
        }
        count += 1;
    }
    count
}
