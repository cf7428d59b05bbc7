//! Notices of the program.

mod event_text;

use hermes_core::event::{AgentEvent, NoticeLevel, TurnExit};
use ratatui_core::text::{Line, Span};

use super::line::{paragraphs, trim_end};
use super::{CellContext, CellKind, TranscriptCell};
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width::{self, Indent};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NoticeCell {
    level: NoticeLevel,
    text: String,
    fix: Option<String>,
}

impl NoticeCell {
    pub(crate) fn new(level: NoticeLevel, text: impl Into<String>) -> Self {
        Self {
            level,
            text: text.into(),
            fix: None,
        }
    }

    pub(crate) fn info(text: impl Into<String>) -> Self {
        Self::new(NoticeLevel::Info, text)
    }

    pub(crate) fn warning(text: impl Into<String>) -> Self {
        Self::new(NoticeLevel::Warning, text)
    }

    /// An error: the cause first, then the fix.
    pub(crate) fn error(cause: impl Into<String>, fix: Option<String>) -> Self {
        Self {
            fix,
            ..Self::new(NoticeLevel::Error, cause)
        }
    }

    /// For events that are reported to the person: notices, retries, another route, a compaction.
    pub(crate) fn from_event(event: &AgentEvent) -> Option<Self> {
        event_text::event_text(event)
    }

    /// Why a turn ended, if it did not end with an answer.
    pub(crate) fn from_exit(exit: &TurnExit) -> Option<Self> {
        event_text::exit_text(exit)
    }
}

impl TranscriptCell for NoticeCell {
    fn kind(&self) -> CellKind {
        CellKind::Notice
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let theme = cx.theme;
        let glyphs = theme.glyphs();
        let (sign, role, body) = match self.level {
            NoticeLevel::Info => (glyphs.info, StyleRole::Dim, StyleRole::Dim),
            NoticeLevel::Warning => (glyphs.warning, StyleRole::Warning, StyleRole::Text),
            NoticeLevel::Error => (glyphs.bad, StyleRole::Error, StyleRole::Text),
        };
        let sign = Span::styled(format!("{sign} "), theme.style(role));
        let mut rows = paragraphs(&self.text, theme.style(body), width, &sign);
        if let Some(fix) = &self.fix {
            let label = Span::styled("  fix: ", theme.style(StyleRole::Dim));
            rows.extend(paragraphs(
                fix,
                theme.style(StyleRole::Accent),
                width,
                &label,
            ));
        }
        rows
    }
}

/// The first line of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct BannerCell {
    text: String,
    hint: String,
}

impl BannerCell {
    /// Facts separated by ` · `, and a hint for the right side.
    pub(crate) fn new(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hint: hint.into(),
        }
    }
}

impl TranscriptCell for BannerCell {
    fn kind(&self) -> CellKind {
        CellKind::Banner
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let theme = cx.theme;
        let columns = usize::from(width);
        let mut rows = Vec::new();
        let text = width::harmless(self.text.trim_end());
        for (index, line) in text.lines().enumerate() {
            let mut spans = Vec::new();
            for (at, fact) in line.split(" · ").enumerate() {
                if at > 0 {
                    let dot = format!(" {} ", theme.glyphs().dot);
                    spans.push(Span::styled(dot, theme.style(StyleRole::Dim)));
                }
                // People look for the name of the program and the model.
                let role = match (index, at) {
                    (0, 0) => StyleRole::Heading,
                    (0, 1) => StyleRole::Strong,
                    _ => StyleRole::Dim,
                };
                let fact = width::expand_tabs(fact, 0).into_owned();
                spans.push(Span::styled(fact, theme.style(role)));
            }
            let line = StyledRow::new(Line::from(spans));
            rows.extend(width::wrap_row(&line, columns, &Indent::none()));
        }
        let hint = Span::styled(self.hint.clone(), theme.style(StyleRole::Dim));
        if let [row] = &mut rows[..] {
            let used = width::line_width(&row.line) + width::width(&self.hint);
            if !self.hint.is_empty() && used + 2 <= columns {
                row.push(Span::raw(" ".repeat(columns.min(100).max(used + 2) - used)));
                row.push(hint);
            }
        }
        for row in &mut rows {
            trim_end(&mut row.line);
        }
        rows
    }
}

/// Earlier rows are not shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OmittedCell {
    count: usize,
}

impl OmittedCell {
    pub(crate) fn new(count: usize) -> Self {
        Self { count }
    }
}

impl TranscriptCell for OmittedCell {
    fn kind(&self) -> CellKind {
        CellKind::Notice
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let rule = cx.theme.glyphs().rule.repeat(2);
        let text = match self.count {
            1 => format!("{rule} 1 earlier message is not shown {rule}"),
            count => format!("{rule} {count} earlier messages are not shown {rule}"),
        };
        let text = width::truncate_with(&text, usize::from(width), cx.theme.glyphs().ellipsis);
        vec![StyledRow::new(Line::styled(
            text.into_owned(),
            cx.theme.style(StyleRole::Dim),
        ))]
    }
}
