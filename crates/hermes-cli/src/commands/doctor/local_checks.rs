//! Checks of this machine and the home, without network.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_core::clock::{Clock as _, SystemClock};
use hermes_core::figures::size;
use hermes_models::Overrides;
use hermes_models::credentials::KeyStatus;
use hermes_models::credentials::store::AuthStore;
use hermes_store::skills::SkillLibrary;
use hermes_store::{
    MemoryFiles, MemoryTarget, RepairOptions, RepairReport, quick_check_database, repair_database,
};

use super::DoctorReport;
use crate::commands::{self, Context, counted};
use crate::wiring;

/// Less free space than this, and the next conversation may not be kept.
const CRITICAL_FREE_BYTES: u64 = 100 * 1024 * 1024;
const LOW_FREE_BYTES: u64 = 1024 * 1024 * 1024;
/// A larger database is not read through: that takes seconds.
const MAX_CHECKED_DB_BYTES: u64 = 64 * 1024 * 1024;

pub(super) fn home(cx: &Context, report: &mut DoctorReport) {
    let root = cx.home.root();
    if !root.exists() {
        report.ok(format!(
            "{} will be created at the first chat",
            root.display()
        ));
        return;
    }
    match tempfile::tempfile_in(root) {
        Ok(_) => report.ok(root.display().to_string()),
        Err(error) => report.problem(
            format!(
                "{} is not writable ({}); no conversation can be saved",
                root.display(),
                error.kind()
            ),
            "check who owns it",
        ),
    }
    for path in private_files(cx) {
        if let Some(mode) = readable_by_others(&path) {
            let path = path.display();
            report.warning(
                format!("{path} can be read by others ({mode:o})"),
                format!("chmod 600 {path}, or hermes doctor --fix"),
            );
        }
    }
}

/// Files that nobody else should read.
pub(super) fn private_files(cx: &Context) -> Vec<PathBuf> {
    let mut files = vec![
        cx.home.env_path(),
        cx.home.config_path(),
        cx.home.auth_path(),
        cx.home.state_db(),
    ];
    let others = [
        ".op.env",
        "gateway.json",
        "response_store.db",
        "webhook_subscriptions.json",
        "cron/jobs.json",
        "cron/executions.db",
        "memories/MEMORY.md",
        "memories/USER.md",
    ];
    files.extend(others.map(|name| cx.home.join(name)));
    for dir in ["mcp-tokens", "platforms/pairing", "pairing"] {
        let entries = std::fs::read_dir(cx.home.join(dir));
        files.extend(entries.into_iter().flatten().flatten().map(|it| it.path()));
    }
    files
}

