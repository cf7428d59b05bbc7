use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn doc(text: &str) -> ConfigDoc {
    ConfigDoc {
        path: PathBuf::from("config.yaml"),
        original: text.to_owned(),
        text: text.to_owned(),
        tree: read(text).unwrap(),
    }
}

fn path(text: &str) -> KeyPath {
    KeyPath::parse(text).unwrap()
}

/// The text after `set`.
#[expect(clippy::needless_pass_by_value, reason = "json! at each call")]
fn set(text: &str, key: &str, value: Value) -> String {
    let mut doc = doc(text);
    doc.set(&path(key), &value)
        .unwrap_or_else(|err| panic!("{key}: {err}"));
    assert_eq!(path(key).get(&doc.tree), Some(&value));
    doc.text
}

fn unset(text: &str, key: &str) -> String {
    let mut doc = doc(text);
    assert!(
        doc.unset(&path(key))
            .unwrap_or_else(|err| panic!("{key}: {err}"))
    );
    doc.text
}

#[test]
fn a_value_changes_and_its_comment_stays() {
    assert_eq!(
        set("a: 1   # c\nb: 2\n", "a", json!(5)),
        "a: 5   # c\nb: 2\n"
    );
    assert_eq!(set("a: \"x\" # c\n", "a", json!("y z")), "a: \"y z\" # c\n");
    assert_eq!(set("a: 'x' # c\n", "a", json!("it's")), "a: 'it''s' # c\n");
    assert_eq!(set("a: x\n", "a", json!("off")), "a: 'off'\n");
    assert_eq!(set("a: x\n", "a", json!("1:30")), "a: '1:30'\n");
    assert_eq!(set("a: x\n", "a", json!("012")), "a: '012'\n");
    assert_eq!(
        set("a: x\n", "a", json!("two\nlines")),
        "a: \"two\\nlines\"\n"
    );
    assert_eq!(set("a: x", "a", json!(0.5)), "a: 0.5");
    assert_eq!(
        set("a: one\n  two # c\nb: 1\n", "a", json!("x")),
        "a: x # c\nb: 1\n"
    );
    assert_eq!(
        set("\"a\": 1\n'b': 2\n", "b", json!(3)),
        "\"a\": 1\n'b': 3\n"
    );
}

#[test]
fn new_keys_go_below_the_last_of_their_section() {
    let text = "# head\nagent:\n    max: 1 # c\n    # more\n\n# tail\nb: 1\n";
    assert_eq!(
        set(text, "agent.min", json!(2)),
        "# head\nagent:\n    max: 1 # c\n    min: 2\n    # more\n\n# tail\nb: 1\n"
    );
    assert_eq!(
        set(text, "x.u.z", json!("v")),
        "# head\nagent:\n    max: 1 # c\n    # more\n\n# tail\nb: 1\nx:\n    u:\n        z: v\n"
    );
    assert_eq!(set("a: 1", "b", json!(2)), "a: 1\nb: 2\n");
    assert_eq!(
        set("a: |\n  text\n\n\nb: 1\n", "c", json!(2)),
        "a: |\n  text\n\n\nb: 1\nc: 2\n"
    );
    assert_eq!(
        set("s:\n  a: |\n    text\n\nb: 1\n", "s.c", json!(2)),
        "s:\n  a: |\n    text\n  c: 2\n\nb: 1\n"
    );
    assert_eq!(
        set("l:\n- name: x\n  url: y\n", "l.0.key", json!("k")),
        "l:\n- name: x\n  url: y\n  key: k\n"
    );
    assert_eq!(
        set("l:\n  -\n    name: x\n", "l.0.key", json!(1)),
        "l:\n  -\n    name: x\n    key: 1\n"
    );
}

#[test]
fn empty_sections_and_files_are_filled() {
    assert_eq!(
        set("agent:   # c\nb: 1\n", "agent.max", json!(2)),
        "agent:   # c\n  max: 2\nb: 1\n"
    );
    assert_eq!(set("agent:", "agent.max", json!(2)), "agent:\n  max: 2\n");
    assert_eq!(
        set("agent:\nb: 1\n", "agent", json!("x")),
        "agent: x\nb: 1\n"
    );
    assert_eq!(
        set("agent: ~ # c\n", "agent.max", json!(2)),
        "agent: {max: 2} # c\n"
    );
    assert_eq!(
        set("agent: {}\n", "agent.max", json!(2)),
        "agent: {max: 2}\n"
    );
    assert_eq!(set("", "a.b", json!(true)), "a:\n  b: true\n");
    assert_eq!(
        set("# only a comment", "a", json!(1)),
        "# only a comment\na: 1\n"
    );
    assert_eq!(set("---\n", "a", json!(1)), "---\na: 1\n");
    assert_eq!(set("{}\n", "a.b", json!(1)), "{a: {b: 1}}\n");
}

