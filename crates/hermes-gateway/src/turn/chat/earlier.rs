//! Answers by button, from any chat and across restarts, and questions asked by an earlier process.
//!
//! A press is checked and stored first; the chat that asked reads it from the store and checks the
//! sender again. A text that answers a question which the resumed turn has not asked again yet is
//! held back for it if it was written after the question: it stays in the database until used, or
//! becomes a normal message when the turn ends without asking.

use std::time::Duration;

use hermes_core::slash::{self, Parsed, Verb};
use hermes_platforms::IncomingMessage;
use hermes_store::delivery::{QuestionState, StoredQuestion, Target};
use serde::{Deserialize, Serialize};

use super::answers::{VerdictWord, outcome, verdict_word};
use super::ask::{ADMINS, QuestionRecord};
use super::{ChatTask, MAX_QUEUED_MESSAGES, TurnJob, TurnStart};
use crate::turn::message::InboxMessage;

/// The stored form of a press.
#[derive(Serialize, Deserialize)]
struct StoredPress {
    choice: String,
    /// Who pressed; `None`: the owner of the machine, who may decide everything.
    #[serde(default)]
    incoming: Option<IncomingMessage>,
    /// The owner's name for display in the chat.
    #[serde(default)]
    operator: Option<String>,
}

/// A decision of the machine's owner, in the form of a press.
pub(in crate::turn) fn kept_for_operator(choice: &str, by: &str) -> serde_json::Value {
    let stored_press = StoredPress {
        choice: choice.to_owned(),
        incoming: None,
        operator: Some(by.to_owned()),
    };
    serde_json::to_value(stored_press).unwrap_or_default()
}

/// A message that answers a question which the resumed turn has not asked again yet.
pub(super) struct HeldAnswer {
    pub(super) msg: InboxMessage,
    /// The only question that it answers.
    question: String,
}

const UNKNOWN: &str = "I do not know that button.";
const OVER: &str = "This question is no longer open. If it still matters, I will ask again.";
const TAKEN: &str = "This question is no longer open: it was answered.";
const QUESTION_EXPIRED: &str = "This question is no longer open: the time to answer is over.";
const NOT_NOW: &str = "This could not be stored; press it again.";
const ANSWER_STORED: &str = "Noted. It counts when the work that was cut comes to this again.";

impl ChatTask {
    /// Handles a press, possibly for a question of another chat.
    pub(super) async fn press(&mut self, msg: InboxMessage) {
        let pressed = msg.incoming.pressed.as_ref();
        let data = pressed.map(|pressed| pressed.data.clone());
        let data = data.unwrap_or_default();
        let mut parts = data.splitn(3, ':');
        let note = match (parts.next(), parts.next(), parts.next()) {
            (Some("ap"), Some(id), Some(choice)) => self.store_press(&msg, id, choice).await,
            _ => Some(UNKNOWN),
        };
        if let Some(outbound) = self.shared.outbound(&msg.target()) {
            let acknowledged = outbound.pressed(&msg.incoming, note);
            let _ = tokio::time::timeout(Duration::from_secs(10), acknowledged).await;
        }
        self.answer(&msg, "ans", None).await;
    }

