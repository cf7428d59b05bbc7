//! `hermes doctor`: is this installation able to work? Every finding says what to do.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use hermes_config::Config;
use hermes_core::clock::SystemClock;
use hermes_core::model::ModelRouter;
use hermes_exec::backend;
use hermes_exec::local::Declared;
use hermes_exec::sandbox::{Sandbox, Settings, Tier};
use hermes_models::router::Overrides;
use hermes_store::db::{RepairOptions, RepairReport, repair};
use hermes_store::memory::{MemoryFiles, Target};
use hermes_store::skills::Library;
use serde::Serialize;

use super::{Context, model};
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Warnings count as problems
    #[arg(long)]
    strict: bool,
    /// Do not call the model
    #[arg(long)]
    offline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warning,
    Problem,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    text: String,
}

#[derive(Default)]
struct Report(Vec<Finding>);

impl Report {
    fn ok(&mut self, check: &'static str, text: impl Into<String>) {
        self.0.push(Finding {
            check,
            level: Level::Ok,
            text: text.into(),
        });
    }

    fn warning(&mut self, check: &'static str, text: impl Into<String>) {
        self.0.push(Finding {
            check,
            level: Level::Warning,
            text: text.into(),
        });
    }

    fn problem(&mut self, check: &'static str, text: impl Into<String>) {
        self.0.push(Finding {
            check,
            level: Level::Problem,
            text: text.into(),
        });
    }
}

pub(crate) fn run(args: &DoctorArgs, cx: &Context) -> Outcome {
    let mut report = Report::default();
    home(cx, &mut report);
    let config = configuration(cx, &mut report);
    database(cx, &mut report);
    if let Some(config) = config {
        let config = Arc::new(config);
        memory(cx, &config, &mut report);
        skills(cx, &config, &mut report);
        terminal(cx, &config, &mut report);
        approvals(&config, &mut report);
        the_model(cx, &config, args.offline, &mut report)?;
    }
    show(args, cx, &report)?;
    let bad = |finding: &Finding| {
        finding.level == Level::Problem || (args.strict && finding.level == Level::Warning)
    };
    if report.0.iter().any(bad) {
        Err(Failure::silent(Exit::Failed))
    } else {
        Ok(())
    }
}

fn show(args: &DoctorArgs, cx: &Context, report: &Report) -> Outcome {
    if args.json {
        cx.out.json(&report.0)?;
        return Ok(());
    }
    for finding in &report.0 {
        let mark = match finding.level {
            Level::Ok => "ok     ",
            Level::Warning => "warning",
            Level::Problem => "PROBLEM",
        };
        // Further lines stand below the first.
        let text = finding.text.replace('\n', &format!("\n{:19}", ""));
        cx.out
            .line(format!("{mark}  {:<9} {text}", finding.check))?;
    }
    Ok(())
}

fn home(cx: &Context, report: &mut Report) {
    let root = cx.home.root();
    if !root.exists() {
        report.ok(
            "home",
            format!("{} will be made at the first chat", root.display()),
        );
        return;
    }
    match tempfile::tempfile_in(root) {
        Ok(_) => report.ok("home", root.display().to_string()),
        Err(error) => report.problem(
            "home",
            format!(
                "nothing can be written to {} ({}); no conversation can be kept: check who owns it",
                root.display(),
                error.kind()
            ),
        ),
    }
    for path in [
        cx.home.env_path(),
        cx.home.config_path(),
        cx.home.auth_path(),
    ] {
        if let Some(mode) = readable_by_others(&path) {
            let path = path.display();
            report.warning(
                "home",
                format!("{path} can be read by others ({mode:o}): chmod 600 {path}"),
            );
        }
    }
}

