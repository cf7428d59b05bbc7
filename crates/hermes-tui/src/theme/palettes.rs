//! The themes.

use ratatui_core::style::{Color, Modifier, Style};

use super::glyphs::UNICODE;
use super::{Background, ROLES, Role, Theme};

type Make = fn() -> Theme;

pub(super) const ALL: &[(&str, &str, Make)] = &[
    ("terminal", "the terminal's own sixteen colours", terminal),
    ("dark", "true colour on a dark background", dark),
    ("light", "true colour on a light background", light),
    ("dusk", "muted, on a dark background", dusk),
    ("paper", "warm, on a light background", paper),
    ("mono", "no colours, only bold, dim and reverse", mono),
    ("ascii", "sixteen colours and signs of ASCII only", ascii),
];

/// The colours of a theme in true colour.
struct Palette {
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
    /// Behind the row under the cursor, and what the person said.
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

fn build(name: &'static str, background: Background, style: impl Fn(Role) -> Style) -> Theme {
    let mut styles = [Style::new(); ROLES];
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
    build("terminal", Background::Any, |role| {
        let ansi = |color: Color| Style::new().fg(color);
        match role {
            Role::Text | Role::Variable => Style::new(),
            Role::Dim | Role::Placeholder | Role::Border | Role::LineNumber => dim(),
            Role::Comment | Role::Quote | Role::Reasoning => dim().add_modifier(Modifier::ITALIC),
            Role::Strong | Role::Tool => bold(),
            Role::Heading => ansi(Color::Cyan).add_modifier(Modifier::BOLD),
            Role::Emphasis => Style::new().add_modifier(Modifier::ITALIC),
            Role::Struck => dim().add_modifier(Modifier::CROSSED_OUT),
            Role::Accent | Role::User | Role::Key | Role::Code | Role::Type => ansi(Color::Cyan),
            Role::Success | Role::Added | Role::String => ansi(Color::Green),
            Role::Warning | Role::Attribute => ansi(Color::Yellow),
            Role::Error | Role::Removed => ansi(Color::Red),
            Role::Info | Role::Function => ansi(Color::Blue),
            Role::Link => ansi(Color::Blue).add_modifier(Modifier::UNDERLINED),
            Role::Selected => Style::new().add_modifier(Modifier::REVERSED),
            Role::Match => ansi(Color::Magenta).add_modifier(Modifier::BOLD),
            Role::Chip | Role::Keyword | Role::Number => ansi(Color::Magenta),
            Role::AddedWord => ansi(Color::Green).add_modifier(Modifier::REVERSED),
            Role::RemovedWord => ansi(Color::Red).add_modifier(Modifier::REVERSED),
        }
    })
}

pub(super) fn ascii() -> Theme {
    let mut theme = terminal().ascii();
    theme.name = "ascii";
    theme
}

pub(super) fn mono() -> Theme {
    build("mono", Background::Any, |role| match role {
        Role::Text
        | Role::Variable
        | Role::Function
        | Role::String
        | Role::Number
        | Role::Type
        | Role::Attribute
        | Role::Info
        | Role::Success
        | Role::Added
        | Role::Code => Style::new(),
        Role::Dim
        | Role::Placeholder
        | Role::Border
        | Role::LineNumber
        | Role::Comment
        | Role::Removed => dim(),
        Role::Quote | Role::Reasoning => dim().add_modifier(Modifier::ITALIC),
        Role::Emphasis => Style::new().add_modifier(Modifier::ITALIC),
        Role::Struck => dim().add_modifier(Modifier::CROSSED_OUT),
        Role::Link => Style::new().add_modifier(Modifier::UNDERLINED),
        Role::Match => bold().add_modifier(Modifier::UNDERLINED),
        Role::Selected | Role::AddedWord | Role::RemovedWord => {
            Style::new().add_modifier(Modifier::REVERSED)
        }
        Role::Strong
        | Role::Tool
        | Role::Heading
        | Role::Accent
        | Role::User
        | Role::Key
        | Role::Warning
        | Role::Error
        | Role::Chip
        | Role::Keyword => bold(),
    })
}

fn dark() -> Theme {
    colored(
        "dark",
        Background::Dark,
        &Palette {
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
        Background::Light,
        &Palette {
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
        Background::Dark,
        &Palette {
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
        Background::Light,
        &Palette {
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

fn colored(name: &'static str, background: Background, colors: &Palette) -> Theme {
    build(name, background, |role| match role {
        Role::Text | Role::Variable => fg(colors.text),
        Role::Dim | Role::Placeholder | Role::Border | Role::LineNumber => fg(colors.dim),
        Role::Comment | Role::Quote | Role::Reasoning => {
            fg(colors.dim).add_modifier(Modifier::ITALIC)
        }
        Role::Strong | Role::Tool => fg(colors.text).add_modifier(Modifier::BOLD),
        Role::Heading => fg(colors.accent).add_modifier(Modifier::BOLD),
        Role::Emphasis => fg(colors.text).add_modifier(Modifier::ITALIC),
        Role::Struck => fg(colors.dim).add_modifier(Modifier::CROSSED_OUT),
        Role::Accent | Role::User | Role::Key => fg(colors.accent),
        Role::Success | Role::Added | Role::String => fg(colors.green),
        Role::Warning | Role::Attribute => fg(colors.yellow),
        Role::Error | Role::Removed => fg(colors.red),
        Role::Info | Role::Function => fg(colors.blue),
        Role::Link => fg(colors.blue).add_modifier(Modifier::UNDERLINED),
        Role::Code | Role::Type => fg(colors.cyan),
        Role::Selected => fg(colors.text).bg(rgb(colors.raised)),
        Role::Match => fg(colors.magenta).add_modifier(Modifier::BOLD),
        Role::Chip | Role::Keyword => fg(colors.magenta),
        Role::Number => fg(colors.orange),
        Role::AddedWord => fg(colors.text).bg(rgb(colors.added_word)),
        Role::RemovedWord => fg(colors.text).bg(rgb(colors.removed_word)),
    })
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

pub(super) const EVERY: [Role; ROLES] = [
    Role::Text,
    Role::Dim,
    Role::Strong,
    Role::Emphasis,
    Role::Struck,
    Role::Accent,
    Role::User,
    Role::Reasoning,
    Role::Tool,
    Role::Success,
    Role::Warning,
    Role::Error,
    Role::Info,
    Role::Heading,
    Role::Link,
    Role::Code,
    Role::Quote,
    Role::Border,
    Role::Selected,
    Role::Match,
    Role::Placeholder,
    Role::Chip,
    Role::Key,
    Role::Added,
    Role::Removed,
    Role::AddedWord,
    Role::RemovedWord,
    Role::LineNumber,
    Role::Keyword,
    Role::Type,
    Role::Function,
    Role::String,
    Role::Number,
    Role::Comment,
    Role::Attribute,
    Role::Variable,
];
