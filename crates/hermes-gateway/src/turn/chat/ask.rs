//! Questions of the agent: permissions and others, with buttons or as text.
//!
//! A question is stored with the message that asks it. The turn waits for the answer; if it is
//! interrupted, the resumed turn that asks the same question takes over the existing message
//! ([`super::earlier`]). A question is closed before its answer is acted on, so that no answer
//! counts twice.

use std::fmt::Write as _;
use std::time::Duration;

use hermes_app::ConversationRequest;
use hermes_core::approval::{ApprovalRequest, Verdict};
use hermes_core::ask::{Answer, Question, Want};
use hermes_core::event::AgentCommand;
use hermes_core::redact;
use hermes_platforms::{Button, Tone};
use hermes_store::delivery::{Final, NewQuestion, Target};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::ChatTask;
use super::answers::{
    VerdictWord, button, choices, form, outcome, pick, read, verdict, verdict_word,
};
use super::events::ChatTurn;
use crate::delivery::ChunkExtras;
use crate::settings;
use crate::turn::message::InboxMessage;

/// As much of a command as is shown.
const MAX_ACTION_CHARS: usize = 3800;

/// An open question.
pub(in crate::turn) struct PendingQuestion {
    /// In the data of buttons: random, so that an old button never answers a new question.
    pub(super) id: String,
    pub(super) kind: QuestionKind,
    /// The text of the question, without the choices.
    text: String,
    pub(super) until: Instant,
    /// The message whose button was pressed: a press can arrive before the sending of the question
    /// is recorded.
    pub(super) shown_in: Option<String>,
}

pub(super) enum QuestionKind {
    Permission(ApprovalRequest),
    Question(Question),
}

/// The stored form of a question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::turn) struct QuestionRecord {
    /// It asks for a permission, which not everyone may give.
    pub(in crate::turn) permission: bool,
    /// The tool or other origin of the question.
    pub(in crate::turn) from: String,
    /// A digest of the exact question, which may contain secrets.
    #[serde(rename = "print")]
    pub(super) fingerprint: String,
    /// When it was asked: earlier messages do not answer it.
    #[serde(default)]
    pub(super) asked_at: Option<f64>,
    /// The displayed text.
    pub(in crate::turn) text: String,
    /// The labels of its buttons.
    pub(in crate::turn) choices: Vec<String>,
}

pub(super) const ADMINS: &str = "Only an admin may decide this.";

impl QuestionKind {
    pub(super) fn is_permission(&self) -> bool {
        matches!(self, Self::Permission(_))
    }

    fn from(&self) -> &str {
        match self {
            Self::Permission(request) => &request.tool,
            Self::Question(question) => &question.from,
        }
    }

    /// Identical for the same question across processes and turns.
    pub(super) fn fingerprint(&self) -> String {
        let value = match self {
            Self::Permission(request) => serde_json::to_value(request),
            Self::Question(question) => serde_json::to_value(question),
        };
        let mut value = value.unwrap_or_default();
        if let Some(map) = value.as_object_mut() {
            map.remove("id");
        }
        hermes_core::bytes::hex(&Sha256::digest(value.to_string().as_bytes()))
    }

    /// The answer that a button means.
    pub(super) fn picked(&self, choice: &str) -> Option<AgentCommand> {
        Some(match self {
            Self::Permission(request) => AgentCommand::Answer {
                request: request.id.clone(),
                verdict: match (choice, &request.rule) {
                    ("o", _) => Verdict::Once,
                    ("s", _) => Verdict::Session,
                    ("a", Some(rule)) => Verdict::Always(rule.clone()),
                    ("d", _) => Verdict::Deny { why: None },
                    _ => return None,
                },
            },
            Self::Question(question) => AgentCommand::Reply {
                question: question.id.clone(),
                answer: pick(&question.want, choice)?,
            },
        })
    }

    /// The result when there is no answer.
    fn nothing(&self, why: &str) -> AgentCommand {
        let why = why.to_owned();
        match self {
            Self::Permission(request) => AgentCommand::Answer {
                request: request.id.clone(),
                verdict: Verdict::Deny { why: Some(why) },
            },
            Self::Question(question) => AgentCommand::Reply {
                question: question.id.clone(),
                answer: Answer::Unanswered { why },
            },
        }
    }
}

