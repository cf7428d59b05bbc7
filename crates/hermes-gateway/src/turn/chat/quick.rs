//! `quick_commands` of config.yaml: a name for a command line (`exec`) or for another command
//! (`alias`). The model is not involved.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use hermes_app::wiring::{CommandLine, CommandOutput};
use hermes_core::{redact, task};
use hermes_platforms::Offer;
use hermes_store::delivery::{Final, NewReply};

use super::ChatTask;
use crate::settings::{GatewaySettings, QuickCommand};
use crate::turn::message::InboxMessage;
use crate::turn::messages;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a command's output, in characters.
const MAX_OUTPUT_CHARS: usize = 12_000;

/// Descriptions for menus and `/help`.
pub(in crate::turn) fn offers(settings: &GatewaySettings) -> Vec<Offer> {
    let offer = |(name, quick): (&String, &QuickCommand)| Offer {
        name: name.clone(),
        about: match &quick.about {
            Some(about) => about.clone(),
            None => "a quick command of this home".to_owned(),
        },
        args: None,
    };
    settings.quick.iter().map(offer).collect()
}

impl ChatTask {
    /// Runs a command line in the background and answers with its output.
    pub(super) async fn run_quick(&mut self, msg: InboxMessage, command: String) {
        let Some(under_way) = self.shared.side_work.begin(msg.id) else {
            return self.answer(&msg, "cmd", Some(messages::TOO_MUCH)).await;
        };
        let turn = msg.attempt("quick");
        if !self.shared.claim(&[msg.id], &turn, &self.cancel).await {
            return;
        }
        let (shared, key, cancel) = (
            Arc::clone(&self.shared),
            self.key.clone(),
            self.cancel.clone(),
        );
        let work = async move {
            // Until its result is stored.
            let _under_way = under_way;
            let line = CommandLine {
                command,
                timeout: TIMEOUT,
            };
            let program = Arc::clone(shared.pool.host());
            let ran = tokio::select! {
                // The message stays claimed: the next process reports that it was interrupted.
                () = cancel.cancelled() => return,
                ran = program.run_line(line) => ran,
            };
            let text = match ran {
                Ok(ran) => output_text(&ran),
                Err(refusal) => format!("⚠️ {refusal}"),
            };
            let target = msg.target();
            let end = Final {
                turn,
                answers: vec![msg.id],
                replies: vec![NewReply {
                    session_key: key,
                    chunks: shared.chunks(&target, &text),
                    target,
                }],
                ..Final::default()
            };
            shared.settle(end, &cancel).await;
        };
        drop(task::spawn("quick command", work));
    }
}

/// The text for the person: standard output, else standard error.
fn output_text(ran: &CommandOutput) -> String {
    let words = match ran.output.trim() {
        "" => ran.errors.trim(),
        output => output,
    };
    let words = redact::secrets(words);
    let mut shown: String = words.chars().take(MAX_OUTPUT_CHARS).collect();
    if shown.len() < words.len() {
        shown.push_str("\n…");
    }
    let fence = if shown.contains("```") { "~~~~" } else { "```" };
    let mut text = if shown.is_empty() {
        "It said nothing.".to_owned()
    } else {
        format!("{fence}\n{shown}\n{fence}")
    };
    match ran.status {
        Some(0) => {}
        Some(code) => {
            let _ = write!(text, "\nIt ended with {code}.");
        }
        None => text.push_str("\nIt was ended."),
    }
    text
}
