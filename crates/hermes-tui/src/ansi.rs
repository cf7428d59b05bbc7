//! Program output: colours are kept, all other terminal control sequences removed.
//!
//! A line that was overwritten (`\r`, as progress bars do) is shown in its final state.

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};

use crate::theme::{StyleRole, Theme};
use crate::width;

/// Limit for one text; earlier bytes are dropped.
const MAX_BYTES: usize = 1024 * 1024;
/// Limit for one line; the rest is dropped.
const MAX_LINE: usize = 16 * 1024;
/// Maximum number of parameters read from one sequence.
const MAX_PARAMETERS: usize = 32;

/// The lines of an output, in order.
pub(crate) fn lines(text: &str, theme: &Theme) -> Vec<Line<'static>> {
    let mut screen = AnsiParser::new(theme);
    screen.read(last_bytes(text, MAX_BYTES));
    screen.finish()
}

/// Without any colours.
pub(crate) fn plain(text: &str) -> String {
    let theme = Theme::default();
    let lines = lines(text, &theme);
    lines
        .iter()
        .map(Line::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The last `max` bytes or fewer, starting at the beginning of a line if possible.
fn last_bytes(text: &str, max: usize) -> &str {
    let rest = hermes_core::text::last_bytes(text, max);
    match rest.find('\n') {
        Some(at) if rest.len() < text.len() => &rest[at + 1..],
        _ => rest,
    }
}

struct AnsiParser<'a> {
    theme: &'a Theme,
    lines: Vec<Line<'static>>,
    /// The current line, and its length since the last `\r`.
    spans: Vec<(String, Style)>,
    length: usize,
    carriage_returned: bool,
    style: Style,
    base: Style,
}

/// Parser state within an escape sequence.
enum SequenceState {
    Text,
    Escape,
    /// `ESC [`, with the part read so far.
    Control(String),
    /// Skipped until BEL or ST: titles, links, images.
    Skipped {
        escape: bool,
    },
}

impl<'a> AnsiParser<'a> {
    fn new(theme: &'a Theme) -> Self {
        let base = theme.style(StyleRole::Dim);
        Self {
            theme,
            lines: Vec::new(),
            spans: Vec::new(),
            length: 0,
            carriage_returned: false,
            style: base,
            base,
        }
    }

    fn read(&mut self, text: &str) {
        let mut state = SequenceState::Text;
        for ch in text.chars() {
            state = match state {
                SequenceState::Text => self.text(ch),
                SequenceState::Escape => match ch {
                    '[' => SequenceState::Control(String::new()),
                    ']' | 'P' | 'X' | '^' | '_' => SequenceState::Skipped { escape: false },
                    // Intermediate bytes: one more character belongs to the sequence.
                    ' '..='/' | '\u{1b}' => SequenceState::Escape,
                    // A line break is never part of a sequence.
                    '\n' => self.text(ch),
                    _ => SequenceState::Text,
                },
                SequenceState::Control(read) => self.control(read, ch),
                SequenceState::Skipped { escape } => match ch {
                    '\u{7}' | '\u{9c}' => SequenceState::Text,
                    '\\' if escape => SequenceState::Text,
                    // An unterminated sequence must not swallow the rest.
                    '\n' => self.text(ch),
                    _ => SequenceState::Skipped {
                        escape: ch == '\u{1b}',
                    },
                },
            };
        }
    }

    fn text(&mut self, ch: char) -> SequenceState {
        match ch {
            '\u{1b}' => return SequenceState::Escape,
            '\u{9b}' => return SequenceState::Control(String::new()),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => {
                return SequenceState::Skipped { escape: false };
            }
            '\n' => self.end_line(),
            '\r' => self.carriage_returned = true,
            '\u{8}' => self.back(),
            '\t' => self.push('\t'),
            ch if ch.is_control() => {}
            ch => self.push(ch),
        }
        SequenceState::Text
    }

    fn control(&mut self, mut read: String, ch: char) -> SequenceState {
        match ch {
            '\u{40}'..='\u{7e}' => {
                if ch == 'm' {
                    self.apply_sgr(&read);
                }
                SequenceState::Text
            }
            '\u{20}'..='\u{3f}' => {
                if read.len() < 8 * MAX_PARAMETERS {
                    read.push(ch);
                }
                SequenceState::Control(read)
            }
            '\u{1b}' => SequenceState::Escape,
            '\n' | '\r' => self.text(ch),
            _ => SequenceState::Text,
        }
    }

    fn push(&mut self, ch: char) {
        if std::mem::take(&mut self.carriage_returned) {
            self.spans.clear();
            self.length = 0;
        }
        if self.length >= MAX_LINE {
            return;
        }
        self.length += ch.len_utf8();
        match self.spans.last_mut() {
            Some((text, style)) if *style == self.style => text.push(ch),
            _ => self.spans.push((ch.to_string(), self.style)),
        }
    }

    fn back(&mut self) {
        while let Some((text, _)) = self.spans.last_mut() {
            if text.pop().is_some() {
                return;
            }
            self.spans.pop();
        }
    }

    fn end_line(&mut self) {
        self.carriage_returned = false;
        self.length = 0;
        let mut spans: Vec<Span<'static>> = Vec::new();
        let mut column = 0;
        for (text, style) in std::mem::take(&mut self.spans) {
            let text = width::harmless(&text);
            let text = width::expand_tabs(&text, column).into_owned();
            column += width::width(&text);
            if !text.is_empty() {
                spans.push(Span::styled(text, style));
            }
        }
        self.lines.push(Line::from(spans));
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        if !self.spans.is_empty() {
            self.end_line();
        }
        self.lines
    }

    /// `ESC [ … m`.
    fn apply_sgr(&mut self, parameters: &str) {
        if parameters.starts_with(['<', '=', '>', '?']) {
            return;
        }
        let mut values = parameters
            .split(';')
            .take(MAX_PARAMETERS)
            .map(|part| part.split(':').map(number).collect::<Vec<_>>());
        while let Some(part) = values.next() {
            let first = part.first().copied().unwrap_or(0);
            match first {
                38 | 48 | 58 => {
                    let color = if part.len() > 1 {
                        colon_color(&part[1..])
                    } else {
                        semicolon_color(&mut values)
                    };
                    match (first, color) {
                        (38, Some(color)) => self.style = self.style.fg(color),
                        (48, Some(color)) => self.style = self.style.bg(color),
                        _ => {}
                    }
                }
                4 if part.get(1) == Some(&0) => self.without(Modifier::UNDERLINED),
                other => self.simple_sgr(other),
            }
        }
        // Text that the program coloured itself is not dimmed in addition.
        if (self.style.fg, self.style.bg) != (self.base.fg, self.base.bg) {
            self.style
                .add_modifier
                .remove(self.base.add_modifier & Modifier::DIM);
        }
        if !self.theme.keeps_color() {
            self.style.fg = self.base.fg;
            self.style.bg = None;
        }
    }

    fn simple_sgr(&mut self, value: u16) {
        match value {
            0 => self.style = self.base,
            1 => self.style = self.style.add_modifier(Modifier::BOLD),
            2 => self.style = self.style.add_modifier(Modifier::DIM),
            3 => self.style = self.style.add_modifier(Modifier::ITALIC),
            4 | 21 => self.style = self.style.add_modifier(Modifier::UNDERLINED),
            7 => self.style = self.style.add_modifier(Modifier::REVERSED),
            9 => self.style = self.style.add_modifier(Modifier::CROSSED_OUT),
            22 => self.without(Modifier::BOLD | Modifier::DIM),
            23 => self.without(Modifier::ITALIC),
            24 => self.without(Modifier::UNDERLINED),
            27 => self.without(Modifier::REVERSED),
            29 => self.without(Modifier::CROSSED_OUT),
            30..=37 => self.style = self.style.fg(indexed(value - 30)),
            39 => self.style.fg = self.base.fg,
            40..=47 => self.style = self.style.bg(indexed(value - 40)),
            49 => self.style.bg = None,
            90..=97 => self.style = self.style.fg(indexed(value - 90 + 8)),
            100..=107 => self.style = self.style.bg(indexed(value - 100 + 8)),
            // Blinking and hidden text are ignored.
            _ => {}
        }
    }

    fn without(&mut self, modifier: Modifier) {
        self.style.add_modifier.remove(modifier);
    }
}

fn number(text: &str) -> u16 {
    text.parse().unwrap_or(0)
}

/// `38;5;n` and `38;2;r;g;b`.
fn semicolon_color(values: &mut impl Iterator<Item = Vec<u16>>) -> Option<Color> {
    let mut next = || values.next()?.first().copied();
    match next()? {
        5 => Some(indexed(next()?)),
        2 => Some(rgb(next()?, next()?, next()?)),
        _ => None,
    }
}

/// `38:5:n`, `38:2:r:g:b` and `38:2::r:g:b`.
fn colon_color(values: &[u16]) -> Option<Color> {
    match values {
        [5, index, ..] => Some(indexed(*index)),
        [2, r, g, b] | [2, _, r, g, b, ..] => Some(rgb(*r, *g, *b)),
        _ => None,
    }
}

fn rgb(r: u16, g: u16, b: u16) -> Color {
    let part = |value: u16| u8::try_from(value).unwrap_or(u8::MAX);
    Color::Rgb(part(r), part(g), part(b))
}

fn indexed(index: u16) -> Color {
    match index {
        0 => Color::Black,
        1 => Color::Red,
        2 => Color::Green,
        3 => Color::Yellow,
        4 => Color::Blue,
        5 => Color::Magenta,
        6 => Color::Cyan,
        7 => Color::Gray,
        8 => Color::DarkGray,
        9 => Color::LightRed,
        10 => Color::LightGreen,
        11 => Color::LightYellow,
        12 => Color::LightBlue,
        13 => Color::LightMagenta,
        14 => Color::LightCyan,
        15 => Color::White,
        other => Color::Indexed(u8::try_from(other).unwrap_or(u8::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spans(text: &str) -> Vec<(String, Style)> {
        let theme = Theme::named("dark").unwrap();
        lines(text, &theme)
            .into_iter()
            .flat_map(|line| line.spans)
            .map(|span| (span.content.into_owned(), span.style))
            .collect()
    }

    #[test]
    fn what_is_left_is_what_a_person_would_have_seen() {
        for (text, shown) in [
            ("one\r\ntwo\n", "one\ntwo"),
            ("10%\r50%\r100%\ndone", "100%\ndone"),
            ("10%\r\u{1b}[K50%\u{1b}[K\r", "50%"),
            ("ab\u{8}c", "ac"),
            ("a\tb", "a       b"),
            (
                "\u{1b}]0;title\u{7}x\u{1b}]8;;http://e\u{1b}\\link\u{1b}]8;;\u{1b}\\",
                "xlink",
            ),
            ("\u{1b}[2J\u{1b}[1;1Hhome\u{1b}[?25l\u{1b}(B!", "home!"),
            ("\u{9b}31mred\u{9d}title\u{9c}.", "red."),
            ("\u{1b}Pq#0;2;0;0;0\u{1b}\\after", "after"),
            ("\u{1b}]never ended\nnext", "\nnext"),
            ("\u{1b}[31", ""),
            ("null\0bell\u{7}", "nullbell"),
            ("a\u{202e}b\u{200b}c", "a\u{fffd}bc"),
            ("\n\nx", "\n\nx"),
        ] {
            assert_eq!(plain(text), shown, "{text:?}");
        }
    }

    #[test]
    fn colours_stay() {
        let theme = Theme::named("dark").unwrap();
        let base = theme.style(StyleRole::Dim);
        for (sequence, style) in [
            ("31", base.fg(Color::Red)),
            (
                "1;92",
                base.fg(Color::LightGreen).add_modifier(Modifier::BOLD),
            ),
            ("38;5;208", base.fg(Color::Indexed(208))),
            ("38;5;3", base.fg(Color::Yellow)),
            ("38;2;1;2;3", base.fg(Color::Rgb(1, 2, 3))),
            ("38:2::1:2:3", base.fg(Color::Rgb(1, 2, 3))),
            (
                "38:5:9;4",
                base.fg(Color::LightRed).add_modifier(Modifier::UNDERLINED),
            ),
            (
                "48;2;300;0;0;3",
                base.bg(Color::Rgb(255, 0, 0))
                    .add_modifier(Modifier::ITALIC),
            ),
            ("31;0", base),
            ("", base),
            ("31;39;1;22", base),
            ("8;5", base),
            ("38;9;1", base.add_modifier(Modifier::BOLD)),
        ] {
            let got = spans(&format!("\u{1b}[{sequence}mx"));
            assert_eq!(got, [("x".to_owned(), style)], "{sequence}");
        }
    }

    #[test]
    fn without_colours_only_ornaments_stay() {
        let theme = Theme::default().without_color();
        let line = lines("\u{1b}[1;31;42mx", &theme).remove(0);
        let style = line.spans[0].style;
        assert_eq!((style.fg, style.bg), (None, None));
        assert!(style.add_modifier.contains(Modifier::BOLD));
    }

    #[test]
    fn a_flood_is_bounded() {
        let line = "x".repeat(MAX_LINE * 3);
        assert_eq!(plain(&line).len(), MAX_LINE);
        let flood = "0123456789\n".repeat(MAX_BYTES / 11 + 10);
        let kept = plain(&flood);
        assert!(kept.len() <= MAX_BYTES);
        assert!(kept.ends_with("0123456789") && kept.starts_with("0123456789"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn random_bytes_leave_nothing_that_drives_a_terminal(
            bytes in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(0x1b), Just(b'['), Just(b']'), Just(b'm'), Just(b';'), Just(b'\r'), Just(0x9b)],
                0..400,
            ),
        ) {
            let text = String::from_utf8_lossy(&bytes);
            for line in lines(&text, &Theme::default()) {
                for ch in line.to_string().chars() {
                    prop_assert!(!ch.is_control(), "{ch:?} of {text:?}");
                }
            }
        }
    }
}
