//! However a server cuts its calls into pieces, the same calls are read.

use hermes_core::message::ToolCall;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::codec::samples::{Sample, call, collect, tool};

/// Names that begin with each other, and names that do not.
const NAMES: &[&str] = &[
    "read",
    "read_file",
    "todo",
    "mcp_web_get",
    "mcp_web_get_all",
];
const IDS: &[&str] = &[
    "call_9f3Ab7xQ",
    "toolu_01XyZwV",
    "chatcmpl-tool-5d0c1f",
    "7",
];
const ARGUMENTS: &[&str] = &[
    "{\"path\":\"a b\"}",
    "{\"a\":{\"b\":[1,{}]},\"c\":\"}{\"}",
    "{\"text\":\"read read_file\"}",
];

/// How often, and when, a field of a call is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    First,
    Every,
    /// In all pieces but the first.
    Late,
    /// Cut over the pieces.
    Split,
    Never,
}

#[derive(Clone, Debug)]
struct Habits {
    index: Sent,
    id: Sent,
    name: Sent,
    /// What stands where a field is not sent.
    absent: Value,
    /// Pieces of all calls in turn.
    interleaved: bool,
}

impl Habits {
    /// Whether anybody could tell what such a server means by several calls.
    fn is_clear(&self) -> bool {
        let index = self.index == Sent::Every;
        let id = matches!(self.id, Sent::First | Sent::Every);
        let told_apart = index || id || self.index == Sent::First || self.id == Sent::Never;
        let in_turn = !self.interleaved || index || (self.id == Sent::Every);
        // An id in pieces beside a whole name looks like the ids of several calls, and a piece of a
        // name like the name of another tool.
        let pieced = index || self.id != Sent::Split || self.name != Sent::Every;
        let named = index || id || self.name != Sent::Split;
        told_apart && in_turn && pieced && named
    }
}

fn habits() -> impl Strategy<Value = Habits> {
    let index = prop_oneof![
        3 => Just(Sent::Every),
        1 => Just(Sent::First),
        1 => Just(Sent::Late),
        2 => Just(Sent::Never),
    ];
    let id = prop_oneof![
        Just(Sent::First),
        Just(Sent::Every),
        Just(Sent::Late),
        Just(Sent::Split),
        Just(Sent::Never),
    ];
    let name = prop_oneof![Just(Sent::First), Just(Sent::Every), Just(Sent::Split)];
    let absent = prop_oneof![Just(Value::Null), Just(json!(""))];
    (index, id, name, absent, any::<bool>())
        .prop_map(|(index, id, name, absent, interleaved)| Habits {
            index,
            id,
            name,
            absent,
            interleaved,
        })
        .prop_filter("clear", Habits::is_clear)
}

/// `text` in `count` pieces, cut where `cuts` says; the first has at least `whole` bytes, others may be empty.
fn cut(text: &str, whole: usize, count: usize, cuts: &[prop::sample::Index]) -> Vec<String> {
    let mut at: Vec<usize> = cuts
        .iter()
        .take(count - 1)
        .map(|cut| whole + cut.index((text.len() - whole).max(1)))
        .collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2)
        .map(|pair| text[pair[0]..pair[1]].to_owned())
        .collect()
}

fn field(habit: Sent, whole: &str, part: &str, nth: usize) -> Option<String> {
    let sent = match habit {
        Sent::First => nth == 0,
        Sent::Every => true,
        Sent::Late => nth > 0,
        Sent::Split => return (!part.is_empty()).then(|| part.to_owned()),
        Sent::Never => false,
    };
    sent.then(|| whole.to_owned())
}

/// The pieces of one call.
fn pieces(
    habits: &Habits,
    nth: usize,
    call: &ToolCall,
    count: usize,
    cuts: &[prop::sample::Index],
) -> Vec<Value> {
    let mut arguments = cut(&call.arguments, 0, count, cuts);
    // A call whose arguments are complete is over.
    if let Some(last) = arguments.iter().rposition(|part| !part.is_empty()) {
        arguments.swap(last, count - 1);
        arguments[last..count - 1].sort_unstable();
    }
    // Every call begins with something of its name and id.
    let names = cut(&call.name, 1, count, &cuts[1..]);
    let ids = cut(&call.id, 1, count, &cuts[2..]);
    (0..count)
        .map(|at| {
            let mut piece = Map::new();
            if field(habits.index, "-", "-", at).is_some() {
                piece.insert("index".into(), json!(nth));
            }
            let id = field(habits.id, &call.id, &ids[at], at);
            piece.insert("id".into(), id.map_or(habits.absent.clone(), Value::from));
            let name = field(habits.name, &call.name, &names[at], at);
            let name = name.map_or(habits.absent.clone(), Value::from);
            let arguments = &arguments[at];
            piece.insert(
                "function".into(),
                json!({"name": name, "arguments": arguments}),
            );
            Value::Object(piece)
        })
        .collect()
}

