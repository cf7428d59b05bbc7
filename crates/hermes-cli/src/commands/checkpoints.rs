//! `hermes checkpoints`: the state of a project before the agent changed it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hermes_app::checkpoints::{changed, failure, listed, open, restore_text};
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_core::figures::size;
use hermes_tools::files::Checkpoints;
use hermes_tools::files::checkpoints::{CheckpointUsage, PruneBounds};

use crate::commands::sessions::{ago, confirm};
use crate::commands::{Context, counted};
use crate::exit::{Failure, Outcome};
use crate::wiring;

#[derive(Debug, Args)]
pub(crate) struct CheckpointsArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the snapshots of a project, newest first (the default)
    List {
        #[command(flatten)]
        project_args: ProjectArgs,
    },
    /// Show what changed since a snapshot
    Diff {
        /// Its number in the list, or its hash
        which: String,
        #[command(flatten)]
        project_args: ProjectArgs,
    },
    /// Restore a snapshot; the current state is saved as a snapshot first
    Restore {
        /// Its number in the list, or its hash
        which: String,
        /// Restore only this file
        file: Option<String>,
        #[command(flatten)]
        project_args: ProjectArgs,
    },
    #[command(flatten)]
    Whole(StoreCommand),
}

/// What concerns the snapshots of all projects.
#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Show how much space the snapshots of all projects use
    Status {
        /// Maximum number of projects to show
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete snapshots of projects that are gone or unused, and free the space
    Prune {
        /// Delete projects unused for this many days, 0 for none (checkpoints.retention_days)
        #[arg(long, value_name = "DAYS")]
        retention_days: Option<u32>,
        /// Delete the oldest snapshots above this size, 0 for no limit (checkpoints.max_total_size_mb)
        #[arg(long, value_name = "MB")]
        max_size_mb: Option<u64>,
        /// Keep the snapshots of directories that no longer exist
        #[arg(long)]
        keep_orphans: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete all snapshots of all projects
    Clear {
        #[command(flatten)]
        upkeep: CleanupArgs,
    },
    /// Delete archives left by an older layout
    ClearLegacy {
        #[command(flatten)]
        upkeep: CleanupArgs,
    },
}

#[derive(Debug, Args)]
struct CleanupArgs {
    /// Do not ask for confirmation
    #[arg(short, long, short_alias = 'f', alias = "force")]
    yes: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Args)]
