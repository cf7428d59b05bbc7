//! Approval prompts: the exact action, the reason for asking, and the keys that answer.

use std::time::{Duration, Instant};

use hermes_core::approval::{ApprovalRequest, Rule, Verdict};

use super::guard::KeyGuard;
use super::line::LineEdit;
use crate::keys::{KeyCode, KeyPress};

/// A key that approves counts only if nothing else is typed for this long: the first letter of a
/// sentence is not an answer.
pub(crate) const ANSWER_DELAY: Duration = Duration::from_millis(250);

/// Message for a paste that cannot be used.
pub(super) const PASTE_IGNORED: &str = "a paste is not an answer; it is in your draft";

/// Checks whether an edited rule may be stored for the request. The error describes what is
/// expected.
pub(crate) type CheckRule = fn(&ApprovalRequest, &str) -> Result<Rule, String>;

#[derive(Clone, Debug)]
pub(crate) struct ApprovalPrompt {
    pub(super) request: ApprovalRequest,
    pub(super) guard: KeyGuard,
    pub(super) stage: ApprovalStage,
    /// Rows of the action scrolled out at the top.
    pub(super) scroll: usize,
    pub(super) problem: Option<String>,
    pending: Option<PendingAnswer>,
    check: CheckRule,
    /// When it is denied automatically.
    pub(super) expires: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(super) enum ApprovalStage {
    /// Choosing an answer.
    Choose,
    /// The rule is shown; `a` again stores it.
    Rule {
        guard: KeyGuard,
    },
    EditRule {
        line: LineEdit,
        guard: KeyGuard,
    },
    /// Denied; entering a reason.
    Why {
        line: LineEdit,
    },
}

#[derive(Clone, Debug)]
struct PendingAnswer {
    key: KeyPress,
    verdict: Verdict,
    since: Instant,
}

/// The effect of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KeyResult<T> {
    /// Nothing has changed.
    Nothing,
    Redraw,
    /// The keys have no meaning now, which a notice says.
    Ignored(Vec<KeyPress>),
    /// The keys were not meant for the prompt: they go to the draft.
    Draft(Vec<KeyPress>),
    Answer(T),
}

impl ApprovalPrompt {
    pub(crate) fn new(request: ApprovalRequest, guard: KeyGuard, check: CheckRule) -> Self {
        Self {
            request,
            guard,
            stage: ApprovalStage::Choose,
            scroll: 0,
            problem: None,
            pending: None,
            check,
            expires: None,
        }
    }

    /// With the time at which it is denied automatically.
    #[must_use]
    pub(crate) fn expiring(mut self, at: Option<Instant>) -> Self {
        self.expires = at;
        self
    }

    pub(crate) fn key(&mut self, key: KeyPress, now: Instant) -> KeyResult<Verdict> {
        self.problem = None;
        match &mut self.stage {
            ApprovalStage::Choose => self.choose(key, now),
            ApprovalStage::Rule { guard } => {
                let open = guard.is_open(now);
                self.rule(key, open, now)
            }
            ApprovalStage::EditRule { .. } => self.edit_rule(key, now),
            ApprovalStage::Why { line } => match key.code {
                KeyCode::Esc => self.back(),
                KeyCode::Enter => {
                    let why = line.text().trim();
                    KeyResult::Answer(Verdict::Deny {
                        why: (!why.is_empty()).then(|| why.to_owned()),
                    })
                }
                _ => redraw_if(line.key(key)),
            },
        }
    }

    fn choose(&mut self, key: KeyPress, now: Instant) -> KeyResult<Verdict> {
        if self.scrolls(key) {
            return KeyResult::Redraw;
        }
        if !self.guard.is_open(now) {
            let (step, problem) = self.guard.early(key, now);
            self.problem = problem;
            return step;
        }
        if let Some(settling) = self.pending.take() {
            // Enter after a letter is a habit; any other key means a sentence is being typed.
            if key.code == KeyCode::Enter {
                self.pending = Some(settling);
                return KeyResult::Nothing;
            }
            self.guard.typed(now);
            return self.no_answer(vec![settling.key, key]);
        }
        let settle = |verdict| PendingAnswer {
            key,
            verdict,
            since: now,
        };
        match key.text() {
            Some('y' | 'Y') => self.pending = Some(settle(Verdict::Once)),
            Some('s' | 'S') => self.pending = Some(settle(Verdict::Session)),
            Some('a' | 'A') if self.request.rule.is_some() => {
                self.stage = ApprovalStage::Rule {
                    guard: KeyGuard::default(),
                };
            }
            Some('a' | 'A') => {
                self.problem =
                    Some("no rule can be stored for this command; y, s, n or e".to_owned());
            }
            Some('n' | 'N') => return KeyResult::Answer(Verdict::Deny { why: None }),
            Some('e' | 'E') => {
                self.stage = ApprovalStage::Why {
                    line: LineEdit::default(),
                };
            }
            Some(_) => {
                self.guard.typed(now);
                return self.no_answer(vec![key]);
            }
            None if matches!(key.code, KeyCode::Enter | KeyCode::Esc) => {
                return KeyResult::Answer(Verdict::Deny { why: None });
            }
            None => return self.no_answer(vec![key]),
        }
        KeyResult::Redraw
    }

