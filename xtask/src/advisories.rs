//! Known vulnerabilities of the crates we build on: `cargo xtask advisories`.
//!
//! CI must not depend on a host that it may be unable to reach, so the advisories that concern the
//! crates of Cargo.lock are bundled in `ci/advisories`, as facts: which versions, which kind.

mod advisory;
mod bundle;
mod lockfile;
mod repository;
mod update;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

pub(crate) use advisory::Advisory;
pub(crate) use bundle::AdvisoryBundle;
pub(crate) use lockfile::{LockedCrate, read as read_lockfile};
pub(crate) use repository::create as create_repository;

use crate::{deny, workspace};

/// The public database.
const UPSTREAM: &str = "https://github.com/RustSec/advisory-db";

/// Where the bundled advisories are.
pub(crate) fn bundle_dir() -> PathBuf {
    workspace().join("ci/advisories")
}

/// Where databases are put for cargo-deny; nothing here is kept.
pub(crate) fn work_dir() -> PathBuf {
    workspace().join("target/advisories")
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => deny::check(),
        ["--update"] => update::from_upstream(),
        ["--update", "--from", clone] => update::from_clone(Path::new(clone)),
        other => bail!(
            "{:?} is not understood: `cargo xtask advisories [--update [--from DIR]]`",
            other.join(" ")
        ),
    }
}
