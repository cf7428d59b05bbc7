//! `hermes update`: another build takes the place of this one, and can be taken back.

mod fetch;
mod install;

use std::path::{Path, PathBuf};

use serde_json::json;

use super::Context;
use super::sessions::confirm;
use crate::exit::{Failure, Outcome};
use fetch::UpdateSource;
pub(crate) use install::{InstalledProgram, manager, previous_of};

#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// Install this program: a file or a URL
    #[arg(long, value_name = "FILE|URL", conflicts_with = "rollback")]
    from: Option<String>,
    /// Its SHA-256 (default for a URL: the contents of URL.sha256)
    #[arg(long, value_name = "HEX", requires = "from")]
    sha256: Option<String>,
    /// Show what would be installed, without installing it
    #[arg(long, conflicts_with = "rollback")]
    check: bool,
    /// Restore the version that was replaced last
    #[arg(long)]
    rollback: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

const NO_SOURCE: &str = "there is no server to download hermes from yet: name the new program yourself,\nhermes update --from FILE, or --from URL with --sha256 HEX; hermes update --rollback goes back";

pub(crate) fn run(args: &UpdateArgs, cx: &Context) -> Outcome {
    let installed = InstalledProgram::current()?;
    if args.rollback {
        return rollback(args, &installed, cx);
    }
    // Once there is a place to download from, it is the default.
    let Some(from) = &args.from else {
        return Err(Failure::usage(NO_SOURCE));
    };
    let source = UpdateSource::parse(from)?;
    let expected = args.sha256.as_deref().map(fetch::digest).transpose()?;
    if !args.check {
        installed.writable()?;
    }
    // A check needs no place beside the program.
    let dir = if args.check {
        std::env::temp_dir()
    } else {
        installed.dir()?.to_owned()
    };
    let fetched = fetch::fetch(&source, expected, &dir, cx)?;
    let offered = install::version_of(&fetched.path)?;
    let current = hermes_app::text::version_line();
    let same = installed.is_same(&fetched.sha256);
    if args.check || same {
        return tell(args, cx, &current, &offered, &fetched.sha256, same);
    }
    if !args.yes {
        confirm(
            cx,
            &format!(
                "replace {current} ({}) with {offered}?",
                installed.path().display()
            ),
        )?;
    }
    let previous = installed.replace(fetched.path)?;
    report(
        args,
        cx,
        &current,
        &offered,
        &previous,
        "hermes update --rollback goes back",
    )
}

fn rollback(args: &UpdateArgs, installed: &InstalledProgram, cx: &Context) -> Outcome {
    let previous = installed.previous()?;
    installed.writable()?;
    let offered = install::version_of(&previous)?;
    let current = hermes_app::text::version_line();
    if !args.yes {
        confirm(cx, &format!("downgrade from {current} to {offered}?"))?;
    }
    installed.exchange(&previous)?;
    report(
        args,
        cx,
        &current,
        &offered,
        &previous,
        "to return to the newer one: hermes update --rollback",
    )
}

fn tell(
    args: &UpdateArgs,
    cx: &Context,
    current: &str,
    offered: &str,
    sha256: &str,
    same: bool,
) -> Outcome {
    if args.json {
        cx.out.json(&json!({
            "current": current,
            "offered": offered,
            "sha256": sha256,
            "same": same,
            "installed": false,
        }))?;
    } else if same {
        cx.out.line(format!("{current} is already installed"))?;
    } else {
        cx.out.line(format!(
            "installed: {current}\noffered:   {offered} (sha256 {sha256})"
        ))?;
    }
    Ok(())
}

fn report(
    args: &UpdateArgs,
    cx: &Context,
    before: &str,
    now: &str,
    backup: &Path,
    hint: &str,
) -> Outcome {
    if args.json {
        let backup: PathBuf = backup.to_owned();
        cx.out.json(
            &json!({"previous": before, "current": now, "kept": backup, "installed": true}),
        )?;
    } else {
        cx.out.line(format!(
            "{now} is installed; {before} is kept as {}",
            backup.display()
        ))?;
        cx.out.remark(hint);
    }
    Ok(())
}
