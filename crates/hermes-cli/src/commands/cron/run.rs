//! Running jobs without a gateway: in this process, once.

use std::sync::Arc;
use std::time::Duration;

use hermes_app::GatewayConversations;
use hermes_core::clock::{Clock, Rng, SystemClock, SystemRng};
use hermes_core::store::StoreError;
use hermes_gateway::GatewaySettings;
use hermes_gateway::Pairing;
use hermes_gateway::cron::{
    self, CronError, HomeJobEnvironment, JobDeliveryStatus, JobMessenger, JobRunReport, Scheduler,
};
use hermes_gateway::platforms;
use hermes_gateway::process::{self, MachineProcesses};
use hermes_gateway::{ConversationPool, PoolLimits};
use hermes_gateway::{Gateway, GatewayCallbacks, GatewayDeps};
use hermes_models::Overrides;
use hermes_store::Store;
use hermes_store::delivery::Owner;
use hermes_store::jobs::{JobClaimError, JobError, JobTable};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::commands::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

/// Delivery is ours for as long as it takes to send.
const DELIVERY_LEASE: Duration = Duration::from_mins(1);
const SEND_TIMEOUT: Duration = Duration::from_secs(45);

pub(super) fn one(reference: &str, json: bool, cx: &Context) -> Outcome {
    // Before anything is opened: a name that is wrong is a matter of milliseconds.
    super::jobs(cx, false)?
        .jobs
        .get(reference)
        .map_err(|error| super::refused(&error.into()))?;
    wiring::runtime()?.block_on(async {
        let cancel = interrupted()?;
        let runner = JobRunner::open(cx)?;
        cx.out.remark("running; Ctrl+C stops it");
        let fired = runner.scheduler(None).fire(reference, &cancel).await;
        let handed = runner.deliver().await;
        runner.close().await;
        let report = fired.map_err(|error| failure(&error))?;
        let report = latest(report, handed?);
        if json {
            cx.out.json(&value(&report))?;
        } else {
            print_report(&report, cx)?;
        }
        ended(&[report], &cancel)
    })
}

pub(super) fn due(json: bool, cx: &Context) -> Outcome {
    wiring::runtime()?.block_on(async {
        let cancel = interrupted()?;
        let runner = JobRunner::open(cx)?;
        let ran = runner.scheduler(None).tick(&cancel).await;
        let handed = runner.deliver().await;
        runner.close().await;
        let mut reports = ran.map_err(|error| failure(&error))?;
        let handed = handed?;
        for report in &mut reports {
            *report = latest(report.clone(), handed.clone());
        }
        if json {
            let values: Vec<Value> = reports.iter().map(value).collect();
            cx.out.json(&values)?;
        } else if reports.is_empty() {
            cx.out.remark("nothing is due");
        }
        for report in reports.iter().filter(|_| !json) {
            print_report(report, cx)?;
        }
        ended(&reports, &cancel)
    })
}

/// Ctrl+C and SIGTERM stop what runs; it is recorded as interrupted.
fn interrupted() -> Result<CancellationToken, Failure> {
    let cancel = CancellationToken::new();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let token = cancel.clone();
    drop(hermes_core::task::spawn("signals", async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        token.cancel();
    }));
    Ok(cancel)
}

/// What jobs need, without the rest of a gateway.
struct JobRunner<'a> {
    cx: &'a Context,
    settings: Arc<GatewaySettings>,
    store: Store,
    program: Arc<GatewayConversations>,
    pool: ConversationPool,
    owner: Owner,
}

impl<'a> JobRunner<'a> {
    fn open(cx: &'a Context) -> Result<Self, Failure> {
        let loaded = cx.load_config()?;
        hermes_config::secrets::remember_config(&loaded.tree);
        let settings = GatewaySettings::load(&cx.home, loaded, &cx.env)
            .map_err(|error| Failure::failed(error.to_string()))?;
        let store = wiring::open_store(cx)?;
        let program = Arc::new(GatewayConversations::new(cx, store.clone())?);
        program.show_progress(Arc::clone(&cx.process));
        let shared = Arc::clone(&program) as _;
        Ok(Self {
            cx,
            settings: Arc::new(settings),
            store,
            program,
            pool: ConversationPool::new(shared, PoolLimits::default(), CancellationToken::new()),
            owner: process::this_process(),
        })
    }

    /// Without a courier it leaves what is to be delivered for [`Self::deliver`], or for a gateway.
    fn scheduler(&self, courier: Option<Arc<dyn JobMessenger>>) -> Scheduler {
        let (home, settings) = (&self.cx.home, &self.settings);
        let (cx, config) = (self.cx.clone(), Arc::clone(&settings.config));
        let route = Arc::new(move || {
            let route = wiring::router(&cx, &config, Overrides::default()).describe();
            route.ok().map(|route| (route.provider, route.model))
        });
        let (clock, rng) = sources();
        Scheduler::new(cron::SchedulerDeps {
            jobs: JobTable::with_sources(home.cron_dir(), Arc::clone(&clock), Arc::clone(&rng)),
            dir: home.cron_dir(),
            zone: hermes_config::Zone::named(&settings.config.timezone),
            pool: self.pool.clone(),
            environment: Arc::new(HomeJobEnvironment::new(
                home.clone(),
                self.cx.process_env(),
                route,
            )),
            messenger: courier,
            store: Some(self.store.clone()),
            owner: self.owner.clone(),
            processes: Arc::new(MachineProcesses),
            clock,
            rng,
            policy: cron::SchedulerPolicy::new(&settings.config, |name| settings.var(name)),
        })
    }

