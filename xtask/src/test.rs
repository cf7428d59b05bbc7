//! Every test of the workspace, with what was skipped said by name.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{cargo, like_cargo, run as run_command};
use crate::tools::NEXTEST;
use crate::{exec_setup, in_ci, local_setup, mail_setup, mcp_setup, setup, target_dir};

pub(crate) fn run(args: &[String]) -> Result<()> {
    // Building and downloading do not wait for each other.
    let (nextest, oracle, servers, environments, weights) = std::thread::scope(|scope| {
        let oracle = scope.spawn(setup::run);
        let servers = scope.spawn(mcp_setup::run);
        let environments = scope.spawn(mail_setup::after_exec);
        let weights = scope.spawn(local_setup::run);
        (
            build(args),
            oracle.join(),
            servers.join(),
            environments.join(),
            weights.join(),
        )
    });
    let nextest = nextest?;
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
    let outcome = run_tests(nextest.as_deref(), args, oracle.as_deref(), &log);
    let skipped = report_skipped(&log)?;
    outcome?;
    if skipped > 0 && in_ci() {
        bail!("{skipped} skipped tests; with CI=true none may be");
    }
    Ok(())
}

/// Builds the tests, and what runs them.
fn build(args: &[String]) -> Result<Option<PathBuf>> {
    let nextest = nextest()?;
    run_command(runner(nextest.as_deref(), args)?.arg("--no-run").args(args))?;
    Ok(nextest)
}

/// cargo-nextest. `None`: it is not here and cannot be built, so cargo runs the tests.
fn nextest() -> Result<Option<PathBuf>> {
    match NEXTEST.ensure() {
        Ok(program) => Ok(Some(program)),
        Err(error) if in_ci() => Err(error),
        Err(error) => {
            eprintln!("warning: cargo-nextest cannot be built: {error:#}; using cargo test");
            Ok(None)
        }
    }
}

/// The test runner over the whole workspace, or over the packages that `args` name.
fn runner(nextest: Option<&Path>, args: &[String]) -> Result<Command> {
    let (mut command, words) = match nextest {
        Some(program) => (like_cargo(program), &["nextest", "run"][..]),
        None => (cargo(), &["test"][..]),
    };
    command.args(words);
    let narrowed = args
        .iter()
        .any(|arg| arg.starts_with("-p") || arg.starts_with("--package"));
    if !narrowed {
        command.arg("--workspace");
    }
    command.env("PATH", exec_setup::search_path()?);
    Ok(command)
}

fn run_tests(
    nextest: Option<&Path>,
    args: &[String],
    oracle: Option<&Path>,
    log: &PathBuf,
) -> Result<()> {
    let prepare = |command: &mut Command| {
        command.env("HERMES_SKIP_LOG", log);
        if let Some(python) = oracle {
            command.env("HERMES_ORACLE_PYTHON", python);
        }
    };
    let mut tests = runner(nextest, args)?;
    tests.args(args);
    prepare(&mut tests);
    run_command(&mut tests)?;
    // nextest leaves the examples in the documentation out. A narrowed run does not want them.
    if nextest.is_some() && args.is_empty() {
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
