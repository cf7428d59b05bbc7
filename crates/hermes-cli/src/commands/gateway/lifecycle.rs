//! The running gateway: builds all parts, monitors them, and shuts them down in order.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::Utc;
use hermes_api::ActiveTurns;
use hermes_app::hooks::{HookEvent, Hooks};
use hermes_app::{ConversationHost, GatewayConversations};
use hermes_core::clock::{Clock, Rng, SystemClock, SystemRng};
use hermes_core::store::StoreError;
use hermes_core::task;
use hermes_gateway::GatewaySettings;
use hermes_gateway::Pairing;
use hermes_gateway::platforms::{self, GatewayWebhooks};
use hermes_gateway::process::{
    self, GatewaySnapshot, GatewayState, GatewayStateFile, MachineProcesses, Marker, Notifier,
    PlatformSnapshot, TokenLock, TokenLocks,
};
use hermes_gateway::{ConversationPool, PoolLimits};
use hermes_gateway::{
    Gateway, GatewayCallbacks, GatewayDeps, GatewayError, RestartRequest, ShutdownNotice,
};
use hermes_platforms::{Platform, PlatformState, UnusablePlatform, webhook};
use hermes_store::Store;
use hermes_store::delivery::{Delivery, RecoveredWork, Target};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::run::failed_start;
use super::tasks::{self, SideTask, SideTaskDeps};
use super::{NO_PLATFORM, facts};
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::footprint;
use crate::heap;
use crate::wiring;

/// How long this process owns delivery without a heartbeat.
const DELIVERY_LEASE: Duration = Duration::from_mins(1);
/// How long to wait for a command that is delivering.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(50);
/// Interval for writing the state and checking requests of others.
const STATE_INTERVAL: Duration = Duration::from_millis(500);
/// Approximate time until platforms and servers have started.
const START_DELAY: Duration = Duration::from_secs(1);
/// Heartbeat interval.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout for hooks at shutdown.
const HOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for closing the conversations.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How a gateway ended.
#[derive(Debug)]
pub(super) enum GatewayEnd {
    /// It was stopped on purpose, or replaced by another one.
    Planned,
    /// An unannounced signal: shutdown of the machine or the service. It stopped in order.
    Signal,
    /// It ended by itself.
    Unexpected,
    /// It should restart.
    Restart,
    /// Another process delivers now.
    Lost(String),
    /// The database is damaged: a new start would not help.
    Damaged(String),
}

/// Runs until it ends.
pub(super) async fn begin(
    cx: &Context,
    settings: Arc<GatewaySettings>,
    mut state: GatewayStateFile,
    notifier: Notifier,
) -> Result<GatewayEnd, Failure> {
    let made = make(cx, &settings).await;
    let parts = match made {
        Ok(parts) => parts,
        Err(failure) => return Err(failed_start(&mut state, failure)),
    };
    let mut watch = GatewayMonitor {
        cx,
        settings: &settings,
        state,
        notifier,
        unusable: parts.unusable,
        signals: GatewaySignals::new()?,
        restart: parts.restart,
        asked: None,
        draining: false,
        worked: false,
    };
    let cancel = CancellationToken::new();
    let running = {
        let (gateway, cancel) = (parts.gateway.clone(), cancel.clone());
        task::spawn("gateway", async move {
            gateway.run(parts.platforms, Vec::new(), cancel).await
        })
    };
    let beside = tasks::start(parts.tasks);
    let mut running = std::pin::pin!(running);
    let end = tokio::select! {
        end = watch.wait_for_end(&parts.gateway) => end,
        ended = &mut running => lost(ended),
    };
    watch.stopping(&end, &parts.gateway);
    watch.tell_chats(&end, &parts.gateway).await;
    shutting_down(&parts.hooks, &end).await;
    let patience = match &end {
        GatewayEnd::Lost(_) | GatewayEnd::Damaged(_) => Duration::ZERO,
        _ => settings.drain,
    };
    let clients = async {
        match &parts.work {
            Some(work) => tokio::time::timeout(patience, work.quiet()).await.is_ok(),
            None => true,
        }
    };
    let (chats, clients) = tokio::join!(parts.gateway.drain(patience), clients);
    let drained = chats && clients;
    parts.stop_tasks.cancel();
    if tokio::time::timeout(CLOSE_TIMEOUT, beside.wait())
        .await
        .is_err()
    {
        tracing::warn!("jobs or the API server took too long to end");
    }
    cancel.cancel();
    // It waits for its parts itself.
    let _ = running.as_mut().await;
    let closing = async {
        parts.pool.close_idle().await;
        parts.program.close().await;
        if let Err(error) = parts.delivery.release().await {
            tracing::warn!("giving up delivery: {error}");
        }
        if let Err(error) = parts.store.close().await {
            tracing::warn!("closing the database: {error}");
        }
    };
    if tokio::time::timeout(CLOSE_TIMEOUT, closing).await.is_err() {
        tracing::warn!("what was open took too long to close");
    }
    drop(parts.locks);
    watch.stopped(&end, drained);
    Ok(end)
}

