//! Calls as they come.

use std::time::Duration;

use hermes_core::tool::ToolErrorKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cells::{ToolCell, TranscriptCell};

fn tool(name: &str, arguments: &Value, result: &Value, millis: u64) -> ToolCell {
    let mut cell = ToolCell::started(name, &arguments.to_string());
    cell.finish(None, &result.to_string(), Duration::from_millis(millis));
    cell
}

fn failed(name: &str, arguments: &Value, kind: ToolErrorKind, said: &str) -> ToolCell {
    let mut cell = ToolCell::started(name, &arguments.to_string());
    cell.finish(Some(kind), said, Duration::from_millis(100));
    cell
}

pub(super) fn read() -> ToolCell {
    let content = "1|fn main() {\n2|}\n";
    tool(
        "read_file",
        &json!({"path": "src/parser.rs"}),
        &json!({"content": content, "total_lines": 214, "file_size": 7000, "truncated": false}),
        90,
    )
}

pub(super) fn tests_failed() -> ToolCell {
    let mut output: Vec<String> = (1..=31).map(|n| format!("test case_{n} ... ok")).collect();
    output.push("test trailing_comma ... \u{1b}[31mFAILED\u{1b}[0m".to_owned());
    output.push("error: expected `]`, found `,`".to_owned());
    tool(
        "terminal",
        &json!({"command": "cargo test parser"}),
        &json!({"output": output.join("\n"), "exit_code": 101, "error": null}),
        4_210,
    )
}

const DIFF: &str = "--- a/src/parser.rs\n+++ b/src/parser.rs\n@@ -87,3 +87,5 @@\n     loop {\n-        if self.peek() == Tok::RBracket { break }\n+        if self.accept(Tok::Comma) && self.peek() == Tok::RBracket { break }\n+        // comment\n+        step();\n     }\n";

pub(super) fn edited() -> ToolCell {
    tool(
        "patch",
        &json!({"mode": "replace", "path": "src/parser.rs", "old_string": "a", "new_string": "b"}),
        &json!({"success": true, "diff": DIFF, "files_modified": ["src/parser.rs"]}),
        30,
    )
}

fn boxed(cells: Vec<ToolCell>) -> Vec<Box<dyn TranscriptCell>> {
    cells
        .into_iter()
        .map(|cell| Box::new(cell) as Box<dyn TranscriptCell>)
        .collect()
}

#[expect(clippy::too_many_lines, reason = "a list of samples")]
pub(super) fn programs() -> Vec<Box<dyn TranscriptCell>> {
    let heredoc = "cat > notes.txt <<'EOF'\none\ntwo\n\tthree\nfour\nfive\nEOF";
    let long = "find . -name '*.rs' -newer Cargo.lock -print0 | xargs -0 grep -n --color=never 'unwrap()' | sort | uniq -c";
    boxed(vec![
        read(),
        tool(
            "read_file",
            &json!({"path": "/var/log/syslog", "offset": 101, "limit": 100}),
            &json!({"content": "", "total_lines": 900, "next_offset": 201}),
            0,
        ),
        tool(
            "read_file",
            &json!({"path": "a"}),
            &json!({"status": "unchanged"}),
            0,
        ),
        tests_failed(),
        tool(
            "terminal",
            &json!({"command": "true"}),
            &json!({"output": "", "exit_code": 0, "error": null}),
            20,
        ),
        tool(
            "terminal",
            &json!({"command": long}),
            &json!({"output": "      3 ./src/a.rs:1:x.unwrap()\n", "exit_code": 0}),
            1_250,
        ),
        tool(
            "terminal",
            &json!({"command": heredoc}),
            &json!({"output": "10%\r50%\r100%\ndone\n", "exit_code": 0}),
            61_000,
        ),
        tool(
            "terminal",
            &json!({"command": "npm run dev", "background": true}),
            &json!({"output": "Background process started", "session_id": "p1", "pid": 7, "exit_code": 0}),
            300,
        ),
        edited(),
        tool(
            "patch",
            &json!({"mode": "patch", "patch": "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x = 1\n+x = 2\n*** Add File: b.txt\n+hello\n*** End Patch"}),
            &json!({"success": true}),
            40,
        ),
        tool(
            "write_file",
            &json!({"path": "src/lib.rs", "content": "//! Docs\n\npub fn a() -> u8 {\n    1\n}\n\npub fn b() {}\n"}),
            &json!({"bytes_written": 60}),
            10,
        ),
        tool(
            "search_files",
            &json!({"pattern": "fn main", "path": "src"}),
            &json!({"total_count": 4, "matches": [
            {"path": "src/main.rs", "line": 3, "content": "fn main() {"},
            {"path": "src/bin/x.rs", "line": 10, "content": "\tfn main() -> Result<(), Box<dyn std::error::Error>> { run(std::env::args()) }"},
            {"path": "c.rs", "line": 1, "content": "fn main() {}"},
            {"path": "d.rs", "line": 1, "content": "fn main() {}"}]}),
            15,
        ),
        tool(
            "search_files",
            &json!({"pattern": "*.md", "target": "files"}),
            &json!({"total_count": 0}),
            15,
        ),
        tool(
            "execute_code",
            &json!({"code": "import json\nprint(json.dumps({'a': 1}))"}),
            &json!({"status": "success", "output": "{\"a\": 1}\n", "exit_code": 0, "tool_calls_made": 0}),
            800,
        ),
        tool(
            "process",
            &json!({"action": "poll", "session_id": "p1"}),
            &json!({"session_id": "p1", "status": "running", "output_preview": "ready on :3000\n"}),
            5,
        ),
        tool(
            "process",
            &json!({"action": "list"}),
            &json!({"processes": [{"session_id": "p1"}]}),
            5,
        ),
    ])
}

