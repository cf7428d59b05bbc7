//! Installs the pinned original into a virtual environment under target/.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{output, retry, run as run_command};
use crate::{in_ci, workspace};

/// The release our formats are checked against.
const VERSION: &str = "0.19.0";

/// Interpreters the original runs on, best first.
const PYTHONS: &[&str] = &["python3.11", "python3.12", "python3.13", "python3"];

/// Makes sure the original is there and returns its interpreter. `None`: it cannot be had here,
/// and the tests that need it will be reported as skipped.
pub(crate) fn run() -> Result<Option<PathBuf>> {
    // Beside cargo's own directories, wherever those are, so that every build shares it.
    let home = workspace().join("target/oracle");
    let python = home.join("bin/python");
    if installed(&python).as_deref() == Some(VERSION) {
        eprintln!("the original {VERSION} is installed: {}", home.display());
        return Ok(Some(python));
    }
    match install(&home, &python) {
        Ok(()) => Ok(Some(python)),
        Err(error) if in_ci() => Err(error),
        Err(error) => {
            eprintln!("warning: the original cannot be installed: {error:#}");
            eprintln!(
                "warning: tests that compare with it are skipped; `cargo xtask setup` tries again"
            );
            Ok(None)
        }
    }
}

fn installed(python: &Path) -> Option<String> {
    if !python.exists() {
        return None;
    }
    let program = "import importlib.metadata as m; print(m.version('hermes-agent'))";
    output(Command::new(python).args(["-c", program]))
}

fn install(home: &Path, python: &Path) -> Result<()> {
    let base = interpreter()?;
    if home.exists() {
        std::fs::remove_dir_all(home).with_context(|| home.display().to_string())?;
    }
    run_command(Command::new(&base).args(["-m", "venv"]).arg(home))?;
    let constraints = workspace().join("xtask/oracle-constraints.txt");
    retry(4, "installing the original", || {
        run_command(
            Command::new(python)
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ])
                .args([
                    "--retries",
                    "5",
                    "--timeout",
                    "30",
                    "--only-binary",
                    ":all:",
                ])
                .arg("--constraint")
                .arg(&constraints)
                .arg(format!("hermes-agent=={VERSION}")),
        )
    })?;
    match installed(python) {
        Some(version) if version == VERSION => Ok(()),
        other => bail!("pip reports success, yet version {VERSION} is not there (found {other:?})"),
    }
}

/// A Python the original supports (3.11 to 3.13).
pub(crate) fn interpreter() -> Result<PathBuf> {
    let program = "import sys, venv; print('%d.%d' % sys.version_info[:2])";
    for name in PYTHONS {
        let version = output(Command::new(name).args(["-c", program]));
        if matches!(version.as_deref(), Some("3.11" | "3.12" | "3.13")) {
            return Ok(PathBuf::from(name));
        }
    }
    bail!("no Python 3.11, 3.12 or 3.13 with the venv module on PATH")
}
