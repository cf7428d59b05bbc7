//! Rendering of prompts. Nothing that is asked is cut without a visible mark, and nothing can be
//! hidden in it.

use std::time::{Duration, Instant};

use hermes_core::ask::{FieldKind, Want};
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use super::approval::{ApprovalPrompt, ApprovalStage};
use super::guard::KeyGuard;
use super::line::LineEdit;
use super::question::{ChoicePicker, FieldEntry, FilledField, QuestionEntry, QuestionPrompt};
use super::{OpenPrompt, PromptQueue};
use crate::row::ScreenFrame;
use crate::theme::{StyleRole, Theme};
use crate::width;

const INDENT: &str = "  ";

impl PromptQueue {
    /// At most `height` lines; the middle scrolls if it is higher.
    pub(crate) fn view(
        &self,
        columns: u16,
        height: u16,
        now: Instant,
        theme: &Theme,
    ) -> ScreenFrame {
        let waiting = self.waiting.len();
        let position_text = (waiting + self.answered > 0)
            .then(|| format!("{} of {}", self.answered + 1, self.answered + 1 + waiting));
        let look = PromptLook {
            columns: usize::from(columns),
            theme,
            now,
        };
        match &self.open {
            None => ScreenFrame::default(),
            Some(OpenPrompt::Approval(prompt)) => {
                approval(prompt, position_text, &look).fit(height, &look)
            }
            Some(OpenPrompt::Question(prompt)) => {
                question(prompt, position_text, &look).fit(height, &look)
            }
        }
    }
}

struct PromptLook<'a> {
    columns: usize,
    theme: &'a Theme,
    now: Instant,
}

/// A prompt before it is fitted to the screen.
struct PromptSheet {
    title: Line<'static>,
    /// The scrollable part.
    body: Vec<Line<'static>>,
    scroll: usize,
    /// The line of the body that must be visible.
    focus: Option<usize>,
    /// Errors, and rules to be stored.
    notes: Vec<Line<'static>>,
    /// The text input.
    entry: Option<Line<'static>>,
    keys: Vec<Line<'static>>,
    /// The keys alone, for the smallest screens.
    letters: &'static str,
    /// Column, and the line of the body, or the entry.
    cursor: Option<(usize, CursorAt)>,
}

enum CursorAt {
    Body(usize),
    Entry,
}

impl PromptSheet {
    fn type_into(&mut self, label: &str, line: &LineEdit, look: &PromptLook<'_>) {
        let (line, column) = look.typed(label, line);
        self.cursor = Some((column, CursorAt::Entry));
        self.entry = Some(line);
    }

    fn fit(mut self, height: u16, look: &PromptLook<'_>) -> ScreenFrame {
        let height = usize::from(height).max(1);
        let foot = self.notes.len() + usize::from(self.entry.is_some()) + self.keys.len();
        let mut lines = Vec::new();
        // The question is more important than the keys that answer it.
        if foot + 2 > height {
            self.notes.clear();
            let letters = Line::styled(self.letters, look.style(StyleRole::Key));
            self.keys = if self.entry.is_some() {
                Vec::new()
            } else {
                vec![letters]
            };
            self.keys.truncate(height - 1);
            if height == 1 {
                self.entry = None;
            }
        }
        let foot = self.notes.len() + usize::from(self.entry.is_some()) + self.keys.len();
        if foot + 2 <= height {
            lines.push(self.title);
        }
        let above = lines.len();
        let available = height.saturating_sub(foot + above).max(1);
        let count = self.body.len();
        let mut top = 0;
        if count <= available {
            lines.extend(self.body);
        } else {
            // The last line says how much more there is.
            let shown = available.saturating_sub(1).max(1);
            top = self.scroll.min(count - shown);
            if let Some(focus) = self.focus {
                top = top.clamp((focus + 1).saturating_sub(shown), focus);
            }
            let below = count - top - shown;
            lines.extend(self.body.into_iter().skip(top).take(shown));
            if available > 1 {
                lines.push(look.more(top, below));
            }
        }
        lines.extend(self.notes);
        let entry = lines.len();
        let cursor = self.cursor.and_then(|(column, at)| {
            let line = match at {
                CursorAt::Body(line) => above + line.checked_sub(top)?,
                CursorAt::Entry => self.entry.as_ref().map(|_| entry)?,
            };
            let column = column.min(look.columns.saturating_sub(1));
            (line < height).then(|| (small(column), small(line)))
        });
        lines.extend(self.entry);
        lines.extend(self.keys);
        ScreenFrame { lines, cursor }
    }
}

