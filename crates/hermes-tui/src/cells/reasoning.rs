//! Reasoning of the model.

use std::time::Duration;

use hermes_core::figures::{tokens, took};
use ratatui_core::text::Span;

use super::line::{CellHead, paragraphs};
use super::{CellContext, CellKind, TranscriptCell};
use crate::row::StyledRow;
use crate::theme::StyleRole;

#[derive(Clone, Debug, Default)]
pub(crate) struct ReasoningCell {
    text: String,
    took: Option<Duration>,
}

impl ReasoningCell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    #[must_use]
    pub(crate) fn took(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }
}

impl TranscriptCell for ReasoningCell {
    fn kind(&self) -> CellKind {
        CellKind::Reasoning
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        if cx.reasoning || cx.verbose {
            return self.whole(width, cx);
        }
        if self.is_empty() {
            return Vec::new();
        }
        self.head(width, cx)
    }

    fn whole(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut rows = self.head(width, cx);
        let style = cx.theme.style(StyleRole::Reasoning);
        let text = self.text.trim();
        rows.extend(paragraphs(text, style, width, &Span::raw("  ")));
        rows
    }
}

impl ReasoningCell {
    /// `• Thought for 4.2s · 1.2k characters`
    fn head(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let theme = cx.theme;
        let dim = theme.style(StyleRole::Dim);
        let mut title = "Thought".to_owned();
        if let Some(time) = self.took.and_then(took) {
            title = format!("{title} for {time}");
        }
        let amount = format!("{} characters", tokens(self.text.chars().count() as u64));
        let head = CellHead {
            glyph: Span::styled(theme.glyphs().bullet, dim),
            title: vec![
                Span::styled(title, theme.style(StyleRole::Reasoning)),
                Span::styled(format!(" {} {amount}", theme.glyphs().dot), dim),
            ],
            facts: Vec::new(),
            exact: false,
        };
        head.rows(width, cx)
    }
}
