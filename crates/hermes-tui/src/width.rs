//! Text width: measuring, cutting and wrapping, and making unusual characters visible.

mod safe;
mod wrap;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui_core::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use safe::harmless;
pub(crate) use safe::{is_harmful, visible};
pub use wrap::{Indent, wrap_row};
pub(crate) use wrap::{wrap_line, wrap_text};

/// Whether characters of ambiguous width take two columns (`tui.wide_ambiguous`). Global, because a
/// process has one terminal.
static WIDE_AMBIGUOUS: AtomicBool = AtomicBool::new(false);

pub fn set_wide_ambiguous(wide: bool) {
    WIDE_AMBIGUOUS.store(wide, Ordering::Relaxed);
}

/// Columns of a text on one line.
pub fn width(text: &str) -> usize {
    if text.is_ascii() {
        return text.bytes().filter(|byte| !byte.is_ascii_control()).count();
    }
    text.graphemes(true).map(grapheme_width).sum()
}

/// Columns of one grapheme, never more than two.
pub fn grapheme_width(grapheme: &str) -> usize {
    if let [byte] = grapheme.as_bytes() {
        return usize::from(!byte.is_ascii_control());
    }
    let wide = if WIDE_AMBIGUOUS.load(Ordering::Relaxed) {
        grapheme.width_cjk()
    } else {
        grapheme.width()
    };
    // A control character measures one there and prints nothing.
    if grapheme.chars().all(char::is_control) {
        0
    } else {
        wide.min(2)
    }
}

/// Columns used by a terminal that handles characters but not graphemes.
pub(crate) fn loose_width(grapheme: &str) -> usize {
    let each = |ch: char| match ch {
        // Some draw a single flag letter wide.
        '\u{1f1e6}'..='\u{1f1ff}' => 2,
        ch => ch.width().unwrap_or(0),
    };
    let sum: usize = grapheme.chars().map(each).sum();
    // The emoji form of a narrow symbol.
    sum.max(grapheme_width(grapheme)) + usize::from(grapheme.contains('\u{fe0f}'))
}

pub fn line_width(line: &Line<'_>) -> usize {
    line.spans.iter().map(|span| width(&span.content)).sum()
}

/// The graphemes of a text with their columns.
pub fn graphemes(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.graphemes(true)
        .map(|grapheme| (grapheme, grapheme_width(grapheme)))
}

/// The longest prefix that fits `max` columns, in bytes.
pub fn fitting(text: &str, max: usize) -> usize {
    let mut columns = 0;
    let mut bytes = 0;
    for (grapheme, wide) in graphemes(text) {
        columns += wide;
        if columns > max {
            break;
        }
        bytes += grapheme.len();
    }
    bytes
}

/// At most `max` columns; a cut text ends with `…`.
pub fn truncate(text: &str, max: usize) -> Cow<'_, str> {
    truncate_with(text, max, "…")
}

/// At most `max` columns; a cut text ends with `mark` (`...` if symbols are not supported).
pub fn truncate_with<'a>(text: &'a str, max: usize, mark: &str) -> Cow<'a, str> {
    if width(text) <= max {
        return text.into();
    }
    let mark_width = width(mark);
    if mark_width > max {
        return text[..fitting(text, max)].into();
    }
    let fitting_text = text[..fitting(text, max - mark_width)].trim_end();
    format!("{fitting_text}{mark}").into()
}

/// At most `max` columns, keeping the end: for paths.
pub fn truncate_start(text: &str, max: usize) -> Cow<'_, str> {
    let all = width(text);
    if all <= max {
        return text.into();
    }
    if max == 0 {
        return "".into();
    }
    let mut excess = all + 1 - max;
    let mut start = 0;
    for (grapheme, wide) in graphemes(text) {
        if excess == 0 {
            break;
        }
        excess = excess.saturating_sub(wide);
        start += grapheme.len();
    }
    format!("…{}", &text[start..]).into()
}