#[test]
fn flow_style_stays_flow() {
    let text = "d: {skin: default, streaming: true}   # flow\n";
    assert_eq!(
        set(text, "d.streaming", json!(false)),
        "d: {skin: default, streaming: false}   # flow\n"
    );
    assert_eq!(
        set(text, "d.new", json!("a, b")),
        "d: {skin: default, streaming: true, new: 'a, b'}   # flow\n"
    );
    assert_eq!(
        set(text, "d.x.u", json!(1)),
        "d: {skin: default, streaming: true, x: {u: 1}}   # flow\n"
    );
    assert_eq!(
        set("l: [a, 'b', c]\n", "l.1", json!("x y")),
        "l: [a, 'x y', c]\n"
    );
    assert_eq!(set("d: {a: 1, z}\n", "d.z", json!(2)), "d: {a: 1, z: 2}\n");
    assert_eq!(
        set("d: {\n  a: 1, # c\n}\n", "d.b", json!(2)),
        "d: {\n  a: 1, b: 2, # c\n}\n"
    );
}

#[test]
fn pushing_adds_a_line_and_keeps_the_others() {
    let push = |text: &str| {
        let mut doc = doc(text);
        doc.push(&path("l"), &json!("n: m")).unwrap();
        doc.text
    };
    assert_eq!(
        push("l:\n- a # 1\n# c\nb: 2\n"),
        "l:\n- a # 1\n- 'n: m'\n# c\nb: 2\n"
    );
    assert_eq!(
        push("l:\n  - a\n  - b # 2"),
        "l:\n  - a\n  - b # 2\n  - 'n: m'\n"
    );
    assert_eq!(push("l: [a] # c\n"), "l: [a, 'n: m'] # c\n");
    for empty in ["l: []\n", "l:\n", "b: 2\n", ""] {
        let tree = read(&push(empty)).unwrap();
        assert_eq!(tree["l"], json!(["n: m"]), "{empty:?}");
    }
}

#[test]
fn lists_are_indexed_not_grown() {
    let text = "l:\n- a # 1\n- b: 1\n  c: 2\n-\n";
    assert_eq!(
        set(text, "l.0", json!("x")),
        "l:\n- x # 1\n- b: 1\n  c: 2\n-\n"
    );
    assert_eq!(
        set(text, "l.1.c", json!(3)),
        "l:\n- a # 1\n- b: 1\n  c: 3\n-\n"
    );
    assert_eq!(set(text, "l.1", json!(3)), "l:\n- a # 1\n- 3\n-\n");
    assert_eq!(
        set(text, "l.2", json!(3)),
        "l:\n- a # 1\n- b: 1\n  c: 2\n- 3\n"
    );
    for key in ["l.3", "l.-1", "l.x", "l.3.a"] {
        let mut doc = doc(text);
        assert!(
            matches!(
                doc.set(&path(key), &json!(1)),
                Err(EditError::NoSuchIndex { len: 3, .. })
            ),
            "{key}"
        );
        assert_eq!(doc.text, text);
    }
}

#[test]
fn block_values_are_replaced_whole() {
    assert_eq!(
        set("a: |\n  one\n  two\n\n# c\nb: 1\n", "a", json!("x")),
        "a: x\n\n# c\nb: 1\n"
    );
    assert_eq!(
        set("a: # c\n  - 1\n  # kept\n  - 2\nb: 1\n", "a", json!("x")),
        "a: x # c\n  # kept\nb: 1\n"
    );
    assert_eq!(
        set("a:\n- 1\n- 2\nb: 1\n", "a", json!([3])),
        "a:\n  - 3\nb: 1\n"
    );
    assert_eq!(
        set("a:\n  k: 1\nb: 1\n", "a", json!({"z": [], "u": {"x": 1}})),
        "a:\n  z: []\n  u:\n    x: 1\nb: 1\n"
    );
    assert_eq!(
        set("a: [1]\n", "a", json!({"k": [1, "b c"]})),
        "a: {k: [1, b c]}\n"
    );
}

