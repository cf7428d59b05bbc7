//! `hermes checkpoints`: the state of a project before the agent changed it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use hermes_config::Config;
use hermes_core::clock::SystemClock;
use hermes_tools::files::Checkpoints;
use hermes_tools::files::checkpoints::{Checkpoint, CheckpointError, Restored};

use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

#[derive(Debug, Args)]
pub(crate) struct CheckpointsArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// The snapshots of a project, newest first (the default)
    List {
        #[command(flatten)]
        place: Place,
    },
    /// What changed since a snapshot
    Diff {
        /// Its number in the list, or its hash
        which: String,
        #[command(flatten)]
        place: Place,
    },
    /// Go back to a snapshot; the state before is kept as another one
    Restore {
        /// Its number in the list, or its hash
        which: String,
        /// Only this file
        file: Option<String>,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Debug, Default, Args)]
struct Place {
    /// The project, if it is not the one around the working directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

impl Place {
    fn dir(&self) -> Result<PathBuf, Failure> {
        match &self.dir {
            Some(dir) => Ok(dir.clone()),
            None => std::env::current_dir()
                .map_err(|error| Failure::failed(format!("the working directory: {error}"))),
        }
    }
}

/// The snapshots of this home.
pub(crate) fn open(cx: &Context, config: &Config) -> Checkpoints {
    Checkpoints::from_config(&cx.home, config, Arc::new(SystemClock))
}

pub(crate) fn run(args: CheckpointsArgs, cx: &Context) -> Outcome {
    let checkpoints = open(cx, &cx.config()?);
    let action = args.action.unwrap_or(Action::List {
        place: Place::default(),
    });
    wiring::runtime()?.block_on(async {
        match action {
            Action::List { place } => {
                let all = checkpoints
                    .list(&place.dir()?)
                    .await
                    .map_err(|error| failure(&error))?;
                if place.json {
                    return Ok(cx.out.json(&all)?);
                }
                Ok(cx.out.line(listed(&all, checkpoints.enabled()))?)
            }
            Action::Diff { which, place } => {
                let changes = checkpoints.diff(&place.dir()?, &which).await;
                let changes = changes.map_err(|error| failure(&error))?;
                if place.json {
                    return Ok(cx.out.json(&changes)?);
                }
                Ok(cx.out.foreign_line(&changed(&changes.diff))?)
            }
            Action::Restore { which, file, place } => {
                let dir = place.dir()?;
                let restored = checkpoints.restore(&dir, &which, file.as_deref());
                let restored = restored.await.map_err(|error| failure(&error))?;
                if place.json {
                    return Ok(cx.out.json(&restored)?);
                }
                Ok(cx.out.line(told(&restored))?)
            }
        }
    })
}

pub(crate) fn listed(all: &[Checkpoint], enabled: bool) -> String {
    if all.is_empty() {
        return if enabled {
            "no checkpoints of this project yet".to_owned()
        } else {
            "no checkpoints: they are off (hermes config set checkpoints.enabled true)".to_owned()
        };
    }
    let lines: Vec<String> = all
        .iter()
        .map(|entry| {
            let at = entry.timestamp.replacen('T', " ", 1);
            let at = at.get(..19).unwrap_or(&at);
            format!(
                "{:>3}  {at}  {}  {} (+{} -{} in {} files)",
                entry.number,
                entry.short_hash,
                entry.reason,
                entry.insertions,
                entry.deletions,
                entry.files_changed
            )
        })
        .collect();
    lines.join("\n")
}

pub(crate) fn changed(diff: &str) -> String {
    if diff.is_empty() {
        "nothing changed since".to_owned()
    } else {
        diff.to_owned()
    }
}

pub(crate) fn told(restored: &Restored) -> String {
    let dir = restored.directory.display();
    let to = format!(
        "checkpoint {} ({})",
        restored.checkpoint.short_hash, restored.checkpoint.reason
    );
    let mut text = match &restored.file {
        Some(file) => format!("{file} of {dir} is as in {to}"),
        None => format!("{dir} is as in {to}"),
    };
    if !restored.removed.is_empty() {
        let removed = restored.removed.join(", ");
        text = format!("{text}; files that came later are gone: {removed}");
    }
    if restored.saved {
        text.push_str("\nthe state before is checkpoint 1 now");
    }
    text
}

pub(crate) fn failure(error: &CheckpointError) -> Failure {
    let exit = match error {
        CheckpointError::None(_) | CheckpointError::Unknown { .. } => Exit::NotFound,
        CheckpointError::BadPath(_) => Exit::Usage,
        CheckpointError::Busy => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
