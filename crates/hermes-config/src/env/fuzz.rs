//! Changes of any `.env`: what was written is read back, and nothing else changes.

use super::dotenv::{Precedence, decode, parse, split_glued};
use super::writer::{with, without};

/// The first line is a name, the second a value, the rest a `.env`.
pub fn dotenv(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (name, value, file) = (part(), part(), part());
    let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else {
        return;
    };
    let Some(text) = decode(file) else {
        return;
    };
    let apart = split_glued(&text);
    assert_eq!(split_glued(&apart), apart, "{text:?}");
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(word)
    {
        return;
    }
    let changed = with(&text, name, value);
    let left = without(&text, name);
    // Only a quote that is not closed makes a change impossible, or leaves lines that nobody can tell.
    let (_, is_whole) = read(&text);
    if is_whole {
        assert!(changed.is_some() && left.is_some(), "{text:?}");
    }
    if let Some((changed, _)) = &changed {
        let is_kept = |c: &char| c.is_ascii() && !matches!(c, '\n' | '\r' | '\0');
        let clean: String = value.chars().filter(is_kept).collect();
        // A reference means what other lines make of it.
        if !clean.contains("${") {
            let values = read(changed).0;
            let found = values.iter().rfind(|(key, _)| key == name);
            assert_eq!(found.map(|(_, value)| value), Some(&clean), "{changed:?}");
        }
        assert_others_stay(name, &text, changed);
        let again = with(changed, name, value).map(|(text, _)| text);
        assert_eq!(again.as_ref(), Some(changed), "set twice");
    }
    if let Some(left) = &left {
        let values = read(left).0;
        assert!(values.iter().all(|(key, _)| key != name), "{left:?}");
        assert_others_stay(name, &text, left);
    }
    if let (Some((changed, _)), Some(left), true) = (changed, left, is_whole) {
        // Removed again, what was set leaves nothing behind but the last line's end.
        let undone = without(&changed, name);
        let undone = undone.as_deref().map(str::trim_end);
        assert_eq!(undone, Some(left.trim_end()), "{text:?}");
    }
}

/// The assignments, and whether every line could be read.
fn read(text: &str) -> (Vec<(String, String)>, bool) {
    let parsed = parse(text, &|_| None, Precedence::File);
    (parsed.values, parsed.bad_lines.is_empty())
}

fn assert_others_stay(name: &str, before: &str, after: &str) {
    if before.contains("${") {
        return;
    }
    let others = |text: &str| -> Vec<(String, String)> {
        let values = read(text).0.into_iter();
        values.filter(|(key, _)| key != name).collect()
    };
    assert_eq!(others(after), others(before), "{before:?} became {after:?}");
}