/// Hooks run while everything is still available.
async fn shutting_down(hooks: &Hooks, end: &GatewayEnd) {
    let reason = match end {
        GatewayEnd::Planned => "stopped",
        GatewayEnd::Signal => "signal",
        GatewayEnd::Unexpected => "broken",
        GatewayEnd::Restart => "restart",
        GatewayEnd::Lost(_) => "lost",
        GatewayEnd::Damaged(_) => "damaged",
    };
    let happening = HookEvent {
        extra: json!({"reason": reason}),
        ..HookEvent::default()
    };
    let asking = hooks.ask("gateway:shutdown", &happening);
    if tokio::time::timeout(HOOK_TIMEOUT, asking).await.is_err() {
        tracing::warn!("hooks on gateway:shutdown took too long");
    }
}

fn lost(
    ended: Result<Result<Result<(), GatewayError>, task::Panicked>, tokio::task::JoinError>,
) -> GatewayEnd {
    match ended {
        Ok(Ok(Ok(()))) => GatewayEnd::Unexpected,
        Ok(Ok(Err(GatewayError::Store(error @ StoreError::Corrupt { .. })))) => {
            GatewayEnd::Damaged(damaged(&error).message)
        }
        Ok(Ok(Err(error))) => GatewayEnd::Lost(format!("another process delivers now: {error}")),
        Ok(Err(panicked)) => {
            tracing::error!("the gateway failed: {panicked}");
            GatewayEnd::Unexpected
        }
        Err(error) => {
            tracing::error!("the gateway failed: {error}");
            GatewayEnd::Unexpected
        }
    }
}

/// Why the database is not usable. A damaged or incompatible one will not be better at the next
/// start, so the service manager must not retry.
fn no_store(error: StoreError) -> Failure {
    match error {
        StoreError::Corrupt { .. } | StoreError::Unsupported { .. } => damaged(&error),
        error => error.into(),
    }
}

fn damaged(error: &StoreError) -> Failure {
    let text =
        format!("{error}; the gateway stays down until that is done, then: hermes gateway start");
    Failure::new(Exit::Config, text)
}

/// The parts of a gateway, ready to run.
struct GatewayParts {
    gateway: Gateway,
    platforms: Vec<Platform>,
    unusable: Vec<UnusablePlatform>,
    tasks: Vec<SideTask>,
    /// Turns for clients of the API server.
    work: Option<ActiveTurns>,
    stop_tasks: CancellationToken,
    program: Arc<GatewayConversations>,
    pool: ConversationPool,
    store: Store,
    delivery: Delivery,
    locks: Vec<TokenLock>,
    restart: mpsc::Receiver<RestartRequest>,
    hooks: Hooks,
}

async fn make(cx: &Context, settings: &Arc<GatewaySettings>) -> Result<GatewayParts, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let rng: Arc<dyn Rng> = Arc::new(SystemRng);
    let store = Store::open(cx.home.state_db(), Arc::clone(&clock)).map_err(no_store)?;
    let delivery = own(&store).await?;
    let (platforms, mut unusable) = platforms::all(settings, &clock, &rng);
    let (mut platforms, locks) = lock(platforms, &mut unusable, settings);
    let program = Arc::new(GatewayConversations::new(cx, store.clone())?);
    if let Err(refusal) = program.ready() {
        tracing::warn!("nothing can be answered yet: {}", refusal.message);
        cx.out
            .remark(format!("nothing can be answered yet: {}", refusal.message));
    }
    let shared = Arc::clone(&program) as Arc<dyn ConversationHost>;
    let pool = ConversationPool::new(
        shared,
        PoolLimits::from_settings(settings),
        CancellationToken::new(),
    );
    let desk = WebhookHostSlot::default();
    let hooks = wiring::load_hooks(cx, &settings.config, false);
    wiring::unsupported::warn_once(cx, &settings.config);
    let (calls, restart) = calls(settings, (&clock, &rng), &desk, hooks.clone());
    let gateway = Gateway::new(GatewayDeps {
        settings: Arc::clone(settings),
        store: store.clone(),
        delivery: delivery.clone(),
        lease: DELIVERY_LEASE,
        pool: pool.clone(),
        pairing: Pairing::new(&cx.home, Arc::clone(&clock)),
        clock: Arc::clone(&clock),
        rng: Arc::clone(&rng),
        transcriber: facts::transcriber(settings),
        speaker: Some(facts::speaker(settings)),
        callbacks: calls,
    })
    .await
    .map_err(|error| Failure::failed(error.to_string()))?;
    let post = gateway.post();
    let store_of_desk = store.clone();
    let _ = desk.set(Arc::new(GatewayWebhooks {
        store: store_of_desk,
        post,
        inline: program.inline_shell(),
    }));
    match webhooks(settings, &desk, &clock) {
        Ok(server) => platforms.extend(server),
        Err(why) => unusable.push(why),
    }
    let stop_tasks = CancellationToken::new();
    let beside = tasks::all(&SideTaskDeps {
        cx,
        settings,
        pool: &pool,
        store: &store,
        gateway: &gateway,
        cancel: stop_tasks.clone(),
    })
    .await;
    unusable.extend(beside.unusable);
    complain(cx, settings, &unusable)?;
    Ok(GatewayParts {
        gateway,
        platforms,
        unusable,
        tasks: beside.tasks,
        work: beside.work,
        stop_tasks,
        program,
        pool,
        store,
        delivery,
        locks,
        restart,
        hooks,
    })
}