fn small(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// A key and its meaning.
struct KeyHint {
    key: String,
    label: String,
    /// What Enter does.
    is_default: bool,
}

impl KeyHint {
    fn new(key: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            label: label.into(),
            is_default: false,
        }
    }

    fn default_answer(key: &str, label: &str) -> Self {
        Self {
            is_default: true,
            ..Self::new(key, label)
        }
    }
}

impl PromptLook<'_> {
    fn style(&self, role: StyleRole) -> Style {
        self.theme.style(role)
    }

    fn more(&self, above: usize, below: usize) -> Line<'static> {
        let glyphs = self.theme.glyphs();
        let text = match (above, below) {
            (0, below) => format!(
                "{INDENT}{} {below} more rows ({}, PgDn)",
                glyphs.ellipsis, glyphs.down
            ),
            (above, 0) => format!(
                "{INDENT}{} {above} rows above ({}, PgUp)",
                glyphs.ellipsis, glyphs.up
            ),
            (above, below) => format!(
                "{INDENT}{} {above} rows above, {below} more below (PgUp, PgDn)",
                glyphs.ellipsis
            ),
        };
        let text = width::truncate(&text, self.columns).into_owned();
        Line::styled(text, self.style(StyleRole::Warning))
    }

    /// `── Approve? ───────── 1 of 2 ── terminal ──`
    fn title(&self, name: &str, facts: &[String]) -> Line<'static> {
        let rule = self.theme.glyphs().rule;
        let border = self.style(StyleRole::Border);
        let mut right = String::new();
        for fact in facts {
            right = format!("{right} {fact} {rule}{rule}");
        }
        let left = format!(" {name} ");
        let used = 2 + width::width(&left) + width::width(&right);
        if used > self.columns {
            let available = self.columns.saturating_sub(2);
            let left = width::truncate(&left, available).into_owned();
            return Line::from(vec![
                Span::styled(rule.repeat(2), border),
                Span::styled(left, self.style(StyleRole::Strong)),
            ]);
        }
        Line::from(vec![
            Span::styled(rule.repeat(2), border),
            Span::styled(left, self.style(StyleRole::Strong)),
            Span::styled(rule.repeat(self.columns - used), border),
            Span::styled(right, border),
        ])
    }

    /// `text` wrapped to the width: `first` before the first line, spaces before the others.
    fn block(&self, first: &str, text: &str, role: StyleRole) -> Vec<Line<'static>> {
        self.labelled(
            &Span::styled(first.to_owned(), self.style(StyleRole::Dim)),
            text,
            role,
        )
    }

    fn labelled(&self, first: &Span<'static>, text: &str, role: StyleRole) -> Vec<Line<'static>> {
        let indent = width::width(&first.content);
        let available = self.columns.saturating_sub(indent).max(1);
        let mut lines = Vec::new();
        for line in width::wrap_text(&width::visible(text), available, Style::default()) {
            let words: String = line.spans.iter().map(|span| &*span.content).collect();
            let prefix = if lines.is_empty() {
                first.clone()
            } else {
                Span::raw(" ".repeat(indent))
            };
            lines.push(Line::from(vec![
                prefix,
                Span::styled(words, self.style(role)),
            ]));
        }
        lines
    }

    /// Every character of a command, broken at the screen edge: spaces at a break are part of it.
    fn exact(&self, first: &str, text: &str) -> Vec<Line<'static>> {
        let indent = width::width(first);
        let available = self.columns.saturating_sub(indent).max(2);
        let mut lines = Vec::new();
        for part in text.split('\n') {
            for piece in chop(&width::visible(part), available) {
                let prefix = if lines.is_empty() {
                    first.to_owned()
                } else {
                    " ".repeat(indent)
                };
                lines.push(Line::from(vec![
                    Span::styled(prefix, self.style(StyleRole::Accent)),
                    Span::styled(piece, self.style(StyleRole::Strong)),
                ]));
            }
        }
        lines
    }

    /// Keys and their meaning, as many per line as fit.
    fn keys(&self, keys: &[KeyHint]) -> Vec<Line<'static>> {
        let mut lines: Vec<Line<'static>> = Vec::new();
        for KeyHint {
            key,
            label,
            is_default,
        } in keys
        {
            let available = self.columns.saturating_sub(4 + width::width(key) + 1);
            let label = width::truncate(label, available.max(1)).into_owned();
            let wide = width::width(key) + 1 + width::width(&label);
            let fits = lines.last().is_some_and(|line| {
                width::line_width(line) + 4 + wide <= self.columns && !is_default
            });
            let gap = if *is_default {
                Span::styled(
                    format!("  {} ", self.theme.glyphs().pointer),
                    self.style(StyleRole::Accent),
                )
            } else {
                Span::raw("    ")
            };
            let item = [
                gap,
                Span::styled(key.clone(), self.style(StyleRole::Key)),
                Span::raw(" "),
                Span::styled(label, self.style(StyleRole::Text)),
            ];
            match lines.last_mut().filter(|_| fits) {
                Some(line) => line.spans.extend(item),
                None => lines.push(Line::from(item.to_vec())),
            }
        }
        lines
    }

    /// Shows at the right edge that keys do not count yet.
    fn closed(&self, lines: &mut Vec<Line<'static>>, guard: KeyGuard) {
        let Some(left) = guard.left(self.now) else {
            return;
        };
        let text = format!(
            "keys open in {}{}",
            tenths(left),
            self.theme.glyphs().ellipsis
        );
        let span = Span::styled(text, self.style(StyleRole::Warning));
        let wide = width::width(&span.content);
        match lines.last_mut() {
            Some(line) if width::line_width(line) + 2 + wide <= self.columns => {
                let gap = self.columns - width::line_width(line) - wide;
                line.spans.extend([Span::raw(" ".repeat(gap)), span]);
            }
            _ => {
                let gap = self.columns.saturating_sub(wide);
                lines.push(Line::from(vec![Span::raw(" ".repeat(gap)), span]));
            }
        }
    }

    fn typed(&self, label: &str, line: &LineEdit) -> (Line<'static>, usize) {
        let label = format!("{INDENT}{label}");
        let start = width::width(&label);
        let available = self.columns.saturating_sub(start).max(2);
        let (span, column) = line.view(small(available), self.style(StyleRole::Text));
        let line = Line::from(vec![Span::styled(label, self.style(StyleRole::Dim)), span]);
        (line, start + usize::from(column))
    }

    fn problem(&self, problem: Option<&String>, lines: &mut Vec<Line<'static>>) {
        if let Some(problem) = problem {
            lines.extend(self.block(INDENT, problem, StyleRole::Error));
        }
    }
}

