//! Everything, at full length: what CI runs in a short form, and what it leaves out.

use anyhow::Result;

use crate::ci::CompletedSteps;
use crate::command::{like_cargo, run as run_command};
use crate::soak::{CHAOS, FLAT, SOAK};
use crate::tools::NEXTEST;
use crate::{bench, fuzz, test};

/// Combinations of lost MCP sessions.
const MATRIX: &str = "50000";
/// For each fuzz target.
const FUZZ_SECONDS: &str = "600";
const SOAK_MINUTES: &str = "30";
const CHAOS_MINUTES: &str = "15";

pub(crate) fn run() -> Result<()> {
    let mut done = CompletedSteps::default();
    done.take("test", || test::run(&[]));
    done.take("matrix", matrix);
    done.take("fuzz", || {
        fuzz::run(&["--seconds".to_owned(), FUZZ_SECONDS.to_owned()])
    });
    done.take("soak", || SOAK.run(&minutes(SOAK_MINUTES)));
    done.take("chaos", || CHAOS.run(&minutes(CHAOS_MINUTES)));
    done.take("flat", || FLAT.run(&[]));
    done.take("bench", || bench::run(&["--check".to_owned()]));
    done.report()
}

fn matrix() -> Result<()> {
    run_command(
        like_cargo(NEXTEST.ensure()?)
            .args(["nextest", "run", "--profile", "nightly"])
            .args(["--package", "hermes-mcp", "matrix::"])
            .env("HERMES_MATRIX_COUNT", MATRIX),
    )
}

fn minutes(count: &str) -> [String; 2] {
    ["--minutes".to_owned(), count.to_owned()]
}