struct ProjectArgs {
    /// The project (default: the one in the current directory)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

impl ProjectArgs {
    fn dir(&self) -> Result<PathBuf, Failure> {
        match &self.dir {
            Some(dir) => Ok(dir.clone()),
            None => std::env::current_dir()
                .map_err(|error| Failure::failed(format!("the working directory: {error}"))),
        }
    }
}

pub(crate) fn run(args: CheckpointsArgs, cx: &Context) -> Outcome {
    let checkpoints = open(cx, &cx.config()?);
    let action = args.action.unwrap_or(Action::List {
        project_args: ProjectArgs::default(),
    });
    wiring::runtime()?.block_on(async {
        match action {
            Action::List { project_args } => {
                let all = checkpoints
                    .list(&project_args.dir()?)
                    .await
                    .map_err(|error| failure(&error))?;
                if project_args.json {
                    return Ok(cx.out.json(&all)?);
                }
                Ok(cx.out.line(listed(&all, checkpoints.enabled()))?)
            }
            Action::Diff {
                which,
                project_args,
            } => {
                let changes = checkpoints.diff(&project_args.dir()?, &which).await;
                let changes = changes.map_err(|error| failure(&error))?;
                if project_args.json {
                    return Ok(cx.out.json(&changes)?);
                }
                Ok(cx.out.foreign_line(&changed(&changes.diff))?)
            }
            Action::Restore {
                which,
                file,
                project_args,
            } => {
                let dir = project_args.dir()?;
                let restored = checkpoints.restore(&dir, &which, file.as_deref());
                let restored = restored.await.map_err(|error| failure(&error))?;
                if project_args.json {
                    return Ok(cx.out.json(&restored)?);
                }
                Ok(cx.out.line(restore_text(&restored))?)
            }
            Action::Whole(whole) => look_after(cx, &checkpoints, whole).await,
        }
    })
}

async fn look_after(cx: &Context, checkpoints: &Checkpoints, action: StoreCommand) -> Outcome {
    match action {
        StoreCommand::Status { limit, json } => {
            let usage = checkpoints.usage().await.map_err(|error| failure(&error))?;
            if json {
                return Ok(cx.out.json(&usage)?);
            }
            Ok(cx.out.line(described(&usage, limit))?)
        }
        StoreCommand::Prune {
            retention_days,
            max_size_mb,
            keep_orphans,
            json,
        } => {
            let bounds = PruneBounds {
                retention_days,
                max_size_mb,
                keep_orphans,
            };
            let pruned = checkpoints.prune(bounds).await;
            let pruned = pruned.map_err(|error| failure(&error))?;
            if json {
                return Ok(cx.out.json(&pruned)?);
            }
            Ok(cx.out.line(format!(
                "{} examined, {} of deleted and {} of unused projects removed, {} freed",
                counted(pruned.scanned, "project"),
                pruned.deleted_orphan,
                pruned.deleted_stale,
                size(pruned.bytes_freed)
            ))?)
        }
        StoreCommand::Clear { upkeep } => clear(cx, checkpoints, &upkeep, false).await,
        StoreCommand::ClearLegacy { upkeep } => clear(cx, checkpoints, &upkeep, true).await,
    }
}

async fn clear(
    cx: &Context,
    checkpoints: &Checkpoints,
    upkeep: &CleanupArgs,
    legacy: bool,
) -> Outcome {
    if !upkeep.yes {
        let usage = checkpoints.usage().await.map_err(|error| failure(&error))?;
        let question = if legacy {
            let (count, bytes) = (usage.legacy_archives.len(), usage.legacy_size_bytes);
            format!("Delete {} ({})?", counted(count, "archive"), size(bytes))
        } else {
            let (count, bytes) = (usage.project_count, usage.total_size_bytes);
            let projects = counted(count, "project");
            format!("Delete all snapshots of {projects} ({})?", size(bytes))
        };
        confirm(cx, &question)?;
    }
    let cleared = if legacy {
        checkpoints.clear_legacy()
    } else {
        checkpoints.clear().await
    };
    let cleared = cleared.map_err(|error| failure(&error))?;
    if upkeep.json {
        return Ok(cx.out.json(&cleared)?);
    }
    let text = match cleared.deleted {
        0 => "nothing to delete".to_owned(),
        _ => format!("deleted, {} freed", size(cleared.bytes_freed)),
    };
    Ok(cx.out.line(text)?)
}

fn described(usage: &CheckpointUsage, limit: usize) -> String {
    let now = SystemClock.epoch_seconds();
    let total = size(usage.total_size_bytes);
    let projects = counted(usage.project_count, "project");
    let mut lines = vec![format!("{}: {projects}, {total}", usage.base.display())];
    for project in usage.projects.iter().take(limit) {
        let touched = project
            .last_touch
            .map_or_else(String::new, |at| format!(", {}", ago(now, at)));
        let gone = if project.exists { "" } else { " (gone)" };
        lines.push(format!(
            "  {}{gone}: {}{touched}",
            project.workdir,
            counted(
                usize::try_from(project.commits).unwrap_or(usize::MAX),
                "snapshot"
            ),
        ));
    }
    if let more @ 1.. = usage.projects.len().saturating_sub(limit) {
        lines.push(format!("  and {more} more (--limit)"));
    }
    if !usage.legacy_archives.is_empty() {
        lines.push(format!(
            "{} of an older layout, {} (hermes checkpoints clear-legacy)",
            counted(usage.legacy_archives.len(), "archive"),
            size(usage.legacy_size_bytes)
        ));
    }
    lines.join("\n")
}
