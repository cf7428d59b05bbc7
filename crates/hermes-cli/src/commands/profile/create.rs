//! `hermes profile create`.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use hermes_config::fs::{create_private_dir, write_atomic};
use hermes_config::yaml;
use serde_json::json;

use super::{dir, existing, io_failure, new_name};
use crate::commands::Context;
use crate::exit::Outcome;

#[derive(Debug, clap::Args)]
pub(super) struct CreateArgs {
    name: String,
    /// Copy config, keys, SOUL.md, skills and memory from the profile in use
    #[arg(long)]
    clone: bool,
    /// Copy everything except conversations and backups
    #[arg(long)]
    clone_all: bool,
    /// Copy from this profile
    #[arg(long, value_name = "SOURCE")]
    clone_from: Option<String>,
    /// Start without skills, and do not install the bundled ones later
    #[arg(long, conflicts_with_all = ["clone", "clone_all", "clone_from"])]
    no_skills: bool,
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// Accepted for compatibility; no alias is created anyway
    #[arg(long, hide = true)]
    no_alias: bool,
}

/// What every profile begins with.
const DIRS: [&str; 9] = [
    "memories",
    "sessions",
    "skills",
    "skins",
    "logs",
    "plans",
    "workspace",
    "cron",
    "home",
];
const CLONED_FILES: [&str; 5] = [
    "config.yaml",
    ".env",
    "SOUL.md",
    "memories/MEMORY.md",
    "memories/USER.md",
];
/// Conversations and what belongs to them.
const HISTORY: [&str; 7] = [
    "state.db",
    "state.db-wal",
    "state.db-shm",
    "sessions",
    "backups",
    "state-snapshots",
    "checkpoints",
];
/// What a running program left behind.
const RUNTIME: [&str; 6] = [
    "gateway.pid",
    "gateway_control.json",
    "gateway_state.json",
    "gateway.lock",
    "processes.json",
    "active_profile",
];
/// What only the root home has.
const ROOT_ONLY: [&str; 5] = [
    "hermes-agent",
    ".worktrees",
    "profiles",
    "bin",
    "node_modules",
];

const ENV: &str = "\
# Keys and tokens of this profile. They go before those of the shell.
# Settings belong in config.yaml.
";

pub(super) fn run(args: &CreateArgs, cx: &Context) -> Outcome {
    let id = new_name(&args.name, cx)?;
    let source = match (&args.clone_from, args.clone || args.clone_all) {
        (Some(name), _) => Some(dir(cx, &existing(name, cx)?)),
        (None, true) => Some(cx.home.root().to_owned()),
        (None, false) => None,
    };
    let path = dir(cx, &id);
    let staged = path.with_file_name(format!(".new-{id}"));
    // What an earlier attempt left.
    let _ = std::fs::remove_dir_all(&staged);
    let made = fill(args, cx, source.as_deref(), &staged)
        .and_then(|()| std::fs::rename(&staged, &path).map_err(|error| io_failure(&path, &error)));
    if made.is_err() {
        let _ = std::fs::remove_dir_all(&staged);
    }
    made?;
    cx.out
        .line(format!("made profile {id} in {}", path.display()))?;
    cx.out.remark(format!(
        "set it up: hermes -p {id} setup; use it always: hermes profile use {id}"
    ));
    Ok(())
}

fn fill(args: &CreateArgs, cx: &Context, source: Option<&Path>, to: &Path) -> Outcome {
    let failed = |error: io::Error| io_failure(to, &error);
    create_private_dir(to).map_err(failed)?;
    match source {
        Some(source) if args.clone_all => {
            let root = source == cx.home.profiles_root();
            copy_tree(source, to, &|name| {
                HISTORY.contains(&name)
                    || RUNTIME.contains(&name)
                    || (root && ROOT_ONLY.contains(&name))
            })
            .map_err(failed)?;
        }
        source => {
            for name in DIRS {
                create_private_dir(&to.join(name)).map_err(failed)?;
            }
            if let Some(source) = source {
                clone_settings(source, to).map_err(failed)?;
            }
        }
    }
    let env = to.join(".env");
    if !env.exists() {
        write_atomic(&env, ENV.as_bytes(), 0o600).map_err(failed)?;
    }
    std::fs::set_permissions(&env, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    if args.no_skills {
        let text = "No bundled skills are put into this profile. Remove this file to have them.\n";
        write_atomic(&to.join(".no-bundled-skills"), text.as_bytes(), 0o600).map_err(failed)?;
    }
    let description = args.description.as_deref().map_or("", str::trim);
    if !description.is_empty() {
        let meta = json!({"description": description, "description_auto": false});
        write_atomic(
            &to.join("profile.yaml"),
            format!("{}\n", yaml::to_block(&meta).trim_end()).as_bytes(),
            0o600,
        )
        .map_err(failed)?;
    }
    Ok(())
}

fn clone_settings(source: &Path, to: &Path) -> io::Result<()> {
    for name in CLONED_FILES {
        let from = source.join(name);
        if from.is_file() {
            std::fs::copy(&from, to.join(name))?;
        }
    }
    let skills = source.join("skills");
    if skills.is_dir() {
        copy_tree(&skills, &to.join("skills"), &|_| false)?;
    }
    Ok(())
}

/// Copies a directory. Links stay links; what `skip` names at the top stays behind, and so do
/// sockets and leftovers everywhere.
fn copy_tree(from: &Path, to: &Path, skip: &dyn Fn(&str) -> bool) -> io::Result<()> {
    create_private_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if skip(&text) || is_leftover(&text) {
            continue;
        }
        let (path, target) = (entry.path(), to.join(&name));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&path, &target, &|_| false)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&path)?, &target)?;
        } else if kind.is_file() {
            std::fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

pub(super) fn is_leftover(name: &str) -> bool {
    name == "__pycache__"
        || [".pyc", ".pyo", ".sock", ".tmp"]
            .iter()
            .any(|end| name.ends_with(end))
}
