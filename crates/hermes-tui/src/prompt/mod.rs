//! Approvals and questions: they take the place of the composer, one after another.
//!
//! Nothing is answered by keys that were meant for something else: see [`guard`] and
//! [`approval::SETTLE`]. A key that is not taken is said to be so; only what goes on with a message
//! that was being written goes to the draft.

pub mod approval;
pub mod guard;
pub mod line;
pub mod question;
mod view;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hermes_core::approval::{ApprovalRequest, Verdict};
use hermes_core::ask::{Answer, Question};
use hermes_core::event::AgentCommand;

use crate::keys::Key;
use crate::width;
use approval::{ApprovalPrompt, CheckRule, Step};
use guard::Guard;
use question::QuestionPrompt;

/// The tool whose whole work is a question.
pub(crate) const CLARIFY: &str = "clarify";
/// Columns of an action in the line that tells what was decided about it.
const TOLD: usize = 72;
/// How often the time until keys count is shown anew.
const COUNTDOWN: Duration = Duration::from_millis(200);
/// So long before an approval is taken for a no the person is called once more.
const LAST_CALL: Duration = Duration::from_secs(10);

/// What a person can be asked.
#[derive(Clone, Debug)]
pub enum Asked {
    Approval(ApprovalRequest),
    Question(Question),
}

impl Asked {
    fn id(&self) -> &str {
        match self {
            Self::Approval(request) => &request.id,
            Self::Question(question) => &question.id,
        }
    }
}

#[derive(Clone, Debug)]
enum Open {
    Approval(ApprovalPrompt),
    Question(QuestionPrompt),
}

impl Open {
    fn into_asked(self) -> Asked {
        match self {
            Self::Approval(prompt) => Asked::Approval(prompt.request),
            Self::Question(prompt) => Asked::Question(prompt.question),
        }
    }
}

/// What is asked now, and what waits behind it.
#[derive(Clone, Debug)]
pub struct Prompts {
    open: Option<Open>,
    waiting: VecDeque<Waiting>,
    /// Of this row of questions, for "2 of 3".
    answered: usize,
    check: CheckRule,
    /// How long an approval waits; `None`: for ever.
    limit: Option<Duration>,
    /// The request whose last call is over.
    called: Option<String>,
}

#[derive(Clone, Debug)]
struct Waiting {
    asked: Asked,
    expires: Option<Instant>,
    /// A message was being written when it came.
    writing: bool,
}

/// What is to be done after a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Nothing,
    Redraw,
    /// Not meant for the prompt.
    Draft(Vec<Key>),
    Send(Decision),
}

/// An answer, and how the transcript tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub command: AgentCommand,
    /// Empty: the tool that asked shows the answer itself.
    pub told: String,
    pub denied: bool,
}

impl Prompts {
    /// `limit`: how long an approval waits.
    pub fn new(check: CheckRule, limit: Option<Duration>) -> Self {
        Self {
            open: None,
            waiting: VecDeque::new(),
            answered: 0,
            check,
            limit,
            called: None,
        }
    }

    /// Whether an approval that nobody answers is taken for a no.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether the person is to be called now, because the open approval is about to expire.
    pub fn last_call(&mut self, now: Instant) -> bool {
        let Some(Open::Approval(prompt)) = &self.open else {
            return false;
        };
        let due = prompt.expires.is_some_and(|at| now + LAST_CALL >= at);
        let id = &prompt.request.id;
        if !due || self.called.as_ref() == Some(id) {
            return false;
        }
        self.called = Some(id.clone());
        true
    }

    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether an approval is on the screen.
    pub fn approves(&self) -> bool {
        matches!(self.open, Some(Open::Approval(_)))
    }

    /// `writing`: a message is being written.
    pub fn ask(&mut self, asked: Asked, writing: bool, now: Instant) {
        let limit = match asked {
            Asked::Approval(_) => self.limit,
            Asked::Question(_) => None,
        };
        self.waiting.push_back(Waiting {
            asked,
            expires: limit.map(|limit| now + limit),
            writing,
        });
        if self.open.is_none() {
            self.next();
        }
    }

    /// Nobody wants to know any more. Says what becomes of an approval that was still open.
    pub fn withdraw(&mut self, id: &str) -> Option<String> {
        let at = self
            .waiting
            .iter()
            .position(|waiting| waiting.asked.id() == id);
        let gone = match at.and_then(|at| self.waiting.remove(at)) {
            Some(waiting) => Some(waiting.asked),
            None if self.open_id() == Some(id) => {
                let gone = self.open.take().map(Open::into_asked);
                self.answered += 1;
                self.next();
                gone
            }
            None => None,
        };
        let Some(Asked::Approval(request)) = gone else {
            return None;
        };
        let why = match self.limit {
            Some(limit) => format!("not answered within {} s: denied", limit.as_secs()),
            None => "no longer asked".to_owned(),
        };
        Some(format!("{why}  ({})", about(&request)))
    }

    fn open_id(&self) -> Option<&str> {
        self.open.as_ref().map(|open| match open {
            Open::Approval(prompt) => prompt.request.id.as_str(),
            Open::Question(prompt) => prompt.question.id.as_str(),
        })
    }

    /// The prompt is drawn at `now`.
    pub fn seen(&mut self, now: Instant) {
        match &mut self.open {
            Some(Open::Approval(prompt)) => prompt.seen(now),
            Some(Open::Question(prompt)) => prompt.guard.seen(now),
            None => {}
        }
    }

