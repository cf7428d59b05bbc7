//! Approvals and questions: they replace the composer, one after another.
//!
//! Keys meant for something else never answer a prompt: see [`guard`] and
//! [`approval::ANSWER_DELAY`]. A refused key is reported; only input that continues a message being
//! written goes to the draft.

pub(crate) mod approval;
pub(crate) mod guard;
pub(crate) mod line;
pub(crate) mod question;
mod view;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hermes_core::approval::{ApprovalRequest, Verdict};
use hermes_core::ask::{Answer, Question};
use hermes_core::event::AgentCommand;

use crate::keys::KeyPress;
use crate::width;
use approval::{ApprovalPrompt, CheckRule, KeyResult};
use guard::KeyGuard;
use question::QuestionPrompt;

/// The tool whose only purpose is to ask a question.
pub(crate) const CLARIFY: &str = "clarify";
/// Columns of an action in the line that reports the decision.
const MAX_ACTION_COLUMNS: usize = 72;
/// How often the countdown until keys count is updated.
const COUNTDOWN_INTERVAL: Duration = Duration::from_millis(200);
/// The person is notified once more this long before an approval is denied automatically.
const LAST_CALL_TIME: Duration = Duration::from_secs(10);

/// A paste that the terminal does not mark is recognised after a few keys, and may be held back to wait for
/// another line: keys this close before it belong to it.
const PASTE_START_TIME: Duration = Duration::from_millis(250);

/// A prompt request.
#[derive(Clone, Debug)]
pub(crate) enum PromptRequest {
    Approval(ApprovalRequest),
    Question(Question),
}

impl PromptRequest {
    fn id(&self) -> &str {
        match self {
            Self::Approval(request) => &request.id,
            Self::Question(question) => &question.id,
        }
    }
}

#[derive(Clone, Debug)]
enum OpenPrompt {
    Approval(ApprovalPrompt),
    Question(QuestionPrompt),
}

impl OpenPrompt {
    fn into_request(self) -> PromptRequest {
        match self {
            Self::Approval(prompt) => PromptRequest::Approval(prompt.request),
            Self::Question(prompt) => PromptRequest::Question(prompt.question),
        }
    }
}

/// The open prompt and those queued behind it.
#[derive(Clone, Debug)]
pub(crate) struct PromptQueue {
    open: Option<OpenPrompt>,
    waiting: VecDeque<QueuedPrompt>,
    /// Answered in this sequence of questions, for "2 of 3".
    answered: usize,
    check: CheckRule,
    /// How long an approval waits; `None`: forever.
    limit: Option<Duration>,
    /// The request whose final notification was sent.
    called: Option<String>,
    /// The latest keys that were ignored, with the time of the last one: they may turn out to be the start of
    /// a paste that the terminal did not mark.
    ignored: Option<(Vec<KeyPress>, Instant)>,
}

#[derive(Clone, Debug)]
struct QueuedPrompt {
    request: PromptRequest,
    expires: Option<Instant>,
    /// A message was being written when it arrived.
    writing: bool,
}

/// What to do after a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PromptOutcome {
    Nothing,
    Redraw,
    /// Not meant for the prompt.
    Draft(Vec<KeyPress>),
    Send(PromptDecision),
}

/// An answer and its line in the transcript.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PromptDecision {
    pub command: AgentCommand,
    /// Empty: the tool that asked shows the answer itself.
    pub summary: String,
    pub denied: bool,
}

impl PromptQueue {
    /// `limit`: how long an approval waits.
    pub(crate) fn new(check: CheckRule, limit: Option<Duration>) -> Self {
        Self {
            open: None,
            waiting: VecDeque::new(),
            answered: 0,
            check,
            limit,
            called: None,
            ignored: None,
        }
    }

