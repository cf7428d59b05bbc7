//! Formats texts for users and terminals.

use std::borrow::Cow;
use std::fmt::Write as _;

use chrono::{Local, TimeZone as _};

/// The output of `hermes --version`.
pub fn version_line() -> String {
    format!("hermes {}", env!("CARGO_PKG_VERSION"))
}

/// A moment of the log, in local time.
pub fn date(seconds: f64) -> String {
    Local.timestamp_opt(seconds as i64, 0).single().map_or_else(
        || "-".to_owned(),
        |time| time.format("%Y-%m-%d %H:%M").to_string(),
    )
}

/// The first line of `text`, at most `max` characters.
pub fn shorten(text: &str, max: usize) -> String {
    let first = text.lines().next().unwrap_or_default();
    let mut short: String = first.chars().take(max).collect();
    if short.len() < text.trim_end().len() {
        short.push('…');
    }
    harmless(&short).into_owned()
}

/// Characters that change the display order of the following text.
pub fn reorders(ch: char) -> bool {
    matches!(ch,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text of a model, a tool or a provider as a terminal may show it: a sequence that would move
/// the cursor, rename the window or fill the clipboard, or a mark that would turn the line around, is
/// seen and does nothing.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let drives = |ch: char| (ch.is_control() && !matches!(ch, '\n' | '\t')) || reorders(ch);
    if !text.contains(drives) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for ch in text.chars() {
        match ch {
            '\r' => {}
            '\u{7f}' => out.push('␡'),
            // The pictures of control characters: ␛ for escape.
            '\0'..='\u{1f}' if drives(ch) => {
                out.extend(char::from_u32(0x2400 + u32::from(ch)));
            }
            ch if reorders(ch) => {
                let _ = write!(out, "<U+{:04X}>", u32::from(ch));
            }
            ch if drives(ch) => out.push(char::REPLACEMENT_CHARACTER),
            ch => out.push(ch),
        }
    }
    out.into()
}
