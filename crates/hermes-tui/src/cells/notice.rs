//! What the program has to say.

use hermes_core::event::{AgentEvent, NoticeLevel, TurnExit};

use super::{Cell, CellContext, CellKind};
use crate::row::Row;

#[derive(Clone, Debug, PartialEq)]
pub struct NoticeCell {
    level: NoticeLevel,
    text: String,
    fix: Option<String>,
}

impl NoticeCell {
    pub fn new(level: NoticeLevel, text: impl Into<String>) -> Self {
        Self {
            level,
            text: text.into(),
            fix: None,
        }
    }

    pub fn info(text: impl Into<String>) -> Self {
        Self::new(NoticeLevel::Info, text)
    }

    pub fn warning(text: impl Into<String>) -> Self {
        Self::new(NoticeLevel::Warning, text)
    }

    /// One card: the cause first, then what to do.
    pub fn error(cause: impl Into<String>, fix: Option<String>) -> Self {
        Self {
            fix,
            ..Self::new(NoticeLevel::Error, cause)
        }
    }

    pub fn of_event(event: &AgentEvent) -> Option<Self> {
        match event {
            AgentEvent::Notice { level, text } => Some(Self::new(*level, text.clone())),
            _ => None,
        }
    }

    pub fn of_exit(exit: &TurnExit) -> Option<Self> {
        match exit {
            TurnExit::Answered => None,
            other => Some(Self::warning(format!("{other:?}"))),
        }
    }
}

impl Cell for NoticeCell {
    fn kind(&self) -> CellKind {
        CellKind::Notice
    }

    fn rows(&self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        vec![Row::new(format!(
            "{:?} {} {:?}",
            self.level, self.text, self.fix
        ))]
    }
}

/// The first line of a conversation.
#[derive(Clone, Debug)]
pub struct BannerCell {
    text: String,
    hint: String,
}

impl BannerCell {
    /// Facts separated by ` · `, and a hint for the right side.
    pub fn new(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hint: hint.into(),
        }
    }
}

impl Cell for BannerCell {
    fn kind(&self) -> CellKind {
        CellKind::Banner
    }

    fn rows(&self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        vec![Row::new(format!("{} {}", self.text, self.hint))]
    }
}

/// Earlier rows are not shown.
#[derive(Clone, Copy, Debug)]
pub struct OmittedCell {
    count: usize,
}

impl OmittedCell {
    pub fn new(count: usize) -> Self {
        Self { count }
    }
}

impl Cell for OmittedCell {
    fn kind(&self) -> CellKind {
        CellKind::Notice
    }

    fn rows(&self, _width: u16, _cx: &CellContext<'_>) -> Vec<Row> {
        vec![Row::new(format!("{} earlier", self.count))]
    }
}
