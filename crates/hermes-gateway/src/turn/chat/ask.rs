//! Questions of the agent to people: permissions and everything else, with buttons or in words.
//!
//! An open question belongs to the turn that waits for it. After a restart the turn is taken up
//! again and asks anew; whoever answers the old question is told so.

use std::fmt::Write as _;
use std::time::Duration;

use hermes_agent::front::Wish;
use hermes_core::approval::{ApprovalRequest, Verdict};
use hermes_core::ask::{Answer, Choice, Field, Question, Want};
use hermes_core::event::AgentCommand;
use hermes_core::redact;
use hermes_store::db::delivery::{Final, Target};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Chat;
use super::news::Turn;
use crate::platform::{Button, Tone};
use crate::spine::{Extra, Ledger};
use crate::turn::message::Msg;

/// As much of a command as is shown.
const ACTION: usize = 3800;
const BUTTONS: usize = 12;

/// A question that waits for its answer.
pub(in crate::turn) struct Asked {
    /// In the data of buttons: random, so that an old button never answers a new question.
    pub(super) id: String,
    what: What,
    /// What was asked, without the choices.
    text: String,
    pub(super) until: Instant,
}

enum What {
    Permission(ApprovalRequest),
    Question(Question),
}

/// A button that somebody pressed, on its way to the chat that asked.
pub(in crate::turn) struct Press {
    pub(in crate::turn) id: String,
    pub(in crate::turn) choice: String,
    pub(super) by: String,
    pub(super) message: Option<String>,
}

/// A question as those see it who bring an answer from elsewhere.
pub(in crate::turn) struct Open {
    pub(in crate::turn) chat: mpsc::Sender<Press>,
    pub(in crate::turn) permission: bool,
    /// What its buttons say.
    pub(in crate::turn) choices: Vec<String>,
}

const ADMINS: &str = "Only an admin may decide this.";
const UNKNOWN: &str = "I do not know that button.";

