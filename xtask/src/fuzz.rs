//! `cargo xtask fuzz`: the fuzz targets under libFuzzer, guided by coverage.
//!
//! What libFuzzer finds is kept in target/fuzz, so that the next run continues from there. The ordinary
//! test run tries every target briefly, without libFuzzer (`hermes_testkit::fuzz`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::command::{cargo, output, run as run_command};
use crate::{target_dir, workspace};

/// For each target, unless told otherwise.
const SECONDS: u32 = 60;
/// A day.
const MAX_SECONDS: u32 = 24 * 60 * 60;
/// Inputs are small on purpose: long ones only repeat what short ones do.
const MAX_BYTES: u32 = 4096;
/// An input that takes longer has found a loop.
const MAX_INPUT_SECONDS: u32 = 20;
const USAGE: &str = "usage: cargo xtask fuzz [TARGET …] [--seconds N]";

/// What libFuzzer needs to know from the compiler: which branches ran and what was compared. The
/// targets are safe code, so that there is nothing for a sanitizer to find.
const RUSTFLAGS: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let Wanted { targets, seconds } = wanted(args)?;
    let program = build()?;
    let mut failed = Vec::new();
    for target in targets {
        if let Err(error) = fuzz(&program, &target, seconds) {
            eprintln!("{error:#}");
            failed.push(target);
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

struct Wanted {
    targets: Vec<String>,
    seconds: u32,
}

fn wanted(args: &[String]) -> Result<Wanted> {
    let known = targets()?;
    let mut targets = Vec::new();
    let mut seconds = SECONDS;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--seconds" {
            let text = args.next().context(USAGE)?;
            seconds = text
                .parse()
                .ok()
                .filter(|seconds| (1..=MAX_SECONDS).contains(seconds))
                .with_context(|| {
                    format!("--seconds {text}: must be a whole number from 1 to {MAX_SECONDS}")
                })?;
        } else if known.contains(arg) {
            targets.push(arg.clone());
        } else {
            bail!(
                "there is no target {arg:?}; there are {}\n{USAGE}",
                known.join(", ")
            );
        }
    }
    if targets.is_empty() {
        targets = known;
    }
    Ok(Wanted { targets, seconds })
}

/// The targets: each has a corpus of its name.
fn targets() -> Result<Vec<String>> {
    let corpus = corpus();
    let mut names = Vec::new();
    for entry in corpus
        .read_dir()
        .with_context(|| corpus.display().to_string())?
    {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn corpus() -> PathBuf {
    workspace().join("crates/hermes-fuzz/corpus")
}

fn build() -> Result<PathBuf> {
    let directory = target_dir().join("fuzz/build");
    // Named, so that build scripts and macros are built without these flags.
    let host = host()?;
    let mut build = cargo();
    build
        .args(["build", "--locked", "--package", "hermes-fuzz"])
        .args(["--target", &host])
        .arg("--target-dir")
        .arg(&directory)
        .env("CARGO_ENCODED_RUSTFLAGS", RUSTFLAGS.join("\u{1f}"))
        // Fast, and with the checks of a debug build.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
        .env("CARGO_INCREMENTAL", "0");
    run_command(&mut build)?;
    Ok(directory.join(host).join("debug/hermes-fuzz"))
}

/// The triple of this machine.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = output(Command::new(rustc).arg("-vV")).context("rustc does not run")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_owned())
}

fn fuzz(program: &Path, target: &str, seconds: u32) -> Result<()> {
    let found = target_dir().join("fuzz/corpus").join(target);
    let artifacts = target_dir().join("fuzz/artifacts").join(target);
    for directory in [&found, &artifacts] {
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    let mut command = Command::new(program);
    command
        .current_dir(workspace())
        .arg(&found)
        .arg(corpus().join(target))
        .arg(format!(
            "-dict={}",
            corpus().join(format!("{target}.dict")).display()
        ))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={MAX_BYTES}"))
        .arg(format!("-timeout={MAX_INPUT_SECONDS}"))
        .args(["-print_final_stats=1", "-verbosity=1"])
        .env("HERMES_FUZZ_TARGET", target);
    run_command(&mut command).with_context(|| {
        format!(
            "the input that fails is in {}: copy it to {} with a name that says what it is, and fix what it shows",
            artifacts.display(),
            corpus().join(target).display()
        )
    })
}
