//! `hermes gateway status` and `list`: the published state of a gateway.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use hermes_config::Home;
use hermes_core::clock::SystemClock;
use hermes_gateway::GatewaySettings;
use hermes_gateway::Pairing;
use hermes_gateway::process::{self, read_state, uptime};
use hermes_platforms::{PLATFORMS, PlatformSettings, Writers, definition};
use hermes_store::jobs::JobTable;
use serde::Serialize;
use serde_json::Value;

use super::service::{installed, lasting};
use super::{ListArgs, StatusArgs};
use crate::commands::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};

/// What is known about the gateway of a home.
#[derive(Debug, Serialize)]
pub(crate) struct GatewaySummary {
    pub(crate) running: bool,
    pub(crate) pid: Option<u32>,
    pub(crate) state: Option<String>,
    uptime_seconds: Option<u64>,
    version: Option<String>,
    active: u64,
    queued: u64,
    exit_reason: Option<String>,
    pub(crate) platforms: Vec<PlatformStatusRow>,
    /// The MCP servers of the gateway that runs, as it wrote last.
    mcp: Vec<ServerStatusRow>,
    jobs: JobsSummary,
    service: Option<InstalledService>,
    pending_pairings: usize,
    problems: Vec<String>,
    home: std::path::PathBuf,
}

/// One platform.
#[derive(Debug, Serialize)]
pub(crate) struct PlatformStatusRow {
    pub(crate) name: String,
    enabled: bool,
    /// From the running gateway; `None`: it does not run or has no such platform.
    pub(crate) state: Option<String>,
    error: Option<String>,
    received_at: Option<f64>,
    home_channel: Option<String>,
    /// People who may talk there: on lists, and paired.
    users: usize,
}

/// One MCP server.
#[derive(Debug, Serialize)]
struct ServerStatusRow {
    name: String,
    state: Value,
    /// Current activity, last success and last failure.
    text: String,
}

#[derive(Debug, Default, Serialize)]
struct JobsSummary {
    enabled: usize,
    next: Option<NextJob>,
    last_failure: Option<String>,
}

#[derive(Debug, Serialize)]
struct NextJob {
    name: String,
    at: String,
}

#[derive(Debug, Serialize)]
struct InstalledService {
    manager: &'static str,
    path: std::path::PathBuf,
    active: bool,
    stale: Option<String>,
}

impl GatewaySummary {
    /// What is wrong, and what to do about it.
    pub(crate) fn concerns(&self) -> Vec<(String, String)> {
        let mut concerns = Vec::new();
        for row in &self.platforms {
            if let (Some("retrying" | "fatal"), Some(error)) = (row.state.as_deref(), &row.error) {
                let fix = format!("hermes gateway setup {}", row.name);
                concerns.push((format!("{}: {}", row.name, first_line(error, 120)), fix));
            }
        }
        for problem in &self.problems {
            concerns.push((problem.clone(), String::new()));
        }
        if let Some(stale) = self
            .service
            .as_ref()
            .and_then(|service| service.stale.clone())
        {
            concerns.push((stale, String::new()));
        }
        let wanted = self.platforms.iter().any(|row| row.enabled);
        if wanted && !self.running {
            let text = "platforms are set up, but the gateway is not running".to_owned();
            concerns.push((text, "hermes gateway start".to_owned()));
        }
        concerns
    }
}