    /// Sends what was left, unless a gateway does. Nothing is lost if this is cut short.
    async fn deliver(&self) -> Result<Vec<JobRunReport>, Failure> {
        if !self.scheduler(None).has_unfinished() {
            return Ok(Vec::new());
        }
        let owned = self.store.own_delivery(
            self.owner.clone(),
            DELIVERY_LEASE,
            Arc::new(MachineProcesses),
        );
        let delivery = match owned.await {
            Ok((delivery, _)) => delivery,
            Err(StoreError::NotOwner { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let (clock, rng) = sources();
        let (platforms, unusable) = platforms::all(&self.settings, &clock, &rng);
        for one in unusable {
            self.cx
                .out
                .remark(format!("{} cannot be used: {}", one.platform, one.why));
        }
        let gateway = Gateway::new(GatewayDeps {
            settings: Arc::clone(&self.settings),
            store: self.store.clone(),
            delivery: delivery.clone(),
            lease: DELIVERY_LEASE,
            pool: self.pool.clone(),
            pairing: Pairing::new(&self.cx.home, Arc::clone(&clock)),
            clock,
            rng,
            transcriber: None,
            speaker: None,
            callbacks: GatewayCallbacks::default(),
        });
        let gateway = gateway
            .await
            .map_err(|error| Failure::failed(error.to_string()))?;
        gateway.connect(&platforms);
        let handed = self
            .scheduler(Some(Arc::new(gateway.post())))
            .settle_earlier_runs()
            .await;
        gateway.send_owed(SEND_TIMEOUT).await?;
        delivery.release().await?;
        Ok(handed)
    }

    async fn close(self) {
        self.pool.close_idle().await;
        self.program.close().await;
        if let Err(error) = self.store.close().await {
            tracing::warn!("closing the database: {error}");
        }
    }
}

fn sources() -> (Arc<dyn Clock>, Arc<dyn Rng>) {
    (Arc::new(SystemClock), Arc::new(SystemRng))
}

/// A run as it was reported last: first it was handed over, then perhaps taken.
fn latest(report: JobRunReport, handed: Vec<JobRunReport>) -> JobRunReport {
    let same = |one: &JobRunReport| one.execution == report.execution;
    match handed.into_iter().find(same) {
        Some(later) => JobRunReport {
            output: report.output,
            ..later
        },
        None => report,
    }
}

fn failure(error: &CronError) -> Failure {
    let exit = match error {
        CronError::Claim(JobClaimError::Running(_)) | CronError::Lock(_) => Exit::Busy,
        CronError::Claim(JobClaimError::Job(JobError::NotFound(_))) => Exit::NotFound,
        CronError::Claim(JobClaimError::Paused(_) | JobClaimError::Exhausted(_)) => Exit::Refused,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

fn value(report: &JobRunReport) -> Value {
    let (delivery, chats) = match report.delivery {
        JobDeliveryStatus::Silent => ("silent", 0),
        JobDeliveryStatus::NoTarget => ("none", 0),
        JobDeliveryStatus::Queued(chats) => ("delivered", chats),
        JobDeliveryStatus::HandedOver(chats) => ("gateway", chats),
    };
    json!({
        "id": report.job,
        "name": report.name,
        "execution": report.execution,
        "ok": report.error.is_none(),
        "error": report.error,
        "response": report.response,
        "output": report.output,
        "delivery": delivery,
        "chats": chats,
        "delivery_error": report.delivery_error,
    })
}

fn print_report(report: &JobRunReport, cx: &Context) -> Outcome {
    match &report.error {
        None => cx.out.foreign_line(&format!("{}: done", report.name))?,
        Some(error) => cx
            .out
            .foreign_line(&format!("{}: failed: {error}", report.name))?,
    }
    if report.delivery != JobDeliveryStatus::Silent && !report.response.trim().is_empty() {
        cx.out.foreign_line(report.response.trim_end())?;
    }
    if let Some(path) = &report.output {
        cx.out.remark(format!("written to {}", path.display()));
    }
    match report.delivery {
        JobDeliveryStatus::Silent => cx.out.remark("it had nothing to report"),
        JobDeliveryStatus::NoTarget => {}
        JobDeliveryStatus::Queued(chats) => cx.out.remark(format!("to {}", counted(chats, "chat"))),
        JobDeliveryStatus::HandedOver(chats) => cx
            .out
            .remark(format!("to {}, by the gateway", counted(chats, "chat"))),
    }
    if let Some(error) = &report.delivery_error {
        cx.out.error(format!("not delivered: {error}"));
    }
    Ok(())
}

fn ended(reports: &[JobRunReport], cancel: &CancellationToken) -> Outcome {
    if cancel.is_cancelled() {
        return Err(Failure::silent(Exit::Interrupted));
    }
    if reports.iter().any(|report| report.error.is_some()) {
        return Err(Failure::silent(Exit::TurnFailed));
    }
    if reports.iter().any(|report| report.delivery_error.is_some()) {
        return Err(Failure::silent(Exit::Failed));
    }
    Ok(())
}
