//! Every test of the workspace, with what was skipped said by name.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{cargo, output, run as run_command};
use crate::{in_ci, local_setup, mail_setup, mcp_setup, setup, target_dir};

pub(crate) fn run(args: &[String]) -> Result<()> {
    let nextest = has_nextest();
    // Building and downloading do not wait for each other.
    let (built, oracle, servers, environments, weights) = std::thread::scope(|scope| {
        let oracle = scope.spawn(setup::run);
        let servers = scope.spawn(mcp_setup::run);
        let environments = scope.spawn(mail_setup::after_exec);
        let weights = scope.spawn(local_setup::run);
        let built = run_command(runner(nextest, args).arg("--no-run").args(args));
        (
            built,
            oracle.join(),
            servers.join(),
            environments.join(),
            weights.join(),
        )
    });
    built?;
    let oracle = match oracle {
        Ok(result) => result?,
        Err(_) => bail!("setting up the original panicked"),
    };
    match servers {
        // What is missing was said; the tests that need it say so too.
        Ok(result) => result.map(drop)?,
        Err(_) => bail!("setting up the MCP servers panicked"),
    }
    match environments {
        Ok(result) => result.map(drop)?,
        Err(_) => bail!("unpacking sshd and podman panicked"),
    }
    match weights {
        Ok(result) => result.map(drop)?,
        Err(_) => bail!("fetching the weights panicked"),
    }

    let log = target_dir().join("skipped.log");
    if log.exists() {
        std::fs::remove_file(&log).with_context(|| log.display().to_string())?;
    }
    let outcome = run_tests(nextest, args, oracle.as_deref(), &log);
    let skipped = report_skipped(&log)?;
    outcome?;
    if skipped > 0 && in_ci() {
        bail!("{skipped} skipped tests; with CI=true none may be");
    }
    Ok(())
}

fn has_nextest() -> bool {
    let found = output(cargo().args(["nextest", "--version"])).is_some();
    if !found {
        eprintln!("cargo-nextest is not installed; using cargo test");
    }
    found
}

/// The test runner over the whole workspace, or over the packages that `args` name.
fn runner(nextest: bool, args: &[String]) -> Command {
    let mut command = cargo();
    command.args(if nextest {
        &["nextest", "run"][..]
    } else {
        &["test"]
    });
    let narrowed = args
        .iter()
        .any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
    if !narrowed {
        command.arg("--workspace");
    }
    command
}

fn run_tests(nextest: bool, args: &[String], oracle: Option<&Path>, log: &PathBuf) -> Result<()> {
    let prepare = |command: &mut Command| {
        command.env("HERMES_SKIP_LOG", log);
        if let Some(python) = oracle {
            command.env("HERMES_ORACLE_PYTHON", python);
        }
    };
    let mut tests = runner(nextest, args);
    tests.args(args);
    prepare(&mut tests);
    run_command(&mut tests)?;
    // nextest leaves the examples in the documentation out. A narrowed run does not want them.
    if nextest && args.is_empty() {
        let mut docs = cargo();
        docs.args(["test", "--workspace", "--doc", "--quiet"]);
        prepare(&mut docs);
        run_command(&mut docs)?;
    }
    Ok(())
}

/// Prints the skipped tests and counts them.
fn report_skipped(log: &Path) -> Result<usize> {
    if !log.exists() {
        println!("no test was skipped");
        return Ok(0);
    }
    let text = std::fs::read_to_string(log).with_context(|| log.display().to_string())?;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    println!("{} tests were skipped:", lines.len());
    for line in &lines {
        println!("  {line}");
    }
    Ok(lines.len())
}
