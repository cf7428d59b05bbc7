//! Renders rows as text for snapshot tests.

use std::fmt::Write as _;

use ratatui_core::style::{Color, Modifier, Style};

use super::CellContext;
use crate::row::{RowFlow, StyledRow};
use crate::theme::Theme;
use crate::width;

/// The three ways every cell is looked at.
pub(crate) fn themes() -> [Theme; 3] {
    ["light", "dark", "ascii"].map(|name| Theme::named(name).unwrap())
}

pub(crate) const WIDTHS: [u16; 3] = [40, 80, 120];

/// Everything at every width in every theme. The words of light and dark are the same, so they are
/// written once.
pub(crate) fn gallery(rows: impl Fn(u16, &CellContext<'_>) -> Vec<StyledRow>) -> String {
    let [light, dark, ascii] = themes();
    let mut out = String::new();
    for columns in WIDTHS {
        let bright = rows(columns, &CellContext::new(&light));
        let dim = rows(columns, &CellContext::new(&dark));
        assert_eq!(text(&bright), text(&dim), "themes change only colours");
        let _ = writeln!(out, "== {columns}\n{}", text(&dim));
        fits(&dim, columns);
        let plain = rows(columns, &CellContext::new(&ascii));
        fits(&plain, columns);
        let _ = writeln!(out, "== {columns} light\n{}", styles(&bright));
        let _ = writeln!(out, "== {columns} dark\n{}", styles(&dim));
        let _ = writeln!(out, "== {columns} ascii\n{}", text(&plain));
        let _ = writeln!(out, "{}", styles(&plain));
    }
    out.trim_end().to_owned()
}

/// No row is wider than its place, except where the terminal is to break it.
pub(crate) fn fits(rows: &[StyledRow], columns: u16) {
    for row in rows {
        let text = row.line.to_string();
        assert!(
            !text.contains(|ch: char| ch.is_control()),
            "control character in {text:?}"
        );
        if row.flow == RowFlow::Broken {
            let wide = width::line_width(&row.line);
            assert!(wide <= usize::from(columns), "{wide} > {columns}: {text:?}");
        }
    }
}

/// `|` begins a row, `:` one that the terminal may break.
pub(crate) fn text(rows: &[StyledRow]) -> String {
    let mut out = String::new();
    for row in rows {
        out.push(match row.flow {
            RowFlow::Broken => '|',
            RowFlow::Unbroken => ':',
        });
        out.push_str(&row.line.to_string());
        for link in &row.links {
            let _ = write!(out, "  <{}>", link.url);
        }
        out.push('\n');
    }
    out.trim_end().to_owned()
}

/// For each row the styles of its parts with their columns, and what the letters mean.
fn styles(rows: &[StyledRow]) -> String {
    let mut known: Vec<Style> = Vec::new();
    let mut out = String::new();
    for row in rows {
        let mut parts: Vec<(String, usize)> = Vec::new();
        for span in &row.line.spans {
            let style = row.line.style.patch(span.style);
            let name =
                if style == Style::new() || span.content.trim().is_empty() && style.bg.is_none() {
                    ".".to_owned()
                } else {
                    let index = known
                        .iter()
                        .position(|one| *one == style)
                        .unwrap_or_else(|| {
                            known.push(style);
                            known.len() - 1
                        });
                    char::from(b'a' + u8::try_from(index).unwrap()).to_string()
                };
            let wide = width::width(&span.content);
            match parts.last_mut() {
                Some((last, columns)) if *last == name => *columns += wide,
                _ => parts.push((name, wide)),
            }
        }
        let line: Vec<String> = parts
            .iter()
            .map(|(name, wide)| format!("{name}{wide}"))
            .collect();
        out.push_str(&line.join(" "));
        out.push('\n');
    }
    for (index, style) in known.iter().enumerate() {
        let letter = char::from(b'a' + u8::try_from(index).unwrap());
        let _ = writeln!(out, "{letter}: {}", named(*style));
    }
    out.trim_end().to_owned()
}

fn named(style: Style) -> String {
    let color = |color: Color| match color {
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        other => format!("{other:?}").to_lowercase(),
    };
    let mut parts = Vec::new();
    parts.extend(style.fg.map(color));
    parts.extend(style.bg.map(|back| format!("on {}", color(back))));
    for (modifier, name) in [
        (Modifier::BOLD, "bold"),
        (Modifier::DIM, "dim"),
        (Modifier::ITALIC, "italic"),
        (Modifier::UNDERLINED, "underlined"),
        (Modifier::REVERSED, "reversed"),
        (Modifier::CROSSED_OUT, "struck"),
    ] {
        if style.add_modifier.contains(modifier) {
            parts.push(name.to_owned());
        }
    }
    parts.join(" ")
}
