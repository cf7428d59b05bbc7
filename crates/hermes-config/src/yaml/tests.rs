use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn value(text: &str) -> Value {
    parse(text).unwrap().0
}

#[test]
fn a_line_that_cannot_be_read_shows_no_key() {
    let key = "sk-live-0123456789abcdef";
    for text in [
        format!("a:\n  b: c: {key}\n"),
        format!("model:\n  api_key: {key}: x\n"),
        "proxy: a: https://me:some-password@x.example\n".to_owned(),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(!error.contains("0123456789abcdef"), "{error}");
        assert!(!error.contains("some-password"), "{error}");
    }
}

#[test]
fn a_document_with_everything() {
    let text = "\
# comment
agent:
  max: 40   # lower
  q: \"d\\tq\"  # x
  e:
  multi: one
    two
  blk: |
    verse
    more
list:
- a
- b: 1
  c: {x: 1, \"y\": [1, é, off], z}
-
t: !!str 12
012: 012
on: yes
";
    assert_eq!(
        value(text),
        json!({
            "agent": {"max": 40, "q": "d\tq", "e": null, "multi": "one two", "blk": "verse\nmore\n"},
            "list": ["a", {"b": 1, "c": {"x": 1, "y": [1, "é", false], "z": null}}, null],
            "t": "12",
            "012": 10,
            "on": true,
        })
    );
    for empty in ["", "# only\n", "\n\n", "---\n", "~"] {
        assert_eq!(value(empty), Value::Null, "{empty:?}");
    }
}

#[test]
fn anchors_and_merges() {
    let text = "a: &x {k: 1, l: 2}\nb: *x\nc: {<<: *x, l: 3}\nd:\n  <<: [*x, {m: 4, k: 9}]\n";
    assert_eq!(
        value(text),
        json!({"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 2}, "c": {"k": 1, "l": 3}, "d": {"k": 1, "l": 2, "m": 4}})
    );
    for bad in ["a: {<<: 1}", "a: {<<: [1]}", "a: *nobody", "a: &a [*a]"] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn unfolding_is_bounded() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let inner = format!("*a{}", level - 1);
        let items = [inner.as_str(); 10].join(", ");
        text = format!("{text}a{level}: &a{level} [{items}]\n");
    }
    assert!(parse(&text).unwrap_err().message.contains("too many"));
    assert!(parse(&"[".repeat(500)).is_err());
    assert!(parse(&"- ".repeat(500)).is_err());
}

#[test]
fn the_last_of_equal_keys_counts_and_is_reported() {
    let (value, duplicates) = parse("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n").unwrap();
    assert_eq!(value, json!({"a": 3, "b": {"c": 2}}));
    let mut keys: Vec<_> = duplicates
        .iter()
        .map(|d| (d.key.as_str(), d.line))
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, [("a", 5), ("b.c", 4)]);
}

#[test]
fn errors_point_at_the_place() {
    let err = parse("model:\n  default: x\n provider: y\n").unwrap_err();
    assert_eq!(err.line, 3);
    let err = parse("ok: 1\nlist: [1, 2\n").unwrap_err();
    assert_eq!((err.line, err.column), (2, 12));
    assert_eq!(err.snippet, "2 | list: [1, 2\n  |            ^");
    assert!(
        parse("a: 1\n---\nb: 2\n")
            .unwrap_err()
            .message
            .contains("second document")
    );
    assert_eq!(parse("a: !python/object x\n").unwrap_err().column, 4);
    assert!(parse("? [a]\n: b\n").is_err());
}

#[test]
fn spans_cover_what_they_should() {
    let text = "é: \"dq\"  # c\nb: 'it''s' # c\nc: {a: 1}  # c\nd: plain  # c\ne: |\n  x\n\nf: &a v\ng: *a\n";
    let doc = Document::parse(text).unwrap();
    let YamlNodeKind::Mapping { entries, .. } = &doc.node(doc.root().unwrap()).kind else {
        panic!()
    };
    let spans: Vec<&str> = entries
        .iter()
        .map(|(_, value)| &text[doc.node(*value).span.clone()])
        .collect();
    assert_eq!(
        spans,
        [
            "\"dq\"", "'it''s'", "{a: 1}", "plain", "|\n  x\n", "&a v", "*a"
        ]
    );
}

/// Flat in the text, each value within the next one by its alias: read without a bound, it would take
/// the whole stack, and the process with it.
#[test]
fn aliases_do_not_nest_without_end() {
    let lines = (1..50_000).map(|level| format!("a{level}: &a{level} [*a{}]\n", level - 1));
    let text = format!("a0: &a0 []\n{}", lines.collect::<Vec<_>>().concat());
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("nested too deeply"), "{error}");
}

fn any_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[ -~]{0,12}",
        "\\PC{0,6}",
        "[a-z: #\\n'\"\\t,{}\\[\\]-]{0,10}",
        "[0-9:._eE+x-]{0,8}",
        Just("off".to_owned()),
        Just("~".to_owned()),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((text.clone(), inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_spelt_is_read_back(value in any_value()) {
        for text in [to_block(&value), to_flow(&value)] {
            let read = parse(&text).map_err(|err| TestCaseError::fail(format!("{text}\n{err}")))?.0;
            prop_assert_eq!(&read, &value, "{}", text);
        }
    }
}
