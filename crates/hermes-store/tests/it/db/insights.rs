//! What was used, added up.

use std::sync::Arc;

use hermes_core::clock::SystemClock;
use hermes_store::Store;
use hermes_store::insights::{Insights, UsageWindow};
use pretty_assertions::assert_eq;
use rusqlite::Connection;
use serde_json::{Value, json};

/// A store with one session of 100 + 10 tokens in two calls, and what `sql` adds.
async fn add_up(sessions: Vec<Value>, sql: &str, window: UsageWindow) -> Insights {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let store = Store::open(&path, Arc::new(SystemClock)).unwrap();
    store.import(sessions).await.unwrap();
    store.close().await.unwrap();
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let store = Store::open_read_only(&path, Arc::new(SystemClock)).unwrap();
    store.insights(window).await.unwrap()
}

fn session(id: &str) -> Value {
    json!({
        "id": id, "source": "cli", "model": "main", "started_at": 1000.0, "input_tokens": 100,
        "output_tokens": 10, "api_call_count": 2, "messages": [],
    })
}

const ROW: &str = "INSERT INTO session_model_usage (session_id, model, task, api_call_count, input_tokens, \
     output_tokens, estimated_cost_usd, actual_cost_usd, cost_status) VALUES ";

#[tokio::test]
async fn side_work_is_added_and_not_taken_from_the_session() {
    // The session's own calls are accounted for by 60 + 6; a title cost 500 more.
    let sql = format!(
        "DELETE FROM session_model_usage; {ROW} ('s', 'main', '', 1, 60, 6, 0.5, 0, 'estimated'),
         ('s', 'small', 'title_generation', 1, 400, 100, 0, 0, 'unknown');"
    );
    let all = add_up(vec![session("s")], &sql, UsageWindow::default()).await;
    assert_eq!((all.tokens.input, all.tokens.output), (500, 110));
    assert_eq!((all.side_tokens, all.calls), (500, 3));
    let models: Vec<(&str, i64)> = all
        .models
        .iter()
        .map(|model| (model.model.as_str(), model.tokens.total))
        .collect();
    assert_eq!(models, [("small", 500), ("main", 110)]);
    assert_eq!(all.cost.estimated_usd, Some(0.5));
    // The title, and the call that no row accounts for.
    assert_eq!(all.cost.unknown_calls, 2);
}

#[tokio::test]
async fn sessions_without_rows_per_model_count_as_they_are() {
    let sql = "DROP TABLE session_model_usage;";
    let all = add_up(
        vec![session("s"), session("t")],
        sql,
        UsageWindow::default(),
    )
    .await;
    assert_eq!((all.sessions, all.tokens.total, all.calls), (2, 220, 4));
    assert_eq!(all.cost.known_usd, None);
    let one = UsageWindow {
        session: Some("t".to_owned()),
        ..UsageWindow::default()
    };
    let one = add_up(vec![session("s"), session("t")], sql, one).await;
    assert_eq!((one.sessions, one.tokens.total), (1, 110));
    let later = UsageWindow {
        since: Some(1000.5),
        ..UsageWindow::default()
    };
    assert_eq!(
        add_up(vec![session("s")], sql, later).await,
        Insights::default()
    );
}

#[tokio::test]
async fn odd_tool_calls_break_nothing() {
    let mut odd = session("s");
    odd["messages"] = json!([
        {"role": "assistant", "content": "", "timestamp": 1000.0, "tool_calls":
            [{"id": "a", "type": "function", "function": {"name": "terminal", "arguments": "{"}}]},
        {"role": "tool", "content": "x", "tool_name": "terminal", "timestamp": 1000.0},
        {"role": "tool", "content": "x", "tool_name": "terminal", "timestamp": 1001.0},
    ]);
    let sql = "INSERT INTO messages (session_id, role, content, tool_calls, timestamp) VALUES
        ('s', 'assistant', '', 'no json', 1000.0), ('s', 'assistant', '', '{}', 1000.0),
        ('s', 'assistant', '', '[1, \"x\", {\"function\": 3}, null]', 1000.0),
        ('s', 'assistant', '', '[{\"function\": {\"name\": \"skill_view\", \"arguments\": \"[]\"}}]', 1000.0),
        ('s', 'session_meta', NULL, NULL, 1000.0);";
    let all = add_up(vec![odd], sql, UsageWindow::default()).await;
    let tools: Vec<(&str, i64)> = all
        .tools
        .iter()
        .map(|tool| (tool.tool.as_str(), tool.calls))
        .collect();
    assert_eq!(tools, [("terminal", 2), ("skill_view", 1)]);
    assert_eq!(all.messages.total, 8);
    assert!(all.skills.is_empty());
    assert_eq!(all.quarters.len(), 1);
}
