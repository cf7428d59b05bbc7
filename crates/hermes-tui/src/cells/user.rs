//! Messages of the person.

use ratatui_core::text::Span;

use super::line::{paragraphs, trim_end};
use super::{CellContext, CellKind, TranscriptCell};
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width;

#[derive(Clone, Debug)]
pub(crate) struct UserCell {
    text: String,
    steered: bool,
    /// A command, not a message.
    command: bool,
    stamp: Option<String>,
}

impl UserCell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            steered: false,
            command: false,
            stamp: None,
        }
    }

    /// A line for the program, not for the model.
    pub(crate) fn command(text: impl Into<String>) -> Self {
        Self {
            command: true,
            ..Self::new(text)
        }
    }

    /// It reached the model in the middle of a turn.
    pub(crate) fn steered(text: impl Into<String>) -> Self {
        Self {
            steered: true,
            ..Self::new(text)
        }
    }

    /// With the time of day.
    #[must_use]
    pub(crate) fn at(mut self, stamp: impl Into<String>) -> Self {
        self.stamp = Some(stamp.into());
        self
    }
}

impl TranscriptCell for UserCell {
    fn kind(&self) -> CellKind {
        CellKind::User
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let theme = cx.theme;
        let sign = format!("{} ", theme.glyphs().prompt);
        let sign = Span::styled(sign, theme.style(StyleRole::User));
        let role = if self.command {
            StyleRole::Dim
        } else {
            StyleRole::User
        };
        let mut rows = paragraphs(&self.text, theme.style(role), width, &sign);
        let mut notes = Vec::new();
        if self.steered {
            notes.push("on the way");
        }
        notes.extend(self.stamp.as_deref());
        if let Some(first) = rows.first_mut().filter(|_| !notes.is_empty()) {
            let note = format!("  {}", notes.join(" "));
            let available = usize::from(width).saturating_sub(width::line_width(&first.line));
            if width::width(&note) <= available {
                first.push(Span::styled(note, theme.style(StyleRole::Dim)));
            }
        }
        for row in &mut rows {
            trim_end(&mut row.line);
        }
        rows
    }
}