/// `text` in pieces of at most `available` columns, complete.
fn chop(text: &str, available: usize) -> Vec<String> {
    let text = width::expand_tabs(text, 0);
    let mut rest = &*text;
    let mut pieces = Vec::new();
    while !rest.is_empty() || pieces.is_empty() {
        let first = width::graphemes(rest)
            .next()
            .map_or(0, |(part, _)| part.len());
        let (piece, after) = rest.split_at(width::fitting(rest, available).max(first));
        pieces.push(piece.to_owned());
        rest = after;
    }
    pieces
}

/// Rounded up, so that it is never zero while keys are blocked.
fn tenths(left: Duration) -> String {
    let tenths = left.as_millis().div_ceil(100);
    format!("{}.{}s", tenths / 10, tenths % 10)
}

fn approval(
    prompt: &ApprovalPrompt,
    position_text: Option<String>,
    look: &PromptLook<'_>,
) -> PromptSheet {
    let request = &prompt.request;
    let tool = width::visible(&request.tool).into_owned();
    let expires = prompt.expires.map(|at| {
        let left = at.saturating_duration_since(look.now);
        // Rounded up: never zero while there is time left.
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        format!("denied in {seconds} s")
    });
    let facts: Vec<String> = expires
        .into_iter()
        .chain(position_text)
        .chain([tool])
        .collect();
    let sign = if request.tool == "terminal" {
        "  $ "
    } else {
        "    "
    };
    let mut body = look.exact(sign, &request.action);
    if !request.reasons.is_empty() {
        let dot = format!(" {} ", look.theme.glyphs().dot);
        let reasons = request.reasons.join(&dot);
        body.extend(look.block("  Reason: ", &reasons, StyleRole::Warning));
    }
    if let Some(posture) = &request.posture {
        body.extend(look.block("  Runs: ", posture, StyleRole::Dim));
    }
    let mut sheet = PromptSheet {
        title: look.title("Approve?", &facts),
        body,
        scroll: prompt.scroll,
        focus: None,
        notes: Vec::new(),
        entry: None,
        keys: Vec::new(),
        letters: "y s a [n] e",
        cursor: None,
    };
    look.problem(prompt.problem.as_ref(), &mut sheet.notes);
    let rule = request.rule.as_ref().map_or("", |rule| &rule.0);
    match &prompt.stage {
        ApprovalStage::Choose => {
            let mut keys = vec![KeyHint::new("y", "once"), KeyHint::new("s", "this session")];
            if request.rule.is_some() {
                keys.push(KeyHint::new(
                    "a",
                    format!("always: {}", width::visible(rule)),
                ));
            }
            keys.push(KeyHint::default_answer("n", "deny"));
            keys.push(KeyHint::new("e", "deny and explain"));
            sheet.keys = look.keys(&keys);
        }
        ApprovalStage::Rule { .. } => {
            let stored = look.block("  Will always be allowed: ", rule, StyleRole::Warning);
            sheet.notes.extend(stored);
            sheet.letters = "a e Esc";
            sheet.keys = look.keys(&[
                KeyHint::new("a", "store it and allow"),
                KeyHint::new("e", "edit it"),
                KeyHint::new("Esc", "back"),
            ]);
        }
        ApprovalStage::EditRule { line, .. } => {
            sheet.type_into("rule: ", line, look);
            sheet.keys = look.keys(&[
                KeyHint::new("Enter", "store it and allow"),
                KeyHint::new("Esc", "back"),
            ]);
        }
        ApprovalStage::Why { line } => {
            sheet.type_into("why not: ", line, look);
            sheet.keys = look.keys(&[KeyHint::new("Enter", "deny"), KeyHint::new("Esc", "back")]);
        }
    }
    look.closed(&mut sheet.keys, prompt.guard());
    sheet
}

