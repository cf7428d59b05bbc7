//! Colours and signs by what they mean.
//!
//! Nothing outside this module names a colour. The first theme uses the sixteen colours of the
//! terminal on its own background, so it is readable wherever the terminal is; the others are in
//! true colour and say for which background they were made.

mod glyphs;
mod palettes;
#[cfg(test)]
mod tests;

use ratatui_core::style::{Color, Style};

pub use glyphs::Glyphs;

/// What something is. A theme says how that looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Role {
    /// Ordinary text.
    Text,
    /// Of less importance: durations, hints, counts.
    Dim,
    /// Of more importance.
    Strong,
    Emphasis,
    Struck,
    /// The one colour of the program: prompts, marks, the running sign.
    Accent,
    /// What the person said.
    User,
    /// What the model thought.
    Reasoning,
    /// The first word of a tool's line: `Ran`, `Read`.
    Tool,
    Success,
    Warning,
    Error,
    Info,
    Heading,
    Link,
    /// Code within a sentence.
    Code,
    Quote,
    /// Rules and frames.
    Border,
    /// The row under the cursor.
    Selected,
    /// Characters found by a search.
    Match,
    Placeholder,
    /// A paste, an image or a file in the composer.
    Chip,
    /// Names of keys.
    Key,
    Added,
    Removed,
    /// The words within a line that were added.
    AddedWord,
    RemovedWord,
    LineNumber,
    Keyword,
    Type,
    Function,
    String,
    Number,
    Comment,
    Attribute,
    Variable,
}

/// How many roles there are.
const ROLES: usize = Role::Variable as usize + 1;

#[derive(Clone, Debug, PartialEq)]
pub struct Theme {
    name: &'static str,
    styles: [Style; ROLES],
    glyphs: &'static Glyphs,
    background: Background,
}

/// What a theme was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// The sixteen colours follow the terminal.
    Any,
    Light,
    Dark,
}

impl Default for Theme {
    fn default() -> Self {
        palettes::terminal()
    }
}

impl Theme {
    /// By a name of [`Theme::names`]; `default` is `terminal`.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim();
        if name.eq_ignore_ascii_case("default") {
            return Some(Self::default());
        }
        palettes::ALL
            .iter()
            .find(|(known, ..)| known.eq_ignore_ascii_case(name))
            .map(|(_, _, make)| make())
    }

    /// Every theme with a few words about it, the first one first.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        palettes::ALL.iter().map(|(name, about, _)| (*name, *about))
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn background(&self) -> Background {
        self.background
    }

    pub fn style(&self, role: Role) -> Style {
        self.styles.get(role as usize).copied().unwrap_or_default()
    }

    pub fn glyphs(&self) -> &'static Glyphs {
        self.glyphs
    }

    /// With signs of ASCII only.
    #[must_use]
    pub fn ascii(mut self) -> Self {
        self.glyphs = &glyphs::ASCII;
        self
    }

    /// `NO_COLOR`: bold, dim, underline and reverse stay, colours go.
    #[must_use]
    pub fn without_color(mut self) -> Self {
        let plain = palettes::mono();
        self.styles = plain.styles;
        self.background = Background::Any;
        self
    }

    /// Colours and ornaments that a program asked for in its output; none where the theme has none.
    pub fn keeps_color(&self) -> bool {
        self.styles
            .iter()
            .any(|style| colored(style.fg) || colored(style.bg))
    }
}

fn colored(color: Option<Color>) -> bool {
    color.is_some_and(|color| color != Color::Reset)
}
