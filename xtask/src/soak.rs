//! `cargo xtask soak`: real MCP servers, killed and started again under load.

use anyhow::{Context, Result, bail};

use crate::command::{cargo, run as run_command};
use crate::mcp_setup;

/// How long it runs unless told.
const MINUTES: f64 = 5.0;
/// A day.
const LONGEST: f64 = 1440.0;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let minutes = minutes(args)?;
    if !mcp_setup::run()? {
        bail!("the servers are not installed; see above");
    }
    let mut command = cargo();
    command
        .args(["test", "--package", "hermes-mcp", "--test", "it", "--"])
        .args([
            "--ignored",
            "--exact",
            "soak::real_servers_restarted_under_load",
        ])
        .arg("--nocapture")
        .env("HERMES_SOAK_MINUTES", minutes.to_string())
        // A soak that skips itself proves nothing.
        .env("CI", "true");
    run_command(&mut command)
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