    /// Stores a valid press for the chat that asked. Returns the text for the person who pressed.
    async fn store_press(
        &self,
        msg: &InboxMessage,
        id: &str,
        choice: &str,
    ) -> Option<&'static str> {
        let stored = match self.shared.delivery.question(id).await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::error!("a question: {error}");
                return Some(NOT_NOW);
            }
        };
        let Some(stored) = stored else {
            return Some(OVER);
        };
        let Some(put) = question_record(&stored) else {
            return Some(OVER);
        };
        let asked = self.shared.is_question_open(id);
        match &stored.state {
            QuestionState::Closed => return Some(TAKEN),
            QuestionState::Answered(answer) => {
                let before = serde_json::from_value::<StoredPress>(answer.clone()).ok();
                let before = before.and_then(|stored_press| stored_press.incoming);
                let same =
                    before.is_some_and(|before| before.message_id == msg.incoming.message_id);
                return if same {
                    self.notify_asker(id)
                } else {
                    Some(TAKEN)
                };
            }
            QuestionState::Open => {}
        }
        if !put.choices.iter().any(|one| one == choice) {
            return Some(UNKNOWN);
        }
        if put.permission && !self.may_decide(msg, choice != "d") {
            return Some(ADMINS);
        }
        if self.is_late(&stored) {
            return Some(QUESTION_EXPIRED);
        }
        if !asked && !stored.awaited {
            return Some(OVER);
        }
        let stored_press = StoredPress {
            choice: choice.to_owned(),
            incoming: Some(msg.incoming.clone()),
            operator: None,
        };
        let stored_press = serde_json::to_value(stored_press).unwrap_or_default();
        match self
            .shared
            .delivery
            .answer_question(id, &stored_press)
            .await
        {
            Ok(true) => self.notify_asker(id),
            Ok(false) => Some(TAKEN),
            Err(error) => {
                tracing::error!("an answer: {error}");
                Some(NOT_NOW)
            }
        }
    }

    fn notify_asker(&self, id: &str) -> Option<&'static str> {
        (!self.shared.notify_question(id)).then_some(ANSWER_STORED)
    }

    fn is_late(&self, stored: &StoredQuestion) -> bool {
        stored.question.expires_at <= self.shared.clock.epoch_seconds()
    }

    /// Processes stored answers to open questions of this chat.
    pub(super) async fn take_presses(&mut self) {
        let asked = self
            .activity
            .turn()
            .into_iter()
            .flat_map(|turn| &turn.questions);
        let ids: Vec<String> = asked.map(|asked| asked.id.clone()).collect();
        for id in ids {
            match self.shared.delivery.question(&id).await {
                Ok(Some(stored)) => {
                    if let QuestionState::Answered(answer) = stored.state {
                        self.take_press(&id, answer).await;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!("an answer: {error}");
                    self.schedule_retry();
                }
            }
        }
    }

    async fn take_press(&mut self, id: &str, answer: serde_json::Value) {
        let stored_press = serde_json::from_value::<StoredPress>(answer).ok();
        let turn = self.activity.turn();
        let at = turn.and_then(|turn| turn.questions.iter().position(|one| one.id == id));
        let (Some(turn), Some(at), Some(stored_press)) = (turn, at, stored_press) else {
            return;
        };
        let msg = stored_press.incoming.map(|incoming| InboxMessage {
            id: 0,
            turn: None,
            claims: 0,
            received_at: 0.0,
            incoming,
        });
        let what = &turn.questions[at].kind;
        // The sender may have lost the right since.
        let (may, by) = match &msg {
            None => (stored_press.operator.is_some(), stored_press.operator),
            Some(msg) => {
                let may = self.shared.admits(msg)
                    && (!what.is_permission() || self.may_decide(msg, stored_press.choice != "d"));
                let source = msg.source();
                (may, source.user_name.clone().or(source.user_id.clone()))
            }
        };
        let command = what.picked(&stored_press.choice).filter(|_| may);
        let by = by.unwrap_or_default();
        let Some(command) = command else {
            let target = turn.target.clone();
            return self.reopen(id, &target, &by).await;
        };
        let outcome = outcome(&command, &by);
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        let mut asked = turn.questions.remove(at);
        let pressed = msg.and_then(|msg| msg.incoming.pressed);
        asked.shown_in = pressed.and_then(|pressed| pressed.message_id);
        self.resolve(asked, command, &outcome, None).await;
    }

    /// The sender may no longer decide: the question stays open for others.
    async fn reopen(&mut self, id: &str, target: &Target, by: &str) {
        if let Err(error) = self.shared.delivery.reopen_question(id).await {
            tracing::error!("an answer that does not count: {error}");
            return self.schedule_retry();
        }
        let by: String = by.chars().filter(|ch| !ch.is_control()).take(64).collect();
        let text = format!("🚫 The answer of {by} does not count: they may not decide this now.");
        let key = format!("void-{}", crate::turn::preview::key(&*self.shared.rng));
        self.send_text(target, &key, &text).await;
    }

    /// Loads the questions of interrupted turns.
    pub(super) async fn remember_questions(&mut self) {
        match self.shared.delivery.questions_of(&self.key).await {
            Ok(found) => self.cut.questions = found,
            Err(error) => tracing::error!("questions of {}: {error}", self.key),
        }
    }

    /// The same question, asked by an earlier process and still open. An expired one is closed and
    /// asked again.
    pub(super) async fn earlier_like(&mut self, fingerprint: &str) -> Option<StoredQuestion> {
        loop {
            let same = |one: &StoredQuestion| {
                question_record(one).is_some_and(|put| put.fingerprint == fingerprint)
            };
            let at = self.cut.questions.iter().position(same)?;
            let stored = self.cut.questions.remove(at);
            if !self.is_late(&stored) {
                return Some(stored);
            }
            self.forget(&stored, "⌛ The time to answer is over; I ask again below.")
                .await;
        }
    }

    async fn forget(&self, stored: &StoredQuestion, outcome: &str) {
        let text = question_record(stored)
            .map(|put| put.text)
            .unwrap_or_default();
        let question = &stored.question;
        self.close_question((&question.id, None), &text, &question.target, outcome, None)
            .await;
    }

    /// The turn reached a question that was asked before: there may be an answer already.
    pub(super) async fn answered_before(&mut self, id: &str) {
        self.take_presses().await;
        while self.is_waiting_for(id) {
            let meant = |held: &HeldAnswer| held.question == id;
            let Some(at) = self.cut.held.iter().position(meant) else {
                return;
            };
            let msg = self.cut.held.remove(at).msg;
            if !self.shared.admits(&msg) {
                self.answer(&msg, "ans", None).await;
            } else if let Some((approve, args)) = decision(&msg) {
                self.decide(msg, approve, &args, Some(id)).await;
            } else {
                self.take_answer(msg, Some(id)).await;
            }
        }
    }

    fn is_waiting_for(&self, id: &str) -> bool {
        let mut asked = self
            .activity
            .turn()
            .into_iter()
            .flat_map(|turn| &turn.questions);
        asked.any(|asked| asked.id == id)
    }

    /// Holds back a message that answers a question which the turn has not asked again yet.
    pub(super) async fn hold_answer(&mut self, msg: &InboxMessage) -> bool {
        if !self.has_interrupted_turn()
            || !msg.incoming.media.is_empty()
            || self.waiting() >= MAX_QUEUED_MESSAGES
        {
            return false;
        }
        let Some(question) = self.question_for(msg) else {
            return false;
        };
        self.ack(msg, "⏳").await;
        let msg = msg.clone();
        self.cut.held.push(HeldAnswer { msg, question });
        true
    }

    /// The earlier question that a message answers: the oldest unanswered match, else the oldest
    /// match. Never one that was asked after the message.
    fn question_for(&self, msg: &InboxMessage) -> Option<String> {
        let decides = decision(msg).is_some() || verdict_word(&msg.incoming.text).is_some();
        let talks = msg.command_line().is_none();
        let fits = |one: &&StoredQuestion| {
            let put = question_record(one).filter(|_| !self.is_late(one));
            put.is_some_and(|put| {
                let fits = if put.permission { decides } else { talks };
                fits && put.asked_at.is_some_and(|at| at < msg.received_at)
            })
        };
        let mut fitting = self.cut.questions.iter().filter(fits);
        let oldest = fitting.next()?;
        let first = std::iter::once(oldest).chain(fitting);
        let meant = { first }.find(|one| !self.is_answered(one));
        Some(meant.unwrap_or(oldest).question.id.clone())
    }

    /// Whether a valid answer to a question is held back.
    fn is_answered(&self, stored: &StoredQuestion) -> bool {
        let permission = question_record(stored).is_some_and(|put| put.permission);
        let mut held = self.cut.held.iter();
        held.any(|held| {
            let allows = match decision(&held.msg) {
                Some((approve, _)) => approve,
                None => verdict_word(&held.msg.incoming.text) != Some(VerdictWord::No),
            };
            held.question == stored.question.id
                && (!permission || self.may_decide(&held.msg, allows))
        })
    }

    /// Whether an interrupted turn is running or queued.
    fn has_interrupted_turn(&self) -> bool {
        let cut = |job: &TurnJob| job.msgs.iter().any(|msg| msg.turn.is_some());
        self.activity.turn().is_some()
            || self.activity.preparing().is_some()
            || !self.cut.unsure.is_empty()
            || self.queue.jobs.iter().any(cut)
    }

    /// No turn will ask the earlier questions again: they are closed, and held-back messages become
    /// normal messages.
    pub(super) async fn close_earlier_questions(&mut self) {
        if (self.cut.questions.is_empty() && self.cut.held.is_empty())
            || self.has_interrupted_turn()
        {
            return;
        }
        for stored in std::mem::take(&mut self.cut.questions) {
            self.forget(&stored, "⏹ No longer needed.").await;
        }
        for held in std::mem::take(&mut self.cut.held).into_iter().rev() {
            let msg = held.msg;
            if decision(&msg).is_some() {
                let text = "Nothing waits for a decision here.";
                self.answer(&msg, "ans", Some(text)).await;
            } else {
                let (msgs, how) = (vec![msg], TurnStart::Fresh);
                self.queue.jobs.push_front(TurnJob { msgs, start: how });
            }
        }
    }
}

pub(in crate::turn) fn question_record(stored: &StoredQuestion) -> Option<QuestionRecord> {
    serde_json::from_value(stored.question.asked.clone()).ok()
}

/// `/approve` (`true`) or `/deny`, with its arguments.
fn decision(msg: &InboxMessage) -> Option<(bool, String)> {
    let line = msg.command_line()?;
    let Parsed::Command(command, args) = slash::parse_in_chat(&line) else {
        return None;
    };
    let approve = match command.verb {
        Verb::Approve => true,
        Verb::Deny => false,
        _ => return None,
    };
    Some((approve, args.to_owned()))
}
