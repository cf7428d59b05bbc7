//! Starting, stopping and restarting a gateway that runs somewhere else: as a service, or as a
//! process of its own.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use chrono::Utc;
use hermes_config::Home;
use hermes_gateway::GatewaySettings;
use hermes_gateway::process::{self, GatewayProcess, GatewayState, Marker, read_state};
use rustix::process::Signal;
use serde_json::Value;

use super::service::{ServiceManager, installed};
use super::status::homes;
use super::{NO_PLATFORM, WhichArgs, status};
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

/// Timeout for the start of a gateway.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout for the end of a gateway, besides draining.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn start(args: WhichArgs, cx: &Context) -> Outcome {
    each(args, cx, |home| start_one(home, args, cx))
}

pub(super) fn stop(args: WhichArgs, cx: &Context) -> Outcome {
    if args.all {
        let running: Vec<Home> = homes(cx)
            .into_iter()
            .filter(|home| process::running(home.root()).is_some())
            .collect();
        if running.is_empty() {
            return Err(Failure::not_found("no gateway runs"));
        }
        for home in &running {
            stop_one(home, args, cx)?;
        }
        return Ok(());
    }
    stop_one(&cx.home, args, cx)
}

pub(super) fn restart(args: WhichArgs, cx: &Context) -> Outcome {
    each(args, cx, |home| restart_one(home, args, cx))
}

fn each(args: WhichArgs, cx: &Context, act: impl Fn(&Home) -> Outcome) -> Outcome {
    if !args.all {
        return act(&cx.home);
    }
    let mut outcome = Ok(());
    for home in homes(cx) {
        // A failure does not affect the others.
        if let Err(failure) = act(&home) {
            cx.out
                .error(format!("{}: {}", name(&home), failure.message));
            outcome = Err(Failure::silent(failure.exit));
        }
    }
    outcome
}

fn name(home: &Home) -> &str {
    home.profile().unwrap_or("default")
}

fn start_one(home: &Home, args: WhichArgs, cx: &Context) -> Outcome {
    if let Some(running) = process::running(home.root()) {
        cx.out.line(format!(
            "the gateway of {} is already running (pid {})",
            name(home),
            running.process.pid
        ))?;
        return Ok(());
    }
    let before = run_id(home);
    match installed(home, args.system, cx) {
        Some(service) => service
            .start()
            .map_err(|failure| with_recorded_reason(home, &before, failure))?,
        None if args.system => {
            return Err(Failure::not_found(
                "no system service is installed: hermes gateway install --system",
            ));
        }
        None => launch(home)?,
    }
    let process = wait_until_running(home, &before)?;
    cx.out.line(format!(
        "the gateway of {} is running (pid {})",
        name(home),
        process.pid
    ))?;
    warn_if_no_platform(home, cx);
    Ok(())
}

/// A gateway in the background shows nothing, so warn here if no platform is configured.
fn warn_if_no_platform(home: &Home, cx: &Context) {
    if home.root() == cx.home.root() && !status::has_platform(cx) {
        cx.out.remark(NO_PLATFORM);
    }
}

fn stop_one(home: &Home, args: WhichArgs, cx: &Context) -> Outcome {
    let service = installed(home, args.system, cx).filter(ServiceManager::is_active);
    let Some(running) = process::running(home.root()) else {
        if let Some(service) = service {
            // It may be about to start again.
            service.stop()?;
            cx.out
                .line(format!("the service of {} is stopped", name(home)))?;
            return Ok(());
        }
        return Err(Failure::not_found(format!(
            "no gateway of {} is running",
            name(home)
        )));
    };
    let target = running.process;
    Marker::PlannedStop.leave(home.root(), target, Utc::now())?;
    let stopped = match service {
        // Or it would be started again.
        Some(service) => service.stop(),
        None => end(target, drain(home, cx)),
    };
    Marker::PlannedStop.clear(home.root());
    stopped?;
    cx.out.line(format!(
        "the gateway of {} has stopped (pid {})",
        name(home),
        target.pid
    ))?;
    Ok(())
}

