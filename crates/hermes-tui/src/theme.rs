//! Colours and symbols by meaning.
//!
//! Nothing outside this module names a colour. The first theme uses the sixteen colours of the
//! terminal on its own background, so it is readable everywhere; the others use true colour and
//! declare the background they are made for.

mod glyphs;
mod palettes;
#[cfg(test)]
mod tests;

use ratatui_core::style::{Color, Style};

pub(crate) use glyphs::Glyphs;

/// The meaning of a piece of text; a theme defines its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum StyleRole {
    /// Ordinary text.
    Text,
    /// Less important: durations, hints, counts.
    Dim,
    /// More important.
    Strong,
    Emphasis,
    Struck,
    /// The accent colour: prompts, marks, the spinner.
    Accent,
    /// Messages of the person.
    User,
    /// Reasoning of the model.
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
    /// Rules and borders.
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
    /// Added words within a line.
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
const ROLE_COUNT: usize = StyleRole::Variable as usize + 1;

#[derive(Clone, Debug, PartialEq)]
pub struct Theme {
    name: &'static str,
    styles: [Style; ROLE_COUNT],
    glyphs: &'static Glyphs,
    background: ThemeBackground,
}

/// The background a theme is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThemeBackground {
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

    /// Every theme with a short description, the default first.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        palettes::ALL.iter().map(|(name, about, _)| (*name, *about))
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn background(&self) -> ThemeBackground {
        self.background
    }

    pub fn style(&self, role: StyleRole) -> Style {
        self.styles.get(role as usize).copied().unwrap_or_default()
    }

    pub fn glyphs(&self) -> &'static Glyphs {
        self.glyphs
    }

    /// With ASCII symbols only.
    #[must_use]
    pub fn ascii(mut self) -> Self {
        self.glyphs = &glyphs::ASCII;
        self
    }

    /// `NO_COLOR`: keeps bold, dim, underline and reverse, removes colours.
    #[must_use]
    pub fn without_color(mut self) -> Self {
        let plain = palettes::mono();
        self.styles = plain.styles;
        self.background = ThemeBackground::Any;
        self
    }

    /// Applies colours and modifiers of a program's output; none if the theme has no colours.
    pub fn keeps_color(&self) -> bool {
        self.styles
            .iter()
            .any(|style| colored(style.fg) || colored(style.bg))
    }
}

fn colored(color: Option<Color>) -> bool {
    color.is_some_and(|color| color != Color::Reset)
}