impl<L: Ledger + Clone + 'static> Chat<L> {
    pub(super) async fn approval_needed(&mut self, request: ApprovalRequest) {
        let id = self.question_id();
        let action = redact::secrets(&request.action);
        let mut shown: String = action.chars().take(ACTION).collect();
        if shown.len() < action.len() {
            shown.push('…');
        }
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
        let mut row = vec![
            button(&id, "o", "Once", Tone::Good),
            button(&id, "s", "This session", Tone::Neutral),
        ];
        let mut say = "Say **yes** (once), **session**".to_owned();
        if request.rule.is_some() {
            row.push(button(&id, "a", "Always", Tone::Neutral));
            say.push_str(", **always**");
        }
        row.push(button(&id, "d", "Deny", Tone::Danger));
        say.push_str(" or **no**.");
        let seconds = self.hub.settings.config.approvals.gateway_timeout;
        let seconds = seconds.unwrap_or(300).max(1);
        let asked = Asked {
            id,
            what: What::Permission(request),
            text,
            until: Instant::now() + Duration::from_secs(seconds),
        };
        self.ask(asked, vec![row], &say).await;
    }

    pub(super) async fn question_asked(&mut self, question: Question) {
        let id = self.question_id();
        let mut text = format!("❓ {}", question.text.trim());
        let (rows, say) = match &question.want {
            Want::Text => (Vec::new(), "Answer with your next message.".to_owned()),
            Want::Choice { options, other } => choices(&id, options, *other, &mut text),
            Want::Visit { url } => {
                let _ = write!(text, "\n{url}");
                let row = vec![
                    button(&id, "y", "Done", Tone::Good),
                    button(&id, "n", "No", Tone::Danger),
                ];
                (
                    vec![row],
                    "Say **yes** when you have been there, or **no**.".to_owned(),
                )
            }
            Want::Form { fields } => (Vec::new(), form(fields, &mut text)),
        };
        let seconds = self
            .hub
            .settings
            .tree
            .pointer("/agent/clarify_timeout")
            .and_then(Value::as_u64);
        let asked = Asked {
            id,
            what: What::Question(question),
            text,
            until: Instant::now() + Duration::from_secs(seconds.unwrap_or(3600).max(1)),
        };
        self.ask(asked, rows, &say).await;
    }

    async fn ask(&mut self, asked: Asked, buttons: Vec<Vec<Button>>, say: &str) {
        let Some(turn) = &mut self.turn else { return };
        let target = turn.target.clone();
        let pressable = self.hub.capabilities(&target).buttons && !buttons.is_empty();
        let text = if pressable {
            asked.text.clone()
        } else {
            format!("{}\n\n{say}", asked.text)
        };
        let turn_id = format!("ask-{}", asked.id);
        let choices = buttons.iter().flatten();
        let choices = choices.filter_map(|button| button.data.rsplit(':').next());
        let open = Open {
            chat: self.presses.0.clone(),
            permission: matches!(asked.what, What::Permission(_)),
            choices: choices.map(str::to_owned).collect(),
        };
        self.hub.asked(&asked.id, Some(open));
        turn.questions.push(asked);
        // What comes after stands below the question.
        turn.displaced = true;
        turn.refresh();
        let mut chunks = self.hub.chunks(&target, &text);
        if pressable && let Some(last) = chunks.last_mut() {
            let extra = Extra {
                buttons,
                ..Extra::default()
            };
            last.extra = serde_json::to_value(extra).ok();
        }
        let end = Final {
            turn: turn_id,
            replies: self.replies(target, chunks),
            ..Final::default()
        };
        self.hub.settle(end, &self.cancel).await;
    }

    fn question_id(&self) -> String {
        format!("{:012x}", self.hub.rng.next_u64() >> 16)
    }

    /// A button was pressed, perhaps of a question that another chat asked.
    pub(super) async fn press(&mut self, msg: Msg) {
        let pressed = msg.incoming.pressed.clone();
        let data = pressed.as_ref().map(|pressed| pressed.data.clone());
        let data = data.unwrap_or_default();
        let mut parts = data.splitn(3, ':');
        let (kind, id, choice) = (parts.next(), parts.next(), parts.next());
        let source = msg.source();
        let by = source.user_name.clone().or(source.user_id.clone());
        let press = Press {
            id: id.unwrap_or_default().to_owned(),
            choice: choice.unwrap_or_default().to_owned(),
            by: by.unwrap_or_default(),
            message: pressed.and_then(|pressed| pressed.message_id),
        };
        let note = if kind == Some("ap") {
            // Only what answers the question takes it: it is answered once.
            self.hub.bring(press, |open, choice| {
                if !open.choices.iter().any(|one| one == choice) {
                    return Err(UNKNOWN);
                }
                if open.permission && !self.may_decide(&msg, choice != "d") {
                    return Err(ADMINS);
                }
                Ok(())
            })
        } else {
            Err(UNKNOWN)
        };
        let note = note.err();
        if let Some(outbound) = self.hub.outbound(&msg.target()) {
            let told = outbound.pressed(&msg.incoming, note);
            let _ = tokio::time::timeout(Duration::from_secs(10), told).await;
        }
        self.answer(&msg, "ans", None).await;
    }

    /// Whether somebody may allow or refuse what the agent asks, in whatever way they say it.
    fn may_decide(&self, msg: &Msg, allow: bool) -> bool {
        let tier = self.hub.tier(msg);
        let command = if allow { "approve" } else { "deny" };
        tier.may(command) && (tier.is_admin() || !self.hub.admins_decide())
    }

    /// An answer to a question of this chat.
    pub(super) async fn pressed(&mut self, press: Press) {
        let Some(turn) = &mut self.turn else { return };
        let Some(at) = turn.questions.iter().position(|asked| asked.id == press.id) else {
            return;
        };
        let command = match (&turn.questions[at].what, press.choice.as_str()) {
            (What::Permission(request), choice) => {
                let verdict = match (choice, &request.rule) {
                    ("o", _) => Verdict::Once,
                    ("s", _) => Verdict::Session,
                    ("a", Some(rule)) => Verdict::Always(rule.clone()),
                    ("d", _) => Verdict::Deny { why: None },
                    _ => return,
                };
                AgentCommand::Answer {
                    request: request.id.clone(),
                    verdict,
                }
            }
            (What::Question(question), choice) => {
                let Some(answer) = pick(&question.want, choice) else {
                    return;
                };
                AgentCommand::Reply {
                    question: question.id.clone(),
                    answer,
                }
            }
        };
        let asked = turn.questions.remove(at);
        let outcome = outcome(&command, &press.by);
        self.resolve(asked, command, &outcome, press.message).await;
    }

    /// Hands the answer over and writes it below the question.
    async fn resolve(
        &mut self,
        asked: Asked,
        command: AgentCommand,
        outcome: &str,
        message: Option<String>,
    ) {
        self.hub.asked(&asked.id, None);
        if let Some(seat) = &self.seat {
            seat.wish(Wish::Order(command)).await;
        }
        if let Some(turn) = &self.turn {
            turn.refresh();
            let target = turn.target.clone();
            self.close_question(&asked, &target, outcome, message).await;
        }
    }

    /// Takes the buttons away, and says what came of the question.
    async fn close_question(
        &self,
        asked: &Asked,
        target: &Target,
        outcome: &str,
        message: Option<String>,
    ) {
        if !self.hub.capabilities(target).edit {
            return;
        }
        let sent = if message.is_some() {
            message
        } else {
            let turn = format!("ask-{}", asked.id);
            let ids = self.hub.ledger.sent(&turn).await.unwrap_or_default();
            ids.last().cloned()
        };
        let Some(message) = sent else { return };
        let text = format!("{}\n\n{outcome}", asked.text);
        let mut chunks = self.hub.chunks(target, &text);
        let Some(mut last) = chunks.pop() else { return };
        let extra = Extra {
            edits: Some(message),
            ..Extra::default()
        };
        last.extra = serde_json::to_value(extra).ok();
        let end = Final {
            turn: format!("asked-{}", asked.id),
            replies: self.replies(target.clone(), vec![last]),
            ..Final::default()
        };
        self.hub.settle(end, &self.cancel).await;
    }

    /// The agent no longer waits for it.
    pub(super) async fn question_closed(&mut self, id: &str) {
        let Some(turn) = &mut self.turn else { return };
        let same = |asked: &Asked| match &asked.what {
            What::Permission(request) => request.id == id,
            What::Question(question) => question.id == id,
        };
        let Some(at) = turn.questions.iter().position(same) else {
            return;
        };
        let asked = turn.questions.remove(at);
        turn.refresh();
        self.hub.asked(&asked.id, None);
        let target = turn.target.clone();
        self.close_question(&asked, &target, "⏹ No longer needed.", None)
            .await;
    }

    /// Nobody answered in time.
    pub(super) async fn expire(&mut self, id: &str) {
        let Some(turn) = &mut self.turn else { return };
        let Some(at) = turn.questions.iter().position(|asked| asked.id == id) else {
            return;
        };
        let asked = turn.questions.remove(at);
        let why = "nobody answered in time".to_owned();
        let command = match &asked.what {
            What::Permission(request) => AgentCommand::Answer {
                request: request.id.clone(),
                verdict: Verdict::Deny { why: Some(why) },
            },
            What::Question(question) => AgentCommand::Reply {
                question: question.id.clone(),
                answer: Answer::Unanswered { why },
            },
        };
        self.resolve(asked, command, "⌛ Nobody answered in time.", None)
            .await;
    }

    /// The turn has ended, and with it what it asked.
    pub(super) async fn close_questions(&mut self, turn: &mut Turn<L>) {
        for asked in std::mem::take(&mut turn.questions) {
            self.hub.asked(&asked.id, None);
            self.close_question(&asked, &turn.target, "⏹ No longer needed.", None)
                .await;
        }
    }

    /// Whether a message is an answer in words.
    pub(super) fn answers_question(&self, msg: &Msg) -> bool {
        let Some(turn) = &self.turn else { return false };
        if !msg.incoming.media.is_empty() {
            return false;
        }
        turn.questions.iter().any(|asked| match &asked.what {
            What::Permission(_) => verdict_word(&msg.incoming.text).is_some(),
            What::Question(_) => true,
        })
    }

    /// Words that answer the oldest question that they fit.
    pub(super) async fn take_answer(&mut self, msg: Msg) {
        let text = msg.incoming.text.trim().to_owned();
        let word = verdict_word(&text);
        let allowed = self.may_decide(&msg, word != Some("no"));
        let Some(turn) = &mut self.turn else { return };
        let at = turn.questions.iter().position(|asked| match &asked.what {
            What::Permission(_) => word.is_some(),
            What::Question(_) => true,
        });
        let Some(at) = at else { return };
        let by = msg.source().user_name.clone().unwrap_or_default();
        match &turn.questions[at].what {
            What::Permission(request) => {
                if !allowed {
                    return self.answer(&msg, "ans", Some(ADMINS)).await;
                }
                let Some(verdict) = word.and_then(|word| verdict(word, request, None)) else {
                    let text = "That cannot be allowed for always; say yes, session or no.";
                    return self.answer(&msg, "ans", Some(text)).await;
                };
                let command = AgentCommand::Answer {
                    request: request.id.clone(),
                    verdict,
                };
                let asked = turn.questions.remove(at);
                self.answer(&msg, "ans", None).await;
                let outcome = outcome(&command, &by);
                self.resolve(asked, command, &outcome, None).await;
            }
            What::Question(question) => match read(&question.want, &text) {
                Ok(answer) => {
                    let command = AgentCommand::Reply {
                        question: question.id.clone(),
                        answer,
                    };
                    let asked = turn.questions.remove(at);
                    self.answer(&msg, "ans", None).await;
                    let outcome = outcome(&command, &by);
                    self.resolve(asked, command, &outcome, None).await;
                }
                Err(why) => self.answer(&msg, "ans", Some(&why)).await,
            },
        }
    }

    /// `/approve [all] [session|always]`, `/deny [all] [reason]`.
    pub(super) async fn decide(&mut self, msg: Msg, approve: bool, args: &str) {
        if !self.may_decide(&msg, approve) {
            return self.answer(&msg, "ans", Some(ADMINS)).await;
        }
        let all = args.split_whitespace().any(|word| word == "all");
        let rest = args.split_whitespace().filter(|word| *word != "all");
        let rest = rest.collect::<Vec<_>>().join(" ");
        let word = match (approve, rest.as_str()) {
            (false, _) => "no",
            (true, "session") => "session",
            (true, "always") => "always",
            (true, _) => "yes",
        };
        let why: String = rest.chars().take(280).collect();
        let why = (!approve && !why.is_empty()).then_some(why);
        let mut decided = 0;
        while let Some(turn) = &mut self.turn {
            let open = |asked: &Asked| matches!(asked.what, What::Permission(_));
            let Some(at) = turn.questions.iter().position(open) else {
                break;
            };
            let What::Permission(request) = &turn.questions[at].what else {
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
            self.resolve(asked, command, &outcome, None).await;
            decided += 1;
            if !all {
                break;
            }
        }
        let text = (decided == 0).then_some("Nothing waits for a decision here.");
        self.answer(&msg, "ans", text).await;
    }
}

