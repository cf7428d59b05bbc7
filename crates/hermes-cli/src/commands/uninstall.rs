//! `hermes uninstall`: takes the program away, and with `--full` the home.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Context;
use super::completion::installed_scripts;
use super::sessions::confirm;
use super::update::{InstalledProgram, manager, previous_of};
use crate::exit::{Exit, Failure, Outcome};

#[derive(Debug, clap::Args)]
pub(crate) struct UninstallArgs {
    /// Also delete the home: sessions, memories, keys, everything
    #[arg(long)]
    full: bool,
    /// Name of the home directory, to confirm --full without a prompt
    #[arg(long, value_name = "NAME", requires = "full")]
    confirm: Option<String>,
    /// Show what would be removed, without removing anything
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation (--full still asks for the name of the home)
    #[arg(short, long)]
    yes: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct UninstallPlan {
    /// Files to remove.
    remove: Vec<PathBuf>,
    /// The home, with `--full`.
    home: Option<PathBuf>,
    /// What stays, and why.
    stays: Vec<String>,
    removed: bool,
}

pub(crate) fn run(args: &UninstallArgs, cx: &Context) -> Outcome {
    let mut plan = plan(args, cx)?;
    if args.dry_run {
        return show(args, &plan, cx);
    }
    if plan.remove.is_empty() && plan.home.is_none() {
        show(args, &plan, cx)?;
        return Err(Failure::failed(
            "there is nothing that can be removed from here",
        ));
    }
    if let Some(home) = &plan.home {
        by_name(args, home, cx)?;
    } else if !args.yes {
        for path in &plan.remove {
            cx.out.remark(format!("  {}", path.display()));
        }
        confirm(cx, "remove these files?")?;
    }
    let mut failed = Vec::new();
    let mut gone = |path: &Path, removed: std::io::Result<()>| {
        if let Err(error) = removed {
            failed.push(format!("{}: {error}", path.display()));
        }
    };
    if let Some(home) = &plan.home {
        gone(home, std::fs::remove_dir_all(home));
    }
    // The program itself comes last: what failed before can be tried again with it.
    for path in &plan.remove {
        gone(path, std::fs::remove_file(path));
    }
    if !failed.is_empty() {
        return Err(Failure::failed(format!(
            "not everything was removed:\n  {}",
            failed.join("\n  ")
        )));
    }
    plan.removed = true;
    show(args, &plan, cx)
}

fn plan(args: &UninstallArgs, cx: &Context) -> Result<UninstallPlan, Failure> {
    let program = InstalledProgram::current()?;
    let mut remove = installed_scripts();
    let mut stays = Vec::new();
    if let Some(manager) = manager(program.path()) {
        stays.push(format!(
            "{}: it belongs to {manager}, remove it there",
            program.path().display()
        ));
    } else {
        let previous = previous_of(program.path());
        if previous.exists() {
            remove.push(previous);
        }
        let second = program
            .path()
            .with_file_name(hermes_models::local::program::NAME);
        if second.is_file() {
            remove.push(second);
        }
        remove.push(program.path().to_owned());
    }
    let root = cx.home.profiles_root();
    let home = if args.full && root.exists() {
        Some(deletable(root, cx)?)
    } else {
        if root.exists() {
            stays.push(format!(
                "{}: the home, with all sessions and keys (--full deletes it)",
                root.display()
            ));
        }
        None
    };
    Ok(UninstallPlan {
        remove,
        home,
        stays,
        removed: false,
    })
}

/// The home, if it is one and nothing more than that.
fn deletable(root: &Path, cx: &Context) -> Result<PathBuf, Failure> {
    let refused = |why: &str| {
        Failure::new(
            Exit::Refused,
            format!(
                "{} is not deleted: {why}; delete it yourself if you mean it",
                root.display()
            ),
        )
    };
    let root = std::fs::canonicalize(root).map_err(|error| refused(&error.to_string()))?;
    let person = cx.home.expand_user("~");
    let person = std::fs::canonicalize(&person).unwrap_or(person);
    if person.starts_with(&root) || root.parent().is_none() {
        return Err(refused("it contains more than a home"));
    }
    let marks = [
        "config.yaml",
        ".env",
        "state.db",
        "SOUL.md",
        "sessions",
        "memories",
    ];
    if !marks.iter().any(|mark| root.join(mark).exists()) {
        return Err(refused("it does not look like a home"));
    }
    Ok(root)
}

/// The home goes only for who can tell its name.
fn by_name(args: &UninstallArgs, home: &Path, cx: &Context) -> Outcome {
    let name = home.file_name().unwrap_or_default().to_string_lossy();
    let given = if let Some(given) = &args.confirm {
        given.clone()
    } else if cx.no_input || !cx.out.stdin_tty {
        return Err(Failure::usage(format!(
            "this deletes {} with everything in it. Confirmation is not possible here: pass --confirm {name}",
            home.display()
        )));
    } else {
        cx.out.question(&format!(
            "This deletes {} with all sessions, memories and keys (a backup: hermes backup).\nType {name} to continue: ",
            home.display()
        ))?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        line
    };
    if given.trim() == name {
        Ok(())
    } else {
        Err(Failure::failed(format!(
            "{:?} is not the name {name:?}; nothing was removed",
            given.trim()
        )))
    }
}

fn show(args: &UninstallArgs, plan: &UninstallPlan, cx: &Context) -> Outcome {
    if args.json {
        cx.out.json(plan)?;
        return Ok(());
    }
    let word = if plan.removed {
        "removed"
    } else {
        "would remove"
    };
    for path in plan.home.iter().chain(&plan.remove) {
        cx.out.line(format!("{word} {}", path.display()))?;
    }
    for line in &plan.stays {
        cx.out.remark(format!("stays: {line}"));
    }
    Ok(())
}
