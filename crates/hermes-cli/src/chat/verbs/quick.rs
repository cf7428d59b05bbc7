//! `quick_commands` of config.yaml in a chat: a name for a command line, or for another command. No
//! model is asked.

use std::fmt::Write as _;

use std::time::Duration;

use hermes_core::redact;
use hermes_gateway::program::Line;
use hermes_gateway::settings::{QuickKind, read_quick_commands};

use super::super::conversation::{Conversation, Told};
use crate::exit::Failure;
use crate::wiring::unasked::run_line_in;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Characters of what a command says.
const SHOWN: usize = 12_000;

/// What a name stands for.
pub(super) enum QuickOutcome {
    /// Another line to type.
    Line(String),
    Done(Result<Told, Failure>),
}

/// `None`: the name stands for nothing.
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

async fn exec(conversation: &Conversation, command: String) -> Result<Told, Failure> {
    let Some(commands) = &conversation.chat.commands else {
        return Err(Failure::failed("there is no place to run commands"));
    };
    let line = Line {
        command,
        timeout: TIMEOUT,
    };
    let ran = run_line_in(commands, conversation.chat.cwd.clone(), line).await?;
    let words = match ran.output.trim() {
        "" => ran.errors.trim(),
        output => output,
    };
    let words = redact::secrets(words);
    let mut shown: String = words.chars().take(SHOWN).collect();
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
    Ok(Told::plain(shown))
}
