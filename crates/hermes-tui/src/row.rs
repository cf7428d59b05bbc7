//! What is drawn: finished rows that go to the scrollback once, and the frame that lives below.

use ratatui_core::text::Line;

/// A line of the transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub line: Line<'static>,
    pub flow: Flow,
}

/// Who breaks a line that is wider than the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// The cell did: it fits the width it was made for.
    #[default]
    Broken,
    /// The terminal does, so that a code line or a command is copied as one.
    Unbroken,
}

impl Row {
    pub fn new(line: impl Into<Line<'static>>) -> Self {
        Self {
            line: line.into(),
            flow: Flow::Broken,
        }
    }

    /// A line that only the terminal may break.
    pub fn unbroken(line: impl Into<Line<'static>>) -> Self {
        Self {
            line: line.into(),
            flow: Flow::Unbroken,
        }
    }
}

/// What is redrawn below the scrollback, or the whole of an overlay. Every line fits the width.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    pub lines: Vec<Line<'static>>,
    /// Column and row within the frame where the real cursor stands, for input methods; `None` hides it.
    pub cursor: Option<(u16, u16)>,
}
