//! Encodes styled text as bytes. Control characters in spans never reach the terminal.

use std::io::Write as _;

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::Line;

use super::colour::{TerminalCapabilities, nearest_color};
use crate::row::RowLink;
use crate::width::{graphemes, is_harmful, loose_width};

/// Begin and end of a synchronized update.
pub(super) const SYNC_ON: &str = "\x1b[?2026h";
pub(super) const SYNC_OFF: &str = "\x1b[?2026l";
pub(super) const HIDE_CURSOR: &str = "\x1b[?25l";
pub(super) const SHOW_CURSOR: &str = "\x1b[?25h";
pub(super) const WRAP_ON: &str = "\x1b[?7h";
pub(super) const WRAP_OFF: &str = "\x1b[?7l";
pub(super) const ERASE_LINE: &str = "\x1b[K";
pub(super) const ERASE_BELOW: &str = "\x1b[J";

/// Output being built for the terminal.
#[derive(Debug, Default)]
pub(super) struct Paint {
    pub(super) bytes: Vec<u8>,
    style: Style,
}

impl Paint {
    pub(super) fn raw(&mut self, sequence: &str) {
        self.bytes.extend_from_slice(sequence.as_bytes());
    }

    fn csi(&mut self, count: usize, letter: char) {
        if count > 0 {
            // Writing to a Vec cannot fail.
            let _ = write!(self.bytes, "\x1b[{count}{letter}");
        }
    }

    pub(super) fn up(&mut self, rows: usize) {
        self.csi(rows, 'A');
    }

    pub(super) fn down(&mut self, rows: usize) {
        self.csi(rows, 'B');
    }

    /// Moves to a column, from 0.
    pub(super) fn column(&mut self, column: usize) {
        self.raw("\r");
        self.csi(column, 'C');
    }

    pub(super) fn row(&mut self, row: usize) {
        let _ = write!(self.bytes, "\x1b[{};1H", row + 1);
    }

    /// The line, cut to `columns`. With `None` the terminal wraps it.
    pub(super) fn line(
        &mut self,
        line: &Line<'_>,
        links: &[RowLink],
        columns: Option<usize>,
        look: TerminalCapabilities,
    ) {
        let mut at = LineColumn {
            used: 0,
            columns,
            byte: 0,
            links: if look.links { links } else { &[] },
            open: None,
        };
        for span in &line.spans {
            self.style(line.style.patch(span.style), look);
            if at.takes_whole(&span.content) {
                self.raw(&span.content);
                continue;
            }
            for (grapheme, wide) in graphemes(&span.content) {
                if !self.grapheme(grapheme, wide, &mut at) {
                    self.link(None, &mut at);
                    self.style(Style::default(), look);
                    return;
                }
            }
        }
        self.link(None, &mut at);
        self.style(Style::default(), look);
    }

    /// Returns whether there was space.
    fn grapheme(&mut self, grapheme: &str, wide: usize, at: &mut LineColumn<'_>) -> bool {
        let (shown, wide) = stand_in(grapheme, wide, at);
        if at.columns.is_some_and(|columns| at.used + wide > columns) {
            return false;
        }
        let link = at
            .links
            .iter()
            .position(|link| link.range.contains(&at.byte));
        self.link(link, at);
        at.byte += grapheme.len();
        at.used += wide;
        self.raw(shown);
        // If terminals disagree about the width, the next column is set explicitly.
        let disputed = loose_width(shown) != wide || shown.len() != grapheme.len();
        if at.columns.is_some() && disputed {
            let _ = write!(self.bytes, "\x1b[{}G", at.used + 1);
        }
        true
    }

    fn link(&mut self, index: Option<usize>, at: &mut LineColumn<'_>) {
        if at.open == index {
            return;
        }
        if at.open.is_some() {
            self.raw("\x1b]8;;\x1b\\");
        }
        if let Some(link) = index.and_then(|index| at.links.get(index)) {
            let url: String = link.url.chars().filter(char::is_ascii_graphic).collect();
            let _ = write!(self.bytes, "\x1b]8;;{url}\x1b\\");
        }
        at.open = index;
    }

