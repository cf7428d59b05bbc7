//! `/rollback`: going back to what a project was before a turn changed it.

use super::repl::Repl;
use crate::commands::checkpoints::{changed, failure, listed, open, told};
use crate::exit::{Failure, Outcome};

/// `/rollback`, `/rollback diff N`, `/rollback N [file]`.
pub(super) async fn run(repl: &Repl<'_>, rest: &str) -> Outcome {
    let out = repl.cx.out;
    // Those that the tools use, where there are any: they know whether snapshots are taken.
    let checkpoints = match &repl.chat.commands {
        Some(commands) => commands.checkpoints.clone(),
        None => open(repl.cx, &repl.cx.config()?),
    };
    let here = std::env::current_dir()
        .map_err(|error| Failure::failed(format!("the working directory: {error}")))?;
    let mut words = rest.splitn(2, char::is_whitespace).map(str::trim);
    match (words.next().unwrap_or(""), words.next()) {
        ("" | "list", None) => {
            let all = checkpoints
                .list(&here)
                .await
                .map_err(|error| failure(&error))?;
            out.line(listed(&all, checkpoints.enabled()))?;
            if !all.is_empty() {
                out.line(
                    "/rollback diff N shows what changed since, /rollback N [file] goes back",
                )?;
            }
        }
        ("diff", Some(which)) => {
            let changes = checkpoints
                .diff(&here, which)
                .await
                .map_err(|error| failure(&error))?;
            out.foreign_line(&changed(&changes.diff))?;
        }
        ("diff", None) => return Err(Failure::usage("/rollback diff <number>")),
        (which, file) => {
            let restored = checkpoints.restore(&here, which, file).await;
            out.line(told(&restored.map_err(|error| failure(&error))?))?;
        }
    }
    Ok(())
}
