//! What acting costs: commands, searching, programs that call tools, floods of output.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::process::{Finished, millis};
use super::programs::{Programs, Who};
use super::report::{BenchReport, BenchTarget, Row, median};
use super::scenario::{Samples, homes};
use super::server::Server;

/// Calls of a tool in one turn; the first is not counted: it starts what the others use.
const ROUNDS: usize = 20;

/// A turn in which the model asks `rounds` times for the same call; the gaps between an answer and
/// the next request, and how the run went.
fn turn(
    programs: &Programs,
    server: &Server,
    who: Who,
    home: &Path,
) -> Result<(Vec<f64>, Finished)> {
    let run = programs.start(who, &ASK, home)?.finish()?;
    gaps(server, who, run)
}

const ASK: [&str; 3] = ["--yolo", "-z", "do it"];

fn gaps(server: &Server, who: Who, run: Finished) -> Result<(Vec<f64>, Finished)> {
    let calls = server.calls();
    ensure!(
        run.stdout.contains("finished"),
        "{who:?} answered {:?}",
        run.stdout
    );
    let gaps = calls
        .windows(2)
        .map(|pair| millis(pair[0].answered, pair[1].arrived))
        .collect();
    Ok((gaps, run))
}

/// A server whose model makes this call `rounds` times.
fn asking_for(programs: &Programs, name: &str, call: &Value, rounds: usize) -> Result<Server> {
    programs.serve(
        name,
        &json!({
            "rules": [{"when": {"min_tool_results": rounds}, "reply": {"text": "finished"}}],
            "default": {"tool_calls": [call]},
        }),
    )
}

/// Medians of the rounds of one call, by program.
fn repeated(programs: &Programs, name: &str, call: &Value, rounds: usize) -> Result<Samples> {
    let server = asking_for(programs, name, call, rounds)?;
    let homes = homes(programs, name, &server)?;
    let mut samples = Samples::default();
    for _ in 0..3 {
        for who in programs.agents() {
            let (gaps, _) = turn(programs, &server, who, &homes[&who])?;
            for gap in gaps.into_iter().skip(1) {
                samples.add(who, gap);
            }
        }
    }
    Ok(samples)
}

/// `true`, in the default sandbox.
pub(super) fn terminal(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let call = json!({"name": "terminal", "arguments": {"command": "true"}});
    let samples = repeated(programs, "terminal", &call, ROUNDS)?;
    report.add(samples.row(
        "a round with terminal `true`",
        "ms",
        BenchTarget::AtMost(3.0),
        median,
    )?);
    let server = asking_for(programs, "terminal-home", &call, ROUNDS)?;
    let homes = homes(programs, "terminal-home", &server)?;
    let mut samples = Samples::default();
    for _ in 0..3 {
        for who in programs.agents() {
            let run = programs.start_at_home(who, &ASK, &homes[&who])?.finish()?;
            let (gaps, _) = gaps(&server, who, run)?;
            for gap in gaps.into_iter().skip(1) {
                samples.add(who, gap);
            }
        }
    }
    report.add(samples.row(
        "the same in the person's own directory",
        "ms",
        BenchTarget::AtMost(3.0),
        median,
    )?);
    Ok(())
}

/// Fifty thousand files of a few lines each, some of which match.
fn forest(root: &Path) -> Result<()> {
    if root.join("done").exists() {
        return Ok(());
    }
    for directory in 0..500 {
        let directory = root.join(format!("d{directory}"));
        std::fs::create_dir_all(&directory)?;
        for file in 0..100 {
            let mut text = String::new();
            for line in 0..20 {
                writeln!(text, "line {line} of file {file}: nothing to see here")?;
            }
            if file == 7 {
                text.push_str("here is the needle\n");
            }
            std::fs::write(directory.join(format!("f{file}.txt")), text)?;
        }
    }
    std::fs::write(root.join("done"), "")?;
    Ok(())
}

/// Content search of a large tree beside ripgrep itself.
pub(super) fn search(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let root: PathBuf = crate::target_dir().join("bench-forest");
    forest(&root)?;
    let path = root.display().to_string();
    let call = json!({"name": "search_files",
        "arguments": {"pattern": "the needle", "path": path, "limit": 50}});
    let mut samples = repeated(programs, "search-files", &call, 3)?;
    for _ in 0..5 {
        let began = Instant::now();
        let found = Command::new(crate::workspace().join("target/exec/bin/rg"))
            .args(["--line-number", "--no-heading", "the needle", &path])
            .stdout(Stdio::null())
            .status()
            .context("ripgrep: cargo xtask setup unpacks it")?;
        ensure!(found.success(), "ripgrep found nothing");
        samples.add(Who::Bare, began.elapsed().as_secs_f64() * 1000.0);
    }
    report.add(samples.row(
        "search of 50,000 files (bare: rg)",
        "ms",
        BenchTarget::TimesBare(1.3),
        median,
    )?);
    Ok(())
}

/// What one tool call of a program costs: many calls less few calls.
pub(super) fn program_calls(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    const FEW: usize = 5;
    const MANY: usize = 45;
    let mut cost: BTreeMap<usize, f64> = BTreeMap::new();
    for calls in [FEW, MANY] {
        let code = format!(
            "from hermes_tools import read_file\nfor i in range({calls}):\n    read_file('a.txt', offset=1, limit=3)\nprint('ok')\n"
        );
        let name = format!("code-{calls}");
        let call = json!({"name": "execute_code", "arguments": {"code": code}});
        let server = asking_for(programs, &name, &call, 6)?;
        let homes = homes(programs, &name, &server)?;
        let mut gaps = Vec::new();
        for _ in 0..3 {
            let (more, _) = turn(programs, &server, Who::Ours, &homes[&Who::Ours])?;
            gaps.extend(more.into_iter().skip(1));
        }
        cost.insert(calls, median(&gaps));
    }
    let each = (cost[&MANY] - cost[&FEW]) / (MANY - FEW) as f64;
    report.add(Row {
        name: "a tool call of execute_code".to_owned(),
        unit: "ms",
        ours: each,
        original: None,
        bare: None,
        target: BenchTarget::AtMost(0.3),
    });
    Ok(())
}

/// Memory that a gigabyte of output takes.
pub(super) fn flood(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let mut peak: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, command) in [
        ("quiet", "true"),
        ("flood", "head -c 1000000000 /dev/zero | tr '\\0' 'x'"),
    ] {
        let call = json!({"name": "terminal", "arguments": {"command": command}});
        let server = asking_for(programs, name, &call, 1)?;
        let homes = homes(programs, name, &server)?;
        let (_, run) = turn(programs, &server, Who::Ours, &homes[&Who::Ours])?;
        peak.insert(name, run.peak_kb as f64 / 1024.0);
    }
    report.add(Row {
        name: "memory for 1 GB of output".to_owned(),
        unit: "MB",
        ours: peak["flood"] - peak["quiet"],
        original: None,
        bare: None,
        target: BenchTarget::AtMost(20.0),
    });
    Ok(())
}
