//! File tools: reading, writing, patching, searching, in the same environment as commands.

use std::sync::Arc;

use hermes_agent::spill;
use hermes_config::Config;
use hermes_exec::Confinement;
use hermes_tools::files::{FileDeps, ReadMemory};

use crate::context::AppContext;
use crate::wiring::commands::CommandEnvironment;

/// The dependencies of the file tools. `sees`: the model supports images; `window`: its context
/// size in tokens, which limits a page.
pub(super) fn deps(
    cx: &AppContext,
    config: &Config,
    commands: &CommandEnvironment,
    (sees, window): (bool, u32),
    memory: ReadMemory,
) -> FileDeps {
    let mut files = FileDeps::from_config(
        &cx.home,
        config,
        Arc::clone(&commands.environment),
        commands.workspaces.clone(),
        commands.gate.clone(),
        commands.checkpoints.clone(),
    );
    let fitting = spill::ResultLimits::for_window(window, files.limits.chars, usize::MAX);
    files.limits.chars = fitting.result;
    files.ledger = commands.ledger.clone();
    files.images = sees;
    files.memory = memory;
    let sandbox = commands.sandbox.clone();
    files.confining = Arc::new(move |dir| match &sandbox {
        Some(sandbox) => sandbox.confinement(dir),
        None => Confinement::Off,
    });
    let sandbox = commands.sandbox.clone();
    files.runs_later = Arc::new(move |dir, path| {
        let sandbox = sandbox.as_ref();
        sandbox.is_some_and(|sandbox| sandbox.runs_later(dir, path))
    });
    let sandbox = commands.sandbox.clone();
    files.private_files = Arc::new(move |dir| {
        let sandbox = sandbox.as_ref();
        sandbox.map_or_else(Arc::default, |sandbox| sandbox.private_files(dir))
    });
    if let Some(roots) = cx.env.get("HERMES_WRITE_SAFE_ROOT") {
        files.safe_roots = std::env::split_paths(roots).collect();
    }
    files
}
