//! `hermes mcp test`: connects to one server and lists its tools.

use std::sync::Arc;
use std::time::Duration;

use hermes_mcp::config::ServerEntry;
use hermes_mcp::report::ServerReport;
use hermes_mcp::{AuthPrompt, CatalogueSnapshot, report};
use serde::Serialize;
use serde_json::json;

use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring::{self, mcp};

/// Timeout for stopping the servers of a command.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, clap::Args)]
pub(super) struct McpTestArgs {
    name: String,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// How a server answered.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Probe {
    pub(super) ok: bool,
    pub(super) tools: Vec<ProbedTool>,
    /// What the server itself calls its tools.
    #[serde(skip)]
    pub(super) raw_names: Vec<String>,
    pub(super) report: ServerReport,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ProbedTool {
    pub(super) name: String,
    pub(super) description: String,
}

pub(super) fn run(args: &McpTestArgs, cx: &Context) -> Outcome {
    let mut entry = super::entry(cx, &args.name)?;
    // Asked for by name: whether it is switched off does not matter.
    if let Some(config) = &mut entry.config {
        config.enabled = true;
    }
    let probe = connect(cx, entry, Duration::from_secs(args.timeout), None)?;
    if args.json {
        cx.out.json(&json!({"name": args.name, "ok": probe.ok, "tools": probe.tools, "report": probe.report}))?;
    } else {
        cx.out
            .line(report::details(&probe.report, chrono::Utc::now()))?;
        for tool in &probe.tools {
            cx.out
                .line(format!("    {:<28} {}", tool.name, tool.description))?;
        }
    }
    if probe.ok {
        return Ok(());
    }
    if args.json {
        return Err(Failure::silent(Exit::Failed));
    }
    Err(Failure::failed(why(&probe.report)))
}

/// Connects to one server, lists its tools and ends it.
pub(super) fn connect(
    cx: &Context,
    entry: ServerEntry,
    longest: Duration,
    prompt: Option<Arc<dyn AuthPrompt>>,
) -> Result<Probe, Failure> {
    crate::logging::start(cx);
    let name = entry.name.clone();
    wiring::runtime()?.block_on(async {
        let toolbox = mcp::start_all(cx, vec![entry], prompt);
        toolbox.settle(longest).await;
        let catalogue = toolbox.catalogue();
        let reports = toolbox.report();
        let raw_names = toolbox.server(&name).map_or_else(Vec::new, |server| {
            let snapshot = server.catalogue().borrow().clone();
            snapshot.map_or_else(Vec::new, |snapshot| names(&snapshot))
        });
        toolbox.shutdown(STOP_TIMEOUT).await;
        let report = reports
            .into_iter()
            .next()
            .ok_or_else(|| Failure::failed(format!("{name} was not started")))?;
        let tools = catalogue
            .tools
            .iter()
            .map(|tool| ProbedTool {
                name: tool.spec().name.clone(),
                description: first_line(&tool.spec().description),
            })
            .collect();
        Ok(Probe {
            ok: report.is_up(),
            tools,
            raw_names,
            report,
        })
    })
}

/// The cause, for the person.
pub(crate) fn why(report: &ServerReport) -> String {
    let name = &report.name;
    if let Some(problem) = report.problems.iter().find(|problem| problem.fatal) {
        return problem.to_string();
    }
    let link = report.link.as_ref();
    if link.is_some_and(|link| link.needs_auth) {
        return format!("{name} needs a login: hermes mcp login {name}");
    }
    let cause = link.and_then(|link| {
        let error = link.last_error.as_ref().map(|error| error.text.as_str());
        link.why.as_deref().or(error)
    });
    match cause {
        Some(cause) => format!("{name} does not work: {cause}"),
        None => format!("{name} did not answer in time"),
    }
}

fn names(snapshot: &CatalogueSnapshot) -> Vec<String> {
    let names = snapshot
        .tools
        .iter()
        .filter_map(|tool| tool.get("name")?.as_str());
    names.map(str::to_owned).collect()
}

fn first_line(text: &str) -> String {
    hermes_core::text::shorten(text.lines().next().unwrap_or_default(), 90)
}
