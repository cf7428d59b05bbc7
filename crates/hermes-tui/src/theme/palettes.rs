//! The built-in themes and their colours.

use ratatui_core::style::{Color, Modifier, Style};

use super::glyphs::UNICODE;
use super::{ROLE_COUNT, StyleRole, Theme, ThemeBackground};

type ThemeFn = fn() -> Theme;

pub(super) const ALL: &[(&str, &str, ThemeFn)] = &[
    ("terminal", "the terminal's own sixteen colours", terminal),
    ("dark", "true colour on a dark background", dark),
    ("light", "true colour on a light background", light),
    ("dusk", "muted, on a dark background", dusk),
    ("paper", "warm, on a light background", paper),
    ("mono", "no colours, only bold, dim and reverse", mono),
    ("ascii", "sixteen colours and signs of ASCII only", ascii),
];

/// The colours of a true-colour theme.
struct ThemeColors {
    text: u32,
    dim: u32,
    accent: u32,
    red: u32,
    green: u32,
    yellow: u32,
    blue: u32,
    magenta: u32,
    cyan: u32,
    orange: u32,
    /// Background of the row under the cursor and of the person's messages.
    raised: u32,
    added_word: u32,
    removed_word: u32,
}

fn rgb(hex: u32) -> Color {
    Color::Rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

fn fg(hex: u32) -> Style {
    Style::new().fg(rgb(hex))
}

fn build(
    name: &'static str,
    background: ThemeBackground,
    style: impl Fn(StyleRole) -> Style,
) -> Theme {
    let mut styles = [Style::new(); ROLE_COUNT];
    for role in EVERY {
        if let Some(slot) = styles.get_mut(role as usize) {
            *slot = style(role);
        }
    }
    Theme {
        name,
        styles,
        glyphs: &UNICODE,
        background,
    }
}

pub(super) fn terminal() -> Theme {
    build("terminal", ThemeBackground::Any, |role| {
        let ansi = |color: Color| Style::new().fg(color);
        match role {
            StyleRole::Text | StyleRole::Variable => Style::new(),
            StyleRole::Dim | StyleRole::Placeholder | StyleRole::Border | StyleRole::LineNumber => {
                dim()
            }
            StyleRole::Comment | StyleRole::Quote | StyleRole::Reasoning => {
                dim().add_modifier(Modifier::ITALIC)
            }
            StyleRole::Strong | StyleRole::Tool => bold(),
            StyleRole::Heading => ansi(Color::Cyan).add_modifier(Modifier::BOLD),
            StyleRole::Emphasis => Style::new().add_modifier(Modifier::ITALIC),
            StyleRole::Struck => dim().add_modifier(Modifier::CROSSED_OUT),
            StyleRole::Accent
            | StyleRole::User
            | StyleRole::Key
            | StyleRole::Code
            | StyleRole::Type => ansi(Color::Cyan),
            StyleRole::Success | StyleRole::Added | StyleRole::String => ansi(Color::Green),
            StyleRole::Warning | StyleRole::Attribute => ansi(Color::Yellow),
            StyleRole::Error | StyleRole::Removed => ansi(Color::Red),
            StyleRole::Info | StyleRole::Function => ansi(Color::Blue),
            StyleRole::Link => ansi(Color::Blue).add_modifier(Modifier::UNDERLINED),
            StyleRole::Selected => Style::new().add_modifier(Modifier::REVERSED),
            StyleRole::Match => ansi(Color::Magenta).add_modifier(Modifier::BOLD),
            StyleRole::Chip | StyleRole::Keyword | StyleRole::Number => ansi(Color::Magenta),
            StyleRole::AddedWord => ansi(Color::Green).add_modifier(Modifier::REVERSED),
            StyleRole::RemovedWord => ansi(Color::Red).add_modifier(Modifier::REVERSED),
        }
    })
}

pub(super) fn ascii() -> Theme {
    let mut theme = terminal().ascii();
    theme.name = "ascii";
    theme
}

pub(super) fn mono() -> Theme {
    build("mono", ThemeBackground::Any, |role| match role {
        StyleRole::Text
        | StyleRole::Variable
        | StyleRole::Function
        | StyleRole::String
        | StyleRole::Number
        | StyleRole::Type
        | StyleRole::Attribute
        | StyleRole::Info
        | StyleRole::Success
        | StyleRole::Added
        | StyleRole::Code => Style::new(),
        StyleRole::Dim
        | StyleRole::Placeholder
        | StyleRole::Border
        | StyleRole::LineNumber
        | StyleRole::Comment
        | StyleRole::Removed => dim(),
        StyleRole::Quote | StyleRole::Reasoning => dim().add_modifier(Modifier::ITALIC),
        StyleRole::Emphasis => Style::new().add_modifier(Modifier::ITALIC),
        StyleRole::Struck => dim().add_modifier(Modifier::CROSSED_OUT),
        StyleRole::Link => Style::new().add_modifier(Modifier::UNDERLINED),
        StyleRole::Match => bold().add_modifier(Modifier::UNDERLINED),
        StyleRole::Selected | StyleRole::AddedWord | StyleRole::RemovedWord => {
            Style::new().add_modifier(Modifier::REVERSED)
        }
        StyleRole::Strong
        | StyleRole::Tool
        | StyleRole::Heading
        | StyleRole::Accent
        | StyleRole::User
        | StyleRole::Key
        | StyleRole::Warning
        | StyleRole::Error
        | StyleRole::Chip
        | StyleRole::Keyword => bold(),
    })
}

fn dark() -> Theme {
    colored(
        "dark",
        ThemeBackground::Dark,
        &ThemeColors {
            text: 0x00e6_e6e6,
            dim: 0x00a0_a6b0,
            accent: 0x0062_d0e0,
            red: 0x00ff_8a80,
            green: 0x0079_d98c,
            yellow: 0x00e8_c468,
            blue: 0x0082_b4ff,
            magenta: 0x00d7_a1ff,
            cyan: 0x0066_d9d0,
            orange: 0x00ff_b27a,
            raised: 0x0033_3a45,
            added_word: 0x001f_5c37,
            removed_word: 0x0070_2630,
        },
    )
}

fn light() -> Theme {
    colored(
        "light",
        ThemeBackground::Light,
        &ThemeColors {
            text: 0x001f_2328,
            dim: 0x0059_636e,
            accent: 0x0000_6a7d,
            red: 0x00b3_1d28,
            green: 0x0016_6b2e,
            yellow: 0x0080_5200,
            blue: 0x0008_52b8,
            magenta: 0x007a_2f9e,
            cyan: 0x0000_6b66,
            orange: 0x009a_4200,
            raised: 0x00e4_e9ef,
            added_word: 0x00a6_e9b5,
            removed_word: 0x00ff_c2bd,
        },
    )
}

fn dusk() -> Theme {
    colored(
        "dusk",
        ThemeBackground::Dark,
        &ThemeColors {
            text: 0x00d3_d0c8,
            dim: 0x00a3_a39a,
            accent: 0x00d9_b36c,
            red: 0x00e8_958c,
            green: 0x00a9_c48c,
            yellow: 0x00dd_c07f,
            blue: 0x0093_b6d6,
            magenta: 0x00c9_a6d0,
            cyan: 0x008f_c4bc,
            orange: 0x00e0_a67e,
            raised: 0x003a_3a38,
            added_word: 0x003c_5a3a,
            removed_word: 0x0066_3836,
        },
    )
}

fn paper() -> Theme {
    colored(
        "paper",
        ThemeBackground::Light,
        &ThemeColors {
            text: 0x003a_342c,
            dim: 0x0069_6154,
            accent: 0x008f_4a14,
            red: 0x00a3_2d24,
            green: 0x004a_6414,
            yellow: 0x007a_5806,
            blue: 0x002a_5c86,
            magenta: 0x0080_3d74,
            cyan: 0x001c_665d,
            orange: 0x0096_4a12,
            raised: 0x00ea_e2d0,
            added_word: 0x00c9_dd97,
            removed_word: 0x00f0_bda8,
        },
    )
}

fn colored(name: &'static str, background: ThemeBackground, colors: &ThemeColors) -> Theme {
    build(name, background, |role| match role {
        StyleRole::Text | StyleRole::Variable => fg(colors.text),
        StyleRole::Dim | StyleRole::Placeholder | StyleRole::Border | StyleRole::LineNumber => {
            fg(colors.dim)
        }
        StyleRole::Comment | StyleRole::Quote | StyleRole::Reasoning => {
            fg(colors.dim).add_modifier(Modifier::ITALIC)
        }
        StyleRole::Strong | StyleRole::Tool => fg(colors.text).add_modifier(Modifier::BOLD),
        StyleRole::Heading => fg(colors.accent).add_modifier(Modifier::BOLD),
        StyleRole::Emphasis => fg(colors.text).add_modifier(Modifier::ITALIC),
        StyleRole::Struck => fg(colors.dim).add_modifier(Modifier::CROSSED_OUT),
        StyleRole::Accent | StyleRole::User | StyleRole::Key => fg(colors.accent),
        StyleRole::Success | StyleRole::Added | StyleRole::String => fg(colors.green),
        StyleRole::Warning | StyleRole::Attribute => fg(colors.yellow),
        StyleRole::Error | StyleRole::Removed => fg(colors.red),
        StyleRole::Info | StyleRole::Function => fg(colors.blue),
        StyleRole::Link => fg(colors.blue).add_modifier(Modifier::UNDERLINED),
        StyleRole::Code | StyleRole::Type => fg(colors.cyan),
        StyleRole::Selected => fg(colors.text).bg(rgb(colors.raised)),
        StyleRole::Match => fg(colors.magenta).add_modifier(Modifier::BOLD),
        StyleRole::Chip | StyleRole::Keyword => fg(colors.magenta),
        StyleRole::Number => fg(colors.orange),
        StyleRole::AddedWord => fg(colors.text).bg(rgb(colors.added_word)),
        StyleRole::RemovedWord => fg(colors.text).bg(rgb(colors.removed_word)),
    })
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

pub(super) const EVERY: [StyleRole; ROLE_COUNT] = [
    StyleRole::Text,
    StyleRole::Dim,
    StyleRole::Strong,
    StyleRole::Emphasis,
    StyleRole::Struck,
    StyleRole::Accent,
    StyleRole::User,
    StyleRole::Reasoning,
    StyleRole::Tool,
    StyleRole::Success,
    StyleRole::Warning,
    StyleRole::Error,
    StyleRole::Info,
    StyleRole::Heading,
    StyleRole::Link,
    StyleRole::Code,
    StyleRole::Quote,
    StyleRole::Border,
    StyleRole::Selected,
    StyleRole::Match,
    StyleRole::Placeholder,
    StyleRole::Chip,
    StyleRole::Key,
    StyleRole::Added,
    StyleRole::Removed,
    StyleRole::AddedWord,
    StyleRole::RemovedWord,
    StyleRole::LineNumber,
    StyleRole::Keyword,
    StyleRole::Type,
    StyleRole::Function,
    StyleRole::String,
    StyleRole::Number,
    StyleRole::Comment,
    StyleRole::Attribute,
    StyleRole::Variable,
];
