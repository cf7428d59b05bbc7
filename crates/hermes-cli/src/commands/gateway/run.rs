//! `hermes gateway run`: from the start to the end of the process.

use std::os::unix::process::CommandExt as _;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_gateway::process::{
    self, ClaimError, GatewayProcess, GatewaySnapshot, GatewayState, GatewayStateFile, HomeClaim,
    Marker, Notifier, RestartStormLimits,
};
use hermes_gateway::{AccessSummary, GatewaySettings};
use rustix::process::Signal;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::RunArgs;
use super::lifecycle::{self, GatewayEnd};
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::wiring;

/// How long an old gateway may take to end before it is killed.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(10);
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for detached threads.
const DETACHED_THREAD_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) fn run(args: &RunArgs, cx: &Context) -> Outcome {
    let out = Output {
        quiet: args.quiet,
        ..cx.out
    };
    let mut cx = cx.clone().with_output(out);
    cx.is_gateway = true;
    let cx = cx.reread()?;
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    crate::logging::start_gateway(&cx, args.verbose);
    let runtime = wiring::runtime()?;
    let ended = runtime.block_on(live(args, &cx));
    runtime.shutdown_timeout(DETACHED_THREAD_TIMEOUT);
    match ended? {
        GatewayEnd::Planned | GatewayEnd::Signal => Ok(()),
        // The service manager restarts us.
        GatewayEnd::Unexpected => Err(Failure::silent(Exit::Failed)),
        GatewayEnd::Lost(why) => Err(Failure::new(Exit::Busy, why)),
        GatewayEnd::Damaged(why) => Err(Failure::new(Exit::Config, why)),
        GatewayEnd::Restart if args.external_supervisor || is_supervised(&cx) => {
            Err(Failure::silent(Exit::Busy))
        }
        GatewayEnd::Restart => Err(again(args)),
    }
}

/// Re-executes the program. Returns only on failure.
fn again(args: &RunArgs) -> Failure {
    let program = match std::env::current_exe() {
        // The program file was replaced by a newer one.
        Ok(path) if !path.exists() => std::env::args_os().next().map(Into::into),
        Ok(path) => Some(path),
        Err(_) => None,
    };
    let Some(program) = program else {
        return Failure::failed("the program to restart no longer exists");
    };
    let mut words: Vec<_> = std::env::args_os().skip(1).collect();
    if args.replace {
        words.retain(|word| word != "--replace");
    }
    let error = std::process::Command::new(&program).args(words).exec();
    Failure::failed(format!("starting {} again: {error}", program.display()))
}

/// Whether a service manager restarts us after an exit. With a notified systemd we stay and report
/// it instead: its `reload` treats an exit as a failure, and it delays restarts.
fn is_supervised(cx: &Context) -> bool {
    let set = |name: &str| {
        cx.env
            .get(name)
            .is_some_and(|value| !value.trim().is_empty())
    };
    let on = |name: &str| {
        let value = cx.env.get(name).unwrap_or_default().to_ascii_lowercase();
        matches!(value.trim(), "1" | "true" | "yes" | "on")
    };
    let launchd = cx.env.get("XPC_SERVICE_NAME").unwrap_or_default();
    (set("INVOCATION_ID") && !set("NOTIFY_SOCKET"))
        || set("HERMES_S6_SUPERVISED_CHILD")
        || !matches!(launchd, "" | "0")
        || on("HERMES_GATEWAY_EXTERNAL_SUPERVISOR")
}

/// The whole run, after the home was claimed.
async fn live(args: &RunArgs, cx: &Context) -> Result<GatewayEnd, Failure> {
    let root = cx.home.root();
    if args.replace {
        replace(cx).await?;
    }
    let claim = HomeClaim::take(&cx.home).map_err(|error| already_running(&error))?;
    // Markers for an earlier gateway with our pid.
    Marker::Takeover.clear(root);
    Marker::PlannedStop.clear(root);
    let mut state = GatewayStateFile::new(&cx.home, Utc::now());
    state.write(GatewaySnapshot::default(), Utc::now());
    let settings = match settings(cx) {
        Ok(settings) => settings,
        Err(failure) => return Err(failed_start(&mut state, failure)),
    };
    if !args.force && !calm(&settings).await {
        return Ok(GatewayEnd::Planned);
    }
    let notifier = Notifier::from_vars(|name| std::env::var(name).ok());
    let ended = lifecycle::begin(cx, Arc::new(settings), state, notifier).await;
    drop(claim);
    ended
}

