//! Question prompts: text, a choice, a form, a link to visit.

use std::time::Instant;

use hermes_core::ask::{Answer, Choice, Field, FieldKind, Question, Want};
use serde_json::{Map, Value};

use super::approval::{KeyResult, PASTE_IGNORED};
use super::guard::KeyGuard;
use super::line::LineEdit;
use crate::keys::{KeyCode, KeyPress};

#[derive(Clone, Debug)]
pub(crate) struct QuestionPrompt {
    pub(super) question: Question,
    pub(super) guard: KeyGuard,
    pub(super) entry: QuestionEntry,
    pub(super) problem: Option<String>,
}

/// What was entered so far.
#[derive(Clone, Debug)]
pub(super) enum QuestionEntry {
    Text(LineEdit),
    Choice(ChoicePicker),
    Form { fields: Vec<FilledField>, at: usize },
    Visit,
}

/// A cursor in a list, with free text if allowed.
#[derive(Clone, Debug)]
pub(super) struct ChoicePicker {
    pub(super) options: Vec<Choice>,
    pub(super) at: usize,
    /// The last row.
    pub(super) own: Option<LineEdit>,
}

/// A form field with its current value.
#[derive(Clone, Debug)]
pub(super) struct FilledField {
    pub(super) field: Field,
    pub(super) value: FieldEntry,
}

#[derive(Clone, Debug)]
pub(super) enum FieldEntry {
    Line(LineEdit),
    /// `None`: nothing is selected.
    One(Option<usize>),
    Several {
        at: usize,
        chosen: Vec<bool>,
    },
}

impl QuestionPrompt {
    pub(crate) fn new(question: Question, guard: KeyGuard) -> Self {
        let entry = match &question.want {
            Want::Text => QuestionEntry::Text(LineEdit::default()),
            Want::Choice { options, other } => QuestionEntry::Choice(ChoicePicker {
                options: options.clone(),
                at: 0,
                own: other.then(LineEdit::default),
            }),
            Want::Form { fields } => QuestionEntry::Form {
                fields: fields.iter().map(FilledField::new).collect(),
                at: 0,
            },
            Want::Visit { .. } => QuestionEntry::Visit,
        };
        Self {
            question,
            guard,
            entry,
            problem: None,
        }
    }

    pub(crate) fn key(&mut self, key: KeyPress, now: Instant) -> KeyResult<Answer> {
        if !self.guard.is_open(now) {
            let (step, problem) = self.guard.early(key, now);
            self.problem = problem;
            return step;
        }
        self.problem = None;
        if key.code == KeyCode::Esc {
            return self.escape();
        }
        match &mut self.entry {
            QuestionEntry::Text(line) if key.code == KeyCode::Enter => match line.text().trim() {
                "" => self.complain("type an answer, or Esc to give none"),
                text => KeyResult::Answer(Answer::Text {
                    text: text.to_owned(),
                }),
            },
            QuestionEntry::Text(line) => redraw_if(line.key(key)),
            QuestionEntry::Choice(picker) => match picker.key(key) {
                Ok(step) => step,
                Err(why) => self.complain(&why),
            },
            QuestionEntry::Form { .. } => self.form(key),
            QuestionEntry::Visit => match (key.text(), key.code) {
                (Some('y' | 'Y'), _) => KeyResult::Answer(Answer::Agreed),
                (Some('n' | 'N'), _) | (_, KeyCode::Enter) => {
                    KeyResult::Answer(Answer::Declined { why: None })
                }
                _ => {
                    self.guard.typed(now);
                    self.complain(&format!(
                        "{} is not an answer and was ignored: y or n",
                        key.shown()
                    ))
                }
            },
        }
    }

    /// Esc clears a line before it declines.
    fn escape(&mut self) -> KeyResult<Answer> {
        let line = match &mut self.entry {
            QuestionEntry::Text(line) => Some(line),
            QuestionEntry::Choice(picker) => picker.own.as_mut(),
            QuestionEntry::Form { .. } | QuestionEntry::Visit => None,
        };
        match line.filter(|line| !line.is_empty()) {
            Some(line) => {
                line.clear();
                KeyResult::Redraw
            }
            None => KeyResult::Answer(Answer::Declined { why: None }),
        }
    }

    fn complain(&mut self, why: &str) -> KeyResult<Answer> {
        self.problem = Some(why.to_owned());
        KeyResult::Redraw
    }

