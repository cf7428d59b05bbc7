//! Everything that must hold before a change is taken.

use std::fs::File;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{cargo, run as run_command};
use crate::soak::{CHAOS, Long, SOAK};
use crate::{deny, size, target_dir, test};

type Step = (&'static str, fn() -> Result<()>);

/// Cheap steps first; every step runs, so that one push shows everything that is wrong.
const FIRST: &[Step] = &[("fmt", fmt), ("test", || test::run(&[]))];
/// The long tests mostly wait, so the rest runs beside them.
const BESIDE: &[Step] = &[("clippy", clippy), ("deny", deny::check)];
/// They run beside each other, too.
const LONG: &[Long] = &[SOAK, CHAOS];
/// Link-time optimisation needs the processor for itself.
const LAST: &[Step] = &[("size", size::run)];

pub(crate) fn run() -> Result<()> {
    let mut done = CompletedSteps::default();
    for (name, step) in FIRST {
        done.take(name, step);
    }
    let running: Vec<_> = LONG
        .iter()
        .map(|long| (long.task, Beside::start(long)))
        .collect();
    for (name, step) in BESIDE {
        done.take(name, step);
    }
    for (name, long) in running {
        done.take(name, || long?.finish());
    }
    for (name, step) in LAST {
        done.take(name, step);
    }
    done.report()
}

/// The steps so far.
#[derive(Default)]
pub(crate) struct CompletedSteps {
    steps: Vec<(&'static str, bool, Duration)>,
}

impl CompletedSteps {
    pub(crate) fn take(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) {
        eprintln!("\n== {name}");
        let begun = Instant::now();
        let result = step();
        if let Err(error) = &result {
            eprintln!("{name} failed: {error:#}");
        }
        self.steps.push((name, result.is_ok(), begun.elapsed()));
    }

    pub(crate) fn report(self) -> Result<()> {
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

/// A long test in the background. It does not outlive a run that gives up.
struct Beside {
    process: Child,
    log: PathBuf,
}

impl Beside {
    fn start(long: &Long) -> Result<Self> {
        let log = target_dir().join(format!("{}.log", long.task));
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = long.of_built_workspace()?;
        command.stdout(file.try_clone()?).stderr(file);
        let process = command.spawn().context("it does not start")?;
        Ok(Self { process, log })
    }

    fn finish(mut self) -> Result<()> {
        let status = self.process.wait()?;
        print!("{}", std::fs::read_to_string(&self.log)?);
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}

impl Drop for Beside {
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