fn question(
    prompt: &QuestionPrompt,
    position_text: Option<String>,
    look: &PromptLook<'_>,
) -> PromptSheet {
    let question = &prompt.question;
    let facts: Vec<String> = position_text.into_iter().collect();
    let name = if question.from == super::CLARIFY {
        "A question".to_owned()
    } else {
        format!("{} asks", width::visible(&question.from))
    };
    let mut sheet = PromptSheet {
        title: look.title(&name, &facts),
        body: look.block(INDENT, &question.text, StyleRole::Text),
        scroll: 0,
        focus: None,
        notes: Vec::new(),
        entry: None,
        keys: Vec::new(),
        letters: "Enter Esc",
        cursor: None,
    };
    look.problem(prompt.problem.as_ref(), &mut sheet.notes);
    match &prompt.entry {
        QuestionEntry::Text(line) => {
            sheet.type_into("answer: ", line, look);
            sheet.keys.extend(look.keys(&[
                KeyHint::new("Enter", "answer"),
                KeyHint::new("Esc", "no answer"),
            ]));
        }
        QuestionEntry::Choice(picker) => choices(picker, &mut sheet, look),
        QuestionEntry::Form { fields, at } => form(fields, *at, &mut sheet, look),
        QuestionEntry::Visit => {
            if let Want::Visit { url } = &question.want {
                sheet.body.extend(look.exact("    ", url));
            }
            sheet.letters = "y [n]";
            sheet.keys.extend(look.keys(&[
                KeyHint::new("y", "agree to visit this page"),
                KeyHint::default_answer("n", "decline"),
            ]));
        }
    }
    look.closed(&mut sheet.keys, prompt.guard);
    sheet
}

fn choices(picker: &ChoicePicker, sheet: &mut PromptSheet, look: &PromptLook<'_>) {
    let pointer = look.theme.glyphs().pointer;
    for (index, choice) in picker.options.iter().enumerate() {
        let is_current = index == picker.at;
        if is_current {
            sheet.focus = Some(sheet.body.len());
        }
        let mark = if is_current { pointer } else { " " };
        let first = format!("{INDENT}{mark} {}  ", index + 1);
        let (label, role) = if is_current {
            (StyleRole::Selected, StyleRole::Selected)
        } else {
            (StyleRole::Dim, StyleRole::Text)
        };
        let first = Span::styled(first, look.style(label));
        sheet
            .body
            .extend(look.labelled(&first, &choice.title, role));
    }
    if let Some(own) = &picker.own {
        let is_current = picker.on_own();
        let mark = if is_current { pointer } else { " " };
        let (line, column) = look.typed(&format!("{mark} your own words: "), own);
        if is_current {
            sheet.focus = Some(sheet.body.len());
            sheet.cursor = Some((column, CursorAt::Body(sheet.body.len())));
        }
        sheet.body.push(line);
    }
    let glyphs = look.theme.glyphs();
    let arrows = format!("{}{}", glyphs.up, glyphs.down);
    sheet.keys.extend(look.keys(&[
        KeyHint::new(arrows, "choose"),
        KeyHint::new("Enter", "answer"),
        KeyHint::new("Esc", "no answer"),
    ]));
}