impl ChatTask {
    pub(super) async fn approval_needed(&mut self, request: ApprovalRequest) {
        let action = redact::secrets(&request.action);
        let shown = hermes_core::text::shorten(&action, MAX_ACTION_CHARS);
        let fence = if shown.contains("```") { "~~~~" } else { "```" };
        let mut text = format!(
            "⚠️ **{}** wants to do this:\n{fence}\n{shown}\n{fence}",
            request.tool
        );
        for reason in request.reasons.iter().take(8) {
            let _ = write!(text, "\n• {}", redact::secrets(reason));
        }
        if let Some(posture) = &request.posture {
            let _ = write!(text, "\n{posture}");
        }
        let always = request.rule.is_some();
        let wait = settings::approval_wait(&self.shared.settings.config);
        let what = QuestionKind::Permission(request);
        let (asked, again) = self.name(what, text, wait.as_secs()).await;
        let id = &asked.id;
        let mut row = vec![
            button(id, "o", "Once", Tone::Good),
            button(id, "s", "This session", Tone::Neutral),
        ];
        let mut say = "Say **yes** (once), **session**".to_owned();
        if always {
            row.push(button(id, "a", "Always", Tone::Neutral));
            say.push_str(", **always**");
        }
        row.push(button(id, "d", "Deny", Tone::Danger));
        say.push_str(" or **no**.");
        self.ask(asked, vec![row], &say, again).await;
    }

    pub(super) async fn question_asked(&mut self, question: Question) {
        let seconds = self
            .shared
            .settings
            .tree
            .pointer("/agent/clarify_timeout")
            .and_then(Value::as_u64);
        let want = question.want.clone();
        let text = format!("❓ {}", question.text.trim());
        let what = QuestionKind::Question(question);
        let (mut asked, again) = self.name(what, text, seconds.unwrap_or(3600)).await;
        let (id, text) = (&asked.id, &mut asked.text);
        let (rows, say) = match &want {
            Want::Text => (Vec::new(), "Answer with your next message.".to_owned()),
            Want::Choice { options, other } => choices(id, options, *other, text),
            Want::Visit { url } => {
                let _ = write!(text, "\n{url}");
                let row = vec![
                    button(id, "y", "Done", Tone::Good),
                    button(id, "n", "No", Tone::Danger),
                ];
                (
                    vec![row],
                    "Say **yes** when you have been there, or **no**.".to_owned(),
                )
            }
            Want::Form { fields } => (Vec::new(), form(fields, text)),
        };
        self.ask(asked, rows, &say, again).await;
    }

    /// Asks a question of this turn. `true`: an earlier process asked it, and its message exists.
    async fn name(
        &mut self,
        what: QuestionKind,
        text: String,
        seconds: u64,
    ) -> (PendingQuestion, bool) {
        let earlier = match self.activity.turn() {
            Some(_) => self.earlier_like(&what.fingerprint()).await,
            None => None,
        };
        let (id, left, again) = match earlier {
            Some(one) => {
                let left = one.question.expires_at - self.shared.clock.epoch_seconds();
                let left = Duration::try_from_secs_f64(left).unwrap_or_default();
                (one.question.id, left, true)
            }
            None => (
                format!("{:012x}", self.shared.rng.next_u64() >> 16),
                Duration::from_secs(seconds.max(1)),
                false,
            ),
        };
        let asked = PendingQuestion {
            id,
            kind: what,
            text,
            until: Instant::now() + left,
            shown_in: None,
        };
        (asked, again)
    }

    async fn ask(
        &mut self,
        asked: PendingQuestion,
        buttons: Vec<Vec<Button>>,
        say: &str,
        again: bool,
    ) {
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        let target = turn.target.clone();
        let message = turn.msgs.first().map_or(0, |msg| msg.id);
        self.shared
            .register_question(&asked.id, Some(&self.answered));
        let now = self.shared.clock.epoch_seconds();
        let new = (!again).then(|| {
            let left = asked.until.duration_since(Instant::now()).as_secs_f64();
            let choices = buttons.iter().flatten();
            let choices = choices.filter_map(|button| button.data.rsplit(':').next());
            let put = QuestionRecord {
                permission: asked.kind.is_permission(),
                from: asked.kind.from().to_owned(),
                fingerprint: asked.kind.fingerprint(),
                asked_at: Some(now),
                text: asked.text.clone(),
                choices: choices.map(str::to_owned).collect(),
            };
            NewQuestion {
                id: asked.id.clone(),
                session_key: self.key.clone(),
                message,
                target: target.clone(),
                asked: serde_json::to_value(put).unwrap_or_default(),
                expires_at: now + left,
            }
        });
        let (id, text) = (asked.id.clone(), asked.text.clone());
        turn.questions.push(asked);
        // Later messages appear below the question.
        turn.displaced = true;
        turn.refresh();
        if new.is_none() {
            return self.answered_before(&id).await;
        }
        let pressable = self.shared.capabilities(&target).buttons && !buttons.is_empty();
        let text = if pressable {
            text
        } else {
            format!("{text}\n\n{say}")
        };
        let mut chunks = self.shared.chunks(&target, &text);
        if pressable && let Some(last) = chunks.last_mut() {
            let extra = ChunkExtras {
                buttons,
                ..ChunkExtras::default()
            };
            last.extra = serde_json::to_value(extra).ok();
        }
        let end = Final {
            turn: format!("ask-{id}"),
            replies: self.replies(target, chunks),
            asks: new,
            ..Final::default()
        };
        self.shared.settle(end, &self.cancel).await;
    }

