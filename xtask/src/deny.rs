//! What we build on: its licences, sources, banned crates and known vulnerabilities, by cargo-deny.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::advisories::{
    Advisory, AdvisoryBundle, LockedCrate, bundle_dir, create_repository, read_lockfile, work_dir,
};
use crate::command::{cargo, retry, run as run_command};
use crate::tools::DENY;
use crate::workspace;

/// deny.toml reads from it where the databases are.
const DATABASES: &str = "HERMES_ADVISORY_DBS";
/// Nothing of ours names it; every derive macro needs it.
const PLANTED_ON: &str = "unicode-ident";

pub(crate) fn check() -> Result<()> {
    let bundle = AdvisoryBundle::load(&bundle_dir())?;
    let locked = read_lockfile(&workspace().join("Cargo.lock"))?;
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    println!("{}", bundle.describe(today)?);
    bundle.check_covers(&locked)?;

    let program = DENY.ensure()?;
    // cargo-deny leaves the database alone only when it may not use the network at all, so what it
    // reads of the crates has to be here before.
    retry(3, "fetching the crates", || {
        run_command(cargo().args(["fetch", "--locked", "--quiet"]))
    })?;
    let databases = work_dir().join("bundled");
    create_repository(&bundle, &databases)?;
    // Errors only: notes about crates that are fine would bury them.
    run_command(cargo_deny(&program, &databases).args([
        "advisories",
        "bans",
        "licenses",
        "sources",
    ]))?;
    check_alarm(&program, bundle, &locked)
}

/// A check that finds nothing may just not look. Advisories of every kind on a crate that others of
/// our crates bring along must be found.
fn check_alarm(program: &Path, mut bundle: AdvisoryBundle, locked: &[LockedCrate]) -> Result<()> {
    ensure!(
        locked.iter().any(|one| one.name == PLANTED_ON),
        "{PLANTED_ON} is not in Cargo.lock any more: name another crate in {}",
        file!()
    );
    let planted = planted(bundle.origin.date);
    bundle.advisories.extend(planted.clone());
    let databases = work_dir().join("planted");
    create_repository(&bundle, &databases)?;
    let checked = cargo_deny(program, &databases)
        .arg("advisories")
        .output()
        .context("cargo-deny does not start")?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
    for advisory in &planted {
        ensure!(
            !checked.status.success() && text.contains(&advisory.id),
            "cargo-deny does not find {} ({}), which was planted on purpose: {}\n{text}",
            advisory.id,
            advisory.title(),
            checked.status
        );
    }
    println!("advisories: {} planted ones were found", planted.len());
    Ok(())
}

/// Advisories on every version of a crate, one of each kind.
fn planted(date: Date) -> Vec<Advisory> {
    let kinds = [None, Some("unsound"), Some("unmaintained")];
    (1..)
        .zip(kinds)
        .map(|(number, kind)| Advisory {
            id: format!("RUSTSEC-9999-{number:04}"),
            package: PLANTED_ON.to_owned(),
            date,
            informational: kind.map(str::to_owned),
            withdrawn: None,
            categories: Vec::new(),
            aliases: Vec::new(),
            patched: Vec::new(),
            unaffected: Vec::new(),
        })
        .collect()
}

fn cargo_deny(program: &Path, databases: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(workspace())
        .env(DATABASES, databases)
        .args(["--offline", "--locked", "--log-level", "error", "check"]);
    command
}