/// Collects everything.
pub(crate) fn summary(cx: &Context, system: bool) -> GatewaySummary {
    let root = cx.home.root();
    let running = process::running(root);
    let state = read_state(root).unwrap_or_default();
    let pid = running.map(|running| running.process.pid);
    let mut problems = Vec::new();
    let settings = match cx.load_config() {
        Ok(loaded) => GatewaySettings::load(&cx.home, loaded, &cx.env)
            .map_err(|error| problems.push(error.to_string()))
            .ok(),
        Err(failure) => {
            problems.push(failure.message);
            None
        }
    };
    let pairing = Pairing::new(&cx.home, Arc::new(SystemClock));
    let mut platforms = Vec::new();
    if let Some(settings) = &settings {
        problems.extend(settings.problems.clone());
        for one in PLATFORMS {
            platforms.push(row(one.name, settings, &state, pid.is_some(), &pairing));
        }
    }
    let text = |key: &str| state[key].as_str().map(str::to_owned);
    let number = |key: &str| state[key].as_u64().unwrap_or_default();
    let alive = pid.is_some();
    GatewaySummary {
        running: alive,
        pid,
        state: text("gateway_state"),
        uptime_seconds: pid.and_then(uptime),
        version: text("version").filter(|_| alive),
        active: if alive { number("active_agents") } else { 0 },
        queued: if alive { number("queued") } else { 0 },
        exit_reason: text("exit_reason"),
        platforms,
        mcp: pid.map_or_else(Vec::new, |pid| servers(&cx.home, pid)),
        jobs: jobs(&cx.home),
        service: installed(&cx.home, system, cx).map(|manager| InstalledService {
            active: manager.is_active(),
            stale: manager.stale(),
            manager: manager.label(),
            path: manager.path,
        }),
        pending_pairings: pairing.pending(None).map_or(0, |waiting| waiting.len()),
        problems,
        home: root.to_owned(),
    }
}

fn servers(home: &Home, pid: u32) -> Vec<ServerStatusRow> {
    let notes = crate::wiring::mcp::status_dir(home).read();
    let own = notes.into_iter().filter(|note| note.pid == pid);
    own.flat_map(|note| note.servers)
        .map(|recorded| ServerStatusRow {
            state: recorded.report["state"].clone(),
            name: recorded.name,
            text: recorded.line,
        })
        .collect()
}

fn row(
    name: &str,
    settings: &GatewaySettings,
    state: &Value,
    alive: bool,
    pairing: &Pairing,
) -> PlatformStatusRow {
    let platform = settings.platform(name);
    let recorded = &state["platforms"][name];
    let field = |key: &str| recorded[key].as_str().map(str::to_owned).filter(|_| alive);
    let listed = platform.map_or(0, listed);
    let paired = pairing
        .approved(Some(name))
        .map_or(0, |people| people.len());
    PlatformStatusRow {
        name: name.to_owned(),
        enabled: platform.is_some_and(|platform| platform.enabled == Some(true)),
        state: field("state"),
        error: field("error_message"),
        received_at: recorded["received_at"].as_f64().filter(|_| alive),
        home_channel: platform
            .and_then(|platform| platform.home_channel.as_ref())
            .map(|home| home.name.clone().unwrap_or_else(|| home.chat_id.clone())),
        users: listed + paired,
    }
}

fn listed(platform: &PlatformSettings) -> usize {
    let lists = ["allowed_users", "allow_from"];
    lists.iter().map(|list| platform.list(list).len()).sum()
}

fn jobs(home: &Home) -> JobsSummary {
    let Ok(list) = JobTable::new(home.cron_dir()).list() else {
        return JobsSummary::default();
    };
    let enabled: Vec<_> = list.iter().filter(|job| job.enabled()).collect();
    let next = enabled
        .iter()
        .map(|job| (job.text("next_run_at"), job.name()))
        .filter(|(at, _)| !at.is_empty())
        .min();
    let failed = list.iter().filter(|job| job.text("last_status") == "error");
    JobsSummary {
        enabled: enabled.len(),
        next: next.map(|(at, name)| NextJob { name, at }),
        last_failure: failed.max_by_key(|job| job.text("last_run_at")).map(|job| {
            format!(
                "{} ({})",
                job.name(),
                first_line(&job.text("last_error"), 60)
            )
        }),
    }
}

/// `tg ds`: the platforms of a gateway that runs, for the status line of a chat.
pub(crate) fn platforms_in_short(root: &Path) -> Option<String> {
    process::running(root)?;
    let state = read_state(root)?;
    let short = |name: &str| match definition(name) {
        Some(definition) => definition.short_name.to_owned(),
        None => name.chars().take(4).collect(),
    };
    let platforms = state["platforms"].as_object()?;
    let words: Vec<String> = platforms
        .iter()
        .map(|(name, row)| match row["state"].as_str() {
            Some("connected") => short(name),
            _ => format!("{}!", short(name)),
        })
        .collect();
    Some(if words.is_empty() {
        "on".to_owned()
    } else {
        words.join(" ")
    })
}

