use hermes_core::message::{Message, ToolCall};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

fn item(id: &str, content: &str, status: &str) -> Value {
    json!({"id": id, "content": content, "status": status})
}

#[tokio::test]
async fn the_list_is_written_merged_and_read() {
    let bench = Bench::new();
    let tools = bench.tools();
    let written = tools
        .ok("todo", json!({"todos": [item("1", "old", "pending"), item("2", "b", "pending"), item("1", "a", "in_progress")]}))
        .await;
    assert_eq!(
        written["todos"],
        json!([item("2", "b", "pending"), item("1", "a", "in_progress")])
    );
    assert_eq!(
        written["summary"],
        json!({"total": 2, "pending": 1, "in_progress": 1, "completed": 0, "cancelled": 0})
    );
    tools
        .ok("todo", json!({"merge": true, "todos": [{"id": "1", "status": "completed"}, item("3", "c", "pending")]}))
        .await;
    let read = tools.ok("todo", json!({})).await;
    assert_eq!(
        read["todos"],
        json!([
            item("2", "b", "pending"),
            item("1", "a", "completed"),
            item("3", "c", "pending")
        ])
    );
    assert_eq!(
        bench.deps.todos.carried_over().unwrap(),
        "- [ ] 2. b (pending)\n- [ ] 3. c (pending)"
    );
}

#[tokio::test]
async fn wrong_items_change_nothing() {
    let bench = Bench::new();
    let tools = bench.tools();
    for (todos, expected) in [
        (json!("nonsense"), "must be a list"),
        (json!([5]), "item 1 must be an object"),
        (
            json!([item("1", "a", "pending"), {"content": "x"}]),
            "item 2 needs an id",
        ),
        (
            json!([item("1", "a", "done")]),
            "use pending, in_progress, completed or cancelled",
        ),
    ] {
        let (kind, text) = tools.err("todo", json!({"todos": todos})).await;
        assert_eq!(kind, ToolErrorKind::BadArguments);
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(bench.deps.todos.items(), []);
    assert_eq!(bench.deps.todos.carried_over(), None);
}

#[tokio::test]
async fn size_is_bounded() {
    let bench = Bench::new();
    let tools = bench.tools();
    let many: Vec<Value> = (0..300)
        .map(|n| item(&n.to_string(), "x", "pending"))
        .collect();
    tools.ok("todo", json!({"todos": many})).await;
    tools
        .ok(
            "todo",
            json!({"merge": true, "todos": [item("new", "x", "pending")]}),
        )
        .await;
    assert_eq!(bench.deps.todos.items().len(), 256);
    tools
        .ok(
            "todo",
            json!({"todos": [item("1", &"é".repeat(5_000), "pending")]}),
        )
        .await;
    assert_eq!(bench.deps.todos.items()[0].content.chars().count(), 4_000);
}

#[tokio::test]
async fn a_resumed_session_gets_its_list_back() {
    let bench = Bench::new();
    let tools = bench.tools();
    let result = tools
        .ok("todo", json!({"todos": [item("1", "a", "pending")]}))
        .await;
    let call = ToolCall {
        id: "c".to_owned(),
        name: "todo".to_owned(),
        arguments: "{}".to_owned(),
        ..ToolCall::default()
    };
    let other = ToolCall {
        name: "memory".to_owned(),
        ..call.clone()
    };
    let history = [
        Message::tool(
            &call,
            json!({"todos": [item("9", "older", "pending")]}).to_string(),
        ),
        Message::tool(&call, result.to_string()),
        Message::tool(&call, "todo: item 1 needs an id"),
        Message::tool(&other, r#"{"todos": []}"#),
        Message::user("go on"),
    ];
    let list = TodoList::default();
    list.restore(history.iter());
    assert_eq!(list.items(), bench.deps.todos.items());
}
