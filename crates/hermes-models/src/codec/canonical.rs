//! Tool arguments in canonical form: compact, keys sorted. Equal arguments then have equal bytes
//! however the model formatted them, and numbers keep every digit.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

/// The arguments of a call as JSON text. Invalid JSON is wrapped in an object, because strict
/// servers parse it and would refuse the whole conversation.
pub(super) fn arguments(text: &str) -> Cow<'_, str> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return "{}".into();
    }
    match compact(trimmed) {
        Some(compact) => compact.into(),
        None => unreadable(trimmed).to_string().into(),
    }
}

/// The arguments of a call as an object with sorted keys.
pub(super) fn arguments_object(text: &str) -> Value {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Value::Object(Map::new());
    }
    match serde_json::from_str::<Value>(trimmed) {
        Ok(value @ Value::Object(_)) => sorted(value),
        Ok(other) => json!({ "value": sorted(other) }),
        Err(_) => unreadable(trimmed),
    }
}

fn unreadable(text: &str) -> Value {
    json!({ "unreadable_arguments": text })
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<String, Value> = map.into_iter().collect();
            Value::Object(ordered.into_iter().map(|(k, v)| (k, sorted(v))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        scalar => scalar,
    }
}

/// `text` without insignificant whitespace and with sorted keys. `None`: not JSON.
pub(super) fn compact(text: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let mut out = String::with_capacity(text.len());
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        at: 0,
    };
    scanner.value(&mut out);
    Some(out)
}

/// Walks text that is known to be valid JSON (and not nested too deeply).
struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&mut self) -> u8 {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied().unwrap_or_default()
    }

    fn value(&mut self, out: &mut String) {
        match self.peek() {
            b'{' => self.object(out),
            b'[' => self.array(out),
            b'"' => out.push_str(self.string()),
            _ => out.push_str(self.scalar()),
        }
    }

    fn object(&mut self, out: &mut String) {
        self.at += 1;
        let mut members: BTreeMap<&str, String> = BTreeMap::new();
        while self.peek() == b'"' {
            let key = self.string();
            // The colon.
            self.peek();
            self.at += 1;
            let mut value = String::new();
            self.value(&mut value);
            members.insert(key, value);
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        out.push('{');
        for (index, (key, value)) in members.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(key);
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
    }

    fn array(&mut self, out: &mut String) {
        self.at += 1;
        out.push('[');
        while !matches!(self.peek(), b']' | 0) {
            self.value(out);
            if self.peek() == b',' {
                self.at += 1;
                out.push(',');
            }
        }
        self.at += 1;
        out.push(']');
    }

    /// A string with its quotes, as written.
    fn string(&mut self) -> &'a str {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'\\' => self.at += 2,
                b'"' => break,
                _ => self.at += 1,
            }
        }
        self.at = (self.at + 1).min(self.bytes.len());
        &self.text[start..self.at]
    }

    fn scalar(&mut self) -> &'a str {
        let start = self.at;
        while self
            .bytes
            .get(self.at)
            .is_some_and(|byte| !byte.is_ascii_whitespace() && !matches!(byte, b',' | b']' | b'}'))
        {
            self.at += 1;
        }
        &self.text[start..self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn space_and_order_do_not_matter() {
        assert_eq!(
            arguments("{ \"b\" : [1, 2.50 ,{}] ,\n\"a\":{\"z\":null,\"y\":\"ä\\\" \"} }"),
            r#"{"a":{"y":"ä\" ","z":null},"b":[1,2.50,{}]}"#
        );
        assert_eq!(arguments("  "), "{}");
    }

    #[test]
    fn digits_are_kept() {
        let big = r#"{"n":123456789012345678901234567890.10}"#;
        assert_eq!(arguments(big), big);
    }

    #[test]
    fn what_is_no_json_is_wrapped() {
        assert_eq!(
            arguments("{\"a\": "),
            r#"{"unreadable_arguments":"{\"a\":"}"#
        );
        assert_eq!(arguments_object("[1]"), json!({ "value": [1] }));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~é\\\\\"\n]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec(("[a-z\"\\\\]{0,4}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_meaning_stays(value in any_json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let out = compact(&pretty).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), value);
            prop_assert_eq!(compact(&out).unwrap(), out);
        }
    }
}