fn sample() -> Sample {
    let mut sample = Sample::chat();
    sample.request.tools = NAMES
        .iter()
        .map(|name| tool(name))
        .collect::<Vec<_>>()
        .into();
    sample
}

fn read(pieces: impl IntoIterator<Item = Value>) -> Vec<ToolCall> {
    let chunk = |piece| json!({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]});
    let mut events: Vec<Value> = pieces.into_iter().map(chunk).collect();
    events.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
    collect(&sample(), &events, true).0.tool_calls
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn any_split_gives_the_same_calls(
        habits in habits(),
        names in proptest::sample::subsequence(NAMES, 1..=3).prop_shuffle(),
        arguments in proptest::collection::vec(proptest::sample::select(ARGUMENTS), 3),
        counts in proptest::collection::vec(1_usize..6, 3),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 8),
    ) {
        let calls: Vec<ToolCall> = names
            .iter()
            .enumerate()
            .map(|(nth, name)| call(IDS[nth], name, arguments[nth]))
            .collect();
        let pieced: Vec<Vec<Value>> = calls
            .iter()
            .enumerate()
            // What comes late needs a second piece.
            .map(|(nth, call)| pieces(&habits, nth, call, counts[nth] + 1, &cuts))
            .collect();
        let sent: Vec<Value> = if habits.interleaved {
            let longest = pieced.iter().map(Vec::len).max().unwrap_or(0);
            (0..longest)
                .flat_map(|at| pieced.iter().filter_map(move |pieces| pieces.get(at).cloned()))
                .collect()
        } else {
            pieced.concat()
        };
        let mut seen = read(sent.clone());
        if habits.id == Sent::Never {
            let given = seen.iter().map(|call| call.id.clone());
            let given: std::collections::BTreeSet<String> = given.collect();
            prop_assert!(given.len() == calls.len() && !given.contains(""), "{given:?}");
            for (seen, call) in seen.iter_mut().zip(&calls) {
                seen.id.clone_from(&call.id);
            }
        }
        prop_assert_eq!(seen, calls, "{:?}\n{}", habits, json!(sent));
    }
}

fn bare(id: &Value, name: &str, arguments: &str) -> Value {
    json!({"index": 0, "id": id, "function": {"name": name, "arguments": arguments}})
}

#[test]
fn ids_made_up_for_every_chunk_are_not_joined() {
    for ids in [
        ["call_1a2b", "call_3c4d", "call_5e6f"],
        [
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "9b2d6c7a-1e3f-4a5b-8c9d-0e1f2a3b4c5d",
            "c0ffee00-aaaa-bbbb-cccc-ddddeeeeffff",
        ],
    ] {
        let seen = read([
            bare(&json!(ids[0]), "todo", "{\"a\""),
            bare(&json!(ids[1]), "", ":1"),
            bare(&json!(ids[2]), "", "}"),
        ]);
        assert_eq!(seen, [call(ids[0], "todo", "{\"a\":1}")]);
    }
}

#[test]
fn names_that_nobody_offered_are_joined_too() {
    let seen = read([
        bare(&json!("c1"), "made", ""),
        bare(&json!(null), "_up", "{}"),
        bare(&json!(null), "", ""),
    ]);
    assert_eq!(seen, [call("c1", "made_up", "{}")]);
    let seen = read([
        bare(&json!("c1"), "made_up", "{"),
        bare(&json!("c1"), "made_up", "}"),
    ]);
    assert_eq!(seen, [call("c1", "made_up", "{}")]);
}

#[test]
fn an_empty_object_in_place_of_nothing_is_no_beginning() {
    let seen = read([
        bare(&json!("c1"), "todo", "{}"),
        bare(&json!(null), "", "{\"a\""),
        bare(&json!(null), "", ":1}"),
    ]);
    assert_eq!(seen, [call("c1", "todo", "{\"a\":1}")]);
    let seen = read([bare(&json!("c1"), "todo", "{}")]);
    assert_eq!(seen, [call("c1", "todo", "{}")]);
}

#[test]
fn a_second_object_is_a_second_call() {
    let seen = read([
        bare(&json!(null), "todo", "{\"a\":1}"),
        bare(&json!(null), "", "{\"a\""),
        bare(&json!(null), "", ":2}"),
    ]);
    let seen: Vec<(&str, &str)> = seen
        .iter()
        .map(|call| (call.name.as_str(), call.arguments.as_str()))
        .collect();
    assert_eq!(seen, [("todo", "{\"a\":1}"), ("todo", "{\"a\":2}")]);
}

#[test]
fn one_id_for_all_calls_does_not_merge_them() {
    let seen = read([
        bare(&json!("call_0"), "todo", "{\"a\":1}"),
        bare(&json!("call_0"), "read", "{\"b\":2}"),
    ]);
    assert_eq!(
        seen,
        [
            call("call_0", "todo", "{\"a\":1}"),
            call("call_0", "read", "{\"b\":2}")
        ]
    );
}
