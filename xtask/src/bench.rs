//! `cargo xtask bench`: speed and memory beside the original and beside a bare client.
//!
//! Everything is measured from outside, on release binaries, against the scripted model server:
//! programs take turns within a run, figures are medians, and what counts are the ratios.

mod gateway;
mod hands;
mod history;
mod local;
mod mcp;
mod process;
mod programs;
mod report;
mod scenario;
mod server;
mod tui;

use anyhow::{Result, bail};

pub(crate) use process::{MEASURE, measure};
use programs::Programs;
use report::BenchReport;

type Scenario = (&'static str, fn(&Programs, &mut BenchReport) -> Result<()>);

const SCENARIOS: &[Scenario] = &[
    ("version", scenario::version),
    ("oneshot", scenario::oneshot),
    ("tools", scenario::tool_rounds),
    ("stream", scenario::streaming),
    ("idle", scenario::idle),
    ("history", history::preparation),
    ("search", history::search),
    ("terminal", hands::terminal),
    ("search-files", hands::search),
    ("code", hands::program_calls),
    ("flood", hands::flood),
    ("mcp-call", mcp::overhead),
    ("mcp-expiry", mcp::callers),
    ("mcp-recovery", mcp::recovery),
    ("mcp-matrix", mcp::matrix),
    ("mcp-parallel", mcp::parallel),
    ("mcp-round", mcp::agent_round),
    ("mcp-idle", mcp::idle),
    ("gateway", gateway::conversations),
    ("gateway-slow", gateway::in_flight),
    ("local", local::speed),
    ("tui-start", tui::start),
    ("tui-paint", tui::paint),
    ("tui-idle", tui::idle),
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let flag = |name: &str| args.iter().any(|arg| arg == name);
    let chosen: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|arg| !["--check", "--no-build"].contains(arg))
        .collect();
    let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
    if let Some(name) = chosen.iter().find(|name| !known.contains(name)) {
        bail!("unknown scenario {name:?}; known: {}", known.join(", "));
    }
    let programs = Programs::prepare(!flag("--no-build"))?;
    let mut report = BenchReport::default();
    for (name, scenario) in SCENARIOS {
        if chosen.is_empty() || chosen.contains(name) {
            eprintln!("== {name}");
            scenario(&programs, &mut report)?;
        }
    }
    report.print();
    report.write()?;
    if flag("--check") {
        report.check()?;
    }
    Ok(())
}
