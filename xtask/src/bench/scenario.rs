//! Start, tool rounds, streaming and memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::process::millis;
use super::programs::{Programs, Who, configure};
use super::report::{BenchReport, BenchTarget, PeerFigures, Row, median};
use super::server::Server;

/// Rounds of the quick programs; the original takes seconds and gets fewer.
const ROUNDS: usize = 15;
const ORIGINAL_ROUNDS: usize = 5;

/// Values by program.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<Who, Vec<f64>>);

impl Samples {
    pub(super) fn add(&mut self, who: Who, value: f64) {
        self.0.entry(who).or_default().push(value);
    }

    pub(super) fn get(&self, who: Who, pick: fn(&[f64]) -> f64) -> Option<f64> {
        self.0.get(&who).map(|values| pick(values))
    }

    /// Those who are only compared with.
    pub(super) fn peers(&self, pick: fn(&[f64]) -> f64) -> PeerFigures {
        PeerFigures {
            codex: self.get(Who::Codex, pick),
            opencode: self.get(Who::Opencode, pick),
        }
    }

    pub(super) fn row(
        &self,
        name: &str,
        unit: &'static str,
        target: BenchTarget,
        pick: fn(&[f64]) -> f64,
    ) -> Result<Row> {
        Ok(Row {
            name: name.to_owned(),
            unit,
            ours: self
                .get(Who::Ours, pick)
                .context("our program was measured")?,
            original: self.get(Who::Original, pick),
            bare: self.get(Who::Bare, pick),
            target,
        })
    }
}

/// Programs take turns, so that a slow moment of the machine hits all of them. The first round only
/// warms up.
pub(super) fn rounds(who: &[Who], mut each: impl FnMut(Who, bool) -> Result<()>) -> Result<()> {
    for round in 0..=ROUNDS {
        for who in who {
            if *who != Who::Original || round <= ORIGINAL_ROUNDS {
                each(*who, round > 0)?;
            }
        }
    }
    Ok(())
}

/// A home per program, configured for the server.
pub(super) fn homes(
    programs: &Programs,
    scenario: &str,
    server: &Server,
) -> Result<BTreeMap<Who, PathBuf>> {
    let mut homes = BTreeMap::new();
    for who in programs.all() {
        let home = programs.home(scenario, who)?;
        configure(&home, &server.base_url)?;
        homes.insert(who, home);
    }
    Ok(homes)
}

pub(super) fn version(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let mut times = Samples::default();
    rounds(&programs.all(), |who, counts| {
        let home = programs.home("version", who)?;
        let run = programs.run(who, &["--version"], &home)?;
        if counts {
            times.add(who, run.wall_ms());
        }
        Ok(())
    })?;
    report.add(times.row("--version", "ms", BenchTarget::TimesBare(4.0), median)?);
    Ok(())
}

pub(super) fn oneshot(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let server = programs.serve("oneshot", &json!({"default": {"text": "pong"}}))?;
    let homes = homes(programs, "oneshot", &server)?;
    let (mut first, mut whole, mut peak) =
        (Samples::default(), Samples::default(), Samples::default());
    rounds(&programs.all(), |who, counts| {
        let run = programs.ask(who, &server, &homes[&who], "ping")?.finish()?;
        let calls = server.calls();
        ensure!(
            run.stdout.contains("pong"),
            "{who:?} answered {:?}",
            run.stdout
        );
        let call = calls.first().context("a model call was made")?;
        if counts {
            first.add(who, millis(run.started, call.arrived));
            whole.add(who, run.wall_ms());
            peak.add(who, run.peak_kb as f64 / 1024.0);
        }
        Ok(())
    })?;
    let target = BenchTarget::Between {
        bare: 10.0,
        original: 100.0,
    };
    report.add(first.row("start → first byte at the model", "ms", target, median)?);
    report.add(whole.row("one-shot, start → exit", "ms", BenchTarget::None, median)?);
    report.add(peak.row(
        "peak memory of a one-shot",
        "MB",
        BenchTarget::AtMost(20.0),
        median,
    )?);
    Ok(())
}

/// The time between the end of an answer that asks for a tool and the next request.
pub(super) fn tool_rounds(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    const COUNT: usize = 20;
    let script = json!({
        "rules": [{"when": {"min_tool_results": COUNT}, "reply": {"text": "finished"}}],
        "default": {"tool_calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}]},
    });
    let server = programs.serve("tools", &script)?;
    let homes = homes(programs, "tools", &server)?;
    let mut gaps = Samples::default();
    for round in 0..4 {
        for who in programs.all() {
            let run = programs
                .ask(who, &server, &homes[&who], "read it")?
                .finish()?;
            let calls = server.calls();
            ensure!(
                run.stdout.contains("finished"),
                "{who:?} answered {:?}",
                run.stdout
            );
            ensure!(
                calls.len() > COUNT,
                "{who:?} made only {} calls",
                calls.len()
            );
            for pair in calls.windows(2).filter(|_| round > 0) {
                gaps.add(who, millis(pair[0].answered, pair[1].arrived));
            }
        }
    }
    report.add(gaps.row(
        "one tool round (of 20)",
        "ms",
        BenchTarget::AtMost(2.0),
        median,
    )?);
    Ok(())
}

/// How long after the server's last byte the whole text is printed.
pub(super) fn streaming(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    const TOKENS: usize = 2000;
    let tokens: Vec<String> = (0..TOKENS)
        .map(|number| format!("tok{:>4} ", number % 1000))
        .collect();
    let text = tokens.concat();
    let script = json!({"default": {"text": text, "deltas": TOKENS}});
    let server = programs.serve("stream", &script)?;
    let homes = homes(programs, "stream", &server)?;
    let mut late = Samples::default();
    rounds(&programs.all(), |who, counts| {
        let run = programs.ask(who, &server, &homes[&who], "talk")?.finish()?;
        let calls = server.calls();
        ensure!(
            run.stdout.trim_end().ends_with("999"),
            "{who:?} lost the end of the text"
        );
        let call = calls.first().context("a model call was made")?;
        if counts {
            late.add(who, millis(call.answered, run.last_output));
        }
        Ok(())
    })?;
    report.add(late.row(
        "2,000 tokens at full speed, late by",
        "ms",
        BenchTarget::AtMost(30.0),
        median,
    )?);
    Ok(())
}

/// Memory while it waits for a model that takes its time.
pub(super) fn idle(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    let script = json!({"default": {"text": "late", "delay_ms": 1500}});
    let server = programs.serve("idle", &script)?;
    let homes = homes(programs, "idle", &server)?;
    let mut resident = Samples::default();
    for _ in 0..3 {
        for who in programs.all() {
            let running = programs.ask(who, &server, &homes[&who], "wait")?;
            ensure!(
                server.wait_for_call(Duration::from_mins(1)),
                "{who:?} made no call"
            );
            // Half a second for whatever is started beside the call to settle.
            std::thread::sleep(Duration::from_millis(500));
            let kb = running.resident_kb().context("it waits for the model")?;
            resident.add(who, kb as f64 / 1024.0);
            running.finish()?;
            server.calls();
        }
    }
    report.add(resident.row("memory while waiting", "MB", BenchTarget::None, median)?);
    Ok(())
}
