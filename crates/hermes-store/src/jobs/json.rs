//! JSON as read and written by the original.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

/// Parses UTF-8 JSON, allowing a byte order mark and raw control characters inside strings.
pub(super) fn parse_lenient(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_json::from_str(text).or_else(|error| match escape_controls(text) {
        Cow::Borrowed(_) => Err(error.to_string()),
        Cow::Owned(escaped) => serde_json::from_str(&escaped).map_err(|error| error.to_string()),
    })
}

fn escape_controls(text: &str) -> Cow<'_, str> {
    let mut escaped = String::with_capacity(text.len());
    let (mut in_string, mut after_backslash, mut changed) = (false, false, false);
    for c in text.chars() {
        if in_string && c < ' ' {
            changed = true;
            if after_backslash {
                // A backslash before a raw newline: the backslash itself is the text.
                escaped.push('\\');
            }
            let _ = write!(escaped, "\\u{:04x}", c as u32);
            after_backslash = false;
            continue;
        }
        if c == '"' && !after_backslash {
            in_string = !in_string;
        }
        after_backslash = in_string && c == '\\' && !after_backslash;
        escaped.push(c);
    }
    if changed {
        Cow::Owned(escaped)
    } else {
        Cow::Borrowed(text)
    }
}

/// Two spaces of indent, non-ASCII as `\u` escapes.
pub(super) fn pretty_ascii(value: &Value) -> String {
    let text = format!("{value:#}");
    if text.is_ascii() {
        return text;
    }
    // Non-ASCII occurs only inside strings, so each character can be escaped on its own.
    let mut ascii = String::with_capacity(text.len() + 64);
    let mut units = [0; 2];
    for c in text.chars() {
        if c.is_ascii() {
            ascii.push(c);
        } else {
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_byte_order_marks_are_tolerated() {
        let text = "\u{feff}{\"a\": \"one\ntwo\t\\\"x\\\\\"}";
        assert_eq!(
            parse_lenient(text.as_bytes()).unwrap(),
            serde_json::json!({"a": "one\ntwo\t\"x\\"})
        );
        assert!(parse_lenient(b"{\"a\": ").is_err());
        assert!(parse_lenient(b"\xff").is_err());
    }

    #[test]
    fn numbers_are_the_same_after_any_number_of_writes() {
        for text in [
            "1234567890123456789901234567890",
            "1763358432.1234567",
            "0.1e-7",
        ] {
            let value = parse_lenient(text.as_bytes()).unwrap();
            assert_eq!(value.as_f64(), text.parse().ok(), "{text}");
            assert_eq!(parse_lenient(pretty_ascii(&value).as_bytes()), Ok(value));
        }
    }

    #[test]
    fn output_is_ascii_and_reads_back() {
        let value = serde_json::json!({"a": ["Grüße 🚀", null, 1.5]});
        let text = pretty_ascii(&value);
        assert_eq!(
            text,
            "{\n  \"a\": [\n    \"Gr\\u00fc\\u00dfe \\ud83d\\ude80\",\n    null,\n    1.5\n  ]\n}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
