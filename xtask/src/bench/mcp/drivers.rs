//! The programs that make calls, and the servers they call.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::super::programs::{Programs, Who};
use super::talk::Talker;
use crate::command::{cargo, run};
use crate::{target_dir, workspace};

const ORIGINAL: &str = include_str!("original.py");

/// Where the original's MCP library is: the pinned installation has it as an extra only.
pub(super) fn packages() -> Result<PathBuf> {
    let library = workspace().join("target/mcp-py/legacy/lib");
    let versions = std::fs::read_dir(&library).context("run `cargo xtask setup` first")?;
    let found = versions
        .flatten()
        .map(|entry| entry.path().join("site-packages"))
        .find(|path| path.join("mcp").exists());
    found.with_context(|| format!("no mcp in {}", library.display()))
}

/// What a batch may take unless it says.
const PATIENCE: Duration = Duration::from_mins(3);

/// Builds drivers and servers in release mode.
pub(in crate::bench) fn build() -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--release", "--package", "hermes-mcp"]);
    for name in ["drive", "bare", "server"] {
        command.args(["--example", name]);
    }
    run(&mut command)
}

pub(super) fn example(name: &str) -> PathBuf {
    target_dir().join("release/examples").join(name)
}

/// Starts a server: `faulty`, `everything`, `python`.
pub(super) fn serve(args: &[&str]) -> Result<Talker> {
    let mut command = Command::new(example("server"));
    command.args(args);
    Talker::start(command)
}

/// Gives a server an order.
pub(super) fn order(server: &mut Talker, order: &Value) -> Result<Value> {
    server.ask(order, PATIENCE)
}

pub(super) struct Batch {
    pub(super) ms: Vec<f64>,
    pub(super) wall_ms: f64,
    pub(super) failed: Vec<String>,
}

/// A driver that is connected.
pub(super) struct Driver(Talker);

impl Driver {
    pub(super) fn start(programs: &Programs, who: Who, setup: &Value) -> Result<Self> {
        Self::start_in("mcp", programs, who, setup)
    }

    /// The same with a home of that name, so that several can run beside each other.
    pub(super) fn start_in(
        home: &str,
        programs: &Programs,
        who: Who,
        setup: &Value,
    ) -> Result<Self> {
        let home = programs.home(home, who)?;
        let mut setup = setup.clone();
        setup["packages"] = json!(packages()?);
        let mut command = match who {
            Who::Ours => Command::new(example("drive")),
            Who::Bare => Command::new(example("bare")),
            Who::Original => {
                let script = home.join("original.py");
                std::fs::write(&script, ORIGINAL)?;
                std::fs::write(home.join("home/config.yaml"), "")?;
                let mut command = Command::new(programs.path(who).with_file_name("python"));
                command.arg(script);
                command
            }
            Who::Codex | Who::Opencode => bail!("{who:?} has no driver"),
        };
        command
            .arg(home.join("home"))
            .arg(setup.to_string())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HERMES_HOME", home.join("home"))
            .env("HOME", home.join("user"))
            .env("LANG", "C.UTF-8")
            .current_dir(home.join("work"))
            .stderr(std::fs::File::create(home.join("stderr.log"))?);
        let talker = Talker::start(command)
            .with_context(|| format!("see {}", home.join("stderr.log").display()))?;
        ensure!(talker.about["ready"] == true, "{who:?}: {}", talker.about);
        Ok(Self(talker))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Makes calls; those that fail are part of the result.
    pub(super) fn calls(&mut self, batch: &Value) -> Result<Batch> {
        let answer = self.0.ask(batch, PATIENCE)?;
        let list = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
        let failed = list("failed");
        Ok(Batch {
            ms: list("ms").iter().filter_map(Value::as_f64).collect(),
            wall_ms: answer["wall_ms"].as_f64().context("it says how long")?,
            failed: failed
                .iter()
                .map(|failed| failed["text"].to_string())
                .collect(),
        })
    }

    /// Makes calls that must all succeed.
    pub(super) fn good_calls(&mut self, batch: &Value) -> Result<Batch> {
        let done = self.calls(batch)?;
        let failed = done.failed.first();
        ensure!(failed.is_none(), "{batch}: {failed:?}");
        Ok(done)
    }
}

/// The setup for one server at an address.
pub(super) fn at(url: &str) -> Value {
    json!({"servers": [{"name": "bench", "url": url}], "reads": ["echo"]})
}

/// A harmless call, so many times.
pub(super) fn echo(count: usize, parallel: usize) -> Value {
    json!({"tool": "echo", "arguments": {"text": "hello"}, "count": count, "parallel": parallel})
}
