//! Sanitizing untrusted text for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

use unicode_segmentation::UnicodeSegmentation;

/// Further combining marks on one letter are dropped: a stack of them covers other rows.
const MAX_MARKS: usize = 8;

/// Bidirectional controls: text would read differently than it is.
fn turns(ch: char) -> bool {
    matches!(ch,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Invisible characters without meaning for a person.
fn unseen(ch: char) -> bool {
    matches!(ch,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}' | '\u{2028}' | '\u{2029}'
        | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a character must not reach a terminal unchanged.
pub(crate) fn is_harmful(ch: char) -> bool {
    ch.is_control() || turns(ch) || unseen(ch)
}

/// Whether an invisible character is needed within `grapheme`: joiners of emoji and of scripts.
fn belongs(ch: char, grapheme: &str) -> bool {
    let Some(first) = grapheme.chars().next().filter(|first| *first != ch) else {
        return false;
    };
    match ch {
        '\u{200c}' | '\u{200d}' => !first.is_ascii(),
        '\u{fe00}'..='\u{fe0f}' => !unseen(first) && !first.is_control(),
        // The flags of England, Scotland and Wales.
        '\u{e0020}'..='\u{e007f}' => first == '\u{1f3f4}',
        _ => false,
    }
}

/// Sanitizes text of a model, a tool or a provider: sequences that would move the cursor, rename
/// the window or fill the clipboard become visible and have no effect, bidirectional controls are
/// marked, invisible characters are removed. Line breaks and tabs stay, `\r` does not.
pub fn harmless(text: &str) -> Cow<'_, str> {
    made(text, |ch, out| match ch {
        '\r' => {}
        '\u{7f}' => out.push('␡'),
        // The Unicode pictures of control characters: ␛ for escape.
        '\0'..='\u{1f}' => out.extend(char::from_u32(0x2400 + u32::from(ch))),
        ch if unseen(ch) => {}
        _ => out.push(char::REPLACEMENT_CHARACTER),
    })
}

/// Sanitizes text that a person decides about: nothing is removed, invisible characters are named,
/// as in `<U+200B>`. Line breaks and tabs stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    made(text, |ch, out| {
        // Writing to a String cannot fail.
        let _ = write!(out, "<U+{:04X}>", u32::from(ch));
    })
}

fn made(text: &str, replace: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let harmful = |ch: char| is_harmful(ch) && !matches!(ch, '\n' | '\t');
    if text.is_ascii() && !text.contains(harmful) {
        return text.into();
    }
    let tower = |grapheme: &str| grapheme.len() > MAX_MARKS;
    if !text.contains(harmful) && !text.graphemes(true).any(tower) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for grapheme in text.graphemes(true) {
        for (index, ch) in grapheme.chars().enumerate() {
            if harmful(ch) && !belongs(ch, grapheme) {
                replace(ch, &mut out);
            } else if index <= 2 * MAX_MARKS {
                out.push(ch);
            }
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drives_a_terminal_is_shown_and_does_nothing() {
        for (text, shown) in [
            ("plain\n\ttext 日本 👍🏽\r\n", "plain\n\ttext 日本 👍🏽\n"),
            ("\u{1b}]0;title\u{7}", "␛]0;title␇"),
            ("a\u{9b}2Jb\u{7f}", "a\u{fffd}2Jb␡"),
            ("rm \u{202e}gpj.exe", "rm \u{fffd}gpj.exe"),
            ("a\u{200b}b\u{feff}", "ab"),
            ("👩‍👩‍👧‍👦 🇯🇵 ❤️ é ﷽ 한국어", "👩‍👩‍👧‍👦 🇯🇵 ❤️ é ﷽ 한국어"),
            ("a\u{200d}b", "ab"),
            ("\u{fe0f}x", "x"),
            ("hi\u{e0041}\u{e0042}", "hi"),
            ("🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"),
        ] {
            assert_eq!(harmless(text), shown, "{text:?}");
        }
        assert!(matches!(harmless("nothing to do"), Cow::Borrowed(_)));
        assert!(matches!(harmless("日本語"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_decided_about_hides_nothing() {
        for (text, shown) in [
            ("rm -rf \u{202e}x", "rm -rf <U+202E>x"),
            ("a\u{200b}b\rc", "a<U+200B>b<U+000D>c"),
            ("\u{1b}[2K", "<U+001B>[2K"),
            ("ok\n\ttwo ❤️", "ok\n\ttwo ❤️"),
        ] {
            assert_eq!(visible(text), shown, "{text:?}");
        }
    }

    #[test]
    fn a_tower_of_marks_is_cut() {
        let tower = format!("e{}x", "\u{301}".repeat(500));
        assert!(harmless(&tower).chars().count() < 20);
        assert!(harmless(&tower).ends_with('x'));
    }
}