    /// Whether an unanswered approval is denied automatically.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether to notify the person now, because the open approval is about to expire.
    pub(crate) fn last_call(&mut self, now: Instant) -> bool {
        let Some(OpenPrompt::Approval(prompt)) = &self.open else {
            return false;
        };
        let due = prompt.expires.is_some_and(|at| now + LAST_CALL_TIME >= at);
        let id = &prompt.request.id;
        if !due || self.called.as_ref() == Some(id) {
            return false;
        }
        self.called = Some(id.clone());
        true
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// `writing`: a message is being written.
    pub(crate) fn ask(&mut self, asked: PromptRequest, writing: bool, now: Instant) {
        let limit = match asked {
            PromptRequest::Approval(_) => self.limit,
            PromptRequest::Question(_) => None,
        };
        self.waiting.push_back(QueuedPrompt {
            request: asked,
            expires: limit.map(|limit| now + limit),
            writing,
        });
        if self.open.is_none() {
            self.next();
        }
    }

    /// The request is withdrawn. Returns the outcome of an approval that was still open.
    pub(crate) fn withdraw(&mut self, id: &str) -> Option<String> {
        let at = self
            .waiting
            .iter()
            .position(|waiting| waiting.request.id() == id);
        let gone = match at.and_then(|at| self.waiting.remove(at)) {
            Some(waiting) => Some(waiting.request),
            None if self.open_id() == Some(id) => {
                let gone = self.open.take().map(OpenPrompt::into_request);
                self.answered += 1;
                self.next();
                gone
            }
            None => None,
        };
        let Some(PromptRequest::Approval(request)) = gone else {
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
            OpenPrompt::Approval(prompt) => prompt.request.id.as_str(),
            OpenPrompt::Question(prompt) => prompt.question.id.as_str(),
        })
    }

    /// The prompt is drawn at `now`.
    pub(crate) fn seen(&mut self, now: Instant) {
        match &mut self.open {
            Some(OpenPrompt::Approval(prompt)) => prompt.seen(now),
            Some(OpenPrompt::Question(prompt)) => prompt.guard.seen(now),
            None => {}
        }
    }

    /// It is covered: when it is visible again, keys are blocked again.
    pub(crate) fn hidden(&mut self) {
        match &mut self.open {
            Some(OpenPrompt::Approval(prompt)) => prompt.hidden(),
            Some(OpenPrompt::Question(prompt)) => prompt.guard.hidden(),
            None => {}
        }
    }

    pub(crate) fn clear(&mut self) {
        self.open = None;
        self.waiting.clear();
        self.answered = 0;
    }

    fn next(&mut self) {
        // A person who answers one prompt after another is not writing a message.
        let first = self.answered == 0;
        self.open = self.waiting.pop_front().map(|waiting| {
            let guard = KeyGuard::amid_writing(waiting.writing && first);
            match waiting.request {
                PromptRequest::Approval(request) => OpenPrompt::Approval(
                    ApprovalPrompt::new(request, guard, self.check).expiring(waiting.expires),
                ),
                PromptRequest::Question(question) => {
                    OpenPrompt::Question(QuestionPrompt::new(question, guard))
                }
            }
        });
        if self.open.is_none() {
            self.answered = 0;
        }
    }

    pub(crate) fn key(&mut self, key: KeyPress, now: Instant) -> PromptOutcome {
        let step = match &mut self.open {
            None => return PromptOutcome::Nothing,
            Some(OpenPrompt::Approval(prompt)) => match prompt.key(key, now) {
                KeyResult::Answer(verdict) => {
                    KeyResult::Answer(approval_decision(&prompt.request, verdict))
                }
                KeyResult::Draft(keys) => KeyResult::Draft(keys),
                KeyResult::Ignored(keys) => KeyResult::Ignored(keys),
                KeyResult::Redraw => KeyResult::Redraw,
                KeyResult::Nothing => KeyResult::Nothing,
            },
            Some(OpenPrompt::Question(prompt)) => match prompt.key(key, now) {
                KeyResult::Answer(answer) => {
                    KeyResult::Answer(question_decision(&prompt.question, answer))
                }
                KeyResult::Draft(keys) => KeyResult::Draft(keys),
                KeyResult::Ignored(keys) => KeyResult::Ignored(keys),
                KeyResult::Redraw => KeyResult::Redraw,
                KeyResult::Nothing => KeyResult::Nothing,
            },
        };
        match step {
            KeyResult::Nothing => PromptOutcome::Nothing,
            KeyResult::Redraw => PromptOutcome::Redraw,
            KeyResult::Ignored(keys) => {
                let mut all = self.just_ignored(now);
                all.extend(keys);
                self.ignored = Some((all, now));
                PromptOutcome::Redraw
            }
            KeyResult::Draft(keys) => PromptOutcome::Draft(keys),
            KeyResult::Answer(decision) => self.send(decision),
        }
    }

