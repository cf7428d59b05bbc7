//! Programs that read commands line by line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::line;

/// What a program may take to begin, on a busy machine.
const START: Duration = Duration::from_mins(2);
/// What it may take to end once its input has.
const END: Duration = Duration::from_secs(15);

/// A program that reads and prints JSON lines and ends with its standard input.
pub(super) struct Talker {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    shown: String,
    /// What it said about itself.
    pub(super) about: Value,
}

impl Talker {
    pub(super) fn start(mut command: Command) -> Result<Self> {
        let mut shown = line(&command);
        shown.truncate(
            shown
                .char_indices()
                .nth(120)
                .map_or(shown.len(), |(at, _)| at),
        );
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| shown.clone())?;
        let output = child.stdout.take().context("stdout is piped")?;
        let input = child.stdin.take();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::Null);
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        let mut this = Self {
            child,
            input,
            lines,
            shown,
            about: Value::Null,
        };
        this.about = this
            .hear(START)
            .with_context(|| format!("{} says nothing", this.shown))?;
        Ok(this)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn url(&self) -> Result<&str> {
        self.about["url"].as_str().context("it has an address")
    }

    pub(super) fn say(&mut self, what: &Value) -> Result<()> {
        let input = self.input.as_mut().context("its input is open")?;
        writeln!(input, "{what}").with_context(|| format!("{} is gone", self.shown))
    }

    pub(super) fn hear(&self, patience: Duration) -> Option<Value> {
        self.lines.recv_timeout(patience).ok()
    }

    /// Says it and waits for the answer.
    pub(super) fn ask(&mut self, what: &Value, patience: Duration) -> Result<Value> {
        self.say(what)?;
        match self.hear(patience) {
            Some(answer) => Ok(answer),
            None => bail!("{} did not answer {what} in {patience:?}", self.shown),
        }
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        drop(self.input.take());
        let end = Instant::now() + END;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the system knows of a running process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vitals {
    pub(super) resident_kb: u64,
    pub(super) cpu_ms: f64,
}

pub(super) fn vitals(pid: u32) -> Result<Vitals> {
    let root = format!("/proc/{pid}");
    let read = |path: &str| std::fs::read_to_string(path).with_context(|| path.to_owned());
    let status = read(&format!("{root}/status"))?;
    let resident = status.lines().find(|line| line.starts_with("VmRSS:"));
    let resident = resident.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    let mut vitals = Vitals {
        resident_kb: resident.context("its memory is known")?,
        cpu_ms: 0.0,
    };
    for thread in std::fs::read_dir(format!("{root}/task"))? {
        let thread = thread?.path();
        // A thread may end meanwhile.
        let ns = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
        let ns = ns
            .split_whitespace()
            .next()
            .and_then(|ns| ns.parse::<f64>().ok());
        vitals.cpu_ms += ns.unwrap_or_default() / 1e6;
    }
    Ok(vitals)
}