fn button(id: &str, choice: &str, label: &str, tone: Tone) -> Button {
    Button {
        label: label.chars().take(60).collect(),
        data: format!("ap:{id}:{choice}"),
        tone,
    }
}

fn verdict_word(text: &str) -> Option<&'static str> {
    Some(
        match text
            .trim()
            .trim_end_matches(['.', '!'])
            .to_lowercase()
            .as_str()
        {
            "yes" | "y" | "ok" | "okay" | "once" | "approve" | "👍" => "yes",
            "no" | "n" | "deny" | "👎" => "no",
            "always" => "always",
            "session" => "session",
            _ => return None,
        },
    )
}

/// `None`: "always" where there is no rule that it could mean.
fn verdict(word: &str, request: &ApprovalRequest, why: Option<String>) -> Option<Verdict> {
    Some(match word {
        "yes" => Verdict::Once,
        "session" => Verdict::Session,
        "always" => Verdict::Always(request.rule.clone()?),
        _ => Verdict::Deny { why },
    })
}

fn outcome(command: &AgentCommand, by: &str) -> String {
    let what = match command {
        AgentCommand::Answer { verdict, .. } => match verdict {
            Verdict::Once => "✅ Allowed once",
            Verdict::Session => "✅ Allowed for this session",
            Verdict::Always(_) => "✅ Allowed for always",
            Verdict::Deny { .. } => "🚫 Denied",
        }
        .to_owned(),
        AgentCommand::Reply { answer, .. } => match answer {
            Answer::Text { text } => {
                let short: String = text.chars().take(200).collect();
                format!("✅ {short}")
            }
            Answer::Declined { .. } => "🚫 Declined".to_owned(),
            _ => "✅ Answered".to_owned(),
        },
        _ => String::new(),
    };
    if by.is_empty() {
        what
    } else {
        let by: String = by.chars().filter(|ch| !ch.is_control()).take(64).collect();
        format!("{what} by {by}")
    }
}