    fn style(&mut self, style: Style, look: TerminalCapabilities) {
        let only = Style {
            fg: style
                .fg
                .and_then(|colour| nearest_color(colour, look.depth)),
            bg: style
                .bg
                .and_then(|colour| nearest_color(colour, look.depth)),
            add_modifier: style.add_modifier.difference(style.sub_modifier),
            ..Style::default()
        };
        if only == self.style {
            return;
        }
        self.style = only;
        self.raw("\x1b[0");
        for (modifier, code) in [
            (Modifier::BOLD, ";1"),
            (Modifier::DIM, ";2"),
            (Modifier::ITALIC, ";3"),
            (Modifier::UNDERLINED, ";4"),
            (Modifier::REVERSED, ";7"),
            (Modifier::HIDDEN, ";8"),
            (Modifier::CROSSED_OUT, ";9"),
        ] {
            if only.add_modifier.contains(modifier) {
                self.raw(code);
            }
        }
        for (colour, base) in [(only.fg, 30), (only.bg, 40)] {
            if let Some(colour) = colour {
                self.colour(colour, base);
            }
        }
        self.raw("m");
    }

    fn colour(&mut self, colour: Color, base: u8) {
        let bytes = &mut self.bytes;
        let _ = match number(colour) {
            Some(index @ 0..8) => write!(bytes, ";{}", base + index),
            Some(index @ 8..16) => write!(bytes, ";{}", base + 60 + index - 8),
            Some(index) => write!(bytes, ";{};5;{index}", base + 8),
            None => match colour {
                Color::Rgb(r, g, b) => write!(bytes, ";{};2;{r};{g};{b}", base + 8),
                _ => Ok(()),
            },
        };
    }
}

/// The painter's position in a line.
struct LineColumn<'a> {
    used: usize,
    columns: Option<usize>,
    byte: usize,
    links: &'a [RowLink],
    open: Option<usize>,
}

impl LineColumn<'_> {
    /// Whether a text needs no per-grapheme handling, as most do not; then it counts as written.
    fn takes_whole(&mut self, text: &str) -> bool {
        let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let used = self.used + text.len();
        let whole =
            plain && self.links.is_empty() && self.columns.is_none_or(|columns| used <= columns);
        if whole {
            self.used = used;
        }
        whole
    }
}

/// Symbols for control characters.
const PICTURES: [&str; 32] = [
    "␀", "␁", "␂", "␃", "␄", "␅", "␆", "␇", "␈", "␉", "␊", "␋", "␌", "␍", "␎", "␏", "␐", "␑", "␒",
    "␓", "␔", "␕", "␖", "␗", "␘", "␙", "␚", "␛", "␜", "␝", "␞", "␟",
];

/// What is written for a grapheme: itself, unless it controls the terminal or may cross the edge.
fn stand_in<'a>(grapheme: &'a str, wide: usize, at: &LineColumn<'_>) -> (&'a str, usize) {
    let mut chars = grapheme.chars();
    let Some(first) = chars.next() else {
        return ("", 0);
    };
    if first.is_control() {
        return match first {
            '\t' | '\n' => (" ", 1),
            '\r' => ("", 0),
            '\u{7f}' => ("␡", 1),
            _ => (
                PICTURES.get(first as usize).copied().unwrap_or("\u{fffd}"),
                1,
            ),
        };
    }
    if is_harmful(first) {
        return ("", 0);
    }
    let past = at
        .columns
        .is_some_and(|columns| at.used + loose_width(grapheme) > columns);
    if past && loose_width(grapheme) > wide {
        // A terminal that draws its parts separately would break the line.
        let base = &grapheme[..first.len_utf8()];
        // Terminals disagree about the width of half a flag.
        let shown = if loose_width(base) > wide {
            "\u{fffd}"
        } else {
            base
        };
        return (shown, wide);
    }
    (grapheme, wide)
}

fn number(colour: Color) -> Option<u8> {
    Some(match colour {
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 8,
        Color::LightRed => 9,
        Color::LightGreen => 10,
        Color::LightYellow => 11,
        Color::LightBlue => 12,
        Color::LightMagenta => 13,
        Color::LightCyan => 14,
        Color::White => 15,
        Color::Indexed(index) => index,
        Color::Rgb(..) | Color::Reset => return None,
    })
}
