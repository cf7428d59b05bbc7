//! `hermes profile`: several homes side by side, each with its own config, keys, memory and
//! conversations. The layout is the original's: `profiles/<name>` below the root home, and
//! `active_profile` names the one that is used without `-p`.

mod archive;
mod create;
mod show;
mod strip;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hermes_config::fs::write_atomic;
use hermes_config::home::is_profile_id;

use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::prompt;

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    command: Option<ProfileCommand>,
}

#[derive(Debug, Subcommand)]
enum ProfileCommand {
    /// List all profiles (the default)
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a profile the default; `default` is the root home
    Use { name: String },
    /// Create a profile
    Create(create::CreateArgs),
    /// Delete a profile and everything in it
    Delete {
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Show what a profile contains
    Show {
        /// Profile (default: the one in use)
        name: Option<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Rename a profile
    Rename { old: String, new: String },
    /// Export a profile to a .tar.gz, without its secrets
    Export(archive::ProfileExportArgs),
    /// Create a profile from a .tar.gz
    Import(archive::ProfileImportArgs),
}

pub(crate) fn run(args: ProfileArgs, cx: &Context) -> Outcome {
    match args.command.unwrap_or(ProfileCommand::List { json: false }) {
        ProfileCommand::List { json } => show::list(json, cx),
        ProfileCommand::Use { name } => use_profile(&name, cx),
        ProfileCommand::Create(args) => create::run(&args, cx),
        ProfileCommand::Delete { name, yes } => delete(&name, yes, cx),
        ProfileCommand::Show { name, json } => show::run(name.as_deref(), json, cx),
        ProfileCommand::Rename { old, new } => rename(&old, &new, cx),
        ProfileCommand::Export(args) => archive::export(&args, cx),
        ProfileCommand::Import(args) => archive::import(&args, cx),
    }
}

/// The name of the root home.
const DEFAULT: &str = "default";
/// Names that would be mistaken for the program or for commands of every system.
const RESERVED: [&str; 5] = ["hermes", "test", "tmp", "root", "sudo"];

/// A name as it is kept on disk.
fn canonical(name: &str) -> Result<String, Failure> {
    let id = name.trim().to_lowercase();
    if id == DEFAULT || (is_profile_id(&id) && !RESERVED.contains(&id.as_str())) {
        return Ok(id);
    }
    Err(Failure::usage(if RESERVED.contains(&id.as_str()) {
        format!("{id} cannot be the name of a profile: it means something else already")
    } else {
        format!(
            "{name:?} is not a profile name: use a-z, 0-9, '-' and '_', starting with a letter or digit, at most 64"
        )
    }))
}

/// The name of a profile that is to come into being.
fn new_name(name: &str, cx: &Context) -> Result<String, Failure> {
    let id = canonical(name)?;
    if id == DEFAULT {
        return Err(Failure::usage(
            "default is the root home: choose another name",
        ));
    }
    let path = dir(cx, &id);
    if path.symlink_metadata().is_ok() {
        return Err(Failure::failed(format!(
            "profile {id} exists already ({})",
            path.display()
        )));
    }
    Ok(id)
}

/// The name of a profile that is there.
fn existing(name: &str, cx: &Context) -> Result<String, Failure> {
    let id = canonical(name)?;
    if dir(cx, &id).is_dir() {
        return Ok(id);
    }
    Err(Failure::not_found(format!(
        "no profile {id} (hermes profile list; hermes profile create {id})"
    )))
}

fn profiles_dir(cx: &Context) -> PathBuf {
    cx.home.profiles_root().join("profiles")
}

fn dir(cx: &Context, id: &str) -> PathBuf {
    if id == DEFAULT {
        cx.home.profiles_root().to_owned()
    } else {
        profiles_dir(cx).join(id)
    }
}

/// The profile used without `-p`.
fn active(cx: &Context) -> String {
    let text = std::fs::read_to_string(active_path(cx)).unwrap_or_default();
    let name = text.trim();
    if name.is_empty() { DEFAULT } else { name }.to_owned()
}

fn active_path(cx: &Context) -> PathBuf {
    cx.home.profiles_root().join("active_profile")
}

fn set_active(id: &str, cx: &Context) -> Outcome {
    let path = active_path(cx);
    let done = if id == DEFAULT {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    } else {
        write_atomic(&path, format!("{id}\n").as_bytes(), 0o600)
    };
    done.map_err(|error| io_failure(&path, &error))
}

fn io_failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

fn use_profile(name: &str, cx: &Context) -> Outcome {
    let id = existing(name, cx)?;
    set_active(&id, cx)?;
    cx.out.line(format!("profile {id} is used from now on"))?;
    if std::env::var_os("HERMES_HOME").is_some_and(|home| {
        let home = PathBuf::from(home);
        home != cx.home.profiles_root()
    }) {
        cx.out
            .remark("HERMES_HOME names a profile and takes precedence");
    }
    Ok(())
}

fn delete(name: &str, yes: bool, cx: &Context) -> Outcome {
    let id = existing(name, cx)?;
    if id == DEFAULT {
        return Err(Failure::usage("the root home is not deleted this way"));
    }
    let path = dir(cx, &id);
    refuse_while_running(&id, &path)?;
    if !yes {
        if !(cx.out.stdin_tty && cx.out.stderr_tty) || cx.no_input {
            return Err(Failure::usage(format!(
                "to delete without confirmation, add --yes: hermes profile delete {id} --yes"
            )));
        }
        show::describe(&id, cx);
        cx.out.error(format!(
            "this deletes {} with its config, keys, memory, skills and conversations",
            path.display()
        ));
        let typed = prompt::line(&format!("type {id} to delete it: "))?.or_empty();
        if typed != id {
            return Err(Failure::new(Exit::Refused, "nothing was deleted"));
        }
    }
    // Out of sight first: a deletion that fails half-way leaves no half profile.
    let doomed = profiles_dir(cx).join(format!(".deleted-{id}"));
    std::fs::rename(&path, &doomed).map_err(|error| io_failure(&path, &error))?;
    if active(cx) == id {
        set_active(DEFAULT, cx)?;
        cx.out.remark("the root home is used from now on");
    }
    remove_alias(&id, cx);
    std::fs::remove_dir_all(&doomed).map_err(|error| io_failure(&doomed, &error))?;
    Ok(cx.out.line(format!("deleted profile {id}"))?)
}

fn rename(old: &str, new: &str, cx: &Context) -> Outcome {
    let old = existing(old, cx)?;
    if old == DEFAULT {
        return Err(Failure::usage("the root home keeps its name"));
    }
    let new = new_name(new, cx)?;
    let path = dir(cx, &old);
    refuse_while_running(&old, &path)?;
    std::fs::rename(&path, dir(cx, &new)).map_err(|error| io_failure(&path, &error))?;
    if active(cx) == old {
        set_active(&new, cx)?;
    }
    if remove_alias(&old, cx) {
        cx.out
            .remark(format!("the command {old} is gone: use hermes -p {new}"));
    }
    Ok(cx.out.line(format!("profile {old} is now {new}"))?)
}

/// A gateway that runs on a home must not lose it.
fn refuse_while_running(id: &str, path: &Path) -> Outcome {
    match gateway_pid(path) {
        Some(pid) => Err(Failure::new(
            Exit::Busy,
            format!("the gateway of {id} is running (pid {pid}): stop it first"),
        )),
        None => Ok(()),
    }
}

/// The gateway that runs on a home, as its files say.
pub(crate) fn gateway_pid(home: &Path) -> Option<u32> {
    hermes_gateway::process::running(home).map(|running| running.process.pid)
}

/// Removes the command that the original makes for a profile. Whatever else has that name stays.
fn remove_alias(id: &str, cx: &Context) -> bool {
    let path = cx.home.expand_user(&format!("~/.local/bin/{id}"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        return false;
    };
    let ours = text.starts_with("#!/bin/sh\nexec ") && text.contains(&format!(" -p {id} \"$@\""));
    ours && std::fs::remove_file(&path).is_ok()
}