fn choices(
    id: &str,
    options: &[Choice],
    other: bool,
    text: &mut String,
) -> (Vec<Vec<Button>>, String) {
    for (number, option) in options.iter().enumerate() {
        let _ = write!(text, "\n{}. {}", number + 1, option.title);
    }
    let rows = options
        .iter()
        .enumerate()
        .take(BUTTONS)
        .map(|(number, option)| {
            vec![button(
                id,
                &number.to_string(),
                &option.title,
                Tone::Neutral,
            )]
        });
    let say = if other {
        "Answer with a number, or in your own words."
    } else {
        "Answer with a number."
    };
    if other {
        text.push_str("\nOr say it in your own words.");
    }
    (rows.collect(), say.to_owned())
}

fn form(fields: &[Field], text: &mut String) -> String {
    for field in fields {
        let need = if field.required {
            ""
        } else {
            " (may be left out)"
        };
        let _ = write!(text, "\n• {}{need}", field.title);
        if let Some(about) = &field.description {
            let _ = write!(text, ": {about}");
        }
    }
    match fields {
        [_] => "Answer with your next message; say **no** to decline.".to_owned(),
        _ => "Answer with one line per field, `name: value`; say **no** to decline.".to_owned(),
    }
}

/// The answer that a button means.
fn pick(want: &Want, choice: &str) -> Option<Answer> {
    match want {
        Want::Choice { options, .. } => {
            let option = options.get(choice.parse::<usize>().ok()?)?;
            Some(Answer::Text {
                text: option.value.clone(),
            })
        }
        Want::Visit { .. } => match choice {
            "y" => Some(Answer::Agreed),
            "n" => Some(Answer::Declined { why: None }),
            _ => None,
        },
        Want::Text | Want::Form { .. } => None,
    }
}