fn readable_by_others(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

fn configuration(cx: &Context, report: &mut Report) -> Option<Config> {
    for warning in cx.env.warnings() {
        report.warning(".env", warning.to_string());
    }
    match cx.load_config() {
        Ok(loaded) => {
            let path = cx.home.config_path();
            if !path.exists() {
                report.ok("config", "none yet: all defaults");
            } else if loaded.warnings.is_empty() {
                report.ok("config", path.display().to_string());
            }
            for warning in &loaded.warnings {
                report.warning("config", warning.to_string());
            }
            Some(loaded.config)
        }
        Err(failure) => {
            report.problem("config", failure.message);
            None
        }
    }
}

fn database(cx: &Context, report: &mut Report) {
    let path = cx.home.state_db();
    if !path.exists() {
        report.ok("state.db", "none yet");
        return;
    }
    if let Err(error) = std::fs::OpenOptions::new().write(true).open(&path) {
        let path = path.display();
        report.problem("state.db", format!("{path} cannot be written: {error}"));
        return;
    }
    let look = RepairOptions {
        check_only: true,
        backup: false,
    };
    match repair(&path, look, &SystemClock) {
        Ok(RepairReport {
            problem: Some(problem),
            ..
        }) => {
            report.problem(
                "state.db",
                format!("{problem}; run: hermes sessions repair"),
            );
        }
        Ok(_) => report.ok("state.db", path.display().to_string()),
        Err(error) => report.problem("state.db", error.to_string()),
    }
}

fn memory(cx: &Context, config: &Config, report: &mut Report) {
    let files = MemoryFiles::of_home(&cx.home, config);
    for target in [Target::Memory, Target::User] {
        match files.usage(target) {
            Ok(saved) => report.ok(
                "memory",
                format!("{}: {}", target.file_name(), saved.usage()),
            ),
            Err(error) => report.problem("memory", error.to_string()),
        }
    }
}

fn skills(cx: &Context, config: &Config, report: &mut Report) {
    let found = Library::of_home(&cx.home, config, Some("cli")).scan();
    report.ok("skills", format!("{} found", found.len()));
}

/// Where commands run and what confines them.
fn terminal(cx: &Context, config: &Config, report: &mut Report) {
    let cwd = std::env::current_dir().unwrap_or_default();
    match backend::select(&cx.home, config, &cx.env, &cwd, &Declared::default()) {
        Err(error) => report.problem("terminal", error.to_string()),
        Ok(Some(environment)) => report.ok("terminal", environment.info().posture),
        Ok(None) => {
            let sandbox = Sandbox::detect(Settings::from_config(&cx.home, config));
            let posture = sandbox.describe();
            let text = posture.to_string();
            if posture.refuses {
                report.problem("sandbox", text);
            } else if posture.active == Tier::None && posture.requested != "off" {
                report.warning("sandbox", format!("commands are {text}"));
            } else {
                report.ok("sandbox", format!("commands are {text}"));
            }
        }
    }
}

/// Permissions that are wider than they look.
fn approvals(config: &Config, report: &mut Report) {
    let concerns = super::approvals::concerns(config);
    if concerns.is_empty() {
        let rules = config.command_allowlist.len();
        let mode = config.approvals.mode.as_str();
        report.ok("approvals", format!("mode {mode}, {rules} rules"));
    }
    for concern in concerns {
        report.warning("approvals", concern);
    }
}

fn the_model(cx: &Context, config: &Arc<Config>, offline: bool, report: &mut Report) -> Outcome {
    let router = wiring::router(cx, config, Overrides::default());
    for problem in router.problems() {
        report.warning("model", problem.clone());
    }
    let client = match router.primary() {
        Ok(client) => client,
        Err(error) => {
            report.problem("model", Failure::from(error).message);
            return Ok(());
        }
    };
    let route = client.route().clone();
    let info = client.info();
    report.ok(
        "model",
        format!(
            "{} ({}), context {} ({})",
            route.model, route.provider, info.context_length, info.context_source
        ),
    );
    if offline {
        return Ok(());
    }
    cx.out.remark(format!("asking {} …", route.model));
    let runtime = wiring::runtime()?;
    match runtime.block_on(model::probe(client)) {
        Ok(text) => report.ok("model", format!("answers: {text}")),
        Err(error) => report.problem("model", error),
    }
    Ok(())
}