    fn form(&mut self, key: KeyPress) -> KeyResult<Answer> {
        let QuestionEntry::Form { fields, at } = &mut self.entry else {
            return KeyResult::Nothing;
        };
        let last = fields.len().saturating_sub(1);
        let back = key.code == KeyCode::Up || (key.code == KeyCode::Tab && key.mods.shift);
        let on = matches!(key.code, KeyCode::Down | KeyCode::Tab | KeyCode::Enter) && !back;
        if back {
            *at = at.saturating_sub(1);
            return KeyResult::Redraw;
        }
        if !on {
            let changed = fields.get_mut(*at).is_some_and(|field| field.key(key));
            return redraw_if(changed);
        }
        if let Some(Err(why)) = fields.get(*at).map(FilledField::read) {
            return self.complain(&why);
        }
        if *at < last || key.code != KeyCode::Enter {
            *at = (*at + 1).min(last);
            return KeyResult::Redraw;
        }
        self.send()
    }

    /// Validates all fields; the first invalid one gets the cursor.
    fn send(&mut self) -> KeyResult<Answer> {
        let QuestionEntry::Form { fields, at } = &mut self.entry else {
            return KeyResult::Nothing;
        };
        let mut values = Map::new();
        for (index, field) in fields.iter().enumerate() {
            match field.read() {
                Ok(value) => {
                    values.extend(value.map(|value| (field.field.name.clone(), value)));
                }
                Err(why) => {
                    *at = index;
                    return self.complain(&why);
                }
            }
        }
        KeyResult::Answer(Answer::Form { values })
    }

    /// `false`: there is nothing to paste into, or it is too early.
    pub(crate) fn paste(&mut self, text: &str, now: Instant) -> bool {
        if !self.guard.is_open(now) {
            self.guard.typed(now);
            self.problem = Some(PASTE_IGNORED.to_owned());
            return false;
        }
        let line = match &mut self.entry {
            QuestionEntry::Text(line) => Some(line),
            QuestionEntry::Choice(picker) => {
                if picker.own.is_some() {
                    picker.at = picker.options.len();
                }
                picker.own.as_mut()
            }
            QuestionEntry::Form { fields, at } => {
                fields
                    .get_mut(*at)
                    .and_then(|field| match &mut field.value {
                        FieldEntry::Line(line) => Some(line),
                        _ => None,
                    })
            }
            QuestionEntry::Visit => None,
        };
        let accepted = line.map(|line| line.insert(text)).is_some();
        self.problem = (!accepted).then(|| PASTE_IGNORED.to_owned());
        accepted
    }
}

impl ChoicePicker {
    pub(super) fn rows(&self) -> usize {
        self.options.len() + usize::from(self.own.is_some())
    }

    pub(super) fn on_own(&self) -> bool {
        self.at >= self.options.len()
    }

    fn key(&mut self, key: KeyPress) -> Result<KeyResult<Answer>, String> {
        let last = self.rows().saturating_sub(1);
        match (key.code, key.text().and_then(|c| c.to_digit(10))) {
            (KeyCode::Up, _) => self.at = self.at.checked_sub(1).unwrap_or(last),
            (KeyCode::Down | KeyCode::Tab, _) => {
                self.at = if self.at == last { 0 } else { self.at + 1 }
            }
            (KeyCode::Enter, _) => return self.enter(),
            (_, Some(digit)) if !self.on_own() && (1..=self.rows()).contains(&(digit as usize)) => {
                self.at = digit as usize - 1;
            }
            _ => {
                let typed = key.text().is_some();
                let Some(own) = &mut self.own else {
                    return Ok(KeyResult::Nothing);
                };
                if typed {
                    self.at = self.options.len();
                }
                return Ok(redraw_if(own.key(key)));
            }
        }
        Ok(KeyResult::Redraw)
    }

    fn enter(&self) -> Result<KeyResult<Answer>, String> {
        let own = self.own.as_ref().map(|own| own.text().trim());
        let text = match (self.options.get(self.at), own) {
            (Some(choice), _) => choice.value.clone(),
            (None, Some(words)) if !words.is_empty() => words.to_owned(),
            _ => return Err("choose with the arrows, or Esc to give no answer".to_owned()),
        };
        Ok(KeyResult::Answer(Answer::Text { text }))
    }
}