/// No other gateway runs on this home at this point. But a command that ran a job may still be
/// delivering its result, which takes seconds.
async fn own(store: &Store) -> Result<Delivery, Failure> {
    let (end, mut reported) = (tokio::time::Instant::now() + COMMAND_TIMEOUT, false);
    let (delivery, left) = loop {
        let owned = store.own_delivery(
            process::this_process(),
            DELIVERY_LEASE,
            Arc::new(MachineProcesses),
        );
        match owned.await {
            Ok(owned) => break owned,
            Err(error @ StoreError::NotOwner { .. }) if tokio::time::Instant::now() < end => {
                if !std::mem::replace(&mut reported, true) {
                    tracing::info!("not ready yet: {error}");
                }
                tokio::time::sleep(STATE_INTERVAL).await;
            }
            Err(error @ StoreError::NotOwner { .. }) => {
                return Err(Failure::new(Exit::Busy, error.to_string()));
            }
            Err(error) => return Err(no_store(error)),
        }
    };
    if left != RecoveredWork::default() {
        tracing::info!(
            "taken over: {} messages to answer, {} to send, {} perhaps sent",
            left.waiting,
            left.pending,
            left.ambiguous
        );
    }
    Ok(delivery)
}

/// Reports what is not started. If that is everything, the gateway does not run.
fn complain(cx: &Context, settings: &GatewaySettings, unusable: &[UnusablePlatform]) -> Outcome {
    let mut texts = Vec::new();
    for one in unusable {
        let text = format!("{} is not started: {}", one.platform, one.why);
        tracing::error!("{text}");
        texts.push(text);
    }
    let wanted = settings.enabled().count();
    if wanted == 0 {
        tracing::warn!("{NO_PLATFORM}");
        cx.out.remark(NO_PLATFORM);
    }
    if wanted > 0 && unusable.len() >= wanted {
        return Err(Failure::new(Exit::Config, texts.join("\n")));
    }
    for text in texts {
        cx.out.error(text);
    }
    Ok(())
}

/// Webhooks post through the gateway that they are part of.
type WebhookHostSlot = Arc<OnceLock<Arc<dyn webhook::WebhookHost>>>;

