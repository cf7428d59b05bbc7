//! Errors that echo the request: its content is not part of the message. Servers that validate
//! requests with pydantic do so, as JSON, as Python, or as `input_value=`.

use std::borrow::Cow;

/// Markers in front of an echoed value.
const MARKS: &[&str] = &["'input': ", "\"input\": ", "\"input\":", "input_value="];

/// Names of the conversation as a key of an object.
const CONVERSATION: &[&str] = &["\"messages\":", "'messages':"];

/// `text` without the echoed parts of the request.
pub(super) fn left_out(text: &str) -> Cow<'_, str> {
    let marked = MARKS.iter().any(|mark| text.contains(mark));
    let whole = CONVERSATION.iter().any(|name| text.contains(name));
    if !marked && !whole {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, mark)) = MARKS
        .iter()
        .filter_map(|mark| Some((rest.find(mark)?, *mark)))
        .min()
    {
        let value = &rest[at + mark.len()..];
        out.push_str(&rest[..at]);
        rest = &value[length(value)..];
    }
    out.push_str(rest);
    without_objects(&out).into()
}

/// `text` without the objects that contain a conversation.
fn without_objects(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        let object = &rest[at..];
        let end = length(object).max(1);
        if !CONVERSATION.iter().any(|name| object[..end].contains(name)) {
            out.push_str(&object[..end]);
        }
        rest = &object[end..];
    }
    out.push_str(rest);
    out
}

/// Length in bytes of the value at the beginning of `text`: up to its closing bracket, or to the
/// next comma or closing bracket. All of it, if it was truncated.
fn length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if let Some(open) = quote {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                _ if c == open => quote = None,
                _ => {}
            }
            continue;
        }
        match c {
            '\'' | '"' => quote = Some(c),
            '{' | '[' | '(' => depth += 1,
            ',' | '}' | ']' | ')' if depth == 0 => return at,
            '}' | ']' | ')' => {
                depth -= 1;
                if depth == 0 {
                    return at + c.len_utf8();
                }
            }
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_goes_and_what_is_said_stays() {
        for (text, left) in [
            (
                "[{'loc': ('body', 'x'), 'msg': 'no', 'input': {'a': [1, '}'], 'b': 2}}]",
                "[{'loc': ('body', 'x'), 'msg': 'no', }]",
            ),
            (
                "bad [type=extra, input_value={'m': 'a, b'}, input_type=dict]",
                "bad [type=extra, , input_type=dict]",
            ),
            (
                "no 'x'. Request: {\"messages\": [{}]} (id 7)",
                "no 'x'. Request:  (id 7)",
            ),
            ("bad: {\"x\": 1}", "bad: {\"x\": 1}"),
            ("'input': 'xhigh', 'ctx': 1", ", 'ctx': 1"),
            ("'input': {'messages': [{'content': 'cut", ""),
        ] {
            assert_eq!(left_out(text), left, "{text}");
        }
    }
}
