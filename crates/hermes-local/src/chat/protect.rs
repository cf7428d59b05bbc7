//! User text must not end a turn: texts of control tokens inside messages stay text.
//!
//! A template renders all messages into one text. So before that, a mark is put in front of each control text
//! in a message; when the result is tokenized, what follows a mark is plain text.

use serde_json::Value;

/// From the private use area; it has no other meaning.
const MARK: char = '\u{f8fe}';

/// The control texts of a vocabulary.
#[derive(Clone, Debug, Default)]
pub struct ControlTextGuard {
    /// Longest first.
    texts: Vec<String>,
}

impl ControlTextGuard {
    pub fn new(mut texts: Vec<String>) -> Self {
        texts.retain(|text| !text.is_empty());
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self { texts }
    }

    pub fn knows(&self, text: &str) -> bool {
        self.texts.iter().any(|known| known == text)
    }

    fn at(&self, text: &str) -> Option<&str> {
        let known = self.texts.iter().find(|known| text.starts_with(&***known));
        known.map(String::as_str)
    }

    pub(super) fn text(&self, text: &str) -> String {
        let mut marked = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let step = match self.at(rest) {
                Some(control) => {
                    marked.push(MARK);
                    control.len()
                }
                None => first.len_utf8(),
            };
            marked.push_str(&rest[..step]);
            rest = &rest[step..];
        }
        marked
    }

    /// All texts in `value`, including keys: a template writes both.
    pub(super) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.value(value)),
            Value::Object(values) => {
                let named = std::mem::take(values).into_iter();
                *values = named
                    .map(|(name, mut value)| {
                        self.value(&mut value);
                        (self.text(&name), value)
                    })
                    .collect();
            }
            _ => {}
        }
    }

    /// The parts of a rendered text; `true`: control texts in it are tokens.
    pub(super) fn parts<'a>(&self, text: &'a str) -> Vec<(&'a str, bool)> {
        let mut parts = Vec::new();
        let mut rest = text;
        let mut from = 0;
        while let Some(found) = rest[from..].find(MARK) {
            let mark = from + found;
            let after = mark + MARK.len_utf8();
            let Some(control) = self.at(&rest[after..]) else {
                from = after;
                continue;
            };
            parts.push((&rest[..mark], true));
            parts.push((&rest[after..after + control.len()], false));
            rest = &rest[after + control.len()..];
            from = 0;
        }
        parts.push((rest, true));
        parts.retain(|(text, _)| !text.is_empty());
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_stays_text() {
        let protect = ControlTextGuard::new(vec!["<|im_end|>".to_owned(), "<|im".to_owned()]);
        let said = protect.text("a<|im_end|>b\u{f8fe}c");
        let rendered = format!("<|im_start|>{said}<|im_end|>");
        assert_eq!(
            protect.parts(&rendered),
            [
                ("<|im_start|>a", true),
                ("<|im_end|>", false),
                ("b\u{f8fe}c<|im_end|>", true),
            ]
        );
    }

    #[test]
    fn names_are_texts_too() {
        let protect = ControlTextGuard::new(vec!["<e>".to_owned()]);
        let mut value = serde_json::json!({ "z": 1, "a<e>": [{ "<e>": "<e>" }] });
        protect.value(&mut value);
        assert_eq!(
            value.to_string(),
            "{\"z\":1,\"a\u{f8fe}<e>\":[{\"\u{f8fe}<e>\":\"\u{f8fe}<e>\"}]}"
        );
    }

    #[test]
    fn a_mark_that_somebody_wrote_protects_nothing_less() {
        let protect = ControlTextGuard::new(vec!["<e>".to_owned()]);
        let said = protect.text("\u{f8fe}<e>");
        assert_eq!(protect.parts(&said), [("\u{f8fe}", true), ("<e>", false)]);
    }
}