/// The server of webhooks, where it is switched on.
fn webhooks(
    settings: &GatewaySettings,
    desk: &WebhookHostSlot,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Platform>, UnusablePlatform> {
    let wanted = settings
        .enabled()
        .find(|one| one.name == webhook::DEFINITION.name);
    let (Some(platform), Some(desk)) = (wanted, desk.get()) else {
        return Ok(None);
    };
    let made = webhook::platform(
        &settings.home,
        &settings.config,
        platform,
        Arc::clone(desk),
        Arc::clone(clock),
    );
    made.map(Some).map_err(|why| UnusablePlatform {
        platform: platform.name.clone(),
        why,
    })
}

/// Callbacks for the gateway; the receiver gets restart requests from chats.
fn calls(
    settings: &Arc<GatewaySettings>,
    (clock, rng): (&Arc<dyn Clock>, &Arc<dyn Rng>),
    desk: &WebhookHostSlot,
    hooks: Hooks,
) -> (GatewayCallbacks, mpsc::Receiver<RestartRequest>) {
    let (asks, restart) = mpsc::channel(4);
    let calls = GatewayCallbacks {
        restart: Arc::new(move |request| {
            // One request is enough.
            let _ = asks.try_send(request);
        }),
        rebuild: {
            let (settings, clock, rng) = (Arc::clone(settings), Arc::clone(clock), Arc::clone(rng));
            let desk = Arc::clone(desk);
            Arc::new(move |name, account| {
                if name == webhook::DEFINITION.name {
                    return webhooks(&settings, &desk, &clock).ok().flatten();
                }
                let (made, _) = platforms::all(&settings, &clock, &rng);
                let same = |one: &Platform| one.name == name && one.account == account;
                made.into_iter().find(same)
            })
        },
        on_event: Arc::new(move |event, about| facts::run_hooks(&hooks, event, about)),
    };
    (calls, restart)
}

/// Locks the tokens, so that no other process on this machine uses them.
fn lock(
    platforms: Vec<Platform>,
    unusable: &mut Vec<UnusablePlatform>,
    settings: &GatewaySettings,
) -> (Vec<Platform>, Vec<TokenLock>) {
    let var = |name: &str| settings.var(name).map(str::to_owned);
    let Some(locks) = TokenLocks::from_vars(var) else {
        return (platforms, Vec::new());
    };
    let (mut usable, mut held) = (Vec::new(), Vec::new());
    for platform in platforms {
        if let Some(identity) = &platform.exclusive {
            match locks.take(platform.name, identity, Utc::now()) {
                Ok(lock) => held.push(lock),
                Err(error) => {
                    unusable.push(UnusablePlatform {
                        platform: platform.name.to_owned(),
                        why: error.to_string(),
                    });
                    continue;
                }
            }
        }
        usable.push(platform);
    }
    (usable, held)
}

struct GatewaySignals {
    terminate: Signal,
    interrupt: Signal,
    restart: Signal,
}

impl GatewaySignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            restart: signal(SignalKind::user_defined1())?,
        })
    }
}

/// Monitors the gateway: publishes its state and handles requests of others.
struct GatewayMonitor<'a> {
    cx: &'a Context,
    settings: &'a GatewaySettings,
    state: GatewayStateFile,
    notifier: Notifier,
    unusable: Vec<UnusablePlatform>,
    signals: GatewaySignals,
    restart: mpsc::Receiver<RestartRequest>,
    /// The chat that requested the restart.
    asked: Option<Target>,
    draining: bool,
    /// Turns were running at the last check.
    worked: bool,
}

