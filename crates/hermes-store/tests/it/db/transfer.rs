//! Export and import.

use hermes_core::message::Message;
use hermes_core::store::{SessionStore as _, StoreError};
use hermes_store::{ImportReport, Imported, session_markdown};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{Bench, end, found, item, say};

async fn exported() -> (Bench, Value) {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    say(&bench.store, &id, "question ü", 1.0).await;
    let answer = item(Message::assistant("answer"), 2.0);
    bench.store.append(&id, vec![answer]).await.unwrap();
    bench.store.set_title(&id, "Tea", false).await.unwrap();
    end(&bench.store, &id, "cli_close").await;
    let line = bench.store.export(&id).await.unwrap();
    (bench, line)
}

#[tokio::test]
async fn what_is_exported_can_be_imported_elsewhere() {
    let (_from, line) = exported().await;
    assert_eq!(line["messages"].as_array().unwrap().len(), 2);
    assert_eq!(line["end_reason"], "cli_close");
    let to = Bench::new();
    let report = to.store.import(vec![line.clone()]).await.unwrap();
    let ImportReport::Done(done) = report else {
        panic!("{report:?}")
    };
    assert_eq!(done.imported_ids, ["s1"]);
    let mut back = to.store.export(&"s1".into()).await.unwrap();
    back["messages"] = line["messages"].clone();
    assert_eq!(back, line);
    assert_eq!(found(&to.store, "question").await, 1);
    let again = to.store.import(vec![line]).await.unwrap();
    let skipped = Imported {
        skipped_ids: vec!["s1".to_owned()],
        ..Imported::default()
    };
    assert_eq!(again, ImportReport::Done(skipped));
}

#[tokio::test]
async fn an_import_is_all_or_nothing() {
    let bench = Bench::new();
    let cases = [
        json!("text"),
        json!({"source": "cli"}),
        json!({"id": "a", "messages": "x"}),
        json!({"id": "b", "messages": [{"content": "no role"}]}),
        json!({"id": "c", "title": 7}),
        json!({"id": "d", "model_config": "[]"}),
        json!({"id": "ok"}),
        json!({"id": "ok"}),
    ];
    let report = bench.store.import(cases.to_vec()).await.unwrap();
    let ImportReport::Refused { errors } = report else {
        panic!("{report:?}")
    };
    let places: Vec<usize> = errors.iter().map(|error| error.index).collect();
    assert_eq!(places, [0, 1, 2, 3, 4, 5, 7]);
    assert_eq!(bench.store.stats().await.unwrap().sessions, 0);
    let many = vec![json!({"id": "x"}); 501];
    assert!(matches!(
        bench.store.import(many).await,
        Err(StoreError::Invalid(_))
    ));
    let long = json!({"id": "long", "messages": vec![json!({"role": "user"}); 10_001]});
    assert!(matches!(
        bench.store.import(vec![long]).await.unwrap(),
        ImportReport::Refused { .. }
    ));
}

#[tokio::test]
async fn parents_are_kept_where_they_exist_and_make_no_loop() {
    let bench = Bench::new();
    bench.begin("here").await;
    bench
        .store
        .set_title(&"here".into(), "Tea", false)
        .await
        .unwrap();
    let input = vec![
        json!({"id": "child", "parent_session_id": "here", "title": "Tea"}),
        json!({"id": "orphan", "parent_session_id": "gone"}),
        json!({"id": "a", "parent_session_id": "b"}),
        json!({"id": "b", "parent_session_id": "a", "messages": [
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "t", "arguments": "{}"}}]},
            {"role": "user", "content": [{"type": "text", "text": "x"}], "timestamp": 3.0}]}),
    ];
    let ImportReport::Done(done) = bench.store.import(input).await.unwrap() else {
        panic!("imported");
    };
    assert_eq!(done.detached, 2);
    let child = bench.store.get("child").await.unwrap();
    assert_eq!(child.text("parent_session_id"), Some("here"));
    assert_eq!(child.text("title"), Some("Tea #2"));
    assert_eq!(child.text("source"), Some("import"));
    assert_eq!(
        bench
            .store
            .get("a")
            .await
            .unwrap()
            .text("parent_session_id"),
        None
    );
    let b = bench.store.get("b").await.unwrap();
    assert_eq!(b.text("parent_session_id"), Some("a"));
    assert_eq!(b.number("tool_call_count"), Some(1.0));
}

#[tokio::test]
async fn markdown_reads_like_a_conversation() {
    let (_bench, mut line) = exported().await;
    line["messages"].as_array_mut().unwrap().extend([
        json!({"role": "tool", "tool_name": "terminal", "content": "has ``` inside"}),
        json!({"role": "session_meta", "content": null}),
    ]);
    let text = session_markdown(&line);
    assert!(text.starts_with("# Tea\n"));
    assert!(text.contains("\n## User\n\nquestion ü\n"));
    assert!(text.contains("## Tool: terminal\n\n````\nhas ``` inside\n````"));
    assert!(!text.contains("session_meta"));
}
