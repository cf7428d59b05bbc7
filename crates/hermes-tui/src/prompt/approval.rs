//! Something dangerous is asked for: what exactly, why it is asked, and the letters that answer.

use std::time::{Duration, Instant};

use hermes_core::approval::{ApprovalRequest, Rule, Verdict};

use super::guard::Guard;
use super::line::LineEdit;
use crate::keys::{Code, Key};

/// A letter that allows something counts when nothing else was typed for so long: the first letter
/// of a sentence is no answer.
pub const SETTLE: Duration = Duration::from_millis(250);

/// What becomes of a paste that nothing here can take.
pub(super) const PASTED: &str = "a paste is not an answer; it is in your draft";

/// Whether an edited rule may be stored for the request. The error says what is wanted.
pub type CheckRule = fn(&ApprovalRequest, &str) -> Result<Rule, String>;

#[derive(Clone, Debug)]
pub struct ApprovalPrompt {
    pub(super) request: ApprovalRequest,
    pub(super) guard: Guard,
    pub(super) stage: Stage,
    /// Rows of the action that are above what is shown.
    pub(super) scroll: usize,
    pub(super) problem: Option<String>,
    settling: Option<Settling>,
    check: CheckRule,
    /// When it is taken for a no.
    pub(super) expires: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// Which letter?
    Choose,
    /// The rule is on the screen; `a` again stores it.
    Rule {
        guard: Guard,
    },
    EditRule {
        line: LineEdit,
        guard: Guard,
    },
    /// Denied, and why.
    Why {
        line: LineEdit,
    },
}

#[derive(Clone, Debug)]
struct Settling {
    key: Key,
    verdict: Verdict,
    since: Instant,
}

/// What a key led to.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<T> {
    /// Nothing has changed.
    Nothing,
    Redraw,
    /// The keys were not meant for the prompt: they go to the draft.
    Draft(Vec<Key>),
    Answer(T),
}

impl ApprovalPrompt {
    pub fn new(request: ApprovalRequest, guard: Guard, check: CheckRule) -> Self {
        Self {
            request,
            guard,
            stage: Stage::Choose,
            scroll: 0,
            problem: None,
            settling: None,
            check,
            expires: None,
        }
    }

    /// The same with the moment at which it is taken for a no.
    #[must_use]
    pub fn expiring(mut self, at: Option<Instant>) -> Self {
        self.expires = at;
        self
    }

    pub fn key(&mut self, key: Key, now: Instant) -> Step<Verdict> {
        self.problem = None;
        match &mut self.stage {
            Stage::Choose => self.choose(key, now),
            Stage::Rule { guard } => {
                let open = guard.is_open(now);
                self.rule(key, open, now)
            }
            Stage::EditRule { .. } => self.edit_rule(key, now),
            Stage::Why { line } => match key.code {
                Code::Esc => self.back(),
                Code::Enter => {
                    let why = line.text().trim();
                    Step::Answer(Verdict::Deny {
                        why: (!why.is_empty()).then(|| why.to_owned()),
                    })
                }
                _ => redraw_if(line.key(key)),
            },
        }
    }

    fn choose(&mut self, key: Key, now: Instant) -> Step<Verdict> {
        if self.scrolls(key) {
            return Step::Redraw;
        }
        if !self.guard.is_open(now) {
            let (step, problem) = self.guard.early(key, now);
            self.problem = problem;
            return step;
        }
        if let Some(settling) = self.settling.take() {
            // Enter behind a letter is a habit, anything else is a sentence.
            if key.code == Code::Enter {
                self.settling = Some(settling);
                return Step::Nothing;
            }
            self.guard.typed(now);
            return self.no_answer(&format!("{}{}", settling.key.shown(), key.shown()));
        }
        let settle = |verdict| Settling {
            key,
            verdict,
            since: now,
        };
        match key.text() {
            Some('y' | 'Y') => self.settling = Some(settle(Verdict::Once)),
            Some('s' | 'S') => self.settling = Some(settle(Verdict::Session)),
            Some('a' | 'A') if self.request.rule.is_some() => {
                self.stage = Stage::Rule {
                    guard: Guard::default(),
                };
            }
            Some('a' | 'A') => {
                self.problem =
                    Some("no rule can be stored for this command; y, s, n or e".to_owned());
            }
            Some('n' | 'N') => return Step::Answer(Verdict::Deny { why: None }),
            Some('e' | 'E') => {
                self.stage = Stage::Why {
                    line: LineEdit::default(),
                };
            }
            Some(_) => {
                self.guard.typed(now);
                return self.no_answer(&key.shown());
            }
            None if matches!(key.code, Code::Enter | Code::Esc) => {
                return Step::Answer(Verdict::Deny { why: None });
            }
            None => return self.no_answer(&key.shown()),
        }
        Step::Redraw
    }