impl GatewayMonitor<'_> {
    /// Runs until it is stopped.
    async fn wait_for_end(&mut self, gateway: &Gateway) -> GatewayEnd {
        let root = self.cx.home.root().to_owned();
        let _ = std::fs::remove_file(root.join(".clean_shutdown"));
        self.write_state(gateway, GatewayState::Running, None);
        self.state.write_heartbeat(Utc::now());
        let platforms = match self.settings.enabled().count() {
            1 => "1 platform".to_owned(),
            count => format!("{count} platforms"),
        };
        self.notifier.ready(&platforms);
        tracing::info!("the gateway is running, {platforms}");
        self.cx.out.remark(format!(
            "hermes gateway {} · {platforms} · pid {} · Ctrl+C ends it",
            env!("CARGO_PKG_VERSION"),
            std::process::id()
        ));
        facts::announce(&root, gateway).await;
        let mut look = tokio::time::interval(STATE_INTERVAL);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
        let pulse = self.notifier.watchdog().unwrap_or(HEARTBEAT_INTERVAL);
        let mut pulse = tokio::time::interval(pulse);
        let started = tokio::time::sleep(START_DELAY);
        tokio::pin!(started);
        let mut begins = true;
        loop {
            tokio::select! {
                () = &mut started, if begins => {
                    begins = false;
                    footprint::give_back();
                }
                _ = look.tick() => {
                    if Marker::PlannedStop.take(&root, Utc::now()) {
                        return GatewayEnd::Planned;
                    }
                    self.heed_drain(gateway);
                    let state = if self.draining {
                        GatewayState::Draining
                    } else {
                        GatewayState::Running
                    };
                    self.rest(gateway);
                    self.write_state(gateway, state, None);
                }
                _ = heartbeat.tick() => {
                    self.state.write_heartbeat(Utc::now());
                    // Turns of API clients are not included.
                    heap::give_back();
                }
                _ = pulse.tick() => self.notifier.alive(),
                _ = self.signals.interrupt.recv() => return GatewayEnd::Planned,
                _ = self.signals.terminate.recv() => {
                    let now = Utc::now();
                    let meant = Marker::Takeover.take(&root, now)
                        || Marker::PlannedStop.take(&root, now);
                    return if meant { GatewayEnd::Planned } else { GatewayEnd::Signal };
                }
                _ = self.signals.restart.recv() => return GatewayEnd::Restart,
                Some(request) = self.restart.recv() => {
                    facts::remember_restart(&root, &request);
                    self.asked = Some(Target {
                        platform: request.platform,
                        account: request.account,
                        chat_id: request.chat_id,
                        thread_id: request.thread_id,
                    });
                    return GatewayEnd::Restart;
                }
            }
        }
    }

    /// Memory of the last turns is released once none is running.
    fn rest(&mut self, gateway: &Gateway) {
        let works = gateway.status().active_turns > 0;
        if self.worked && !works {
            heap::give_back();
        }
        self.worked = works;
    }

    /// Others may request that no new turns start, and revoke it.
    fn heed_drain(&mut self, gateway: &Gateway) {
        let wanted = process::drain_requested(self.cx.home.root());
        if wanted != self.draining {
            tracing::info!(wanted, "draining");
            self.draining = wanted;
            gateway.set_held(wanted);
        }
    }

    fn write_state(&mut self, gateway: &Gateway, state: GatewayState, reason: Option<String>) {
        let status = gateway.status();
        let mut platforms: BTreeMap<String, PlatformSnapshot> = BTreeMap::new();
        for one in &self.unusable {
            let row = PlatformSnapshot {
                state: PlatformState::Fatal,
                error: Some(one.why.clone()),
                received_at: None,
            };
            platforms.insert(one.platform.clone(), row);
        }
        for one in status.platforms {
            let name = match one.account.as_str() {
                "" => one.name,
                account => format!("{}:{account}", one.name),
            };
            let row = PlatformSnapshot {
                state: one.condition.state,
                error: one.condition.error,
                // To the minute: the file is not written for every poll.
                received_at: one
                    .condition
                    .received_at
                    .map(|at| (at / 60.0).floor() * 60.0),
            };
            platforms.insert(name, row);
        }
        let snapshot = GatewaySnapshot {
            state,
            exit_reason: reason,
            restart_requested: false,
            active: status.active_turns,
            queued: status.queued,
            platforms,
        };
        self.state.write(snapshot, Utc::now());
    }

    fn stopping(&mut self, end: &GatewayEnd, gateway: &Gateway) {
        tracing::info!(?end, "the gateway stops");
        match end {
            GatewayEnd::Restart => self.notifier.reloading(monotonic()),
            _ => self.notifier.stopping(),
        }
        self.write_state(gateway, GatewayState::Draining, None);
    }

    /// Notifies chats with running work and home channels. A drain request may exclude the home
    /// channels.
    async fn tell_chats(&mut self, end: &GatewayEnd, gateway: &Gateway) {
        if matches!(end, GatewayEnd::Lost(_) | GatewayEnd::Damaged(_)) {
            return;
        }
        let leaving = ShutdownNotice {
            restart: matches!(end, GatewayEnd::Restart),
            requested_by: self.asked.take(),
            homes: !process::quiet_drain(self.cx.home.root()),
        };
        gateway.announce_shutdown(&leaving).await;
    }

    /// After an unannounced end the state stays unchanged: it records that the gateway should run
    /// after a reboot.
    fn stopped(&mut self, end: &GatewayEnd, drained: bool) {
        let (state, reason) = match end {
            GatewayEnd::Planned => (GatewayState::Stopped, None),
            GatewayEnd::Restart => (GatewayState::Stopped, Some("restart".to_owned())),
            GatewayEnd::Lost(why) | GatewayEnd::Damaged(why) => {
                (GatewayState::Stopped, Some(why.clone()))
            }
            GatewayEnd::Signal => (GatewayState::Running, Some("signal".to_owned())),
            GatewayEnd::Unexpected => (GatewayState::Running, Some("broken".to_owned())),
        };
        let snapshot = GatewaySnapshot {
            state,
            exit_reason: reason,
            restart_requested: matches!(end, GatewayEnd::Restart),
            ..GatewaySnapshot::default()
        };
        self.state.write(snapshot, Utc::now());
        if drained {
            let path = self.cx.home.join(".clean_shutdown");
            if let Err(error) = std::fs::write(&path, "") {
                tracing::warn!("{}: {error}", path.display());
            }
        }
        tracing::info!(drained, "the gateway has stopped");
    }
}

/// Microseconds since boot.
fn monotonic() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: f64 = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or_default();
    (seconds * 1e6) as u64
}
