//! MCP: our manager beside the bare protocol library and beside the original.

mod drivers;
mod expiry;
mod matrix;
mod talk;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::process::{millis, start};
use super::programs::{Programs, Who, configure};
use super::report::{BenchReport, BenchTarget, median};
use super::scenario::Samples;

pub(super) use drivers::build;
use drivers::{Driver, at, echo, example, order, packages, serve};
pub(super) use expiry::{callers, recovery};
pub(super) use matrix::matrix;
use talk::vitals;

/// Idle servers.
const SERVERS: usize = 50;
/// How long the idle process is watched.
const WATCH: Duration = Duration::from_secs(5);

/// A healthy call beside the same call with the bare library.
pub(super) fn overhead(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let server = serve(&["faulty"])?;
    let child = json!({"servers": [{"name": "bench", "command": example("server"),
                                    "args": ["stdio"]}]});
    for (transport, setup) in [("HTTP", at(server.url()?)), ("stdio", child)] {
        let mut times = Samples::default();
        let mut drivers = Vec::new();
        for who in programs.all() {
            drivers.push((who, Driver::start(programs, who, &setup)?));
        }
        for round in 0..15 {
            for (who, driver) in &mut drivers {
                let count = if *who == Who::Original { 10 } else { 200 };
                let done = driver.good_calls(&echo(count, 1))?;
                if round > 0 {
                    times.add(*who, median(&done.ms) * 1e3);
                }
            }
        }
        report.add(times.row(
            &format!("healthy MCP call, {transport}"),
            "µs",
            BenchTarget::TimesBare(1.2),
            median,
        )?);
    }
    Ok(())
}

/// Calls that take their time on the server, all at once.
pub(super) fn parallel(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    const CALLS: usize = 16;
    let server = serve(&["faulty"])?;
    let batch = json!({"tool": "steps", "arguments": {"count": 1, "pause_ms": 200},
                       "count": CALLS, "parallel": CALLS});
    for limit in [Some(CALLS), None] {
        let mut setup = at(server.url()?);
        if let Some(limit) = limit {
            setup["concurrency"] = json!(limit);
        }
        let mut times = Samples::default();
        for who in programs.all() {
            if limit.is_none() && who != Who::Ours {
                continue;
            }
            let mut driver = Driver::start(programs, who, &setup)?;
            driver.good_calls(&echo(CALLS, CALLS))?;
            for _ in 0..3 {
                times.add(who, driver.good_calls(&batch)?.wall_ms / 200.0);
            }
        }
        let (name, target) = match limit {
            Some(_) => ("max_concurrency 16", BenchTarget::AtMost(1.2)),
            None => ("8 at once by default", BenchTarget::AtMost(2.4)),
        };
        report.add(times.row(
            &format!("16 calls of 200 ms ÷ 200 ms, {name}"),
            "×",
            target,
            median,
        )?);
    }
    Ok(())
}

/// What connected servers cost while nobody calls them.
pub(super) fn idle(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let server = serve(&["faulty"])?;
    let url = server.url()?;
    let servers: Vec<Value> = (0..SERVERS)
        .map(|number| json!({"name": format!("idle{number}"), "url": url}))
        .collect();
    let (mut memory, mut processor) = (Samples::default(), Samples::default());
    for who in programs.agents() {
        let driver = Driver::start(programs, who, &json!({"servers": servers}))?;
        // What is started beside the connections settles first.
        std::thread::sleep(Duration::from_secs(1));
        let before = vitals(driver.pid())?;
        std::thread::sleep(WATCH);
        let after = vitals(driver.pid())?;
        memory.add(who, after.resident_kb as f64 / 1024.0);
        processor.add(who, after.cpu_ms - before.cpu_ms);
    }
    let connected = format!("{SERVERS} connected servers");
    let name = format!("memory with {connected}");
    report.add(memory.row(&name, "MB", BenchTarget::None, median)?);
    let name = format!("processor time in 5 s with {connected}");
    report.add(processor.row(&name, "ms", BenchTarget::None, median)?);
    Ok(())
}

/// A tool of a server through a whole round of the agent: from the end of the answer that asks for
/// it to the next request.
pub(super) fn agent_round(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    const COUNT: usize = 20;
    let mut tools = serve(&["faulty"])?;
    let script = json!({
        "rules": [{"when": {"min_tool_results": COUNT}, "reply": {"text": "finished"}}],
        "default": {"tool_calls": [{"name": "mcp__bench__echo", "arguments": {"text": "hello"}}]},
    });
    let model = programs.serve("mcp-round", &script)?;
    let mut gaps = Samples::default();
    for round in 0..4 {
        for who in programs.agents() {
            let home = programs.home("mcp-round", who)?;
            configure(&home, &model.base_url)?;
            let file = home.join("home/config.yaml");
            let config = std::fs::read_to_string(&file)?;
            let server = format!("mcp_servers:\n  bench:\n    url: {}\n", tools.url()?);
            std::fs::write(&file, config + &server)?;
            let before = order(&mut tools, &json!({"do": "counts"}))?;
            let program = agent(programs, who, &home)?;
            let run = start(&program, &["-z", "echo it"], &home)?.finish()?;
            let calls = model.calls();
            let after = order(&mut tools, &json!({"do": "counts"}))?;
            let made = after["calls"].as_u64().unwrap_or(0) - before["calls"].as_u64().unwrap_or(0);
            ensure!(run.stdout.contains("finished"), "{who:?}: {:?}", run.stdout);
            ensure!(made >= COUNT as u64, "{who:?} called the tool {made} times");
            for pair in calls.windows(2).filter(|_| round > 0) {
                gaps.add(who, millis(pair[0].answered, pair[1].arrived));
            }
        }
    }
    report.add(gaps.row(
        "one round with an MCP tool (of 20)",
        "ms",
        BenchTarget::AtMost(2.0),
        median,
    )?);
    Ok(())
}

/// The program of `who`; the original sees its MCP library.
fn agent(programs: &Programs, who: Who, home: &Path) -> Result<PathBuf> {
    let program = programs.path(who);
    if who != Who::Original {
        return Ok(program.to_owned());
    }
    let wrapper = home.join("original.sh");
    let library = packages()?;
    let (program, library) = (program.display(), library.display());
    let code = "import runpy, sys; sys.path.append(sys.argv.pop(1)); \
                sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')";
    let python = programs.path(who).with_file_name("python");
    let text = format!(
        "#!/bin/sh\nexec '{}' -c \"{code}\" '{library}' '{program}' \"$@\"\n",
        python.display()
    );
    std::fs::write(&wrapper, text)?;
    std::fs::set_permissions(&wrapper, Permissions::from_mode(0o755))?;
    Ok(wrapper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_be_looked_at() {
        let own = vitals(std::process::id()).unwrap();
        assert!(own.resident_kb > 0 && own.cpu_ms >= 0.0);
        assert_eq!(echo(3, 2)["count"], 3);
    }
}
