//! Statistics of a turn.

use std::time::Duration;

use hermes_core::event::TurnSummary;
use hermes_core::figures::{count, dollars, tokens, took};
use hermes_core::usage::Cost;
use ratatui_core::text::{Line, Span};

use super::{CellContext, CellKind, TranscriptCell};
use crate::row::StyledRow;
use crate::theme::StyleRole;
use crate::width::{self, Indent};

#[derive(Clone, Debug)]
pub(crate) struct FooterCell {
    summary: TurnSummary,
}

impl FooterCell {
    pub(crate) fn new(summary: &TurnSummary) -> Self {
        Self {
            summary: summary.clone(),
        }
    }
}

/// The statistics of a turn as separate facts, the same in the full interface and in the line chat.
pub fn turn_facts(summary: &TurnSummary) -> Vec<String> {
    let usage = &summary.usage;
    let mut facts = Vec::new();
    if let Some(time) = took(Duration::from_millis(summary.millis)) {
        facts.push(format!("worked {time}"));
    }
    if summary.tool_calls > 0 {
        facts.push(count(summary.tool_calls as usize, "tool call"));
    }
    if usage.prompt_tokens() > 0 || usage.output > 0 {
        let cached = match usage.cache_read {
            0 => String::new(),
            read => format!(" ({} cached)", tokens(read)),
        };
        facts.push(format!(
            "{} in{cached}, {} out",
            tokens(usage.prompt_tokens()),
            tokens(usage.output)
        ));
    }
    // Unknown values are omitted instead of shown as zero.
    match summary.cost {
        Cost::Actual { usd } => facts.push(dollars(usd)),
        Cost::Estimated { usd, .. } => facts.push(format!("{} est", dollars(usd))),
        Cost::Included | Cost::Unknown => {}
    }
    facts
}

impl TranscriptCell for FooterCell {
    fn kind(&self) -> CellKind {
        CellKind::Footer
    }

    fn rows(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let facts = turn_facts(&self.summary);
        if facts.is_empty() {
            return Vec::new();
        }
        let text = facts.join(&format!(" {} ", cx.theme.glyphs().dot));
        let line = Line::from(Span::styled(text, cx.theme.style(StyleRole::Dim)));
        let blanks = Indent::hanging(Span::raw("  "));
        width::wrap_row(&StyledRow::new(line), usize::from(width), &blanks)
    }
}
