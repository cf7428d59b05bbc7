//! Subcommands of the program, run as child processes; their output is shown.

use std::process::Stdio;

use tokio::process::Command;

use crate::conversation::{CommandResult, Conversation};
use crate::failure::Failure;

/// Runs `hermes <args>` on this home. Dropping it stops the program.
pub(super) async fn run(
    conversation: &Conversation,
    args: &[&str],
) -> Result<CommandResult, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("hermes {}: {error}", args[0]));
    let program = std::env::current_exe().map_err(failed)?;
    let done = Command::new(program)
        .args(args)
        .arg("--no-input")
        .env("HERMES_HOME", conversation.cx.home.root())
        .env("NO_COLOR", "1")
        .env("COLUMNS", "80")
        .current_dir(&conversation.chat.cwd)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(failed)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let (output, problem) = (text(&done.stdout), text(&done.stderr));
    if output.is_empty() && !done.status.success() {
        return Err(Failure::failed(problem));
    }
    let parts = [output, problem];
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|text| !text.is_empty())
        .collect();
    Ok(CommandResult::plain(parts.join("\n")))
}