pub(super) fn run(args: StatusArgs, cx: &Context) -> Outcome {
    let summary = summary(cx, args.system);
    if args.json {
        cx.out.json(&summary)?;
    } else {
        for line in lines(&summary, args.full, Utc::now()) {
            cx.out.foreign_line(&line)?;
        }
        if args.deep {
            deep(args, cx)?;
        }
    }
    if summary.running {
        Ok(())
    } else {
        Err(Failure::silent(Exit::NotFound))
    }
}

fn deep(args: StatusArgs, cx: &Context) -> Outcome {
    if let Some(report) = installed(&cx.home, args.system, cx).and_then(|manager| manager.report())
    {
        cx.out.line("")?;
        cx.out.foreign_line(report.trim_end())?;
    }
    let log = cx.home.logs_dir().join("gateway.log");
    if let Ok(text) = std::fs::read_to_string(&log) {
        cx.out.line("")?;
        let last: Vec<&str> = text.lines().rev().take(10).collect();
        for line in last.iter().rev() {
            cx.out.foreign_line(line)?;
        }
    }
    Ok(())
}

fn lines(summary: &GatewaySummary, full: bool, now: DateTime<Utc>) -> Vec<String> {
    let mut lines = vec![headline(summary)];
    for row in &summary.platforms {
        if row.enabled
            || row.state.is_some()
            || definition(&row.name).is_some_and(|one| one.writers == Writers::People)
        {
            lines.push(platform_line(row, summary.running, full, now));
        }
    }
    for (number, server) in summary.mcp.iter().enumerate() {
        let label = if number == 0 { "mcp" } else { "" };
        lines.push(format!(" {label:<11} {}  {}", server.name, server.text));
    }
    let jobs = &summary.jobs;
    if jobs.enabled > 0 || jobs.last_failure.is_some() {
        let mut line = format!(" {:<11} {}", "cron", counted(jobs.enabled, "job"));
        if let Some(next) = &jobs.next {
            let _ = write!(line, "  next {:?} {}", next.name, when(&next.at, now));
        }
        if let Some(failed) = &jobs.last_failure {
            let _ = write!(line, "  last fail: {failed}");
        }
        lines.push(line);
    }
    if summary.pending_pairings > 0 {
        let waiting = counted(summary.pending_pairings, "request");
        lines.push(format!(
            " {:<11} {waiting} -> hermes pairing list",
            "pairing"
        ));
    }
    if let Some(stale) = summary
        .service
        .as_ref()
        .and_then(|service| service.stale.as_ref())
    {
        lines.push(format!(" {:<11} {stale}", "service"));
    }
    for problem in &summary.problems {
        lines.push(format!(" {:<11} {problem}", "config"));
    }
    lines
}

/// Whether any platform is enabled.
pub(super) fn has_platform(cx: &Context) -> bool {
    summary(cx, false).platforms.iter().any(|row| row.enabled)
}

fn headline(summary: &GatewaySummary) -> String {
    let Some(pid) = summary.pid else {
        let mut line = "gateway  not running".to_owned();
        if let Some(service) = &summary.service {
            let _ = write!(line, "  (installed: {})", service.manager);
        }
        if summary.state.as_deref() == Some("startup_failed")
            && let Some(why) = &summary.exit_reason
        {
            let _ = write!(line, "\n last start   {}", first_line(why, 200));
        }
        let wanted = summary.platforms.iter().any(|row| row.enabled);
        line.push_str(if wanted {
            "  -> hermes gateway start"
        } else {
            "  no platform is set up  -> hermes gateway setup"
        });
        return line;
    };
    let state = summary.state.as_deref().unwrap_or("running");
    let up = summary.uptime_seconds.map(lasting).unwrap_or_default();
    let version = summary.version.as_deref().unwrap_or("of the original");
    let service = match &summary.service {
        Some(service) if service.active => format!(" ({})", service.manager),
        _ => String::new(),
    };
    format!(
        "gateway  {state}  pid {pid}  up {up}  v{version}{service}     queue {}  active {}",
        summary.queued, summary.active
    )
}

