//! `hermes import`: a home out of a backup, of this program or of the original. The archive is
//! checked and unpacked beside the home; only a complete home takes the place of the old one,
//! which is kept.

mod archive;
mod swap;

use std::fs::File;
use std::path::{Path, PathBuf};

use chrono::Local;
use hermes_config::fs::{FileLock, LockError};
use hermes_store::find_corruption;
use serde::Serialize;
use zip::ZipArchive;

use super::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};
use hermes_core::figures::size;

#[derive(Debug, clap::Args)]
pub(crate) struct HomeImportArgs {
    /// A backup made by `hermes backup`
    zip: PathBuf,
    /// Replace the existing home; the old one is kept next to it
    #[arg(short, long)]
    force: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct HomeImportReport {
    home: PathBuf,
    files: usize,
    bytes: u64,
    /// Where the home that was there before is now.
    previous: Option<PathBuf>,
    /// What of the archive does not belong to a home, or only to the machine it came from.
    skipped: Vec<String>,
}

pub(crate) fn run(args: &HomeImportArgs, cx: &Context) -> Outcome {
    let file = File::open(&args.zip).map_err(|error| {
        let text = format!("cannot read {}: {error}", args.zip.display());
        match error.kind() {
            std::io::ErrorKind::NotFound => Failure::not_found(text),
            _ => Failure::failed(text),
        }
    })?;
    let refused = |why: &str| {
        Failure::failed(format!(
            "{}: {why}; nothing was changed",
            args.zip.display()
        ))
    };
    let mut zip = ZipArchive::new(file)
        .map_err(|error| refused(&format!("this is not a readable zip archive ({error})")))?;
    let plan = archive::plan(&mut zip).map_err(|why| refused(&why))?;
    // What a link leads to is replaced, not the link.
    let root = cx.home.profiles_root();
    let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let occupied = is_occupied(&root);
    if occupied && !args.force {
        return Err(Failure::failed(format!(
            "there is a home at {} already: pass --force to replace it (it is kept), or choose another place with HERMES_HOME",
            root.display()
        )));
    }
    let _gateway = no_gateway(&root)?;
    let staging = swap::Staging::beside(&root, plan.bytes)?;
    archive::unpack(&mut zip, &plan, staging.path()).map_err(|why| refused(&why))?;
    for entry in plan
        .entries
        .iter()
        .filter(|entry| entry.ends_with("state.db"))
    {
        if let Some(problem) = find_corruption(&staging.path().join(entry)) {
            return Err(refused(&format!("{entry} in it is damaged ({problem})")));
        }
    }
    let stamp = Local::now().format("%Y%m%d-%H%M%S").to_string();
    let previous = staging.take_the_place_of(&root, occupied, &stamp)?;
    report(
        args,
        cx,
        &HomeImportReport {
            home: root,
            files: plan.entries.len(),
            bytes: plan.bytes,
            previous,
            skipped: plan.skipped,
        },
    )
}

fn report(args: &HomeImportArgs, cx: &Context, report: &HomeImportReport) -> Outcome {
    if args.json {
        cx.out.json(report)?;
        return Ok(());
    }
    cx.out.line(format!(
        "{}: {}, {}",
        report.home.display(),
        counted(report.files, "file"),
        size(report.bytes)
    ))?;
    if let Some(previous) = &report.previous {
        cx.out.line(format!(
            "the previous home is kept at {}; delete it when you no longer need it",
            previous.display()
        ))?;
    }
    if !report.skipped.is_empty() {
        cx.out.remark(format!(
            "not taken over (of another machine or place): {}",
            report.skipped.join(", ")
        ));
    }
    Ok(())
}

/// Whether something would be replaced. Empty directories and logs of this very call do not count.
fn is_occupied(root: &Path) -> bool {
    fn has_file(dir: &Path) -> bool {
        std::fs::read_dir(dir).is_ok_and(|entries| {
            entries.flatten().any(|entry| match entry.file_type() {
                Ok(kind) if kind.is_dir() => has_file(&entry.path()),
                _ => entry
                    .path()
                    .extension()
                    .is_none_or(|end| end != "lock" && end != "log"),
            })
        })
    }
    has_file(root)
}

/// A gateway would go on writing to the home that was put aside.
fn no_gateway(root: &Path) -> Result<Option<FileLock>, Failure> {
    let path = root.join("gateway.lock");
    if !path.exists() {
        return Ok(None);
    }
    match FileLock::try_acquire(&path) {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Busy(_)) => Err(Failure::new(
            Exit::Busy,
            "a gateway works on this home; stop it first: hermes gateway stop",
        )),
        Err(error) => Err(Failure::failed(error.to_string())),
    }
}