/// The answer that words mean. `Err`: what is wrong with them.
fn read(want: &Want, text: &str) -> Result<Answer, String> {
    let declined = matches!(text.to_lowercase().as_str(), "no" | "/cancel" | "cancel");
    match want {
        Want::Text => Ok(Answer::Text {
            text: text.to_owned(),
        }),
        Want::Choice { options, other } => {
            let number = text.trim_end_matches('.').parse::<usize>().ok();
            let by_number = number.and_then(|number| options.get(number.checked_sub(1)?));
            let found = by_number.or_else(|| {
                let same = |one: &&Choice| {
                    one.title.eq_ignore_ascii_case(text) || one.value.eq_ignore_ascii_case(text)
                };
                options.iter().find(same)
            });
            match found {
                Some(option) => Ok(Answer::Text {
                    text: option.value.clone(),
                }),
                None if *other => Ok(Answer::Text {
                    text: text.to_owned(),
                }),
                None => Err(format!("Answer with a number from 1 to {}.", options.len())),
            }
        }
        Want::Visit { .. } | Want::Form { .. } if declined => Ok(Answer::Declined { why: None }),
        Want::Visit { .. } => match verdict_word(text) {
            Some("yes") => Ok(Answer::Agreed),
            _ => Err("Say yes when you have been there, or no.".to_owned()),
        },
        Want::Form { fields } => fill(fields, text),
    }
}

fn fill(fields: &[Field], text: &str) -> Result<Answer, String> {
    let mut given: Map<String, Value> = Map::new();
    for field in fields {
        let typed = match fields {
            [_] => text,
            _ => typed(field, text),
        };
        if let Some(value) = field.read(typed)? {
            given.insert(field.name.clone(), value);
        }
    }
    Ok(Answer::Form { values: given })
}

/// The line of a field, without its name.
fn typed<'a>(field: &Field, text: &'a str) -> &'a str {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(name, _)| {
        let name = name.trim();
        field.name.eq_ignore_ascii_case(name) || field.title.eq_ignore_ascii_case(name)
    });
    found.next().map_or("", |(_, rest)| rest.trim())
}

#[cfg(test)]
mod tests {
    use hermes_core::ask::FieldKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn words_become_answers() {
        let want = Want::Choice {
            options: vec![Choice::plain("red"), Choice::plain("blue")],
            other: false,
        };
        let text = |text: &str| Answer::Text {
            text: text.to_owned(),
        };
        assert_eq!(read(&want, "2"), Ok(text("blue")));
        assert_eq!(read(&want, "Red"), Ok(text("red")));
        assert!(read(&want, "3").is_err() && read(&want, "green").is_err());
        assert_eq!(pick(&want, "0"), Some(text("red")));
        assert_eq!(pick(&want, "9"), None);
        let field = |name: &str, kind: FieldKind| Field {
            name: name.to_owned(),
            title: name.to_owned(),
            description: None,
            required: true,
            kind,
            default: None,
        };
        let number = FieldKind::Number {
            integer: true,
            minimum: None,
            maximum: None,
        };
        let fields = vec![field("age", number), field("ok", FieldKind::Boolean)];
        let want = Want::Form { fields };
        let Ok(Answer::Form { values }) = read(&want, "Age: 7\nok: yes") else {
            panic!("a form");
        };
        assert_eq!(Value::from(values), json!({"age": 7, "ok": true}));
        assert!(read(&want, "age: x\nok: yes").is_err());
        assert_eq!(read(&want, "no"), Ok(Answer::Declined { why: None }));
    }
}
