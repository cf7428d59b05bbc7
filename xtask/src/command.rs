//! Running other programs.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    like_cargo(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A program that starts that cargo, in the same surroundings.
pub(crate) fn like_cargo(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace());
    // These describe xtask's own build and would mislead the cargo we start: build scripts that
    // look at them (ring's does) would run again each time.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// The command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or_default();
    let mut words = vec![name.to_owned()];
    let args = command.get_args();
    words.extend(args.map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs it with its output shown; fails when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = line(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| shown.clone())?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs it and takes its standard output. `None`: it failed or does not exist.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// Tries up to `times` with growing pauses: for things that need the network.
pub(crate) fn retry(times: u32, what: &str, mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    let mut tried = 1;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(error) if tried < times => {
                let pause = Duration::from_secs(5 * u64::from(tried));
                eprintln!("{what} failed ({error:#}); again in {pause:?}");
                std::thread::sleep(pause);
                tried += 1;
            }
            Err(error) => return Err(error.context(format!("{what}: gave up after {times} tries"))),
        }
    }
}
