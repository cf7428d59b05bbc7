//! `hermes doctor --fix`: safe repairs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hermes_core::clock::SystemClock;
use hermes_store::{RepairOptions, repair_database};

use super::local_checks::{private_files, readable_by_others};
use super::{Check, DoctorFinding, DoctorReport};
use crate::commands::{Context, profile};

/// Temporary files of a write take no longer than this; older ones were left by a crash.
const LEFTOVER_AGE: Duration = Duration::from_hours(24);

pub(super) fn run(cx: &Context) -> Vec<DoctorFinding> {
    let steps: [Check; 5] = [
        ("home", directories),
        ("home", permissions),
        ("home", leftovers),
        ("config", settings),
        ("state.db", database),
    ];
    let mut findings = Vec::new();
    for (name, step) in steps {
        let mut report = DoctorReport::new(name);
        step(cx, &mut report);
        findings.extend(report.findings);
    }
    findings
}

fn directories(cx: &Context, report: &mut DoctorReport) {
    let missing: Vec<&str> = ["cron", "logs", "memories", "sessions", "skills"]
        .into_iter()
        .filter(|name| !cx.home.join(name).is_dir())
        .collect();
    if missing.is_empty() {
        return;
    }
    match cx.home.ensure() {
        Ok(()) => report.fixed(format!("made {}", missing.join(", "))),
        Err(error) => report.problem(error.to_string(), "check who owns the home"),
    }
}

fn permissions(cx: &Context, report: &mut DoctorReport) {
    let mut tighten = |path: &Path, mode: u32| {
        let allowed = std::fs::Permissions::from_mode(mode);
        match std::fs::set_permissions(path, allowed) {
            Ok(()) => report.fixed(format!("{} is now {mode:o}", path.display())),
            Err(error) => report.problem(format!("{}: {error}", path.display()), ""),
        }
    };
    for path in private_files(cx) {
        if readable_by_others(&path).is_some() {
            tighten(&path, 0o600);
        }
    }
    if readable_by_others(cx.home.root()).is_some() {
        tighten(cx.home.root(), 0o700);
    }
}

/// Files that a program which is gone left behind. Locks are held by the system, not by files, and
/// end with their program: none can be stale.
fn leftovers(cx: &Context, report: &mut DoctorReport) {
    let pid = cx.home.join("gateway.pid");
    if pid.exists() && profile::gateway_pid(cx.home.root()).is_none() {
        remove(&pid, report);
    }
    let old = |path: &Path| {
        let changed = std::fs::metadata(path).and_then(|meta| meta.modified());
        changed.is_ok_and(|at| {
            SystemTime::now()
                .duration_since(at)
                .is_ok_and(|age| age > LEFTOVER_AGE)
        })
    };
    for entry in std::fs::read_dir(cx.home.root())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let ours = name.starts_with(".hermes-") && name.ends_with(".tmp");
        if ours && entry.path().is_file() && old(&entry.path()) {
            remove(&entry.path(), report);
        }
    }
}

fn remove(path: &Path, report: &mut DoctorReport) {
    match std::fs::remove_file(path) {
        Ok(()) => report.fixed(format!(
            "removed {}, left by a process that no longer runs",
            path.display()
        )),
        Err(error) => report.problem(format!("{}: {error}", path.display()), ""),
    }
}

fn settings(cx: &Context, report: &mut DoctorReport) {
    match hermes_config::migrate::run(&cx.home, &cx.env, false) {
        Ok(done) => done.notes.into_iter().for_each(|note| report.fixed(note)),
        Err(error) => report.problem(error.to_string(), "hermes config edit"),
    }
}

fn database(cx: &Context, report: &mut DoctorReport) {
    let path = cx.home.state_db();
    if !path.exists() {
        return;
    }
    match repair_database(&path, RepairOptions::default(), &SystemClock) {
        Ok(done) if done.problem.is_some() && done.healthy => {
            let backup_note = done.backup.map_or(String::new(), |copy| {
                format!("; the old one is kept as {}", copy.display())
            });
            report.fixed(format!(
                "{}{backup_note}",
                done.problem.unwrap_or_else(|| "repaired".to_owned())
            ));
        }
        // What is still wrong is found by the check itself.
        Ok(_) => {}
        Err(error) => report.problem(error.to_string(), ""),
    }
}
