//! The built-in model beside llama-cpp-python, on the same file with the same number of threads.
//!
//! Ours computes with weights requantised to Q8_0, the other with those of the file (Q4_1): a choice of
//! each, and said in the table.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::run;
use crate::{local_setup, setup, target_dir, workspace};

use super::process::start;
use super::programs::{Programs, Who};
use super::report::{BenchReport, BenchTarget, Row, median};

const PEER: &str = include_str!("local/peer.py");
/// Built from source when it is first needed, which takes minutes.
const REQUIREMENT: &str = "llama-cpp-python==0.3.36";
/// Turns of each; each opens the model again.
const TURNS: usize = 3;
const ROUNDS: &str = "3";
const TOKENS: &str = "96";
/// Sentences in front of the question: a prompt of some 550 tokens.
const SENTENCES: usize = 50;

/// What one program said.
#[derive(Default)]
struct Figures {
    load: Vec<f64>,
    prefill: Vec<f64>,
    decode: Vec<f64>,
    memory: Vec<f64>,
    prompt: Value,
    answer: Vec<u64>,
}

impl Figures {
    fn take(&mut self, program: &Path, args: &[&str], home: &Path) -> Result<()> {
        let run = start(program, args, home)?.finish()?;
        let line = run.stdout.lines().last().unwrap_or_default();
        let said: Value = serde_json::from_str(line)
            .with_context(|| format!("{} said {:?}", program.display(), run.stdout))?;
        let numbers = |key: &str| -> Vec<f64> {
            let values = said[key].as_array().into_iter().flatten();
            values.filter_map(Value::as_f64).collect()
        };
        self.load
            .push(said["load_seconds"].as_f64().unwrap_or(f64::NAN) * 1000.0);
        self.prefill.extend(numbers("prefill"));
        self.decode.extend(numbers("decode"));
        self.memory.push(run.peak_kb as f64 / 1024.0);
        self.prompt = said["prompt"].clone();
        let answer = said["answer"].as_array().into_iter().flatten();
        self.answer = answer.filter_map(Value::as_u64).collect();
        Ok(())
    }
}

pub(super) fn speed(programs: &Programs, report: &mut BenchReport) -> Result<()> {
    ensure!(
        local_setup::run()?,
        "the weights of the built-in model are missing"
    );
    let home = programs.home("local", Who::Ours)?;
    let model = workspace().join("target/local/SmolLM2-135M-Instruct.Q4_1.gguf");
    let (cache, prompt, script) = (
        home.join("cache"),
        home.join("prompt.txt"),
        home.join("peer.py"),
    );
    std::fs::write(&prompt, text()).with_context(|| prompt.display().to_string())?;
    std::fs::write(&script, PEER).with_context(|| script.display().to_string())?;
    let python = peer().inspect_err(|error| eprintln!("   no llama-cpp-python: {error:#}"));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.to_string();
    let [model, cache, prompt, script] =
        [&model, &cache, &prompt, &script].map(|path| path.to_string_lossy());
    let ours = target_dir().join("release/hermes-local");
    let mut own_args = vec!["measure", "--model", &model, "--cache", &cache];
    own_args.extend(["--prompt", &*prompt, "--threads", &threads]);
    own_args.extend(["--tokens", TOKENS, "--rounds", ROUNDS]);
    let peer_args = [&*script, &*model, &*threads, &*prompt, TOKENS, ROUNDS];
    // The first start requantises; it is not one of the turns.
    let mut first = Figures::default();
    first.take(&ours, &own_args, &home)?;
    let (mut own, mut other) = (Figures::default(), Figures::default());
    for _ in 0..TURNS {
        own.take(&ours, &own_args, &home)?;
        if let Ok(python) = &python {
            other.take(python, &peer_args, &home)?;
        }
    }
    let requantising = median(&first.load);
    report.add(row(
        "first start, with requantising",
        "ms",
        requantising,
        BenchTarget::None,
    ));
    tell(&own, &other, report);
    if !other.answer.is_empty() {
        ensure!(
            own.prompt == other.prompt,
            "the tokens of the prompt differ"
        );
        let pairs = own.answer.iter().zip(&other.answer);
        let same = pairs.take_while(|(own, other)| own == other).count();
        let name = "first tokens of the answer that are the same";
        report.add(row(name, "", same as f64, BenchTarget::None));
    }
    Ok(())
}

fn row(name: &str, unit: &'static str, ours: f64, target: BenchTarget) -> Row {
    Row {
        name: format!("local model: {name}"),
        unit,
        ours,
        original: None,
        bare: None,
        target,
    }
}

fn tell(own: &Figures, other: &Figures, report: &mut BenchReport) {
    let enough = BenchTarget::AtLeast(0.7);
    let figures = [
        ("load", "ms", &own.load, &other.load, BenchTarget::None),
        ("prompt", "tokens/s", &own.prefill, &other.prefill, enough),
        ("answer", "tokens/s", &own.decode, &other.decode, enough),
        (
            "peak memory",
            "MiB",
            &own.memory,
            &other.memory,
            BenchTarget::None,
        ),
    ];
    for (name, unit, ours, theirs, target) in figures {
        let (ours, beside) = (median(ours), median(theirs));
        report.add(row(
            &format!("{name} (Q8_0)"),
            unit,
            ours,
            BenchTarget::None,
        ));
        if beside.is_finite() {
            let peer = format!("{name} of llama-cpp-python (Q4_1)");
            report.add(row(&peer, unit, beside, BenchTarget::None));
            let times = format!("{name}, times llama-cpp-python's");
            report.add(row(&times, "×", ours / beside, target));
        }
    }
}

fn text() -> String {
    let filler =
        "The ship left the harbour at dawn and sailed past the lighthouse. ".repeat(SENTENCES);
    format!(
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n\
         <|im_start|>user\n{filler}\nWrite a long story about a ship.<|im_end|>\n\
         <|im_start|>assistant\n"
    )
}

/// Python with llama-cpp-python, made when it is first needed.
fn peer() -> Result<PathBuf> {
    let folder = workspace().join("target/local-peer");
    let python = folder.join("bin/python");
    let there = |python: &Path| {
        let check = Command::new(python)
            .args(["-c", "import llama_cpp"])
            .output();
        check.is_ok_and(|check| check.status.success())
    };
    if there(&python) {
        return Ok(python);
    }
    run(Command::new(setup::interpreter()?)
        .args(["-m", "venv"])
        .arg(&folder))?;
    eprintln!("   llama-cpp-python is built from source; this takes some minutes, once");
    run(Command::new("timeout")
        .args(["3600", "nice"])
        .arg(&python)
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .arg(REQUIREMENT))?;
    ensure!(there(&python), "llama-cpp-python does not start");
    Ok(python)
}
