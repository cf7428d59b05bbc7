//! `hermes doctor`: checks the installation. Every finding says what is wrong and how to fix it.

mod local;
mod local_checks;
mod remote_checks;
mod repair;

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use super::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::SafeStderr;

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Fix what can be fixed safely and report what changed
    #[arg(long)]
    fix: bool,
    /// Treat warnings as problems
    #[arg(long)]
    strict: bool,
    /// Do not call the model or start MCP servers
    #[arg(long)]
    offline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingLevel {
    Ok,
    /// It was mended just now.
    Fixed,
    Warning,
    Problem,
}

#[derive(Debug, Serialize)]
pub(super) struct DoctorFinding {
    check: &'static str,
    level: FindingLevel,
    /// What is the case.
    text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// The findings of one check.
pub(super) struct DoctorReport {
    check: &'static str,
    findings: Vec<DoctorFinding>,
}

impl DoctorReport {
    pub(super) fn new(check: &'static str) -> Self {
        Self {
            check,
            findings: Vec::new(),
        }
    }

    fn add(&mut self, level: FindingLevel, text: String, fix: Option<String>) {
        self.findings.push(DoctorFinding {
            check: self.check,
            level,
            text,
            fix,
        });
    }

    pub(super) fn ok(&mut self, text: impl Into<String>) {
        self.add(FindingLevel::Ok, text.into(), None);
    }

    pub(super) fn fixed(&mut self, text: impl Into<String>) {
        self.add(FindingLevel::Fixed, text.into(), None);
    }

    pub(super) fn warning(&mut self, text: impl Into<String>, fix: impl Into<String>) {
        self.add(FindingLevel::Warning, text.into(), some(fix));
    }

    pub(super) fn problem(&mut self, text: impl Into<String>, fix: impl Into<String>) {
        self.add(FindingLevel::Problem, text.into(), some(fix));
    }
}

fn some(fix: impl Into<String>) -> Option<String> {
    Some(fix.into()).filter(|fix| !fix.is_empty())
}

type Check = (&'static str, fn(&Context, &mut DoctorReport));

/// What needs nothing but this machine.
const HERE: [Check; 11] = [
    ("home", local_checks::home),
    ("disk", local_checks::disk),
    ("config", local_checks::config),
    ("keys", local_checks::keys),
    ("state.db", local_checks::database),
    ("memory", local_checks::memory),
    ("skills", local_checks::skills),
    ("approvals", local_checks::approvals),
    ("gateway", local_checks::gateway),
    ("tools", local_checks::tools),
    ("terminal", remote_checks::confinement),
];
/// What calls somebody.
const FAR: [Check; 4] = [
    ("model", remote_checks::model),
    ("local", local::started),
    ("mcp", remote_checks::mcp),
    ("terminal", remote_checks::command),
];
/// What without calling anybody can still be said of these.
const FAR_OFFLINE: [Check; 3] = [
    ("model", remote_checks::route),
    ("local", local::there),
    ("mcp", remote_checks::mcp_settings),
];

/// How many checks run at once.
const MAX_CONCURRENT_CHECKS: usize = 4;

pub(crate) fn run(args: &DoctorArgs, cx: &Context) -> Outcome {
    let mut findings = if args.fix {
        repair::run(cx)
    } else {
        Vec::new()
    };
    let far: &[Check] = if args.offline { &FAR_OFFLINE } else { &FAR };
    let checks: Vec<Check> = HERE.iter().chain(far).copied().collect();
    findings.extend(all(&checks, cx, !args.json));
    show(args, cx, &findings)?;
    let bad = |finding: &DoctorFinding| {
        finding.level == FindingLevel::Problem
            || (args.strict && finding.level == FindingLevel::Warning)
    };
    if findings.iter().any(bad) {
        Err(Failure::silent(Exit::Failed))
    } else {
        Ok(())
    }
}

/// Runs the checks, a few at a time; the findings come in the order of the checks.
fn all(checks: &[Check], cx: &Context, tell: bool) -> Vec<DoctorFinding> {
    let next = AtomicUsize::new(0);
    let progress = DoctorProgress::new(checks.len(), tell && cx.out.stderr_tty && !cx.out.quiet);
    let done: Vec<Mutex<Vec<DoctorFinding>>> = checks.iter().map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..MAX_CONCURRENT_CHECKS.min(checks.len()) {
            scope.spawn(|| {
                while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed))
                    && let Some((name, check)) = checks.get(index)
                {
                    progress.begins(name);
                    let mut report = DoctorReport::new(name);
                    check(cx, &mut report);
                    progress.ends(name);
                    let slot = done.get(index);
                    if let Some(slot) = slot {
                        *slot.lock().unwrap_or_else(PoisonError::into_inner) = report.findings;
                    }
                }
            });
        }
    });
    progress.clear();
    done.into_iter()
        .flat_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

/// One line that says what is being looked at, where a person watches.
struct DoctorProgress {
    shown: bool,
    all: usize,
    state: Mutex<(usize, Vec<&'static str>)>,
}

impl DoctorProgress {
    fn new(all: usize, shown: bool) -> Self {
        Self {
            shown,
            all,
            state: Mutex::default(),
        }
    }

    fn begins(&self, name: &'static str) {
        self.change(|(_, running)| running.push(name));
    }

    fn ends(&self, name: &'static str) {
        self.change(|(done, running)| {
            *done += 1;
            if let Some(at) = running.iter().position(|other| *other == name) {
                running.remove(at);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut (usize, Vec<&'static str>))) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if self.shown {
            let line = format!("checking {}/{}: {}", state.0, self.all, state.1.join(", "));
            let line: String = line.chars().take(76).collect();
            // Nobody misses a line of progress.
            let _ = SafeStderr::own("\r", 1).and_then(|()| write!(SafeStderr, "{line:<78}"));
        }
    }

    fn clear(&self) {
        if self.shown {
            let gone = SafeStderr::own("\r", 1).and_then(|()| write!(SafeStderr, "{:<78}", ""));
            let _ = gone.and_then(|()| SafeStderr::own("\r", 1));
        }
    }
}

fn show(args: &DoctorArgs, cx: &Context, findings: &[DoctorFinding]) -> Outcome {
    if args.json {
        cx.out.json(&findings)?;
        return Ok(());
    }
    for finding in findings {
        let mark = match finding.level {
            FindingLevel::Ok => "ok     ",
            FindingLevel::Fixed => "fixed  ",
            FindingLevel::Warning => "warning",
            FindingLevel::Problem => "PROBLEM",
        };
        // Further lines stand below the first.
        let below = format!("\n{:19}", "");
        let text = finding.text.replace('\n', &below);
        cx.out
            .foreign_line(&format!("{mark}  {:<9} {text}", finding.check))?;
        if let Some(fix) = &finding.fix {
            cx.out
                .foreign_line(&format!("{:19}-> {}", "", fix.replace('\n', &below)))?;
        }
    }
    let count = |level| findings.iter().filter(|f| f.level == level).count();
    let (problems, warnings) = (count(FindingLevel::Problem), count(FindingLevel::Warning));
    cx.out.remark(match (problems, warnings) {
        (0, 0) => "all is well".to_owned(),
        _ => format!(
            "{}, {}",
            super::counted(problems, "problem"),
            super::counted(warnings, "warning")
        ),
    });
    Ok(())
}
