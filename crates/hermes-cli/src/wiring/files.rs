//! The file tools of a conversation, and what all conversations of the process share of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_agent::spill;
use hermes_config::Config;
use hermes_core::clock::SystemClock;
use hermes_exec::Confinement;
use hermes_tools::files::{Checkpoints, Confining, FileDeps, FileLedger};

use super::commands::Commands;
use crate::commands::Context;

/// Who knows which file, and the snapshots.
#[derive(Clone)]
pub(crate) struct FileState {
    ledger: FileLedger,
    pub(crate) checkpoints: Checkpoints,
}

impl FileState {
    pub(crate) fn new(cx: &Context, config: &Config) -> Self {
        Self {
            ledger: FileLedger::new(),
            checkpoints: checkpoints(cx, config),
        }
    }
}

/// The snapshots of this home.
pub(crate) fn checkpoints(cx: &Context, config: &Config) -> Checkpoints {
    Checkpoints::from_config(&cx.home, config, Arc::new(SystemClock))
}

/// For a model with this window, that sees images or not.
pub(crate) fn deps(
    cx: &Context,
    config: &Config,
    commands: &Commands,
    (window, sees): (u32, bool),
) -> FileDeps {
    let mut deps = FileDeps::from_config(
        &cx.home,
        config,
        Arc::clone(&commands.environment),
        commands.workspaces.clone(),
        commands.gate.clone(),
        commands.files.checkpoints.clone(),
    );
    deps.ledger = commands.files.ledger.clone();
    deps.images = sees;
    // A page of a file must fit beside the rest of a small window.
    deps.limits.chars = spill::Limits::for_window(window, deps.limits.chars, usize::MAX).result;
    deps.safe_roots = safe_roots(cx);
    deps.confining = confining(commands);
    deps
}

fn confining(commands: &Commands) -> Confining {
    match commands.sandbox.clone() {
        Some(sandbox) => Arc::new(move |cwd: &Path| sandbox.confinement(cwd)),
        None => Arc::new(|_: &Path| Confinement::Off),
    }
}

/// `HERMES_WRITE_SAFE_ROOT`: directories, with colons between them.
fn safe_roots(cx: &Context) -> Vec<PathBuf> {
    let value = cx.env.get("HERMES_WRITE_SAFE_ROOT").unwrap_or_default();
    value
        .split(':')
        .filter(|root| !root.is_empty())
        .map(|root| cx.home.expand_user(root))
        .collect()
}