    fn send(&mut self, decision: PromptDecision) -> PromptOutcome {
        self.answered += 1;
        self.next();
        PromptOutcome::Send(decision)
    }

    /// `Some`: the text goes to the draft, after these keys, which were its start.
    pub(crate) fn paste(&mut self, text: &str, now: Instant) -> Option<Vec<KeyPress>> {
        let used = match &mut self.open {
            None => false,
            Some(OpenPrompt::Approval(prompt)) => prompt.paste(text, now),
            Some(OpenPrompt::Question(prompt)) => prompt.paste(text, now),
        };
        let start = self.just_ignored(now);
        (!used).then_some(start)
    }

    /// Keys that were ignored just now.
    fn just_ignored(&mut self, now: Instant) -> Vec<KeyPress> {
        let ignored = self.ignored.take();
        let recent =
            ignored.filter(|(_, at)| now.saturating_duration_since(*at) < PASTE_START_TIME);
        recent.map(|(keys, _)| keys).unwrap_or_default()
    }

    /// Handles timers.
    pub(crate) fn tick(&mut self, now: Instant) -> PromptOutcome {
        let Some(OpenPrompt::Approval(prompt)) = &mut self.open else {
            return PromptOutcome::Nothing;
        };
        match prompt.tick(now) {
            Some(verdict) => {
                let decision = approval_decision(&prompt.request, verdict);
                self.send(decision)
            }
            None => PromptOutcome::Nothing,
        }
    }

    /// When the prompt changes on its own. `None`: never.
    pub(crate) fn next_wakeup(&self, now: Instant, animated: bool) -> Option<Instant> {
        let (guard, settles, expires) = match self.open.as_ref()? {
            OpenPrompt::Approval(prompt) => (prompt.guard(), prompt.settles(), prompt.expires),
            OpenPrompt::Question(prompt) => (prompt.guard, None, None),
        };
        // The countdown: at every full second.
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
            let step = if animated {
                left.min(COUNTDOWN_INTERVAL)
            } else {
                left
            };
            now + step
        });
        settles.into_iter().chain(opens).chain(second).min()
    }
}

fn approval_decision(request: &ApprovalRequest, verdict: Verdict) -> PromptDecision {
    let decision_text = match &verdict {
        Verdict::Once => "approved once".to_owned(),
        Verdict::Session => "approved for this session".to_owned(),
        Verdict::Always(rule) => format!("approved always: {}", rule.0),
        Verdict::Deny { why: None } => "denied".to_owned(),
        Verdict::Deny { why: Some(why) } => format!("denied: {why}"),
    };
    PromptDecision {
        denied: matches!(verdict, Verdict::Deny { .. }),
        summary: format!("{decision_text}  ({})", about(request)),
        command: AgentCommand::Answer {
            request: request.id.clone(),
            verdict,
        },
    }
}

/// Tool and action in one line. The complete action was shown in the prompt and is shown by the
/// tool.
fn about(request: &ApprovalRequest) -> String {
    let action = width::visible(first_line(&request.action));
    let action = width::truncate_with(&action, MAX_ACTION_COLUMNS, "…");
    format!("{}: {action}", request.tool)
}

fn question_decision(question: &Question, answer: Answer) -> PromptDecision {
    let decision_text = match &answer {
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
    let decision_text = if question.from == CLARIFY {
        String::new()
    } else {
        format!(
            "{} asked: {}  {decision_text}",
            question.from,
            first_line(&question.text)
        )
    };
    PromptDecision {
        denied: matches!(answer, Answer::Declined { .. }),
        summary: decision_text,
        command: AgentCommand::Reply {
            question: question.id.clone(),
            answer,
        },
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