    /// Something covers it: when it is seen again, keys are closed again.
    pub fn hidden(&mut self) {
        match &mut self.open {
            Some(Open::Approval(prompt)) => prompt.hidden(),
            Some(Open::Question(prompt)) => prompt.guard.hidden(),
            None => {}
        }
    }

    pub fn clear(&mut self) {
        self.open = None;
        self.waiting.clear();
        self.answered = 0;
    }

    fn next(&mut self) {
        // Whoever answers one prompt after another writes no message.
        let first = self.answered == 0;
        self.open = self.waiting.pop_front().map(|waiting| {
            let guard = Guard::amid_writing(waiting.writing && first);
            match waiting.asked {
                Asked::Approval(request) => Open::Approval(
                    ApprovalPrompt::new(request, guard, self.check).expiring(waiting.expires),
                ),
                Asked::Question(question) => Open::Question(QuestionPrompt::new(question, guard)),
            }
        });
        if self.open.is_none() {
            self.answered = 0;
        }
    }

    pub fn key(&mut self, key: Key, now: Instant) -> Outcome {
        let step = match &mut self.open {
            None => return Outcome::Nothing,
            Some(Open::Approval(prompt)) => match prompt.key(key, now) {
                Step::Answer(verdict) => Step::Answer(decided(&prompt.request, verdict)),
                Step::Draft(keys) => Step::Draft(keys),
                Step::Redraw => Step::Redraw,
                Step::Nothing => Step::Nothing,
            },
            Some(Open::Question(prompt)) => match prompt.key(key, now) {
                Step::Answer(answer) => Step::Answer(answered(&prompt.question, answer)),
                Step::Draft(keys) => Step::Draft(keys),
                Step::Redraw => Step::Redraw,
                Step::Nothing => Step::Nothing,
            },
        };
        match step {
            Step::Nothing => Outcome::Nothing,
            Step::Redraw => Outcome::Redraw,
            Step::Draft(keys) => Outcome::Draft(keys),
            Step::Answer(decision) => self.send(decision),
        }
    }

    fn send(&mut self, decision: Decision) -> Outcome {
        self.answered += 1;
        self.next();
        Outcome::Send(decision)
    }

    /// `false`: the text is for the draft.
    pub fn paste(&mut self, text: &str, now: Instant) -> bool {
        match &mut self.open {
            None => false,
            Some(Open::Approval(prompt)) => prompt.paste(text, now),
            Some(Open::Question(prompt)) => prompt.paste(text, now),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) -> Outcome {
        let Some(Open::Approval(prompt)) = &mut self.open else {
            return Outcome::Nothing;
        };
        match prompt.tick(now) {
            Some(verdict) => {
                let decision = decided(&prompt.request, verdict);
                self.send(decision)
            }
            None => Outcome::Nothing,
        }
    }

    /// When the prompt looks different or does something by itself. `None`: never.
    pub fn wakes(&self, now: Instant, animated: bool) -> Option<Instant> {
        let (guard, settles, expires) = match self.open.as_ref()? {
            Open::Approval(prompt) => (prompt.guard(), prompt.settles(), prompt.expires),
            Open::Question(prompt) => (prompt.guard, None, None),
        };
        // The countdown: whenever another second has begun.
        let second = expires.and_then(|at| {
            let left = at.checked_duration_since(now)?;
            let part = Duration::from_nanos(u64::from(left.subsec_nanos()));
            let step = if part.is_zero() {
                Duration::from_secs(1)
            } else {
                part
            };
            (!left.is_zero()).then(|| now + step.min(left))
        });
        let opens = guard.left(now).map(|left| {
            let step = if animated { left.min(COUNTDOWN) } else { left };
            now + step
        });
        settles.into_iter().chain(opens).chain(second).min()
    }
}

fn decided(request: &ApprovalRequest, verdict: Verdict) -> Decision {
    let told = match &verdict {
        Verdict::Once => "approved once".to_owned(),
        Verdict::Session => "approved for this session".to_owned(),
        Verdict::Always(rule) => format!("approved always: {}", rule.0),
        Verdict::Deny { why: None } => "denied".to_owned(),
        Verdict::Deny { why: Some(why) } => format!("denied: {why}"),
    };
    Decision {
        denied: matches!(verdict, Verdict::Deny { .. }),
        told: format!("{told}  ({})", about(request)),
        command: AgentCommand::Answer {
            request: request.id.clone(),
            verdict,
        },
    }
}

/// Tool and action in a line. The whole of it stood in the prompt and stands in what the tool shows.
fn about(request: &ApprovalRequest) -> String {
    let action = width::visible(first_line(&request.action));
    let action = width::truncate_with(&action, TOLD, "…");
    format!("{}: {action}", request.tool)
}

fn answered(question: &Question, answer: Answer) -> Decision {
    let told = match &answer {
        Answer::Text { text } => text.clone(),
        Answer::Form { values } => values
            .iter()
            .map(|(name, value)| match value.as_str() {
                Some(text) => format!("{name}: {text}"),
                None => format!("{name}: {value}"),
            })
            .collect::<Vec<_>>()
            .join(", "),
        Answer::Agreed => "agreed".to_owned(),
        Answer::Declined { .. } | Answer::Unanswered { .. } => "no answer".to_owned(),
    };
    let told = if question.from == CLARIFY {
        String::new()
    } else {
        format!(
            "{} asked: {}  {told}",
            question.from,
            first_line(&question.text)
        )
    };
    Decision {
        denied: matches!(answer, Answer::Declined { .. }),
        told,
        command: AgentCommand::Reply {
            question: question.id.clone(),
            answer,
        },
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
