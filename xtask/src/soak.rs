//! `cargo xtask soak`: MCP servers that are killed, restarted and made to forget, under load.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{cargo, output, run as run_command};
use crate::{mcp_setup, workspace};

/// How long it runs unless told.
const MINUTES: f64 = 5.0;
/// A day.
const LONGEST: f64 = 1440.0;

const TEST: &str = "soak::real_servers_restarted_under_load";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let minutes = minutes(args)?;
    if !mcp_setup::run()? {
        bail!("the servers are not installed; see above");
    }
    run_command(&mut command(&["--package", "hermes-mcp"], minutes)?)
}

/// The same for a workspace whose tests are built already. Started, it needs cargo no more.
pub(crate) fn of_built_workspace() -> Result<Command> {
    command(&["--workspace"], MINUTES)
}

fn command(packages: &[&str], minutes: f64) -> Result<Command> {
    let mut command = Command::new(program(packages)?);
    command
        .args(["--ignored", "--exact", TEST, "--nocapture"])
        .current_dir(workspace().join("crates/hermes-mcp"))
        .env("HERMES_SOAK_MINUTES", minutes.to_string())
        // A soak that skips itself proves nothing.
        .env("CI", "true");
    Ok(command)
}

/// Builds the tests and gives the program that holds the soak.
fn program(packages: &[&str]) -> Result<PathBuf> {
    let mut build = cargo();
    build
        .args(["test", "--no-run", "--test", "it", "--message-format=json"])
        .args(packages);
    let told = output(&mut build).context("the tests do not build: cargo test says why")?;
    let manifest = workspace().join("crates/hermes-mcp/Cargo.toml");
    let program = told
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| {
            message["manifest_path"]
                .as_str()
                .map(PathBuf::from)
                .as_ref()
                == Some(&manifest)
        })
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.context("cargo names no test program of hermes-mcp")
}

fn minutes(args: &[String]) -> Result<f64> {
    let minutes = match args {
        [] => MINUTES,
        [name, text] if name == "--minutes" => text
            .parse()
            .with_context(|| format!("--minutes {text}: not a number"))?,
        _ => bail!("usage: cargo xtask soak [--minutes N]"),
    };
    if !(minutes > 0.0 && minutes <= LONGEST) {
        bail!("--minutes {minutes}: must be above 0 and at most {LONGEST}");
    }
    Ok(minutes)
}
