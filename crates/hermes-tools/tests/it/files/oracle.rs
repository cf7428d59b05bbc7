//! Side by side with the pinned original.

use hermes_core::edit;
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Content, old, new, every place.
const CASES: &[(&str, &str, &str, bool)] = &[
    ("a b c", "b", "x", false),
    ("a\na\n", "a", "b", true),
    ("a\na\n", "a", "b", false),
    ("aaaa", "aa", "b", true),
    (
        "fn a() {\n    one();  \n    two();\n}\n",
        "  one();\n  two();",
        "  one();\n  3();",
        false,
    ),
    ("let  x\t= 1;\n", "let x = 1;", "let x = 2;", false),
    ("x = foo(1,   2)  # note\n", "foo(1, 2)", "bar(1, 2)", false),
    (
        "    if a:\n        b\n",
        "if a:\n    b",
        "if a:\n    c",
        false,
    ),
    (
        "say \u{201c}hi\u{201d} \u{2014} ok\n",
        "say \"hi\" -- ok",
        "say \"hi\" -- no",
        false,
    ),
    (
        "it\u{2019}s here\u{2026}\n",
        "it's here...",
        "it's there...",
        false,
    ),
    (
        "def f():\n    total = 0\n    for i in xs:\n        total += i\n    return total\n",
        "def f():\n    total = 0\n    for item in xs:\n        total += item\n    return total",
        "def f():\n    return sum(xs)",
        false,
    ),
    (
        "alpha = compute_value(1)\nbeta = 2\n",
        "alpha = compute_valu(1)",
        "alpha = 3",
        false,
    ),
    ("nothing alike\n", "zzzzzz qqqqqq", "x", false),
    ("a", "", "b", false),
    ("a", "a", "a", false),
    ("it's  here\n", "it\\'s here", "it\\'s there", false),
    ("\tfoo(1)\n", "foo( 1)", "bar(1)", false),
    ("  a\n\n  b\n", "a\n\nb", "a\n\nc", false),
    (
        "head\n  first \nmiddle\n last  \ntail\n",
        "first\nmiddle\nlast",
        "x\ny",
        false,
    ),
];

#[test]
fn texts_are_replaced_as_the_original_replaces_them() {
    let Some(oracle) = oracle::require("texts_are_replaced_as_the_original_replaces_them") else {
        return;
    };
    let program = "
import json, sys
from tools.fuzzy_match import fuzzy_find_and_replace
out = []
for content, old, new, every in json.loads(sys.argv[1]):
    text, count, strategy, error = fuzzy_find_and_replace(content, old, new, every)
    out.append([text, count, strategy])
print(json.dumps(out))
";
    let cases = json!(CASES).to_string();
    let theirs = oracle.json(&TempHome::new(), program, [cases.as_str()]);
    for ((content, old, new, all), theirs) in CASES.iter().zip(theirs.as_array().unwrap()) {
        let ours = match edit::replace(content, old, new, *all) {
            Ok(done) => json!([done.text, done.count, done.strategy.as_str()]),
            Err(_) => json!([content, 0, Value::Null]),
        };
        assert_eq!(ours, *theirs, "{content:?} {old:?}");
    }
}

#[test]
fn likeness_is_the_same_figure() {
    let Some(oracle) = oracle::require("likeness_is_the_same_figure") else {
        return;
    };
    let program = "
import json, sys
from difflib import SequenceMatcher
print(json.dumps([SequenceMatcher(None, a, b).ratio() for a, b in json.loads(sys.argv[1])]))
";
    let words = [
        "",
        "a",
        "abc",
        "cab",
        "return total",
        "retrun totals",
        "    for item in xs:",
        "for i in xs:",
        "grün — blau",
        "grün - blau",
    ];
    let long = ["x = 1\n".repeat(60), "x = 1\ny = 2\n".repeat(40)];
    let all: Vec<&str> = words
        .into_iter()
        .chain(long.iter().map(String::as_str))
        .collect();
    let pairs: Vec<(&str, &str)> = all
        .iter()
        .flat_map(|a| all.iter().map(move |b| (*a, *b)))
        .collect();
    let asked = json!(pairs).to_string();
    let theirs = oracle.json(&TempHome::new(), program, [asked.as_str()]);
    for ((a, b), theirs) in pairs.iter().zip(theirs.as_array().unwrap()) {
        let theirs = theirs.as_f64().unwrap();
        let ours = edit::ratio(a, b);
        assert!(
            (ours - theirs).abs() < 1e-12,
            "{a:?} {b:?}: {ours} {theirs}"
        );
    }
}
