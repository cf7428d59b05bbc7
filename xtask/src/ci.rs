//! Everything that must hold before a change is taken.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::command::{cargo, output, retry, run as run_command};
use crate::{test, workspace};

const DENY_VERSION: &str = "0.20.2";

type Step = (&'static str, fn() -> Result<()>);

/// Cheap steps first; every step runs, so that one push shows everything that is wrong.
const STEPS: &[Step] = &[
    ("fmt", fmt),
    ("test", || test::run(&[])),
    ("clippy", clippy),
    ("deny", deny),
];

pub(crate) fn run() -> Result<()> {
    let mut failed = Vec::new();
    let mut times = Vec::new();
    for (name, step) in STEPS {
        eprintln!("\n== {name}");
        let begun = Instant::now();
        if let Err(error) = step() {
            eprintln!("{name} failed: {error:#}");
            failed.push(*name);
        }
        times.push((*name, begun.elapsed()));
    }
    println!();
    for (name, time) in times {
        let verdict = if failed.contains(&name) {
            "FAILED"
        } else {
            "ok"
        };
        println!("{name:<8}{verdict:<8}{:>6.1} s", seconds(time));
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn fmt() -> Result<()> {
    run_command(cargo().args(["fmt", "--all", "--", "--check"]))
}

fn clippy() -> Result<()> {
    run_command(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))
}

fn deny() -> Result<()> {
    let mut command = Command::new(deny_program()?);
    command.current_dir(workspace());
    // Errors only: notes about crates that are fine would bury them.
    run_command(command.args([
        "--log-level",
        "error",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}

/// cargo-deny from PATH, else our own copy under target/, built the first time.
fn deny_program() -> Result<PathBuf> {
    if output(Command::new("cargo-deny").arg("--version")).is_some() {
        return Ok(PathBuf::from("cargo-deny"));
    }
    let root = workspace().join("target/tools");
    let program = root.join("bin/cargo-deny");
    if output(Command::new(&program).arg("--version")).is_none() {
        retry(3, "installing cargo-deny", || {
            let mut install = cargo();
            install
                .args([
                    "install",
                    "--locked",
                    "cargo-deny",
                    "--version",
                    DENY_VERSION,
                ])
                .arg("--root")
                .arg(&root)
                // A checker need not be fast: building it must be.
                .args(["--profile", "dev"])
                .env("CARGO_TARGET_DIR", workspace().join("target/tools/build"));
            run_command(&mut install)
        })?;
    }
    Ok(program)
}