    /// A key that means nothing here is said to mean nothing.
    fn no_answer(&mut self, typed: &str) -> Step<Verdict> {
        let letters = match (&self.stage, &self.request.rule) {
            (Stage::Rule { .. }, _) => "a, e or Esc",
            (_, Some(_)) => "y, s, a, n or e",
            (_, None) => "y, s, n or e",
        };
        self.problem = Some(format!(
            "{typed} is not an answer and was ignored: {letters}"
        ));
        Step::Redraw
    }

    fn rule(&mut self, key: Key, open: bool, now: Instant) -> Step<Verdict> {
        match (key.text(), key.code) {
            (_, Code::Esc) => self.back(),
            (Some('a' | 'A'), _) if open => {
                let rule = self.request.rule.clone();
                rule.map_or(Step::Nothing, |rule| Step::Answer(Verdict::Always(rule)))
            }
            (Some('e' | 'E'), _) if open => {
                let rule = self.request.rule.as_ref();
                self.stage = Stage::EditRule {
                    line: LineEdit::new(rule.map_or("", |rule| &rule.0)),
                    guard: Guard::default(),
                };
                Step::Redraw
            }
            // A sentence that began with an a, or a second a that came too soon.
            (Some(_), _) => {
                self.stage = Stage::Choose;
                self.guard.typed(now);
                self.no_answer(&format!("a{}", key.shown()))
            }
            _ => self.no_answer(&key.shown()),
        }
    }

    fn edit_rule(&mut self, key: Key, now: Instant) -> Step<Verdict> {
        let Stage::EditRule { line, guard } = &mut self.stage else {
            return Step::Nothing;
        };
        match key.code {
            Code::Esc => self.back(),
            Code::Enter if !guard.is_open(now) => Step::Nothing,
            Code::Enter => match (self.check)(&self.request, line.text().trim()) {
                Ok(rule) => Step::Answer(Verdict::Always(rule)),
                Err(why) => {
                    self.problem = Some(why);
                    Step::Redraw
                }
            },
            _ => redraw_if(line.key(key)),
        }
    }

    fn back(&mut self) -> Step<Verdict> {
        self.stage = Stage::Choose;
        Step::Redraw
    }

    fn scrolls(&mut self, key: Key) -> bool {
        self.scroll = match key.code {
            Code::Up => self.scroll.saturating_sub(1),
            Code::Down => self.scroll + 1,
            Code::PageUp => self.scroll.saturating_sub(10),
            Code::PageDown => self.scroll + 10,
            _ => return false,
        };
        true
    }

    /// Text that came at once answers nothing: it goes into a line, or `false`: to the draft.
    pub fn paste(&mut self, text: &str, now: Instant) -> bool {
        self.settling = None;
        match &mut self.stage {
            Stage::Choose | Stage::Rule { .. } => {
                self.stage = Stage::Choose;
                self.guard.typed(now);
                self.problem = Some(PASTED.to_owned());
                false
            }
            Stage::EditRule { line, .. } | Stage::Why { line } => {
                line.insert(text);
                true
            }
        }
    }

    /// The answer of a letter that nothing followed.
    pub fn tick(&mut self, now: Instant) -> Option<Verdict> {
        let settled = |settling: &mut Settling| now >= settling.since + SETTLE;
        self.settling
            .take_if(settled)
            .map(|settling| settling.verdict)
    }

    /// What keeps keys from counting now.
    pub fn guard(&self) -> Guard {
        match &self.stage {
            Stage::Rule { guard } | Stage::EditRule { guard, .. } => *guard,
            Stage::Choose | Stage::Why { .. } => self.guard,
        }
    }

    /// It is on the screen.
    pub fn seen(&mut self, now: Instant) {
        self.guard.seen(now);
        if let Stage::Rule { guard } | Stage::EditRule { guard, .. } = &mut self.stage {
            guard.seen(now);
        }
    }

    /// It is covered.
    pub fn hidden(&mut self) {
        self.guard.hidden();
        if let Stage::Rule { guard } | Stage::EditRule { guard, .. } = &mut self.stage {
            guard.hidden();
        }
    }

    /// When [`Self::tick`] has something to do.
    pub fn settles(&self) -> Option<Instant> {
        self.settling
            .as_ref()
            .map(|settling| settling.since + SETTLE)
    }
}

fn redraw_if<T>(changed: bool) -> Step<T> {
    if changed { Step::Redraw } else { Step::Nothing }
}
