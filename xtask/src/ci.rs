//! Everything that must hold before a change is taken.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{cargo, output, retry, run as run_command};
use crate::{soak, target_dir, test, workspace};

const DENY_VERSION: &str = "0.20.2";

type Step = (&'static str, fn() -> Result<()>);

/// Cheap steps first; every step runs, so that one push shows everything that is wrong.
const FIRST: &[Step] = &[("fmt", fmt), ("test", || test::run(&[]))];
/// The soak mostly waits, so the rest runs beside it.
const BESIDE_THE_SOAK: &[Step] = &[("clippy", clippy), ("deny", deny)];

pub(crate) fn run() -> Result<()> {
    let mut done = Done::default();
    for (name, step) in FIRST {
        done.take(name, step);
    }
    let soak = Soak::start();
    for (name, step) in BESIDE_THE_SOAK {
        done.take(name, step);
    }
    done.take("soak", || soak?.finish());
    done.report()
}

/// The steps so far.
#[derive(Default)]
struct Done {
    steps: Vec<(&'static str, bool, Duration)>,
}

impl Done {
    fn take(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) {
        eprintln!("\n== {name}");
        let begun = Instant::now();
        let result = step();
        if let Err(error) = &result {
            eprintln!("{name} failed: {error:#}");
        }
        self.steps.push((name, result.is_ok(), begun.elapsed()));
    }

    fn report(self) -> Result<()> {
        println!();
        let mut failed = Vec::new();
        for (name, ok, time) in self.steps {
            let verdict = if ok { "ok" } else { "FAILED" };
            println!("{name:<8}{verdict:<8}{:>6.1} s", seconds(time));
            if !ok {
                failed.push(name);
            }
        }
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        Ok(())
    }
}

/// The soak in the background. It does not outlive a run that gives up.
struct Soak {
    process: Child,
    log: PathBuf,
}

impl Soak {
    fn start() -> Result<Self> {
        let log = target_dir().join("soak.log");
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = soak::of_built_workspace()?;
        command.stdout(file.try_clone()?).stderr(file);
        let process = command.spawn().context("the soak does not start")?;
        Ok(Self { process, log })
    }

    fn finish(mut self) -> Result<()> {
        let status = self.process.wait()?;
        print!("{}", std::fs::read_to_string(&self.log)?);
        ensure!(status.success(), "the soak ended with {status}");
        Ok(())
    }
}

impl Drop for Soak {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
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
