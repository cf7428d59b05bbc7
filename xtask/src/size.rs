//! `cargo xtask size`: builds the release binary and fails if it exceeds its size limit.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, run as run_command};
use crate::target_dir;

/// Lower it whenever the binary shrinks; the goal is 32 MB. If a change needs more, reduce something
/// else: docs/performance.md lists what costs how much.
const MAX_BYTES: u64 = 35_500_000;

pub(crate) fn run() -> Result<()> {
    run_command(cargo().args(["build", "--release", "--locked", "--package", "hermes-cli"]))?;
    let program = target_dir().join("release").join("hermes");
    let bytes = fs::metadata(&program)
        .with_context(|| program.display().to_string())?
        .len();
    println!(
        "hermes: {} of at most {}",
        megabytes(bytes),
        megabytes(MAX_BYTES)
    );
    ensure!(
        bytes <= MAX_BYTES,
        "the release binary is {bytes} bytes, {} more than allowed",
        bytes - MAX_BYTES
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}
