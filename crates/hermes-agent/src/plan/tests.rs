use std::path::Path;
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::message::ToolCall;
use hermes_core::tool::{
    Effects, Registry, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use pretty_assertions::assert_eq;

use super::*;

struct Fake(ToolSpec);

impl Tool for Fake {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, _args: ToolArgs, _cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(std::future::ready(ToolOutcome::Done("ok".into())))
    }
}

fn registry() -> Registry {
    let tool = |name: &str, effects| -> Arc<dyn Tool> {
        Arc::new(Fake(ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: Arc::new(serde_json::json!({})),
            toolset: "test",
            effects,
            untrusted: false,
        }))
    };
    Registry::new([
        tool("search_files", Effects::ReadOnly),
        tool("read_file", Effects::ReadsPaths(&["path"])),
        tool("write_file", Effects::WritesPaths(&["path"])),
        tool("terminal", Effects::Exclusive),
        tool("clarify", Effects::Interactive),
    ])
}

fn call(name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: format!("{name}{arguments}"),
        name: name.into(),
        arguments: arguments.into(),
        ..ToolCall::default()
    }
}

fn plan(calls: &[(&str, &str)]) -> Vec<ParallelCalls> {
    let calls = calls.iter().map(|(name, args)| call(name, args)).collect();
    let prepared = prepare(calls, &registry(), |_| false);
    segments(&prepared, Path::new("/nowhere"))
}

const A: &str = r#"{"path":"a"}"#;
const B: &str = r#"{"path":"b/../b"}"#;
const INSIDE_B: &str = r#"{"path":"b/c"}"#;

#[test]
fn readers_run_together_and_barriers_keep_the_order() {
    use ParallelCalls::{Alone, Person, Together};
    assert_eq!(
        plan(&[
            ("search_files", "{}"),
            ("read_file", A),
            ("terminal", "{}"),
            ("read_file", B),
            ("clarify", "{}"),
            ("search_files", r#"{"q":1}"#),
            ("read_file", INSIDE_B),
        ]),
        [
            Together(vec![0, 1]),
            Alone(2),
            Alone(3),
            Person(4),
            Together(vec![5, 6])
        ]
    );
}

#[test]
fn writers_run_beside_others_unless_files_overlap() {
    use ParallelCalls::{Alone, Together};
    assert_eq!(
        plan(&[
            ("write_file", A),
            ("write_file", B),
            ("read_file", INSIDE_B)
        ]),
        [Together(vec![0, 1]), Alone(2)]
    );
    assert_eq!(
        plan(&[("read_file", A), ("read_file", r#"{"path":"./a"}"#)]),
        [Together(vec![0, 1])],
        "two readers of one file"
    );
}

#[test]
fn calls_that_cannot_run_are_barriers_with_a_reason() {
    use ParallelCalls::Alone;
    assert_eq!(
        plan(&[
            ("read_file", A),
            ("read_file", r#"{"path":[1}"#),
            ("read_file", B)
        ]),
        [Alone(0), Alone(1), Alone(2)]
    );
    let calls = vec![
        call("frobnicate", "{}"),
        call(" ", "{}"),
        call("terminal", "7"),
    ];
    let prepared = prepare(calls, &registry(), |_| false);
    let texts: Vec<(ToolErrorKind, &str)> = prepared
        .iter()
        .map(|prepared| match &prepared.work {
            CallAction::Refuse { kind, text } => (*kind, text.as_str()),
            CallAction::Run { .. } => panic!("{} would run", prepared.call.name),
        })
        .collect();
    assert!(texts[0].1.contains("read_file, search_files, terminal"));
    assert!(!texts[1].1.contains("read_file"));
    assert_eq!(texts[2].0, ToolErrorKind::BadArguments);
    for prepared in &prepared {
        serde_json::from_str::<ToolArgs>(&prepared.call.arguments)
            .expect("what is stored is a JSON object");
    }
}

#[test]
fn names_are_repaired_and_duplicates_dropped() {
    let names = |written: &[&str]| -> Vec<String> {
        let calls = written.iter().map(|name| call(name, "{}")).collect();
        prepare(calls, &registry(), |_| false)
            .into_iter()
            .map(|prepared| prepared.call.name)
            .collect()
    };
    for written in [
        "read_file",
        "ReadFile",
        "read-file",
        "READ FILE",
        "read_file_tool",
        "ReadFileTool",
        "\"read_file\"",
        "read_file<|channel|>",
        "read_fil",
    ] {
        assert_eq!(names(&[written]), ["read_file"], "{written}");
    }
    assert_eq!(
        names(&["terminal", "Terminal", "clarify"]),
        ["terminal", "clarify"]
    );
}

#[test]
fn missing_and_repeated_ids_are_made_up_the_same_way_each_time() {
    let ids = || -> Vec<String> {
        let calls = vec![
            ToolCall {
                id: String::new(),
                ..call("terminal", r#"{"a":1}"#)
            },
            ToolCall {
                id: "call_0".into(),
                ..call("terminal", r#"{"a":2}"#)
            },
            ToolCall {
                id: "x".into(),
                ..call("terminal", r#"{"a":3}"#)
            },
            ToolCall {
                id: "x".into(),
                ..call("terminal", r#"{"a":4}"#)
            },
        ];
        prepare(calls, &registry(), |id| id == "call_0")
            .into_iter()
            .map(|prepared| prepared.call.id)
            .collect()
    };
    let first = ids();
    assert_eq!(first, ids());
    assert_eq!(first[2], "x");
    let unique: std::collections::HashSet<&String> = first.iter().collect();
    assert_eq!(unique.len(), 4);
    assert!(!first.contains(&"call_0".to_owned()));
}
