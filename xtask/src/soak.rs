//! Tests that take minutes by design and are left out of the suite: `cargo xtask soak`,
//! `cargo xtask chaos` and `cargo xtask flat`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{cargo, output, run as run_command};
use crate::{mcp_setup, workspace};

/// A day.
const LONGEST: f64 = 1440.0;
/// A gateway of years.
const MOST_TURNS: f64 = 10_000_000.0;

/// A long test.
pub(crate) struct Long {
    pub(crate) task: &'static str,
    package: &'static str,
    test: &'static str,
    /// What its length is counted in: the name of the option that says it.
    unit: &'static str,
    /// How long it runs unless told.
    length: f64,
    most: f64,
    /// Where it reads how long.
    variable: &'static str,
    /// Whether it needs the MCP servers of others.
    servers: bool,
}

/// MCP servers that are killed, restarted and made to forget, under load.
pub(crate) const SOAK: Long = Long {
    task: "soak",
    package: "hermes-mcp",
    test: "soak::real_servers_restarted_under_load",
    unit: "minutes",
    length: 5.0,
    most: LONGEST,
    variable: "HERMES_SOAK_MINUTES",
    servers: true,
};

/// A gateway that is killed again and again while people write.
pub(crate) const CHAOS: Long = Long {
    task: "chaos",
    package: "hermes-cli",
    test: "gateway::chaos::nothing_is_lost_and_nothing_is_done_twice",
    unit: "minutes",
    length: 3.0,
    most: LONGEST,
    variable: "HERMES_CHAOS_MINUTES",
    servers: false,
};

/// A gateway with many chats and MCP servers that must not grow. `HERMES_FLAT_PROGRAM` is the
/// program to look at.
pub(crate) const FLAT: Long = Long {
    task: "flat",
    package: "hermes-cli",
    test: "gateway::flat::memory_stays_flat",
    unit: "turns",
    length: 10_000.0,
    most: MOST_TURNS,
    variable: "HERMES_FLAT_TURNS",
    servers: true,
};

impl Long {
    pub(crate) fn run(&self, args: &[String]) -> Result<()> {
        let length = self.length(args)?;
        if self.servers && !mcp_setup::run()? {
            bail!("the servers are not installed; see above");
        }
        run_command(&mut self.command(&["--package", self.package], length)?)
    }

    /// The same for a workspace whose tests are built already. Started, it needs cargo no more.
    pub(crate) fn of_built_workspace(&self) -> Result<Command> {
        self.command(&["--workspace"], self.length)
    }

    fn command(&self, packages: &[&str], length: f64) -> Result<Command> {
        let mut command = Command::new(self.program(packages)?);
        command
            .args(["--ignored", "--exact", self.test, "--nocapture"])
            .current_dir(self.directory())
            .env(self.variable, length.to_string())
            // One that skips itself proves nothing.
            .env("CI", "true");
        Ok(command)
    }

    fn directory(&self) -> PathBuf {
        workspace().join("crates").join(self.package)
    }

    /// Builds the tests and gives the program that holds this one.
    fn program(&self, packages: &[&str]) -> Result<PathBuf> {
        let mut build = cargo();
        build
            .args(["test", "--no-run", "--test", "it", "--message-format=json"])
            .args(packages);
        let told = output(&mut build).context("the tests do not build: cargo test says why")?;
        let manifest = self.directory().join("Cargo.toml");
        let program = told
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| {
                let kind = message["target"]["kind"][0].as_str();
                let of = message["manifest_path"].as_str().map(PathBuf::from);
                kind == Some("test") && of.as_ref() == Some(&manifest)
            })
            .find_map(|message| message["executable"].as_str().map(PathBuf::from));
        program.with_context(|| format!("cargo names no test program of {}", self.package))
    }

    fn length(&self, args: &[String]) -> Result<f64> {
        let option = format!("--{}", self.unit);
        let length = match args {
            [] => self.length,
            [name, text] if *name == option => text
                .parse()
                .with_context(|| format!("{option} {text}: not a number"))?,
            _ => bail!("usage: cargo xtask {} [{option} N]", self.task),
        };
        if !(length > 0.0 && length <= self.most) {
            bail!(
                "{option} {length}: must be above 0 and at most {}",
                self.most
            );
        }
        Ok(length)
    }
}