    /// Reports that keys have no meaning here.
    fn no_answer(&mut self, keys: Vec<KeyPress>) -> KeyResult<Verdict> {
        let typed: String = keys.iter().map(|key| key.shown()).collect();
        let letters = match (&self.stage, &self.request.rule) {
            (ApprovalStage::Rule { .. }, _) => "a, e or Esc",
            (_, Some(_)) => "y, s, a, n or e",
            (_, None) => "y, s, n or e",
        };
        self.problem = Some(format!(
            "{typed} is not an answer and was ignored: {letters}"
        ));
        KeyResult::Ignored(keys)
    }

    fn rule(&mut self, key: KeyPress, open: bool, now: Instant) -> KeyResult<Verdict> {
        match (key.text(), key.code) {
            (_, KeyCode::Esc) => self.back(),
            (Some('a' | 'A'), _) if open => {
                let rule = self.request.rule.clone();
                rule.map_or(KeyResult::Nothing, |rule| {
                    KeyResult::Answer(Verdict::Always(rule))
                })
            }
            (Some('e' | 'E'), _) if open => {
                let rule = self.request.rule.as_ref();
                self.stage = ApprovalStage::EditRule {
                    line: LineEdit::new(rule.map_or("", |rule| &rule.0)),
                    guard: KeyGuard::default(),
                };
                KeyResult::Redraw
            }
            // A sentence that began with an a, or a second a that came too soon.
            (Some(_), _) => {
                self.stage = ApprovalStage::Choose;
                self.guard.typed(now);
                self.no_answer(vec![KeyPress::char('a'), key])
            }
            _ => self.no_answer(vec![key]),
        }
    }

    fn edit_rule(&mut self, key: KeyPress, now: Instant) -> KeyResult<Verdict> {
        let ApprovalStage::EditRule { line, guard } = &mut self.stage else {
            return KeyResult::Nothing;
        };
        match key.code {
            KeyCode::Esc => self.back(),
            KeyCode::Enter if !guard.is_open(now) => KeyResult::Nothing,
            KeyCode::Enter => match (self.check)(&self.request, line.text().trim()) {
                Ok(rule) => KeyResult::Answer(Verdict::Always(rule)),
                Err(why) => {
                    self.problem = Some(why);
                    KeyResult::Redraw
                }
            },
            _ => redraw_if(line.key(key)),
        }
    }

    fn back(&mut self) -> KeyResult<Verdict> {
        self.stage = ApprovalStage::Choose;
        KeyResult::Redraw
    }

    fn scrolls(&mut self, key: KeyPress) -> bool {
        self.scroll = match key.code {
            KeyCode::Up => self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll + 1,
            KeyCode::PageUp => self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll + 10,
            _ => return false,
        };
        true
    }

    /// Pasted text answers nothing: it is inserted into a line, or `false`: it goes to the draft.
    pub(crate) fn paste(&mut self, text: &str, now: Instant) -> bool {
        self.pending = None;
        match &mut self.stage {
            ApprovalStage::Choose | ApprovalStage::Rule { .. } => {
                self.stage = ApprovalStage::Choose;
                self.guard.typed(now);
                self.problem = Some(PASTE_IGNORED.to_owned());
                false
            }
            ApprovalStage::EditRule { line, .. } | ApprovalStage::Why { line } => {
                line.insert(text);
                true
            }
        }
    }

    /// The answer of a letter that was not followed by another key.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<Verdict> {
        let settled = |settling: &mut PendingAnswer| now >= settling.since + ANSWER_DELAY;
        self.pending
            .take_if(settled)
            .map(|settling| settling.verdict)
    }

    /// Why keys do not count now.
    pub(crate) fn guard(&self) -> KeyGuard {
        match &self.stage {
            ApprovalStage::Rule { guard } | ApprovalStage::EditRule { guard, .. } => *guard,
            ApprovalStage::Choose | ApprovalStage::Why { .. } => self.guard,
        }
    }

    /// It became visible.
    pub(crate) fn seen(&mut self, now: Instant) {
        self.guard.seen(now);
        if let ApprovalStage::Rule { guard } | ApprovalStage::EditRule { guard, .. } =
            &mut self.stage
        {
            guard.seen(now);
        }
    }

    /// It is covered.
    pub(crate) fn hidden(&mut self) {
        self.guard.hidden();
        if let ApprovalStage::Rule { guard } | ApprovalStage::EditRule { guard, .. } =
            &mut self.stage
        {
            guard.hidden();
        }
    }

    /// When [`Self::tick`] has something to do.
    pub(crate) fn settles(&self) -> Option<Instant> {
        self.pending
            .as_ref()
            .map(|settling| settling.since + ANSWER_DELAY)
    }
}

fn redraw_if<T>(changed: bool) -> KeyResult<T> {
    if changed {
        KeyResult::Redraw
    } else {
        KeyResult::Nothing
    }
}