fn form(fields: &[FilledField], at: usize, sheet: &mut PromptSheet, look: &PromptLook<'_>) {
    let pointer = look.theme.glyphs().pointer;
    for (index, filled) in fields.iter().enumerate() {
        let is_current = index == at;
        let mark = if is_current { pointer } else { " " };
        let star = if filled.field.required {
            ""
        } else {
            " (optional)"
        };
        let label = format!("{mark} {}{star}: ", width::visible(&filled.field.title));
        if is_current {
            sheet.focus = Some(sheet.body.len());
        }
        match &filled.value {
            FieldEntry::Line(line) => {
                let (mut shown, column) = look.typed(&label, line);
                if is_current {
                    sheet.cursor = Some((column, CursorAt::Body(sheet.body.len())));
                }
                if line.is_empty() {
                    let available = look.columns.saturating_sub(width::line_width(&shown));
                    let hint = width::truncate(&hint(filled), available).into_owned();
                    shown.push_span(Span::styled(hint, look.style(StyleRole::Placeholder)));
                }
                sheet.body.push(shown);
            }
            FieldEntry::One(chosen) => {
                let marks =
                    |index: usize| (*chosen == Some(index), *chosen == Some(index) && is_current);
                sheet.body.extend(options(&label, filled, marks, look));
            }
            FieldEntry::Several { at, chosen } => {
                let marks = |index: usize| {
                    let on = chosen.get(index).copied().unwrap_or_default();
                    (on, is_current && *at == index)
                };
                sheet.body.extend(options(&label, filled, marks, look));
            }
        }
        if let Some(about) = filled.field.description.as_deref().filter(|_| is_current) {
            sheet.body.extend(look.block("    ", about, StyleRole::Dim));
        }
    }
    let last = at + 1 == fields.len();
    let mut keys = vec![KeyHint::new("Enter", if last { "send" } else { "next" })];
    if let Some(filled) = fields.get(at) {
        match filled.field.kind {
            FieldKind::Several { .. } => keys.push(KeyHint::new("Space", "choose")),
            FieldKind::Boolean | FieldKind::One { .. } => {
                keys.push(KeyHint::new("Space", "change"));
            }
            _ => {}
        }
    }
    if at > 0 {
        keys.push(KeyHint::new("Shift+Tab", "back"));
    }
    keys.push(KeyHint::new("Esc", "no answer"));
    sheet.keys.extend(look.keys(&keys));
}

/// Hint for an empty field.
fn hint(filled: &FilledField) -> String {
    if let Some(default) = &filled.field.default {
        return default
            .as_str()
            .map_or_else(|| default.to_string(), str::to_owned);
    }
    match &filled.field.kind {
        FieldKind::Text {
            format: Some(format),
            ..
        } => format.clone(),
        FieldKind::Number { integer: true, .. } => "whole number".to_owned(),
        FieldKind::Number { .. } => "number".to_owned(),
        _ => String::new(),
    }
}

/// The options of a field. `marks`: whether it is selected, whether the cursor is on it.
fn options(
    label: &str,
    filled: &FilledField,
    marks: impl Fn(usize) -> (bool, bool),
    look: &PromptLook<'_>,
) -> Vec<Line<'static>> {
    let glyphs = look.theme.glyphs();
    let mut line = Line::from(Span::styled(
        format!("{INDENT}{label}"),
        look.style(StyleRole::Dim),
    ));
    let mut lines = Vec::new();
    for (index, title) in filled.titles().into_iter().enumerate() {
        let (on, is_current) = marks(index);
        let mark = if on { glyphs.done } else { glyphs.todo };
        let available = look.columns.saturating_sub(6).max(1);
        let text =
            width::truncate(&format!("{mark} {}", width::visible(title)), available).into_owned();
        let role = match (is_current, on) {
            (true, _) => StyleRole::Selected,
            (false, true) => StyleRole::Strong,
            (false, false) => StyleRole::Text,
        };
        if width::line_width(&line) + width::width(&text) + 2 > look.columns {
            lines.push(std::mem::replace(&mut line, Line::from("    ")));
        }
        line.spans
            .extend([Span::styled(text, look.style(role)), Span::raw("  ")]);
    }
    lines.push(line);
    lines
}