#[expect(clippy::too_many_lines, reason = "a list of samples")]
pub(super) fn knowledge() -> Vec<Box<dyn TranscriptCell>> {
    let todos = json!([
        {"id": "1", "content": "read the grammar", "status": "completed"},
        {"id": "2", "content": "accept trailing commas in arrays, in calls and in every other list there is", "status": "in_progress"},
        {"id": "3", "content": "update the changelog", "status": "pending"},
        {"id": "4", "content": "rewrite it in C", "status": "cancelled"}]);
    let tasks = json!({"tasks": [{"goal": "Find every use of unwrap in crates/hermes-tools and say which of them may panic"}, {"goal": "Run the tests"}, {"goal": "Write docs"}]});
    boxed(vec![
        tool(
            "web_search",
            &json!({"query": "rust trailing comma"}),
            &json!({"success": true, "data": {"web": [
            {"title": "Trailing commas", "url": "https://doc.rust-lang.org/reference/", "description": "x", "position": 1},
            {"title": "RFC 2000", "url": "https://rust-lang.github.io/rfcs/", "position": 2}]}}),
            640,
        ),
        tool(
            "web_extract",
            &json!({"urls": ["https://example.org/a/page/"]}),
            &json!({"results": [{"url": "https://example.org/a/page/", "title": "A page", "content": "Words of the page.", "error": null}]}),
            900,
        ),
        tool(
            "delegate_task",
            &tasks,
            &json!({"results": [
            {"task_index": 0, "status": "completed", "summary": "Found **12** uses.\n\n- a\n- b", "duration_seconds": 41.2, "tokens": {"input": 18_000, "output": 400}, "model": "m"},
            {"task_index": 1, "status": "failed", "summary": null, "error": "the provider failed: 500", "duration_seconds": 3.0},
            {"task_index": 2, "status": "timeout", "error": "it took longer than allowed"}]}),
            42_000,
        ),
        tool(
            "delegate_task",
            &json!({"goal": "Watch the build", "background": true}),
            &json!({"status": "started", "message": "Reports come as a message."}),
            10,
        ),
        tool(
            "todo",
            &json!({"todos": todos}),
            &json!({"todos": todos, "summary": {"total": 4, "pending": 1, "in_progress": 1, "completed": 1, "cancelled": 1}}),
            1,
        ),
        tool(
            "clarify",
            &json!({"question": "Which branch?", "choices": ["main", "next"]}),
            &json!({"question": "Which branch?", "user_response": "main"}),
            9_000,
        ),
        tool(
            "memory",
            &json!({"action": "add", "target": "user", "content": "Prefers short answers."}),
            &json!({"success": true}),
            3,
        ),
        tool(
            "memory",
            &json!({"action": "remove", "old_text": "Lives in Bonn."}),
            &json!({"success": true, "staged": true}),
            3,
        ),
        tool(
            "skill_view",
            &json!({"name": "release"}),
            &json!({"content": "# Release"}),
            3,
        ),
        tool(
            "skill_manage",
            &json!({"action": "create", "name": "deploy"}),
            &json!({"success": true}),
            3,
        ),
        tool("skills_list", &json!({}), &json!({"skills": [1, 2, 3]}), 3),
        tool(
            "session_search",
            &json!({"query": "comma"}),
            &json!({"results": [{}]}),
            30,
        ),
        tool(
            "cronjob",
            &json!({"action": "create", "name": "Morning", "schedule": "0 9 * * 1-5", "prompt": "Say good morning."}),
            &json!({"job_id": "j1"}),
            3,
        ),
        tool(
            "cronjob",
            &json!({"action": "list"}),
            &json!({"jobs": []}),
            3,
        ),
        tool(
            "vision_analyze",
            &json!({"image_url": "/tmp/shot.png", "question": "What is it?"}),
            &json!({"success": true, "analysis": "A cat\non a mat."}),
            2_000,
        ),
        tool(
            "mcp__github__list_issues",
            &json!({"repo": "a/b", "state": "open", "labels": ["bug"]}),
            &json!({"result": "#1 It crashes\n#2 It is slow"}),
            410,
        ),
        tool("strange_tool", &json!({"x": 1}), &json!({"n": [1, 2]}), 3),
        ToolCell::stored("plain_tool", "", "just text", false),
    ])
}

