//! A git repository out of the bundled advisories: what cargo-deny takes a database to be.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::AdvisoryBundle;
use crate::command::line;

/// The folder in which cargo-deny expects the database of the address in deny.toml: the end of the
/// address and a hash of it. With another folder cargo-deny finds nothing and says so.
const FOLDER: &str = "advisory-db-3157b0e258782691";

/// Puts the database below `root`, in place of the one that is there.
pub(crate) fn create(bundle: &AdvisoryBundle, root: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    bundle.write_advisories(&folder)?;
    let moment = noon(bundle.origin.date)?;
    commit(&folder, &bundle.origin.date.to_string())?;
    // cargo-deny takes the time of this file for the age of the database. It gets the true one, so
    // that its limit of age counts from the state that is bundled and not from this moment.
    let path = folder.join(".git/FETCH_HEAD");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    file.set_modified(moment)
        .with_context(|| path.display().to_string())
}

fn noon(date: Date) -> Result<SystemTime> {
    Ok(date
        .at(12, 0, 0, 0)
        .to_zoned(TimeZone::UTC)?
        .timestamp()
        .into())
}

/// The same files make the same commit, whoever runs this and whatever their git is set to.
fn commit(folder: &Path, date: &str) -> Result<()> {
    git(folder, date, &["init", "--quiet", "--initial-branch=main"])?;
    git(folder, date, &["add", "--all", "--force"])?;
    git(
        folder,
        date,
        &["commit", "--quiet", "--no-verify", "--message=advisories"],
    )
}

fn git(folder: &Path, date: &str, args: &[&str]) -> Result<()> {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        // A hook that runs us names its own repository in these.
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(&name);
        }
    }
    let moment = format!("{date}T12:00:00+00:00");
    command
        .arg("-C")
        .arg(folder)
        .args(["-c", "core.autocrlf=false"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_DATE", &moment)
        .env("GIT_COMMITTER_DATE", &moment);
    for role in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{role}_NAME"), "xtask")
            .env(format!("GIT_{role}_EMAIL"), "xtask@localhost");
    }
    let output = command.output().context("git does not start")?;
    ensure!(
        output.status.success(),
        "{}: {}",
        line(&command),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