fn restart_one(home: &Home, args: WhichArgs, cx: &Context) -> Outcome {
    let service = installed(home, args.system, cx);
    let Some(running) = process::running(home.root()) else {
        return start_one(home, args, cx);
    };
    let (target, before) = (running.process, run_id(home));
    if let Some(service) = service.filter(ServiceManager::is_active) {
        Marker::PlannedStop.leave(home.root(), target, Utc::now())?;
        let restarted = service.restart();
        Marker::PlannedStop.clear(home.root());
        restarted.map_err(|failure| with_recorded_reason(home, &before, failure))?;
    } else {
        let signalled = target
            .signal(Signal::USR1)
            .map_err(|error| Failure::failed(format!("pid {}: {error}", target.pid)))?;
        if !signalled {
            return start_one(home, args, cx);
        }
    }
    let process = wait_until_running(home, &before)?;
    cx.out.line(format!(
        "the gateway of {} was restarted (pid {})",
        name(home),
        process.pid
    ))?;
    warn_if_no_platform(home, cx);
    Ok(())
}

/// Asks a process to stop, waits, and finally kills it.
fn end(target: GatewayProcess, drain: Duration) -> Outcome {
    let failed = |error: std::io::Error| Failure::failed(format!("pid {}: {error}", target.pid));
    target.signal(Signal::TERM).map_err(failed)?;
    wiring::runtime()?.block_on(async {
        if target.gone(STOP_TIMEOUT + drain).await {
            return Ok(());
        }
        target.signal(Signal::KILL).map_err(failed)?;
        if target.gone(KILL_TIMEOUT).await {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Busy,
            format!("the gateway with pid {} cannot be ended", target.pid),
        ))
    })
}

/// How long its turns may continue.
fn drain(home: &Home, cx: &Context) -> Duration {
    let loaded = cx.load_config().ok();
    let settings = loaded.and_then(|loaded| GatewaySettings::load(home, loaded, &cx.env).ok());
    settings.map_or(Duration::ZERO, |settings| settings.drain)
}

/// Starts one that outlives this command.
fn launch(home: &Home) -> Outcome {
    let program = program()?;
    let logs = home.logs_dir();
    std::fs::create_dir_all(&logs)
        .map_err(|error| Failure::failed(format!("{}: {error}", logs.display())))?;
    let path = logs.join("gateway.stderr.log");
    let stderr_log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    let mut command = Command::new(program);
    if let Some(profile) = home.profile() {
        command.args(["--profile", profile]);
    }
    command
        .args(["gateway", "run"])
        .env("HERMES_HOME", home.profiles_root())
        .current_dir(home.root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr_log)
        // Ctrl+C at this terminal is not meant for it.
        .process_group(0);
    command
        .spawn()
        .map_err(|error| Failure::failed(format!("starting the gateway: {error}")))?;
    Ok(())
}

/// This program, also when it was replaced by a newer one since it started.
pub(super) fn program() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe().map_err(|error| {
        Failure::failed(format!("the path of this program is unknown: {error}"))
    })?;
    let text = path.display().to_string();
    Ok(match text.strip_suffix(" (deleted)") {
        Some(old) => PathBuf::from(old),
        None => path,
    })
}

/// Identifies one run of a home's gateway.
fn run_id(home: &Home) -> Value {
    let state = read_state(home.root()).unwrap_or_default();
    state["started_at"].clone()
}

/// The service manager only knows that it failed; the gateway has recorded why.
fn with_recorded_reason(home: &Home, before: &Value, failure: Failure) -> Failure {
    let state = read_state(home.root()).unwrap_or_default();
    if state["started_at"] == *before
        || GatewayState::of(&state) != Some(GatewayState::StartupFailed)
    {
        return failure;
    }
    not_started(&state)
}

fn not_started(state: &Value) -> Failure {
    let why = state["exit_reason"].as_str();
    let why = why.unwrap_or("see logs/gateway.log");
    Failure::failed(format!("the gateway did not start: {why}"))
}

/// Waits until a gateway reports that it runs, in another run than `before`.
fn wait_until_running(home: &Home, before: &Value) -> Result<GatewayProcess, Failure> {
    let waiting = async {
        loop {
            let state = read_state(home.root()).unwrap_or_default();
            let running = process::running(home.root());
            match GatewayState::of(&state) {
                _ if state["started_at"] == *before => {}
                Some(GatewayState::Running) if running.is_some() => {
                    return running.map(|running| running.process).ok_or_else(late);
                }
                Some(GatewayState::StartupFailed) if running.is_none() => {
                    return Err(not_started(&state));
                }
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wiring::runtime()?.block_on(async {
        tokio::time::timeout(START_TIMEOUT, waiting)
            .await
            .unwrap_or_else(|_| Err(late()))
    })
}

fn late() -> Failure {
    Failure::failed("the gateway did not report that it is running; see logs/gateway.log")
}