pub(super) fn failures() -> Vec<Box<dyn TranscriptCell>> {
    boxed(vec![
        failed(
            "read_file",
            &json!({"path": "nope.rs"}),
            ToolErrorKind::Failed,
            "read_file: nope.rs does not exist; did you mean node.rs?",
        ),
        failed(
            "terminal",
            &json!({"command": "rm -rf /"}),
            ToolErrorKind::Denied,
            "The person said no: not on this machine.",
        ),
        failed(
            "terminal",
            &json!({"command": "sleep 1000"}),
            ToolErrorKind::TimedOut,
            "{\"output\": \"one\\ntwo\", \"exit_code\": -1, \"error\": \"no end after 180 s\"}",
        ),
        failed(
            "patch",
            &json!({"path": "a.rs", "old_string": "x", "new_string": "y"}),
            ToolErrorKind::BadArguments,
            "old_string was not found in a.rs. Copy the text from the file exactly, from its beginning to its end.",
        ),
        failed(
            "mcp__linear__get",
            &json!({}),
            ToolErrorKind::OutcomeUnknown,
            "The server went away; it may have happened.",
        ),
        ToolCell::stored(
            "terminal",
            r#"{"command": "make"}"#,
            r#"{"output": "", "exit_code": -1, "error": "no such directory", "status": "error"}"#,
            true,
        ),
        ToolCell::stored(
            "web_extract",
            r#"{"urls": ["https://a.example/", "https://b.example/"]}"#,
            "{\"success\": false, \"error\": \"blocked\"}",
            false,
        ),
    ])
}

/// Those whose words are all ASCII.
pub(super) fn plain() -> Vec<Box<dyn TranscriptCell>> {
    let mut cells = programs();
    cells.extend(knowledge());
    cells.extend(failures());
    cells
}

pub(super) fn all() -> Vec<Box<dyn TranscriptCell>> {
    plain()
}

pub(super) fn running() -> Vec<(ToolCell, u64)> {
    let mut terminal = ToolCell::started(
        "terminal",
        r#"{"command": "cargo clippy --workspace --all-targets"}"#,
    );
    terminal.progress("old");
    terminal.progress("a\nb\nc\n\u{1b}[32mChecking\u{1b}[0m d\ne\nf\n12%\r37%");
    let tasks = json!({"tasks": [{"goal": "Find every use of unwrap"}, {"goal": "Run the tests"}]});
    let mut children = ToolCell::started("delegate_task", &tasks.to_string());
    children.progress("[1/2] read_file {\"path\": \"src/main.rs\"}");
    children.progress("[2/2] terminal {\"command\": \"cargo test\"}");
    children.progress("[2/2] ended: completed");
    let mut search = ToolCell::started("web_search", r#"{"query": "rust"}"#);
    search.progress("asking Brave");
    let quiet = ToolCell::started("read_file", r#"{"path": "src/main.rs"}"#);
    vec![(terminal, 3), (children, 75), (search, 1), (quiet, 0)]
}

pub(super) const NAMES: &[&str] = &[
    "terminal",
    "process",
    "read_file",
    "write_file",
    "patch",
    "search_files",
    "web_search",
    "web_extract",
    "execute_code",
    "delegate_task",
    "todo",
    "clarify",
    "memory",
    "skill_view",
    "skill_manage",
    "skills_list",
    "session_search",
    "cronjob",
    "vision_analyze",
    "mcp__a__b",
    "mcp__",
    "other",
    "",
];

/// Objects with the keys that are looked for, and values that do not belong there.
pub(super) fn json() -> impl Strategy<Value = String> {
    let key = proptest::sample::select(
        &[
            "command",
            "path",
            "content",
            "patch",
            "diff",
            "old_string",
            "new_string",
            "mode",
            "query",
            "urls",
            "tasks",
            "goal",
            "results",
            "todos",
            "summary",
            "status",
            "error",
            "output",
            "exit_code",
            "success",
            "matches",
            "files",
            "total_count",
            "total_lines",
            "offset",
            "next_offset",
            "action",
            "data",
            "user_response",
            "question",
            "duration_seconds",
            "tokens",
            "task_index",
            "message",
        ][..],
    );
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(-1.5)),
        "[a-z日 \n\t\u{1b}\u{202e}+@*-]{0,40}".prop_map(Value::from),
        Just(json!("--- a/x\n+++ b/x\n@@ -1,9 +1 @@\n-a\n+b\u{1b}\n")),
        Just(json!("x".repeat(300))),
    ];
    let value = leaf.prop_recursive(2, 12, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(
                (
                    proptest::sample::select(
                        &[
                            "goal", "summary", "status", "content", "title", "url", "path", "line",
                            "web", "input", "x"
                        ][..]
                    ),
                    inner
                ),
                0..4
            )
            .prop_map(|pairs| pairs
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<serde_json::Map<_, _>>()
                .into()),
        ]
    });
    proptest::collection::vec((key, value), 0..6).prop_map(|pairs| {
        let map: serde_json::Map<String, Value> = pairs
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        Value::Object(map).to_string()
    })
}