#[test]
fn line_ends_and_marks_are_kept() {
    assert_eq!(
        set("a: 1\r\nb:\r\n  c: 1\r\n", "b.d", json!(2)),
        "a: 1\r\nb:\r\n  c: 1\r\n  d: 2\r\n"
    );
    assert_eq!(
        set("a: 1 # c\r\nb: 2\r\n", "a", json!("x")),
        "a: x # c\r\nb: 2\r\n"
    );
    assert_eq!(unset("a: 1\r\nb: 2\r\n", "a"), "b: 2\r\n");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, "\u{feff}é: 1\n").unwrap();
    let mut doc = ConfigDoc::open(&file).unwrap();
    doc.set(&path("é"), &json!("ü")).unwrap();
    assert!(doc.save().unwrap());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "\u{feff}é: ü\n");
    assert!(!doc.save().unwrap());
}

#[test]
fn dotted_keys_are_not_paths() {
    let text = "kettle.box: 1\nkettle:\n  box: 2\n";
    assert_eq!(
        set(text, "\"kettle.box\"", json!(5)),
        "kettle.box: 5\nkettle:\n  box: 2\n"
    );
    assert_eq!(
        set(text, "kettle.box", json!(5)),
        "kettle.box: 1\nkettle:\n  box: 5\n"
    );
}

#[test]
fn shared_values_are_not_edited_through_an_alias() {
    let text = "a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  l: 2\n";
    let refuses = |key: &str| {
        let mut doc = doc(text);
        assert!(doc.set(&path(key), &json!(9)).is_err(), "{key}");
        assert_eq!(doc.text, text);
    };
    refuses("b.k");
    refuses("a.k");
    assert_eq!(
        set(text, "b", json!(1)),
        "a: &x {k: 1}\nb: 1\nc:\n  <<: *x\n  l: 2\n"
    );
    assert_eq!(
        set(text, "c.k", json!(5)),
        "a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  l: 2\n  k: 5\n"
    );
    assert!(doc(text).unset(&path("c.k")).is_err());
    assert!(matches!(
        doc("a: x\n").set(&path("a.b"), &json!(1)),
        Err(EditError::NotASection { .. })
    ));
}

#[test]
fn entries_are_removed_with_their_line() {
    let text = "# head\na: 1 # c\ns:\n  x: 1\n  # about y\n  y: 2\nb: 2\n";
    assert_eq!(
        unset(text, "a"),
        "# head\ns:\n  x: 1\n  # about y\n  y: 2\nb: 2\n"
    );
    assert_eq!(
        unset(text, "s.y"),
        "# head\na: 1 # c\ns:\n  x: 1\n  # about y\nb: 2\n"
    );
    assert_eq!(unset(text, "s"), "# head\na: 1 # c\nb: 2\n");
    assert_eq!(unset("a: |\n  t\n\nb: 1\n", "a"), "\nb: 1\n");
    assert_eq!(unset("d: {a: 1, b: 2, c: 3}\n", "d.a"), "d: {b: 2, c: 3}\n");
    assert_eq!(unset("d: {a: 1, b: 2, c: 3}\n", "d.c"), "d: {a: 1, b: 2}\n");
    assert_eq!(unset("l: [a, b]\n", "l.0"), "l: [b]\n");
    assert_eq!(unset("l:\n- a\n- b # c\n", "l.0"), "l:\n- b # c\n");
    assert_eq!(unset("l:\n- n: 1\n  m: 2\n", "l.0.n"), "l:\n- m: 2\n");
    let mut doc = doc(text);
    assert!(!doc.unset(&path("nothing.here")).unwrap());
    assert_eq!(doc.text, text);
}