pub(super) fn readable_by_others(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

pub(super) fn disk(cx: &Context, report: &mut DoctorReport) {
    // The nearest directory that exists stands for the home that does not yet.
    let Some(existing) = cx.home.root().ancestors().find(|path| path.exists()) else {
        return;
    };
    match rustix::fs::statvfs(existing) {
        Ok(system) => {
            let free = system.f_bavail.saturating_mul(system.f_frsize);
            let text = format!("{} free at {}", size(free), existing.display());
            if free < CRITICAL_FREE_BYTES {
                report.problem(text, "free some space: conversations may not be saved");
            } else if free < LOW_FREE_BYTES {
                report.warning(
                    text,
                    "free some space soon (hermes sessions prune, hermes checkpoints prune)",
                );
            } else {
                report.ok(text);
            }
        }
        Err(error) => report.warning(format!("the free space is unknown: {error}"), ""),
    }
}

pub(super) fn config(cx: &Context, report: &mut DoctorReport) {
    for warning in cx.env.warnings() {
        report.warning(format!(".env: {warning}"), "hermes config env-path");
    }
    match cx.load_config() {
        Ok(loaded) => {
            let path = cx.home.config_path();
            if !path.exists() {
                report.ok("none yet: all defaults");
            } else if loaded.warnings.is_empty() {
                report.ok(path.display().to_string());
            }
            for warning in &loaded.warnings {
                report.warning(warning.to_string(), "hermes config edit");
            }
            for problem in commands::config::check::about_others(cx, &loaded) {
                report.warning(problem, "hermes config edit");
            }
            match hermes_config::migrate::run(&cx.home, &cx.env, true) {
                Ok(plan) if !plan.is_empty() => report.ok(format!(
                    "written for an older version; hermes config migrate updates it ({})",
                    counted(plan.notes.len(), "change")
                )),
                _ => {}
            }
        }
        Err(failure) => report.problem(failure.message, ""),
    }
    if let Some(text) = wiring::unsupported::plugins_warning(cx) {
        report.warning(
            text,
            "an MCP server (hermes mcp add) or a hook (hermes hooks) can do what they do",
        );
    }
}

/// Keys that were refused or rest, and fallbacks without any.
pub(super) fn keys(cx: &Context, report: &mut DoctorReport) {
    let store = AuthStore::new(&cx.home);
    let providers = match store.providers() {
        Ok(providers) => providers,
        Err(error) => {
            report.problem(
                format!("the stored keys are not used: {error}"),
                format!("repair or move {}", cx.home.auth_path().display()),
            );
            return;
        }
    };
    let now = SystemClock.now();
    let mut stored = 0;
    for provider in &providers {
        let Ok(listed) = store.entries(provider) else {
            continue;
        };
        for entry in listed.entries {
            stored += usize::from(entry.holds_secret);
            match entry.status {
                KeyStatus::Dead => report.warning(
                    format!("{provider}: {} was refused", entry.label),
                    format!(
                        "hermes auth remove {provider} {}, then hermes auth add {provider}",
                        entry.id
                    ),
                ),
                KeyStatus::Exhausted(until) if until > now => report.warning(
                    format!(
                        "{provider}: {} is paused until {}",
                        entry.label,
                        until.with_timezone(&chrono::Local).format("%H:%M")
                    ),
                    format!("hermes auth reset {provider}"),
                ),
                KeyStatus::Exhausted(_) | KeyStatus::Ready => {}
            }
        }
    }
    let Ok(loaded) = cx.load_config() else {
        return;
    };
    let config = Arc::new(loaded.config);
    let router = wiring::router(cx, &config, Overrides::default());
    let known = router.providers();
    let usable = known
        .iter()
        .filter(|provider| provider.key.is_some())
        .count();
    report.ok(format!(
        "{} with a key, {} in auth.json",
        counted(usable, "provider"),
        counted(stored, "key")
    ));
    for step in config.fallbacks() {
        let keyless = known.iter().any(|provider| {
            provider.id.eq_ignore_ascii_case(&step.provider)
                && provider.key.is_none()
                && !provider.own
        });
        if keyless && step.api_key.expose().is_empty() && step.key_env.is_empty() {
            report.warning(
                format!(
                    "the fallback {} has no key for {}",
                    step.model, step.provider
                ),
                format!("hermes auth add {}", step.provider),
            );
        }
    }
}

pub(super) fn database(cx: &Context, report: &mut DoctorReport) {
    let path = cx.home.state_db();
    if !path.exists() {
        report.ok("none yet");
        return;
    }
    if !writable(&path) {
        report.problem(
            format!("{} cannot be written", path.display()),
            "check who owns it",
        );
        return;
    }
    let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
    if bytes > MAX_CHECKED_DB_BYTES {
        match quick_check_database(&path) {
            Err(error) => report.problem(error.to_string(), ""),
            Ok(Some(problem)) => report.problem(problem, "run: hermes sessions repair"),
            Ok(None) => report.ok(format!(
                "{}, {}: readable and writable; for a full check: hermes sessions repair --check-only",
                path.display(),
                size(bytes)
            )),
        }
        return;
    }
    let look = RepairOptions {
        check_only: true,
        backup: false,
    };
    match repair_database(&path, look, &SystemClock) {
        Ok(RepairReport {
            problem: Some(problem),
            ..
        }) => report.problem(problem, "run: hermes sessions repair"),
        Ok(_) => report.ok(path.display().to_string()),
        Err(error) => report.problem(error.to_string(), ""),
    }
}

/// Asked of the system: opening and closing the file itself would drop locks that SQLite holds.
fn writable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

pub(super) fn memory(cx: &Context, report: &mut DoctorReport) {
    let Ok(loaded) = cx.load_config() else {
        return;
    };
    let files = MemoryFiles::for_home(&cx.home, &loaded.config);
    for target in [MemoryTarget::Memory, MemoryTarget::User] {
        match files.usage(target) {
            Ok(saved) if saved.used > saved.limit => report.warning(
                format!(
                    "{}: {}; it is longer than its limit, so nothing can be added",
                    target.file_name(),
                    saved.usage()
                ),
                "delete or shorten entries: hermes memory show, hermes memory remove TEXT",
            ),
            Ok(saved) => report.ok(format!("{}: {}", target.file_name(), saved.usage())),
            Err(error) => report.problem(error.to_string(), ""),
        }
    }
}

pub(super) fn skills(cx: &Context, report: &mut DoctorReport) {
    if let Ok(loaded) = cx.load_config() {
        let found = SkillLibrary::of_home(&cx.home, &loaded.config, Some("cli")).scan();
        report.ok(format!("{} found", found.len()));
    }
}

/// Permissions that are wider than they look.
pub(super) fn approvals(cx: &Context, report: &mut DoctorReport) {
    let Ok(loaded) = cx.load_config() else {
        return;
    };
    let config = loaded.config;
    let concerns = commands::approvals::concerns(&config);
    if concerns.is_empty() {
        let rules = config.command_allowlist.len();
        let mode = config.approvals.mode.as_str();
        report.ok(format!("mode {mode}, {}", counted(rules, "rule")));
    }
    for concern in concerns {
        report.warning(concern, "");
    }
}

pub(super) fn gateway(cx: &Context, report: &mut DoctorReport) {
    let recorded = cx.home.join("gateway.pid");
    let summary = commands::gateway::summary(cx, false);
    match summary.pid {
        Some(pid) => report.ok(format!("running, pid {pid}")),
        None if recorded.exists() => report.warning(
            "not running, although gateway.pid exists: it was killed",
            "hermes doctor --fix removes the file",
        ),
        None => report.ok("not running"),
    }
    for (text, fix) in summary.concerns() {
        report.warning(text, fix);
    }
}

/// The toolset that a tool is switched with.
fn set_of(tool: &str) -> &'static str {
    hermes_app::toolsets::switchable("cli")
        .find(|set| set.tools.contains(&tool))
        .map_or("NAME", |set| set.name)
}

/// Tools that are switched on and cannot be offered here.
pub(super) fn tools(cx: &Context, report: &mut DoctorReport) {
    let Ok(loaded) = cx.load_config() else {
        return;
    };
    let config = Arc::new(loaded.config);
    if config.checkpoints.enabled && !wiring::is_on_path("git") {
        report.warning(
            "no checkpoints are taken: git is not installed",
            "install git, or: hermes config set checkpoints.enabled false",
        );
    }
    match wiring::action_tools::offer(cx, &config) {
        Ok(offer) => {
            let offered = commands::tools::offered(&config, "cli", &offer);
            report.ok(format!(
                "{} offered in the terminal",
                counted(offered.len(), "tool")
            ));
            for (name, why) in &offer.missing {
                if commands::tools::is_on(&config, "cli", name) {
                    report.warning(
                        format!("{name} is enabled but not available: {why}"),
                        format!("fix it, or: hermes tools disable {}", set_of(name)),
                    );
                } else {
                    report.ok(format!(
                        "{name} is disabled and would not be available: {why}"
                    ));
                }
            }
        }
        Err(failure) => report.problem(failure.message, ""),
    }
}
