//! Tasks besides the platforms: the API server, the job scheduler.

use std::sync::Arc;
use std::time::Duration;

use hermes_api::{ActiveTurns, ApiDeps, ApiServer};
use hermes_config::Zone;
use hermes_core::clock::{SystemClock, SystemRng};
use hermes_core::{BoxFuture, task};
use hermes_gateway::ConversationPool;
use hermes_gateway::Gateway;
use hermes_gateway::GatewaySettings;
use hermes_gateway::control::GatewayControl;
use hermes_gateway::cron::{self, HomeJobEnvironment, Scheduler};
use hermes_gateway::process::{self, MachineProcesses};
use hermes_models::Overrides;
use hermes_platforms::UnusablePlatform;
use hermes_store::Store;
use hermes_store::jobs::JobTable;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::facts::RunningGatewayFacts;
use crate::commands::Context;
use crate::wiring;

/// Runs until cancelled and releases its resources.
pub(super) struct SideTask {
    name: &'static str,
    run: BoxFuture<'static, ()>,
}

/// Their common dependencies.
pub(super) struct SideTaskDeps<'a> {
    pub(super) cx: &'a Context,
    pub(super) settings: &'a Arc<GatewaySettings>,
    pub(super) pool: &'a ConversationPool,
    pub(super) store: &'a Store,
    pub(super) gateway: &'a Gateway,
    pub(super) cancel: CancellationToken,
}

/// Starts them; the tracker waits for their end.
pub(super) fn start(tasks: Vec<SideTask>) -> TaskTracker {
    let tracker = TaskTracker::new();
    for SideTask { name, run } in tasks {
        drop(task::spawn(name, tracker.track_future(run)));
    }
    tracker.close();
    tracker
}

/// Those that can run, and why the others cannot.
pub(super) async fn all(around: &SideTaskDeps<'_>) -> SideTasks {
    let mut beside = SideTasks {
        tasks: vec![jobs(around), upkeep(around)],
        work: None,
        unusable: Vec::new(),
    };
    match server(around).await {
        Ok(Some((task, work))) => {
            beside.tasks.push(task);
            beside.work = Some(work);
        }
        Ok(None) => {}
        Err(why) => beside.unusable.push(UnusablePlatform {
            platform: hermes_api::SOURCE.to_owned(),
            why,
        }),
    }
    beside.tasks.extend(control(around).await);
    beside
}

/// Requests of other programs of the home. Optional.
async fn control(around: &SideTaskDeps<'_>) -> Option<SideTask> {
    let control = match GatewayControl::bind(around.settings.home.root()).await {
        Ok(control) => control,
        Err(error) => {
            tracing::warn!("hermes mcp serve cannot reach this gateway: {error}");
            return None;
        }
    };
    let (gateway, cancel) = (around.gateway.clone(), around.cancel.clone());
    Some(SideTask {
        name: "control",
        run: Box::pin(control.serve(gateway, cancel)),
    })
}

/// The tasks besides the platforms.
pub(super) struct SideTasks {
    pub(super) tasks: Vec<SideTask>,
    /// The turns of the API server.
    pub(super) work: Option<ActiveTurns>,
    pub(super) unusable: Vec<UnusablePlatform>,
}

/// Bound here, so that a port conflict is detected before anything runs.
async fn server(around: &SideTaskDeps<'_>) -> Result<Option<(SideTask, ActiveTurns)>, String> {
    let SideTaskDeps {
        settings,
        pool,
        store,
        gateway,
        cancel,
        ..
    } = around;
    let Some(platform) = settings
        .enabled()
        .find(|one| one.name == hermes_api::SOURCE)
    else {
        return Ok(None);
    };
    let home = &settings.home;
    let server = ApiServer::from_settings(platform, &settings.config, home.profile())
        .map_err(|error| error.to_string())?;
    let Some(server) = server else {
        return Ok(None);
    };
    let listener = server.bind().await.map_err(|error| {
        let at = server.settings();
        format!("{}:{}: {error}", at.host, at.port)
    })?;
    let deps = ApiDeps {
        pool: (*pool).clone(),
        store: (*store).clone(),
        home: home.clone(),
        config: Arc::clone(&settings.config),
        clock: Arc::new(SystemClock),
        facts: Arc::new(RunningGatewayFacts {
            settings: Arc::clone(settings),
            gateway: (*gateway).clone(),
        }),
    };
    let (cancel, work) = (cancel.clone(), server.work());
    let run = async move {
        if let Err(error) = server.serve(listener, deps, cancel).await {
            tracing::error!("the API server ended: {error}");
        }
    };
    let task = SideTask {
        name: "API server",
        run: Box::pin(run),
    };
    Ok(Some((task, work)))
}

/// `sessions.auto_prune`, for long-running processes.
fn upkeep(around: &SideTaskDeps<'_>) -> SideTask {
    let (config, store) = (Arc::clone(&around.settings.config), around.store.clone());
    let cancel = around.cancel.clone();
    let hours = u64::from(config.sessions.min_interval_hours.max(1));
    let run = async move {
        while config.sessions.auto_prune && !cancel.is_cancelled() {
            wiring::prune_sessions(&config, &store, None).await;
            tokio::select! {
                () = cancel.cancelled() => {}
                () = tokio::time::sleep(Duration::from_hours(hours)) => {}
            }
        }
    };
    SideTask {
        name: "upkeep",
        run: Box::pin(run),
    }
}

fn jobs(around: &SideTaskDeps<'_>) -> SideTask {
    let SideTaskDeps {
        cx,
        settings,
        pool,
        store,
        gateway,
        cancel,
    } = around;
    let home = &settings.home;
    let (router_cx, config) = ((*cx).clone(), Arc::clone(&settings.config));
    let route = Arc::new(move || {
        let router = wiring::router(&router_cx, &config, Overrides::default());
        let route = router.describe().ok()?;
        Some((route.provider, route.model))
    });
    let clock: Arc<dyn hermes_core::clock::Clock> = Arc::new(SystemClock);
    let rng: Arc<dyn hermes_core::clock::Rng> = Arc::new(SystemRng);
    let scheduler = Scheduler::new(cron::SchedulerDeps {
        jobs: JobTable::with_sources(home.cron_dir(), Arc::clone(&clock), Arc::clone(&rng)),
        dir: home.cron_dir(),
        zone: Zone::named(&settings.config.timezone),
        pool: (*pool).clone(),
        environment: Arc::new(HomeJobEnvironment::new(
            home.clone(),
            cx.process_env(),
            route,
        )),
        messenger: Some(Arc::new(gateway.post())),
        store: Some((*store).clone()),
        owner: process::this_process(),
        processes: Arc::new(MachineProcesses),
        clock,
        rng,
        policy: cron::SchedulerPolicy::new(&settings.config, |name| settings.var(name)),
    });
    let cancel = cancel.clone();
    let run = async move {
        scheduler.run(&cancel).await;
    };
    SideTask {
        name: "jobs",
        run: Box::pin(run),
    }
}