/// A line of at most `max` columns; a cut line ends with `mark` in the style of its last span.
pub fn truncate_line(line: &Line<'static>, max: usize, mark: &str) -> Line<'static> {
    if line_width(line) <= max {
        return line.clone();
    }
    let mark = if width(mark) > max { "" } else { mark };
    let mut available = max - width(mark);
    let mut spans: Vec<Span<'static>> = Vec::new();
    for span in &line.spans {
        let bytes = fitting(&span.content, available);
        let fitting_text = &span.content[..bytes];
        available -= width(fitting_text);
        if bytes > 0 {
            spans.push(Span::styled(fitting_text.to_owned(), span.style));
        }
        if bytes < span.content.len() {
            spans.push(Span::styled(mark.to_owned(), span.style));
            break;
        }
    }
    Line {
        spans,
        style: line.style,
        alignment: line.alignment,
    }
}

/// `text` padded to `columns`; longer text is cut.
pub fn pad(text: &str, columns: usize) -> String {
    let text = truncate(text, columns);
    let blanks = columns - width(&text);
    format!("{text}{:blanks$}", "")
}

/// Tabs as spaces up to the next multiple of eight; a line begins at column `start`.
pub fn expand_tabs(text: &str, start: usize) -> Cow<'_, str> {
    if !text.contains('\t') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut column = start;
    for (grapheme, wide) in graphemes(text) {
        match grapheme {
            "\t" => {
                let blanks = 8 - column % 8;
                out.extend(std::iter::repeat_n(' ', blanks));
                column += blanks;
            }
            "\n" | "\r\n" => {
                out.push_str(grapheme);
                column = 0;
            }
            _ => {
                out.push_str(grapheme);
                column += wide;
            }
        }
    }
    out.into()
}

/// Rows that a line takes when a terminal of `columns` wraps it.
pub fn soft_height(line: &Line<'_>, columns: usize) -> usize {
    let columns = columns.max(1);
    let (mut rows, mut column) = (1, 0);
    for span in &line.spans {
        for (_, wide) in graphemes(&span.content) {
            if wide > 0 && column + wide > columns {
                rows += 1;
                column = 0;
            }
            column += wide;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_what_is_seen() {
        for (text, columns) in [
            ("abc", 3),
            ("", 0),
            ("👩‍👩‍👧‍👦", 2),
            ("🇯🇵", 2),
            ("❤️", 2),
            ("e\u{301}", 1),
            ("é", 1),
            ("﷽", 1),
            ("한국어", 6),
            ("한국어", 6),
            ("日本語", 6),
            ("👍🏽", 2),
            ("a\u{200b}b", 2),
            ("\u{1b}\t\u{7}", 0),
            ("\u{85}x", 1),
        ] {
            assert_eq!(width(text), columns, "{text:?}");
        }
    }

    #[test]
    fn cutting_never_splits_what_is_one() {
        assert_eq!(truncate("abcdef", 6), "abcdef");
        assert_eq!(truncate("abcdef", 4), "abc…");
        assert_eq!(truncate("abc def", 5), "abc…");
        assert_eq!(truncate("日本語", 4), "日…");
        assert_eq!(truncate("👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 3), "👩‍👩‍👧‍👦…");
        assert_eq!(truncate("日本語", 0), "");
        assert_eq!(truncate_with("abcdef", 2, "..."), "ab");
        assert_eq!(truncate_start("/home/ana/project", 8), "…project");
        assert_eq!(truncate_start("日本語", 4), "…語");
        assert_eq!(truncate_start("abc", 0), "");
        assert_eq!(pad("日", 4), "日  ");
        assert_eq!(pad("日本語", 4), "日… ");
    }

    #[test]
    fn a_line_is_cut_with_its_styles() {
        use ratatui_core::style::Stylize;
        let line = Line::from(vec!["one ".red(), "two".blue()]);
        let cut = truncate_line(&line, 6, "…");
        assert_eq!(cut, Line::from(vec!["one ".red(), "t".blue(), "…".blue()]));
        assert_eq!(truncate_line(&line, 7, "…"), line);
        assert_eq!(line_width(&truncate_line(&line, 0, "…")), 0);
    }

    #[test]
    fn tabs_stop_every_eight_columns() {
        assert_eq!(expand_tabs("a\tb", 0), "a       b");
        assert_eq!(expand_tabs("a\tb", 6), "a b");
        assert_eq!(expand_tabs("日\tb\n\tc", 0), "日      b\n        c");
    }

    #[test]
    fn a_terminal_breaks_before_a_wide_character() {
        let line = |text: &'static str| Line::from(text);
        assert_eq!(soft_height(&line(""), 4), 1);
        assert_eq!(soft_height(&line("abcd"), 4), 1);
        assert_eq!(soft_height(&line("abcde"), 4), 2);
        assert_eq!(soft_height(&line("abc日"), 4), 2);
        assert_eq!(soft_height(&line("abc"), 0), 3);
    }
}
