//! Cutting texts between characters, and escaping them for markup.

/// The first `max` characters.
pub fn first_chars(text: &str, max: usize) -> &str {
    match text.char_indices().nth(max) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// The last bytes, at most `max`, from the beginning of a character on.
pub fn last_bytes(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

/// The first `max` characters, with `…` added if something was cut.
pub fn shorten(text: &str, max: usize) -> String {
    let short = first_chars(text, max);
    if short.len() < text.len() {
        format!("{short}…")
    } else {
        text.to_owned()
    }
}

/// At most `max` characters, of which the last is `…` if something was cut.
pub fn shorten_within(text: &str, max: usize) -> String {
    if first_chars(text, max).len() == text.len() {
        text.to_owned()
    } else {
        format!("{}…", first_chars(text, max.saturating_sub(1)))
    }
}

/// Escapes text for the content and double-quoted attributes of HTML and XML.
pub fn escape_xml(text: &str) -> String {
    escape_angles(text).replace('"', "&quot;")
}

/// Escapes `&`, `<` and `>` only.
pub fn escape_angles(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(first_chars("äöü", 2), "äö");
        assert_eq!(first_chars("äöü", 3), "äöü");
        assert_eq!(last_bytes("äöü", 3), "ü");
        assert_eq!(last_bytes("äöü", 9), "äöü");
        assert_eq!(last_bytes("äöü", 0), "");
        assert_eq!(shorten("äöü", 2), "äö…");
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten_within("äöü", 2), "ä…");
        assert_eq!(shorten_within("äöü", 3), "äöü");
    }

    #[test]
    fn markup_is_escaped_once() {
        assert_eq!(
            escape_xml("<a b=\"&lt;\">"),
            "&lt;a b=&quot;&amp;lt;&quot;&gt;"
        );
        assert_eq!(escape_angles("\"<&>"), "\"&lt;&amp;&gt;");
    }
}
