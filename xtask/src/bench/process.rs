//! One measured run of a program.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// The hidden task that starts a program and reports on it: `xtask __measure <file> <program> …`.
/// A process of its own, because the system knows the peak memory only of all children together.
pub(crate) const MEASURE: &str = "__measure";

pub(crate) fn measure(args: &[String]) -> Result<()> {
    let [file, program, rest @ ..] = args else {
        bail!("usage: {MEASURE} <file> <program> [args]");
    };
    let started = now_ns();
    let mut child = Command::new(program)
        .args(rest)
        .spawn()
        .with_context(|| program.clone())?;
    std::fs::write(format!("{file}.pid"), child.id().to_string())?;
    let status = child.wait()?;
    let ended = now_ns();
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)?;
    let report = json!({
        "started": started, "ended": ended, "code": status.code(), "peak_kb": usage.max_rss(),
    });
    std::fs::write(file, report.to_string())?;
    Ok(())
}

pub(super) fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64)
}

/// What is known of a finished run. Times are wall-clock nanoseconds.
#[derive(Debug)]
pub(super) struct Finished {
    pub started: u64,
    pub ended: u64,
    pub peak_kb: u64,
    /// When the last byte of its standard output was read.
    pub last_output: u64,
    pub stdout: String,
}

impl Finished {
    pub(super) fn wall_ms(&self) -> f64 {
        millis(self.started, self.ended)
    }
}

pub(super) fn millis(from: u64, to: u64) -> f64 {
    (to as f64 - from as f64) / 1e6
}

/// A program under measurement.
pub(super) struct Running {
    child: Child,
    file: PathBuf,
    line: String,
}

/// Starts `program` in `home`, seeing nothing of our environment.
pub(super) fn start(program: &Path, args: &[&str], home: &Path) -> Result<Running> {
    start_in(
        program,
        args,
        home,
        [&home.join("user"), &home.join("work")],
    )
}

/// The same with another directory of the person, and another one to stand in.
pub(super) fn start_in(
    program: &Path,
    args: &[&str],
    home: &Path,
    [user, work]: [&Path; 2],
) -> Result<Running> {
    let file = home.join("measured.json");
    for old in [file.clone(), home.join("measured.json.pid")] {
        if old.exists() {
            std::fs::remove_file(old)?;
        }
    }
    let child = Command::new(std::env::current_exe()?)
        .arg(MEASURE)
        .arg(&file)
        .arg(program)
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HERMES_HOME", home.join("home"))
        .env("HOME", user)
        .env("LANG", "C.UTF-8")
        .env("TERM", "dumb")
        .current_dir(work)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(Running {
        child,
        file,
        line: format!("{} {}", program.display(), args.join(" ")),
    })
}

impl Running {
    /// Resident memory now, in kB. `None`: it has not started or is gone.
    pub(super) fn resident_kb(&self) -> Option<u64> {
        let pid = std::fs::read_to_string(format!("{}.pid", self.file.display())).ok()?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    pub(super) fn finish(mut self) -> Result<Finished> {
        let mut stderr = self.child.stderr.take().context("stderr is piped")?;
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            // Only for the message of a failure: what cannot be read is left out.
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut stdout = self.child.stdout.take().context("stdout is piped")?;
        let (mut bytes, mut last_output) = (Vec::new(), 0);
        let mut piece = vec![0; 65536];
        loop {
            let count = stdout.read(&mut piece)?;
            if count == 0 {
                break;
            }
            last_output = now_ns();
            bytes.extend_from_slice(&piece[..count]);
        }
        self.child.wait()?;
        let errors = errors.join().unwrap_or_default();
        let report = std::fs::read_to_string(&self.file)
            .with_context(|| format!("{} was not measured: {errors}", self.line))?;
        let report: Value = serde_json::from_str(&report)?;
        let stdout = String::from_utf8_lossy(&bytes).into_owned();
        if report["code"] != 0 {
            bail!(
                "{} ended with {}\n{stdout}\n{errors}",
                self.line,
                report["code"]
            );
        }
        let number = |key: &str| report[key].as_u64().unwrap_or_default();
        Ok(Finished {
            started: number("started"),
            ended: number("ended"),
            peak_kb: number("peak_kb"),
            last_output,
            stdout,
        })
    }
}