    /// Whether the sender may decide about a permission.
    pub(super) fn may_decide(&self, msg: &InboxMessage, allow: bool) -> bool {
        let tier = self.shared.tier(msg);
        let command = if allow { "approve" } else { "deny" };
        tier.may(command) && (tier.is_admin() || !self.shared.admins_decide())
    }

    /// Closes the question, writes the answer below it and hands it over, in this order. The
    /// message that gave the answer is done in the transaction that closes the question.
    pub(super) async fn resolve(
        &mut self,
        asked: PendingQuestion,
        command: AgentCommand,
        outcome: &str,
        by: Option<&InboxMessage>,
    ) {
        self.shared.register_question(&asked.id, None);
        let Some(turn) = self.activity.turn() else {
            return;
        };
        let target = turn.target.clone();
        let closed = self
            .close_question(
                (&asked.id, asked.shown_in.as_deref()),
                &asked.text,
                &target,
                outcome,
                by,
            )
            .await;
        if self.cancel.is_cancelled() {
            return;
        }
        let command = if closed {
            command
        } else {
            asked.kind.nothing("the answer could not be stored")
        };
        self.request(ConversationRequest::Agent(command));
        if let Some(turn) = self.activity.turn() {
            turn.refresh();
        }
    }

    /// Closes the question: removes the buttons and shows the outcome. `false`: it was closed
    /// before, or cannot be stored.
    pub(super) async fn close_question(
        &self,
        (id, stands): (&str, Option<&str>),
        text: &str,
        target: &Target,
        outcome: &str,
        by: Option<&InboxMessage>,
    ) -> bool {
        let mut end = Final {
            turn: format!("asked-{id}"),
            closes: vec![id.to_owned()],
            ..Final::default()
        };
        if let Some(msg) = by {
            let turn = msg.attempt("ans");
            if self.shared.claim(&[msg.id], &turn, &self.cancel).await {
                end.turn = turn;
                end.answers.push(msg.id);
            }
        }
        if self.shared.capabilities(target).edit {
            let message = if let Some(message) = stands {
                Some(message.to_owned())
            } else {
                let ids = self.shared.delivery.sent(&format!("ask-{id}")).await;
                ids.unwrap_or_default().pop()
            };
            let mut chunks = self.shared.chunks(target, &format!("{text}\n\n{outcome}"));
            if let (Some(message), Some(mut last)) = (message, chunks.pop()) {
                let extra = ChunkExtras {
                    edits: Some(message),
                    ..ChunkExtras::default()
                };
                last.extra = serde_json::to_value(extra).ok();
                end.replies = self.replies(target.clone(), vec![last]);
            }
        }
        self.shared.settle(end, &self.cancel).await
    }

    /// The agent no longer waits for it.
    pub(super) async fn question_closed(&mut self, id: &str) {
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        let same = |asked: &PendingQuestion| match &asked.kind {
            QuestionKind::Permission(request) => request.id == id,
            QuestionKind::Question(question) => question.id == id,
        };
        let Some(at) = turn.questions.iter().position(same) else {
            return;
        };
        let asked = turn.questions.remove(at);
        turn.refresh();
        let target = turn.target.clone();
        self.not_needed(asked, &target).await;
    }

    async fn not_needed(&self, asked: PendingQuestion, target: &Target) {
        self.shared.register_question(&asked.id, None);
        let question = (asked.id.as_str(), asked.shown_in.as_deref());
        self.close_question(question, &asked.text, target, "⏹ No longer needed.", None)
            .await;
    }

    /// The time to answer is over.
    pub(super) async fn expire(&mut self, id: &str) {
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        let Some(at) = turn.questions.iter().position(|asked| asked.id == id) else {
            return;
        };
        let asked = turn.questions.remove(at);
        let command = asked.kind.nothing("no one answered in time");
        self.resolve(asked, command, "⌛ No one answered in time.", None)
            .await;
    }

