//! Input typed while a turn runs: steering texts sent to the model, and messages queued until its
//! end.

use std::collections::VecDeque;
use std::time::Instant;

use hermes_core::event::{AgentCommand, TurnExit};
use hermes_core::front_end::BusyInput;

use super::state::App;
use crate::cells::UserCell;
use crate::composer::{Submission, SubmissionKind};
use crate::port::UiAsk;

/// Maximum number of queued messages.
const MAX_WAITING: usize = 64;

#[derive(Debug, Default)]
pub(super) struct MessageQueue {
    /// In the order in which they are sent.
    pub(super) waiting: VecDeque<Submission>,
    /// Held until the person sends them, because the turn before them did not end well.
    pub(super) held: bool,
    /// The running turn was stopped in order to send the first of them.
    after_stop: bool,
    /// Sent to the running turn, but not read by the model yet.
    pub(super) steers: VecDeque<String>,
}

impl App {
    /// Enter.
    pub(super) fn on_enter(&mut self, submission: Submission, now: Instant) {
        match submission.kind {
            SubmissionKind::Slash => {
                self.echo(&submission.text);
                self.slash(&submission.text, now);
            }
            SubmissionKind::Shell => {
                self.start_command(format!("!{}", submission.text), now);
                self.ask(UiAsk::Shell(submission.text));
            }
            SubmissionKind::Message if !self.is_busy() => self.send(submission),
            SubmissionKind::Message => match self.busy {
                // A steering text cannot carry images.
                BusyInput::Steer if submission.images.is_empty() && self.images.is_empty() => {
                    self.steer(submission.text);
                }
                BusyInput::Steer => {
                    self.hint("images go with the next turn: queued", now);
                    self.enqueue(submission, now);
                }
                BusyInput::Queue => self.enqueue(submission, now),
                BusyInput::Interrupt => {
                    self.queue.held = false;
                    self.queue.waiting.push_front(submission);
                    self.interrupt();
                    self.queue.after_stop = true;
                }
            },
        }
        self.dirty = true;
    }

    fn send(&mut self, submission: Submission) {
        self.submit(submission.text, &submission.shown, submission.images);
    }

    pub(super) fn steer(&mut self, text: String) {
        self.queue.steers.push_back(text.clone());
        self.command(AgentCommand::Steer(text));
        self.dirty = true;
    }

    /// Queues a message to be sent after the running turn.
    pub(super) fn enqueue(&mut self, submission: Submission, now: Instant) {
        if self.queue.waiting.len() >= MAX_WAITING {
            self.composer.restore(&submission);
            self.hint(format!("{MAX_WAITING} messages are already waiting"), now);
            return;
        }
        self.queue.waiting.push_back(submission);
        self.dirty = true;
    }

    /// Moves the last queued message back into the composer. `false`: there is none.
    pub(super) fn take_back_last(&mut self) -> bool {
        let Some(submission) = self.queue.waiting.pop_back() else {
            return false;
        };
        let sign = match submission.kind {
            SubmissionKind::Shell => "!",
            SubmissionKind::Slash | SubmissionKind::Message => "",
        };
        if sign.is_empty() {
            self.composer.restore(&submission);
        } else {
            self.composer
                .set_text(&format!("{sign}{}", submission.text));
        }
        self.dirty = true;
        true
    }

    /// Sends the next queued message, if nothing blocks it.
    pub(super) fn send_next_queued(&mut self, now: Instant) {
        // A shell command may run forever; a slash command changes the conversation.
        let command = self
            .running_commands
            .iter()
            .any(|(what, _)| what.starts_with('/'));
        let free = !self.is_busy() && !command && self.queue.steers.is_empty();
        if !free || self.queue.held {
            return;
        }
        if let Some(submission) = self.queue.waiting.pop_front() {
            self.on_enter(submission, now);
        }
    }

    /// Enter on an empty line sends held messages.
    pub(super) fn release(&mut self, now: Instant) {
        self.queue.held = false;
        self.send_next_queued(now);
    }

    /// The model has read a steering text.
    pub(super) fn steered(&mut self, text: &str) {
        while self
            .queue
            .steers
            .front()
            .is_some_and(|steer| text.contains(steer.trim()))
        {
            self.queue.steers.pop_front();
        }
        self.push_cell(UserCell::steered(text));
    }

    /// Steering texts that came too late for the previous turn belong to this one.
    pub(super) fn adopt_late_steers(&mut self) {
        let late: Vec<String> = self.queue.steers.drain(..).collect();
        if !late.is_empty() {
            self.push_user_message(&late.join("\n"));
        }
    }

    /// Decides about queued texts when a turn ends.
    pub(super) fn after_turn(&mut self, exit: &TurnExit, now: Instant) {
        let stopped = matches!(exit, TurnExit::Interrupted | TurnExit::StoreFailed { .. });
        if stopped && !self.queue.steers.is_empty() {
            // The session drops them, so they are given back to the person.
            let back: Vec<String> = self.queue.steers.drain(..).collect();
            let back = back.join("\n");
            if self.composer.is_empty() {
                self.composer.set_text(&back);
            } else {
                self.queue.waiting.push_front(Submission {
                    shown: back.clone(),
                    text: back,
                    images: Vec::new(),
                    kind: SubmissionKind::Message,
                });
            }
        }
        let went_on = matches!(
            exit,
            TurnExit::Answered | TurnExit::BudgetExhausted { .. } | TurnExit::Partial { .. }
        );
        let wanted = std::mem::take(&mut self.queue.after_stop) && stopped;
        if !went_on && !wanted {
            self.queue.held = !self.queue.waiting.is_empty();
        }
        self.send_next_queued(now);
    }
}