impl FilledField {
    fn new(field: &Field) -> Self {
        let chosen = |options: &[Choice], value: &Value| {
            options
                .iter()
                .position(|choice| value.as_str() == Some(&choice.value))
        };
        let default = field.default.as_ref();
        let value = match &field.kind {
            FieldKind::Text { .. } | FieldKind::Number { .. } => {
                FieldEntry::Line(LineEdit::default())
            }
            FieldKind::Boolean => {
                let yes = default.and_then(Value::as_bool);
                FieldEntry::One(yes.map(|yes| usize::from(!yes)))
            }
            FieldKind::One { options } => {
                FieldEntry::One(default.and_then(|value| chosen(options, value)))
            }
            FieldKind::Several { options, .. } => {
                let values = default.and_then(Value::as_array);
                let on = |choice: &Choice| {
                    values.is_some_and(|values| {
                        values
                            .iter()
                            .any(|value| value.as_str() == Some(&choice.value))
                    })
                };
                FieldEntry::Several {
                    at: 0,
                    chosen: options.iter().map(on).collect(),
                }
            }
        };
        Self {
            field: field.clone(),
            value,
        }
    }

    /// The options, if the field has any.
    pub(super) fn titles(&self) -> Vec<&str> {
        match &self.field.kind {
            FieldKind::Boolean => vec!["yes", "no"],
            FieldKind::One { options } | FieldKind::Several { options, .. } => {
                options.iter().map(|choice| choice.title.as_str()).collect()
            }
            FieldKind::Text { .. } | FieldKind::Number { .. } => Vec::new(),
        }
    }

    fn key(&mut self, key: KeyPress) -> bool {
        let count = self.titles().len();
        let boolean = matches!(self.field.kind, FieldKind::Boolean);
        let typed = key.text();
        let digit = typed
            .and_then(|c| c.to_digit(10))
            .map(|digit| digit as usize);
        match &mut self.value {
            FieldEntry::Line(line) => line.key(key),
            FieldEntry::One(at) => {
                *at = match (key.code, typed) {
                    (KeyCode::Right | KeyCode::Char(' '), _) => {
                        Some(at.map_or(0, |at| (at + 1) % count.max(1)))
                    }
                    (KeyCode::Left, _) => at.map_or(count.checked_sub(1), |at| {
                        at.checked_sub(1).or(count.checked_sub(1))
                    }),
                    (_, Some('y' | 'Y')) if boolean => Some(0),
                    (_, Some('n' | 'N')) if boolean => Some(1),
                    (KeyCode::Backspace | KeyCode::Delete, _) => None,
                    _ => match digit.filter(|digit| (1..=count).contains(digit)) {
                        Some(digit) => Some(digit - 1),
                        None => return false,
                    },
                };
                true
            }
            FieldEntry::Several { at, chosen } => {
                match (key.code, typed) {
                    (KeyCode::Right, _) => *at = (*at + 1) % count.max(1),
                    (KeyCode::Left, _) => {
                        *at = at.checked_sub(1).unwrap_or(count.saturating_sub(1));
                    }
                    (_, Some(' ')) => toggle(chosen, *at),
                    _ => match digit.filter(|digit| (1..=count).contains(digit)) {
                        Some(digit) => toggle(chosen, digit - 1),
                        None => return false,
                    },
                }
                true
            }
        }
    }

    /// The value, or what is wrong with it.
    pub(super) fn read(&self) -> Result<Option<Value>, String> {
        let options: &[Choice] = match &self.field.kind {
            FieldKind::One { options } | FieldKind::Several { options, .. } => options,
            _ => &[],
        };
        match &self.value {
            FieldEntry::Line(line) => self.field.read(line.text()),
            FieldEntry::One(None) => Field {
                default: None,
                ..self.field.clone()
            }
            .read(""),
            FieldEntry::One(Some(at)) => match options.get(*at) {
                Some(choice) => Ok(Some(Value::String(choice.value.clone()))),
                None => Ok(Some(Value::Bool(*at == 0))),
            },
            FieldEntry::Several { chosen, .. } => {
                let values: Vec<Value> = options
                    .iter()
                    .zip(chosen)
                    .filter(|(_, on)| **on)
                    .map(|(choice, _)| Value::String(choice.value.clone()))
                    .collect();
                if values.is_empty() && !self.field.required {
                    return Ok(None);
                }
                let value = Value::Array(values);
                self.field.check(&value)?;
                Ok(Some(value))
            }
        }
    }
}

fn toggle(chosen: &mut [bool], at: usize) {
    if let Some(on) = chosen.get_mut(at) {
        *on = !*on;
    }
}

fn redraw_if<T>(changed: bool) -> KeyResult<T> {
    if changed {
        KeyResult::Redraw
    } else {
        KeyResult::Nothing
    }
}