    /// Closes the questions of an ended turn.
    pub(super) async fn close_questions(&mut self, turn: &mut ChatTurn) {
        for asked in std::mem::take(&mut turn.questions) {
            self.not_needed(asked, &turn.target).await;
        }
    }

    /// Whether a text message is an answer.
    pub(super) fn answers_question(&self, msg: &InboxMessage) -> bool {
        let Some(turn) = self.activity.turn() else {
            return false;
        };
        if !msg.incoming.media.is_empty() {
            return false;
        }
        turn.questions.iter().any(|asked| match &asked.kind {
            QuestionKind::Permission(_) => verdict_word(&msg.incoming.text).is_some(),
            QuestionKind::Question(_) => true,
        })
    }

    /// Applies a text to the oldest matching question, or to `only`.
    pub(super) async fn take_answer(&mut self, msg: InboxMessage, only: Option<&str>) {
        let text = msg.incoming.text.trim().to_owned();
        let word = verdict_word(&text);
        let allowed = self.may_decide(&msg, word != Some(VerdictWord::No));
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        let at = turn.questions.iter().position(|asked| {
            let fits = !asked.kind.is_permission() || word.is_some();
            fits && only.is_none_or(|id| asked.id == id)
        });
        let Some(at) = at else { return };
        let by = msg.source().user_name.clone().unwrap_or_default();
        let command = match &turn.questions[at].kind {
            QuestionKind::Permission(_) if !allowed => Err(ADMINS.to_owned()),
            QuestionKind::Permission(request) => word
                .and_then(|word| verdict(word, request, None))
                .map(|verdict| AgentCommand::Answer {
                    request: request.id.clone(),
                    verdict,
                })
                .ok_or_else(|| {
                    "That cannot be allowed for always; say yes, session or no.".to_owned()
                }),
            QuestionKind::Question(question) => {
                read(&question.want, &text).map(|answer| AgentCommand::Reply {
                    question: question.id.clone(),
                    answer,
                })
            }
        };
        match command {
            Ok(command) => {
                let asked = turn.questions.remove(at);
                let outcome = outcome(&command, &by);
                self.resolve(asked, command, &outcome, Some(&msg)).await;
            }
            Err(why) => self.answer(&msg, "ans", Some(&why)).await,
        }
    }

    /// `/approve [all] [session|always]`, `/deny [all] [reason]`, for `only` this question or for
    /// the open ones.
    pub(super) async fn decide(
        &mut self,
        msg: InboxMessage,
        approve: bool,
        args: &str,
        only: Option<&str>,
    ) {
        if !self.may_decide(&msg, approve) {
            return self.answer(&msg, "ans", Some(ADMINS)).await;
        }
        let all = args.split_whitespace().any(|word| word == "all");
        let rest = args.split_whitespace().filter(|word| *word != "all");
        let rest = rest.collect::<Vec<_>>().join(" ");
        let word = match (approve, rest.as_str()) {
            (false, _) => VerdictWord::No,
            (true, "session") => VerdictWord::Session,
            (true, "always") => VerdictWord::Always,
            (true, _) => VerdictWord::Yes,
        };
        let why: String = rest.chars().take(280).collect();
        let why = (!approve && !why.is_empty()).then_some(why);
        let mut decided = 0;
        while let Some(turn) = self.activity.turn_mut() {
            let open = |asked: &PendingQuestion| {
                asked.kind.is_permission() && only.is_none_or(|id| asked.id == id)
            };
            let Some(at) = turn.questions.iter().position(open) else {
                break;
            };
            let QuestionKind::Permission(request) = &turn.questions[at].kind else {
                break;
            };
            let given = verdict(word, request, why.clone()).unwrap_or(Verdict::Session);
            let command = AgentCommand::Answer {
                request: request.id.clone(),
                verdict: given,
            };
            let asked = turn.questions.remove(at);
            let by = msg.source().user_name.clone().unwrap_or_default();
            let outcome = outcome(&command, &by);
            // Settled with the first: if another process reads the message again, it must not
            // decide the next question.
            let first = (decided == 0).then_some(&msg);
            self.resolve(asked, command, &outcome, first).await;
            decided += 1;
            if !all {
                break;
            }
        }
        if decided == 0 && !self.hold_answer(&msg).await {
            let text = "Nothing waits for a decision here.";
            self.answer(&msg, "ans", Some(text)).await;
        }
    }
}
