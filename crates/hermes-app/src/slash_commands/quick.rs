//! `quick_commands` of config.yaml in a chat: a name for a command line or another command. The
//! model is not involved.

use std::fmt::Write as _;

use std::time::Duration;

use hermes_core::redact;

use crate::conversation::{CommandResult, Conversation};
use crate::failure::Failure;
use crate::quick_commands::{QuickKind, read_quick_commands};
use crate::wiring::unattended::{CommandLine, run_line_in};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a command's output, in characters.
const MAX_OUTPUT_CHARS: usize = 12_000;

/// The meaning of a name.
pub(super) enum QuickOutcome {
    /// Another line to type.
    Line(String),
    Done(Result<CommandResult, Failure>),
}

/// `None`: unknown name.
pub(super) async fn run(
    conversation: &Conversation,
    typed: &str,
    rest: &str,
) -> Option<QuickOutcome> {
    let config = &conversation.chat.config;
    let mut written = config.gateway.quick_commands.clone().unwrap_or_default();
    written.extend(config.quick_commands.clone());
    let name = typed.to_ascii_lowercase().replace('_', "-");
    let quick = read_quick_commands(&written, &mut Vec::new()).remove(&name)?;
    match quick.does {
        QuickKind::Alias(target) => Some(QuickOutcome::Line(
            format!("{target} {rest}").trim().to_owned(),
        )),
        QuickKind::Exec(command) => Some(QuickOutcome::Done(exec(conversation, command).await)),
    }
}

async fn exec(conversation: &Conversation, command: String) -> Result<CommandResult, Failure> {
    let Some(commands) = &conversation.chat.commands else {
        return Err(Failure::failed(
            "no environment to run commands is available",
        ));
    };
    let line = CommandLine {
        command,
        timeout: TIMEOUT,
    };
    let ran = run_line_in(commands, conversation.chat.cwd.clone(), line).await?;
    let words = match ran.output.trim() {
        "" => ran.errors.trim(),
        output => output,
    };
    let words = redact::secrets(words);
    let mut shown: String = words.chars().take(MAX_OUTPUT_CHARS).collect();
    if shown.is_empty() {
        "It said nothing.".clone_into(&mut shown);
    }
    match ran.status {
        Some(0) => {}
        Some(code) => {
            // Writing to a string does not fail.
            let _ = write!(shown, "\nIt ended with {code}.");
        }
        None => shown.push_str("\nIt was ended."),
    }
    Ok(CommandResult::plain(shown))
}