#[test]
fn sections_left_empty_go_unless_they_hold_comments() {
    assert_eq!(unset("a:\n  b:\n    c: 1\nx: 1\n", "a.b.c"), "x: 1\n");
    assert_eq!(
        unset("a:\n  b: 1\n  # note\nx: 1\n", "a.b"),
        "x: 1\n".replacen('x', "  # note\nx", 1)
    );
    assert_eq!(
        unset("a:\n  # note\n  b: 1\nx: 1\n", "a.b"),
        "a:\n  # note\nx: 1\n"
    );
    assert_eq!(unset("l:\n- a\nx: 1\n", "l.0"), "l: []\nx: 1\n");
    assert_eq!(unset("l: [a]\n", "l.0"), "l: []\n");
    assert_eq!(unset("a: 1\n", "a"), "");
    assert_eq!(unset("{a: 1}\n", "a"), "{}\n");
}

#[test]
fn a_key_that_stands_twice_goes_twice() {
    assert_eq!(unset("a: 1\nb: 2\na: 3\n", "a"), "b: 2\n");
    assert_eq!(
        set("a: 1\nb: 2\na: 3\n", "a", json!(4)),
        "a: 1\nb: 2\na: 4\n"
    );
}

/// A bare CR ends a line too: what stands behind it must not go with the duplicate.
#[test]
fn removing_a_duplicate_removes_nothing_else() {
    let text = "a: 1\nb:\n  c: 0\n  c: 0 # x\rc: 0";
    let mut edited = doc(text);
    if edited.unset(&path("b.c")).is_err() {
        assert_eq!(edited.text(), text);
    }
    assert_eq!(path("c").get(edited.tree()), Some(&json!(0)));
}

#[test]
fn a_broken_file_is_an_error_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, "model: [\n").unwrap();
    let err = ConfigDoc::open(&file).unwrap_err().to_string();
    assert!(
        err.contains("line 1, column 9") && err.contains("1 | model: ["),
        "{err}"
    );
    std::fs::write(&file, "- a\n").unwrap();
    assert!(ConfigDoc::open(&file).is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "- a\n");
}

#[test]
fn someone_elses_change_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, "a: 1\n").unwrap();
    let mut doc = ConfigDoc::open(&file).unwrap();
    doc.set(&path("a"), &json!(2)).unwrap();
    std::fs::write(&file, "a: 3\n").unwrap();
    assert!(matches!(doc.save(), Err(EditError::Changed(_))));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a: 3\n");
}

const COMMENTED: &str = "\
# My settings, keep these comments
model:
  default: big      # the big one
  provider: custom
  key: \"${KEY}\"   # quoted

# --- agent ---
agent:
  max_turns: 40   # lower
  effort: off        # a boolean
  who:
    # inside
    pirate: \"a pirate. 🏴\"
    poet: |
      You speak in verse.

      Always.

    last: >-
      folded
      text
list:
  # first
  - name: one            # item
    url: http://x/v1
  - two
  # between
  - - nested