fn platform_line(row: &PlatformStatusRow, running: bool, full: bool, now: DateTime<Utc>) -> String {
    let max_chars = if full { usize::MAX } else { 80 };
    let error = row
        .error
        .as_deref()
        .map(|error| first_line(error, max_chars));
    let how = match (row.enabled, row.state.as_deref()) {
        (_, Some("connected")) => "ok".to_owned(),
        (_, Some("connecting")) => "connecting".to_owned(),
        (_, Some("retrying")) => format!("retry  ({})", error.unwrap_or_default()),
        (_, Some("fatal")) => format!(
            "failed  ({})  ->  hermes gateway setup {}",
            error.unwrap_or_default(),
            row.name
        ),
        (_, Some(other)) => other.to_owned(),
        (true, None) if running => "on".to_owned(),
        (true, None) => "set up".to_owned(),
        (false, None) => "off".to_owned(),
    };
    let mut line = format!(" {:<11} {how}", row.name);
    if !row.enabled {
        return line;
    }
    if let Some(at) = row.received_at {
        let age = (now.timestamp() as f64 - at).max(0.0) as u64;
        // It is recorded to the minute.
        let age = match age {
            0..120 => "just now".to_owned(),
            age => format!("{} ago", lasting(age)),
        };
        let _ = write!(line, "   last contact {age}");
    }
    if row.users > 0 {
        let _ = write!(line, "   {}", counted(row.users, "user"));
    }
    if let Some(home) = &row.home_channel {
        let _ = write!(line, "   home: {home}");
    }
    line
}

fn first_line(text: &str, max: usize) -> String {
    hermes_core::text::shorten_within(text.lines().next().unwrap_or_default(), max)
}

/// "in 41m", or the moment itself.
fn when(at: &str, now: DateTime<Utc>) -> String {
    match DateTime::parse_from_rfc3339(at) {
        Ok(moment) => {
            let left = (moment.to_utc() - now).num_seconds();
            match u64::try_from(left) {
                Ok(seconds) => format!("in {}", lasting(seconds)),
                Err(_) => "due".to_owned(),
            }
        }
        Err(_) => at.to_owned(),
    }
}

/// This home and those of all profiles.
pub(super) fn homes(cx: &Context) -> Vec<Home> {
    let root = cx.home.profiles_root();
    let mut homes = vec![Home::at(root)];
    let mut names: Vec<String> = std::fs::read_dir(root.join("profiles"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| hermes_config::home::is_profile_id(name))
        .collect();
    names.sort();
    let profiles = root.join("profiles");
    homes.extend(names.iter().map(|name| Home::at(profiles.join(name))));
    homes
}

#[derive(Serialize)]
struct ProfileGateway {
    profile: String,
    running: bool,
    pid: Option<u32>,
    uptime_seconds: Option<u64>,
    platforms: Option<String>,
    home: std::path::PathBuf,
}

pub(super) fn list(args: ListArgs, cx: &Context) -> Outcome {
    let row = |home: Home| {
        let pid = process::running(home.root()).map(|running| running.process.pid);
        ProfileGateway {
            profile: home.profile().unwrap_or("default").to_owned(),
            running: pid.is_some(),
            pid,
            uptime_seconds: pid.and_then(uptime),
            platforms: platforms_in_short(home.root()),
            home: home.root().to_owned(),
        }
    };
    let rows: Vec<ProfileGateway> = homes(cx).into_iter().map(row).collect();
    if args.json {
        return Ok(cx.out.json(&rows)?);
    }
    for row in rows {
        let how = match row.pid {
            Some(pid) => format!(
                "running  pid {pid}  up {}  {}",
                row.uptime_seconds.map(lasting).unwrap_or_default(),
                row.platforms.unwrap_or_default()
            ),
            None => "not running".to_owned(),
        };
        cx.out.line(format!("{:<20} {how}", row.profile))?;
    }
    Ok(())
}
