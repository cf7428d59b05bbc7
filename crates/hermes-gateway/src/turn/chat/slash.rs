//! Commands that are executed by the conversation.

use std::time::Duration;

use hermes_app::{CommandFollowUp, ConversationRequest};
use tokio::time::Instant;

use super::ChatTask;
use crate::turn::message::InboxMessage;

/// How long a command may take to report its result.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the turn of a command may wait for another.
const TURN_WAIT_TIMEOUT: Duration = Duration::from_hours(1);

/// A running command.
pub(in crate::turn) struct ChatCommandRun {
    pub(super) msg: InboxMessage,
    pub(super) turn: String,
    pub(super) texts: Vec<String>,
    /// It started a turn, which answers it.
    pub(super) started_turn: bool,
    /// It has ended, and a report of the session is expected.
    reports_until: Option<Instant>,
}

impl ChatCommandRun {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.reports_until
    }

    /// Its turn has started.
    pub(super) fn turn_started(&mut self) {
        if self.reports_until.is_some() {
            self.reports_until = Some(Instant::now());
        }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.reports_until.is_some_and(|until| until <= now)
    }
}

impl ChatTask {
    pub(super) async fn begin_slash(&mut self, mut msg: InboxMessage) {
        let Some(line) = msg.command_line() else {
            return;
        };
        let turn = msg.attempt("cmd");
        if !self.shared.claim(&[msg.id], &turn, &self.cancel).await {
            return;
        }
        msg.claims += 1;
        self.commands.running = Some(ChatCommandRun {
            msg,
            turn,
            texts: Vec::new(),
            started_turn: false,
            reports_until: None,
        });
        if !self.request(ConversationRequest::Slash(line)) {
            self.conversation_ended().await;
        }
    }

    pub(super) async fn on_command_ended(&mut self, follows: CommandFollowUp) {
        let Some(slash) = &mut self.commands.running else {
            return;
        };
        match follows {
            CommandFollowUp::Report if slash.texts.is_empty() => {
                slash.reports_until = Some(Instant::now() + REPORT_TIMEOUT);
            }
            // Its turn answers it, perhaps after the running one.
            CommandFollowUp::Turn if !slash.started_turn => {
                let wait = if self.activity.turn().is_some() {
                    TURN_WAIT_TIMEOUT
                } else {
                    REPORT_TIMEOUT
                };
                slash.reports_until = Some(Instant::now() + wait);
            }
            CommandFollowUp::Nothing | CommandFollowUp::Report | CommandFollowUp::Turn => {
                self.end_slash().await;
            }
        }
    }

    /// A report of the session. `true`: a command waited for it.
    pub(super) async fn add_report(&mut self, text: &str) -> bool {
        let Some(slash) = &mut self.commands.running else {
            return false;
        };
        slash.texts.push(text.to_owned());
        if slash.reports_until.is_some() && !slash.started_turn {
            self.end_slash().await;
        }
        true
    }

    pub(super) async fn end_slash(&mut self) {
        let Some(slash) = self.commands.running.take() else {
            return;
        };
        let text = slash.texts.join("\n\n");
        if slash.started_turn {
            if !text.is_empty() {
                let id = format!("{}-said", slash.turn);
                self.send_text(&slash.msg.target(), &id, &text).await;
            }
        } else {
            let text = if text.is_empty() { "Done." } else { &text };
            self.finish_with(&slash.turn, &slash.msg, Some(text)).await;
        }
        if self.activity.turn().is_none() {
            self.start_linger();
        }
    }
}
