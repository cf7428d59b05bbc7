//! Answers that come by a button, from whatever chat and in whatever life, and questions that an
//! earlier life put.
//!
//! A press is checked and stored before anybody acts on it; the chat that asked takes it from the
//! store, and checks again who pressed. Words that answer a question which the turn has not come to
//! again are held back for that one, if they were said after it was put: they stay in the database
//! until they are used, or become a message like any other when the turn ends without having asked.

use std::time::Duration;

use hermes_core::slash::{self, Parsed, Verb};
use hermes_platforms::IncomingMessage;
use hermes_store::db::delivery::{QuestionState, StoredQuestion, Target};
use serde::{Deserialize, Serialize};

use super::answers::{outcome, verdict_word};
use super::ask::{ADMINS, QuestionRecord};
use super::{ChatTask, QUEUE, TurnJob, TurnStart};
use crate::turn::message::InboxMessage;

/// A press, as it is kept.
#[derive(Serialize, Deserialize)]
struct StoredPress {
    choice: String,
    /// Who pressed; `None`: the owner of the machine, who decides everything.
    #[serde(default)]
    incoming: Option<IncomingMessage>,
    /// The owner, as the chat is told.
    #[serde(default)]
    operator: Option<String>,
}

/// A decision of the machine's owner, in the shape of a press.
pub(in crate::turn) fn kept_for_operator(choice: &str, by: &str) -> serde_json::Value {
    let kept = StoredPress {
        choice: choice.to_owned(),
        incoming: None,
        operator: Some(by.to_owned()),
    };
    serde_json::to_value(kept).unwrap_or_default()
}

/// Words that were said to a question which the turn has not come to again.
pub(super) struct HeldAnswer {
    pub(super) msg: InboxMessage,
    /// The one that they mean: they answer no other.
    question: String,
}

const UNKNOWN: &str = "I do not know that button.";
const OVER: &str = "This question is no longer open. If it still matters, I will ask again.";
const TAKEN: &str = "This question is no longer open: it was answered.";
const LATE: &str = "This question is no longer open: the time to answer is over.";
const NOT_NOW: &str = "This could not be stored; press it again.";
const KEPT: &str = "Noted. It counts when the work that was cut comes to this again.";

impl ChatTask {
    /// A button was pressed, perhaps of a question that another chat asked.
    pub(super) async fn press(&mut self, msg: InboxMessage) {
        let pressed = msg.incoming.pressed.as_ref();
        let data = pressed.map(|pressed| pressed.data.clone());
        let data = data.unwrap_or_default();
        let mut parts = data.splitn(3, ':');
        let note = match (parts.next(), parts.next(), parts.next()) {
            (Some("ap"), Some(id), Some(choice)) => self.keep(&msg, id, choice).await,
            _ => Some(UNKNOWN),
        };
        if let Some(outbound) = self.hub.outbound(&msg.target()) {
            let told = outbound.pressed(&msg.incoming, note);
            let _ = tokio::time::timeout(Duration::from_secs(10), told).await;
        }
        self.answer(&msg, "ans", None).await;
    }