servers:
  fs:
    args: [\"-y\", \"@x/y\", /tmp]  # flow
    on: no
terminal:
display: {skin: default, streaming: true}   # flow map
\"quoted key\": 1_000
when: 2026-01-02
# trailing comment";

fn leaf_paths(tree: &Value, at: &mut Vec<String>, out: &mut Vec<KeyPath>) {
    match tree {
        Value::Object(map) => {
            for (key, value) in map {
                at.push(key.clone());
                leaf_paths(value, at, out);
                at.pop();
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                at.push(index.to_string());
                leaf_paths(value, at, out);
                at.pop();
            }
        }
        _ => out.push(KeyPath::new(at.iter().cloned())),
    }
}

fn comments(text: &str) -> Vec<&str> {
    text.lines()
        .map(str::trim)
        .filter(|line| line.starts_with('#'))
        .collect()
}

#[derive(Clone, Debug)]
enum Edit {
    Set(prop::sample::Index, Value),
    Add(prop::sample::Index, String, Value),
    Unset(prop::sample::Index),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let text = prop_oneof![
        "[ -~]{0,10}",
        "\\PC{0,5}",
        "[0-9:._e-]{1,6}",
        Just("off".to_owned())
    ];
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
        prop::collection::vec(text.clone(), 0..3).prop_map(Value::from),
    ];
    let index = any::<prop::sample::Index>;
    let edit = prop_oneof![
        (index(), value.clone()).prop_map(|(at, value)| Edit::Set(at, value)),
        (
            index(),
            text.prop_filter("a name", |name| !name.is_empty()),
            value
        )
            .prop_map(|(at, name, value)| Edit::Add(at, name, value)),
        index().prop_map(Edit::Unset),
    ];
    prop::collection::vec(edit, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is edited, every comment line stays and the tree is what it should be.
    #[test]
    fn edits_keep_comments_and_mean_what_they_should(edits in edits(), crlf: bool) {
        let text = if crlf { COMMENTED.replace('\n', "\r\n") } else { COMMENTED.to_owned() };
        let mut doc = doc(&text);
        for edit in edits {
            let mut paths = Vec::new();
            leaf_paths(&doc.tree, &mut Vec::new(), &mut paths);
            if paths.is_empty() {
                break;
            }
            let mut expected = doc.tree.clone();
            match edit {
                Edit::Set(at, value) => {
                    let path = at.get(&paths);
                    put(&mut expected, path.parts(), &value, "").unwrap();
                    doc.set(path, &value).map_err(|err| TestCaseError::fail(format!("{err}\n{}", doc.text)))?;
                    prop_assert_eq!(&doc.tree, &expected);
                }
                Edit::Add(at, name, value) => {
                    let mut parts = at.get(&paths).parts().to_vec();
                    parts.pop();
                    parts.push(name);
                    let path = KeyPath::new(parts);
                    // A list has no such place; the error must leave all as it was.
                    let before = doc.text.clone();
                    if put(&mut expected, path.parts(), &value, "").is_ok() {
                        doc.set(&path, &value).map_err(|err| TestCaseError::fail(format!("{err}\n{}", doc.text)))?;
                        prop_assert_eq!(&doc.tree, &expected);
                    } else {
                        prop_assert!(doc.set(&path, &value).is_err());
                        prop_assert_eq!(&doc.text, &before);
                    }
                }
                Edit::Unset(at) => {
                    let path = at.get(&paths);
                    let (before, tree) = (doc.text.clone(), doc.tree.clone());
                    // Some places cannot be cut out safely; then nothing may have changed.
                    if doc.unset(path).is_err() {
                        prop_assert_eq!((&doc.text, &doc.tree), (&before, &tree));
                    } else {
                        let in_list = path.parts().last().is_some_and(|part| part.parse::<usize>().is_ok());
                        prop_assert!(in_list || path.get(&doc.tree).is_none());
                    }
                }
            }
            prop_assert_eq!(comments(&doc.text), comments(COMMENTED), "{}", doc.text);
        }
    }
}

/// Text made of what YAML is made of.
fn yamlish() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b",
        "key",
        "'q'",
        "\"d\"",
        ":",
        ": ",
        ":\n",
        "- ",
        "-\n",
        "\n",
        "\n  ",
        "\n    ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "# c\n",
        " # c",
        "&x ",
        "*x",
        "!!str ",
        "|\n",
        "|+\n",
        ">-\n",
        "<<: ",
        "? ",
        "~",
        "1",
        "é",
        "🏴",
        "\r\n",
        "\t",
        "---\n",
        "...\n",
        "'",
        "\"",
        "\\",
        "%",
        "\u{feff}",
        "\u{2028}",
        "a: 1\n",
        "  b: 2\n",
        "- c\n",
        "x: {y: 1}\n",
        "l: [1, 2]\n",
    ]);
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No text makes us panic, and an edit either does exactly what it should or changes nothing.
    #[test]
    fn any_text_can_be_tried(text in yamlish(), at: prop::sample::Index, value in "[ -~é]{0,4}") {
        let Ok(tree) = read(&text) else { return Ok(()) };
        let mut doc = ConfigDoc { path: PathBuf::new(), original: text.clone(), text: text.clone(), tree };
        let mut paths = vec![KeyPath::new(["new"]), KeyPath::new(["a", "new"])];
        leaf_paths(&doc.tree, &mut Vec::new(), &mut paths);
        paths.retain(|path| !path.parts().is_empty());
        let path = at.get(&paths).clone();
        let mut expected = doc.tree.clone();
        let possible = put(&mut expected, path.parts(), &json!(value), "").is_ok();
        if doc.set(&path, &json!(value)).is_ok() {
            prop_assert!(possible && doc.tree == expected && read(&doc.text).unwrap() == expected);
        } else {
            prop_assert_eq!(&doc.text, &text);
        }
        let before = doc.text.clone();
        if doc.unset(&path).is_err() {
            prop_assert_eq!(&doc.text, &before);
        }
    }
}