/// Startup failures are published in the state file.
pub(super) fn failed_start(state: &mut GatewayStateFile, failure: Failure) -> Failure {
    tracing::error!("the gateway cannot start: {}", failure.message);
    let snapshot = GatewaySnapshot {
        state: GatewayState::StartupFailed,
        exit_reason: Some(failure.message.clone()),
        ..GatewaySnapshot::default()
    };
    state.write(snapshot, Utc::now());
    failure
}

fn already_running(error: &ClaimError) -> Failure {
    let exit = match error {
        ClaimError::Running(_) => Exit::Busy,
        ClaimError::Io { .. } => Exit::Failed,
    };
    let hint = match error {
        ClaimError::Running(_) => "\nto take its place: hermes gateway run --replace",
        ClaimError::Io { .. } => "",
    };
    Failure::new(exit, format!("{error}{hint}"))
}

/// Stops the gateway of this home, with a marker that this is intended.
async fn replace(cx: &Context) -> Outcome {
    let root = cx.home.root();
    let Some(running) = process::running(root) else {
        return Ok(());
    };
    let GatewayProcess { pid, .. } = running.process;
    tracing::info!("taking the place of the gateway with pid {pid}");
    Marker::Takeover.leave(root, running.process, Utc::now())?;
    end(running.process).await?;
    Marker::Takeover.clear(root);
    Ok(())
}

async fn end(process: GatewayProcess) -> Outcome {
    let failed = |error: std::io::Error| {
        Failure::failed(format!("the gateway with pid {}: {error}", process.pid))
    };
    process.signal(Signal::TERM).map_err(failed)?;
    if process.gone(TAKEOVER_TIMEOUT).await {
        return Ok(());
    }
    tracing::warn!(
        "the gateway with pid {} does not exit and is killed",
        process.pid
    );
    process.signal(Signal::KILL).map_err(failed)?;
    if process.gone(KILL_TIMEOUT).await {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Busy,
        format!("the gateway with pid {} cannot be ended", process.pid),
    ))
}

/// Loads and validates the settings.
pub(super) fn settings(cx: &Context) -> Result<GatewaySettings, Failure> {
    let wrong = |message: String| Failure::new(Exit::Config, message);
    let loaded = cx.load_config().map_err(|failure| wrong(failure.message))?;
    hermes_config::secrets::remember_config(&loaded.tree);
    let settings = GatewaySettings::load(&cx.home, loaded, &cx.env)
        .map_err(|error| wrong(error.to_string()))?;
    for problem in &settings.problems {
        tracing::warn!("{problem}");
        cx.out.remark(problem);
    }
    let AccessSummary {
        unconfirmed_open: open,
        only_pairing: nobody,
        open_to_all: everybody,
    } = settings.access_summary();
    if !open.is_empty() {
        let names = open.join(", ");
        let var = format!("{}_ALLOW_ALL_USERS", open[0].to_uppercase());
        return Err(wrong(format!(
            "{names}: the policy is open, so anyone could give the agent orders on this \
             machine. Name who may: hermes gateway setup; or to allow everyone: {var}=true in .env"
        )));
    }
    if nobody {
        let text = "no allow-list names anyone; strangers get a code, \
                    and hermes pairing approve gives them access";
        tracing::warn!("{text}");
        cx.out.remark(text);
    }
    if !everybody.is_empty() {
        let text = format!(
            "{}: everyone may talk to the agent, and it runs commands on this machine",
            everybody.join(", ")
        );
        tracing::warn!("{text}");
        cx.out.remark(text);
    }
    Ok(settings)
}

/// After too many starts in a short time it waits before it continues. `false`: it was stopped
/// meanwhile.
async fn calm(settings: &GatewaySettings) -> bool {
    let section = settings.tree.pointer("/gateway/respawn_storm");
    let number = |key: &str| {
        section
            .and_then(|section| section.get(key))
            .and_then(Value::as_f64)
    };
    let usual = RestartStormLimits::default();
    let limits = RestartStormLimits {
        starts: number("max_starts").map_or(usual.starts, |number| number.max(1.0) as usize),
        window: number("window_seconds").unwrap_or(usual.window),
    };
    let now = SystemClock.epoch_seconds();
    let Some(storm) = process::started(settings.home.root(), limits, now) else {
        return true;
    };
    tracing::warn!(
        "{} starts in a short time; waiting {} s before this one",
        storm.starts,
        storm.pause.as_secs()
    );
    let (Ok(mut stop), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return true;
    };
    tokio::select! {
        () = tokio::time::sleep(storm.pause) => true,
        _ = stop.recv() => false,
        _ = interrupt.recv() => false,
    }
}