    /// Keeps a press for the chat that asked, if it counts. Returns what the one who pressed is
    /// told.
    async fn keep(&self, msg: &InboxMessage, id: &str, choice: &str) -> Option<&'static str> {
        let stored = match self.hub.delivery.question(id).await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::error!("a question: {error}");
                return Some(NOT_NOW);
            }
        };
        let Some(stored) = stored else {
            return Some(OVER);
        };
        let Some(put) = put(&stored) else {
            return Some(OVER);
        };
        let asked = self.hub.is_asked(id);
        match &stored.state {
            QuestionState::Closed => return Some(TAKEN),
            QuestionState::Answered(answer) => {
                let before = serde_json::from_value::<StoredPress>(answer.clone()).ok();
                let before = before.and_then(|kept| kept.incoming);
                let same =
                    before.is_some_and(|before| before.message_id == msg.incoming.message_id);
                return if same { self.ring(id) } else { Some(TAKEN) };
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
            return Some(LATE);
        }
        if !asked && !stored.awaited {
            return Some(OVER);
        }
        let kept = StoredPress {
            choice: choice.to_owned(),
            incoming: Some(msg.incoming.clone()),
            operator: None,
        };
        let kept = serde_json::to_value(kept).unwrap_or_default();
        match self.hub.delivery.answer_question(id, &kept).await {
            Ok(true) => self.ring(id),
            Ok(false) => Some(TAKEN),
            Err(error) => {
                tracing::error!("an answer: {error}");
                Some(NOT_NOW)
            }
        }
    }

    fn ring(&self, id: &str) -> Option<&'static str> {
        (!self.hub.ring(id)).then_some(KEPT)
    }

    fn is_late(&self, stored: &StoredQuestion) -> bool {
        stored.question.expires_at <= self.hub.clock.epoch_seconds()
    }

    /// Takes the answers to open questions of this chat that were stored.
    pub(super) async fn take_presses(&mut self) {
        let asked = self
            .activity
            .turn()
            .into_iter()
            .flat_map(|turn| &turn.questions);
        let ids: Vec<String> = asked.map(|asked| asked.id.clone()).collect();
        for id in ids {
            match self.hub.delivery.question(&id).await {
                Ok(Some(stored)) => {
                    if let QuestionState::Answered(answer) = stored.state {
                        self.take_press(&id, answer).await;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!("an answer: {error}");
                    self.try_again();
                }
            }
        }
    }

    async fn take_press(&mut self, id: &str, answer: serde_json::Value) {
        let kept = serde_json::from_value::<StoredPress>(answer).ok();
        let turn = self.activity.turn();
        let at = turn.and_then(|turn| turn.questions.iter().position(|one| one.id == id));
        let (Some(turn), Some(at), Some(kept)) = (turn, at, kept) else {
            return;
        };
        let msg = kept.incoming.map(|incoming| InboxMessage {
            id: 0,
            turn: None,
            claims: 0,
            received_at: 0.0,
            incoming,
        });
        let what = &turn.questions[at].what;
        // They may have lost the right since.
        let (may, by) = match &msg {
            None => (kept.operator.is_some(), kept.operator),
            Some(msg) => {
                let may = self.hub.admits(msg)
                    && (!what.is_permission() || self.may_decide(msg, kept.choice != "d"));
                let source = msg.source();
                (may, source.user_name.clone().or(source.user_id.clone()))
            }
        };
        let command = what.picked(&kept.choice).filter(|_| may);
        let by = by.unwrap_or_default();
        let Some(command) = command else {
            let target = turn.target.clone();
            return self.take_back(id, &target, &by).await;
        };
        let outcome = outcome(&command, &by);
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        let mut asked = turn.questions.remove(at);
        let pressed = msg.and_then(|msg| msg.incoming.pressed);
        asked.stands = pressed.and_then(|pressed| pressed.message_id);
        self.resolve(asked, command, &outcome, None).await;
    }

    /// Whoever answered may not any more: the question stays open for others.
    async fn take_back(&mut self, id: &str, target: &Target, by: &str) {
        if let Err(error) = self.hub.delivery.reopen_question(id).await {
            tracing::error!("an answer that does not count: {error}");
            return self.try_again();
        }
        let by: String = by.chars().filter(|ch| !ch.is_control()).take(64).collect();
        let text = format!("🚫 The answer of {by} does not count: they may not decide this now.");
        let key = format!("void-{}", crate::turn::preview::key(&*self.hub.rng));
        self.say(target, &key, &text).await;
    }

    /// Reads what turns that were cut have asked.
    pub(super) async fn remember_questions(&mut self) {
        match self.hub.delivery.questions_of(&self.key).await {
            Ok(found) => self.cut.questions = found,
            Err(error) => tracing::error!("questions of {}: {error}", self.key),
        }
    }

    /// The same question, put by an earlier life and still open. One whose time is over is closed,
    /// and asked anew.
    pub(super) async fn earlier_like(&mut self, print: &str) -> Option<StoredQuestion> {
        loop {
            let same = |one: &StoredQuestion| put(one).is_some_and(|put| put.print == print);
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
        let text = put(stored).map(|put| put.text).unwrap_or_default();
        let question = &stored.question;
        self.close_question((&question.id, None), &text, &question.target, outcome, None)
            .await;
    }

    /// The turn has come to a question that was put before: perhaps the answer is there.
    pub(super) async fn answered_before(&mut self, id: &str) {
        self.take_presses().await;
        while self.waits_for(id) {
            let meant = |held: &HeldAnswer| held.question == id;
            let Some(at) = self.cut.held.iter().position(meant) else {
                return;
            };
            let msg = self.cut.held.remove(at).msg;
            if !self.hub.admits(&msg) {
                self.answer(&msg, "ans", None).await;
            } else if let Some((approve, args)) = decision(&msg) {
                self.decide(msg, approve, &args, Some(id)).await;
            } else {
                self.take_answer(msg, Some(id)).await;
            }
        }
    }

    fn waits_for(&self, id: &str) -> bool {
        let mut asked = self
            .activity
            .turn()
            .into_iter()
            .flat_map(|turn| &turn.questions);
        asked.any(|asked| asked.id == id)
    }

    /// Holds a message back that answers a question which the turn has not come to again.
    pub(super) async fn keep_for_later(&mut self, msg: &InboxMessage) -> bool {
        if !self.goes_on_with_cut() || !msg.incoming.media.is_empty() || self.waiting() >= QUEUE {
            return false;
        }
        let Some(question) = self.meant(msg) else {
            return false;
        };
        self.ack(msg, "⏳").await;
        let msg = msg.clone();
        self.cut.held.push(HeldAnswer { msg, question });
        true
    }

    /// The question of an earlier turn that a message answers: the oldest that it fits and that
    /// nobody has answered, else the oldest that it fits. None that was put after it.
    fn meant(&self, msg: &InboxMessage) -> Option<String> {
        let decides = decision(msg).is_some() || verdict_word(&msg.incoming.text).is_some();
        let talks = msg.command_line().is_none();
        let fits = |one: &&StoredQuestion| {
            let put = put(one).filter(|_| !self.is_late(one));
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

    /// Whether words that count are held back for a question.
    fn is_answered(&self, stored: &StoredQuestion) -> bool {
        let permission = put(stored).is_some_and(|put| put.permission);
        let mut held = self.cut.held.iter();
        held.any(|held| {
            let allows = match decision(&held.msg) {
                Some((approve, _)) => approve,
                None => verdict_word(&held.msg.incoming.text) != Some("no"),
            };
            held.question == stored.question.id
                && (!permission || self.may_decide(&held.msg, allows))
        })
    }

    /// A turn that was cut runs, or comes.
    fn goes_on_with_cut(&self) -> bool {
        let cut = |job: &TurnJob| job.msgs.iter().any(|msg| msg.turn.is_some());
        self.activity.turn().is_some()
            || self.activity.preparing().is_some()
            || !self.cut.unsure.is_empty()
            || self.queue.jobs.iter().any(cut)
    }

    /// No turn comes to the questions of earlier ones any more: they are over, and what was held
    /// back for them are messages like any other.
    pub(super) async fn let_go_of_earlier(&mut self) {
        if (self.cut.questions.is_empty() && self.cut.held.is_empty()) || self.goes_on_with_cut() {
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
                self.queue.jobs.push_front(TurnJob { msgs, how });
            }
        }
    }
}

pub(in crate::turn) fn put(stored: &StoredQuestion) -> Option<QuestionRecord> {
    serde_json::from_value(stored.question.asked.clone()).ok()
}

/// `/approve` (`true`) or `/deny`, and what stands behind it.
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
