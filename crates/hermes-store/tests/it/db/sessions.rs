//! What a running session writes and reads back.

use std::path::PathBuf;
use std::time::Duration;

use hermes_core::ids::{RowId, SessionId};
use hermes_core::message::{
    AssistantMessage, BlobKind, Content, FinishReason, Message, Part, ToolCall, ToolMessage,
    UserMessage, WireBlob, WrittenBy,
};
use hermes_core::model::{Route, WireFormat};
use hermes_core::store::{
    NewItem, NewSession, SessionStore as _, SessionUpdate, StoreError, UsageEntry,
};
use hermes_core::usage::{Cost, PriceSource, Usage};
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::json;

use super::{Bench, begin, end, found, item, number, say, texts};

#[tokio::test]
async fn a_conversation_comes_back_as_it_was() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    let messages = vec![
        Message::User(UserMessage {
            content: Content::Parts(vec![
                Part::text("look"),
                Part::image("data:image/png;base64,AA=="),
                Part::Other(json!({"type": "audio", "data": "xx"})),
            ]),
            wire_text: None,
        }),
        Message::Assistant(AssistantMessage {
            text: String::new(),
            reasoning: Some("hm ü".to_owned()),
            tool_calls: vec![
                ToolCall {
                    id: "call_1".to_owned(),
                    name: "terminal".to_owned(),
                    arguments: "{\"command\": \"ls\"}".to_owned(),
                    response_item_id: None,
                    extra: Some(json!({"google": {"thought_signature": "s"}})),
                },
                ToolCall {
                    id: "toolu_2".to_owned(),
                    name: "todo".to_owned(),
                    arguments: "{}".to_owned(),
                    response_item_id: Some("fc_other".to_owned()),
                    extra: None,
                },
            ],
            finish: Some(FinishReason::ToolCalls),
            blobs: vec![WireBlob {
                kind: BlobKind::ReasoningDetails,
                issuer: None,
                value: json!([{"type": "thinking", "signature": "sig=="}]),
            }],
            written_by: None,
        }),
        Message::Assistant(AssistantMessage {
            text: "sealed".to_owned(),
            finish: Some(FinishReason::Stop),
            blobs: vec![
                WireBlob {
                    kind: BlobKind::ResponsesReasoning,
                    issuer: Some("openai-api".to_owned()),
                    value: json!([{"type": "reasoning", "encrypted_content": "zz"}]),
                },
                WireBlob {
                    kind: BlobKind::ResponsesOrder,
                    issuer: Some("openai-api".to_owned()),
                    value: json!("m r c:call_1"),
                },
            ],
            written_by: Some(Box::new(WrittenBy {
                provider: "openai-api".to_owned(),
                model: "gpt-5.4".to_owned(),
            })),
            ..AssistantMessage::default()
        }),
        Message::Tool(ToolMessage {
            call_id: "call_1".to_owned(),
            name: "terminal".to_owned(),
            content: "a.txt".into(),
            disposition: Some("executed".to_owned()),
        }),
        Message::User(UserMessage {
            content: " spaces stay \n".into(),
            wire_text: Some("<memory-context>m</memory-context> spaces stay".to_owned()),
        }),
        Message::assistant("\0json:not json"),
    ];
    let items = messages
        .iter()
        .cloned()
        .map(|message| item(message, 7.5))
        .collect();
    bench.store.append(&id, items).await.unwrap();

    let loaded = bench.store.load(&id).await.unwrap().unwrap();
    let back: Vec<Message> = loaded.items.into_iter().map(|item| item.message).collect();
    assert_eq!(back, messages);
}

#[tokio::test]
async fn rows_look_as_the_original_writes_them() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    let call = ToolCall {
        id: "call_9".to_owned(),
        name: "memory".to_owned(),
        arguments: "{\"q\": \"ü\"}".to_owned(),
        ..ToolCall::default()
    };
    let items = vec![
        item(
            Message::User(UserMessage {
                content: Content::Parts(vec![Part::text("ü"), Part::image("http://x/y.png")]),
                wire_text: None,
            }),
            1.0,
        ),
        item(
            Message::Assistant(AssistantMessage {
                reasoning: Some("why".to_owned()),
                tool_calls: vec![call.clone()],
                finish: Some(FinishReason::ToolCalls),
                ..AssistantMessage::default()
            }),
            2.0,
        ),
        NewItem {
            token_count: Some(7),
            platform_message_id: Some("tg-1".to_owned()),
            ..item(Message::tool(&call, "saved"), 3.0)
        },
    ];
    bench.store.append(&id, items).await.unwrap();

    let sql = bench.sql();
    let rows = texts(
        &sql,
        "SELECT json_array(role, content, tool_call_id, tool_calls, tool_name, finish_reason,
                reasoning, reasoning_content, token_count, platform_message_id, active, compacted,
                observed)
         FROM messages ORDER BY id",
    );
    let rows: Vec<serde_json::Value> = rows
        .iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    let content = "\0json:[{\"type\": \"text\", \"text\": \"\\u00fc\"}, {\"type\": \"image_url\", \"image_url\": {\"url\": \"http://x/y.png\"}}]";
    let calls = "[{\"id\": \"call_9\", \"call_id\": \"call_9\", \"response_item_id\": \"fc_9\", \"type\": \"function\", \"function\": {\"name\": \"memory\", \"arguments\": \"{\\\"q\\\": \\\"\\u00fc\\\"}\"}}]";
    assert_eq!(
        rows,
        [
            json!([
                "user", content, null, null, null, null, null, null, null, null, 1, 0, 0
            ]),
            json!([
                "assistant",
                "",
                null,
                calls,
                null,
                "tool_calls",
                "why",
                "why",
                null,
                null,
                1,
                0,
                0
            ]),
            json!([
                "tool", "saved", "call_9", null, "memory", null, null, null, 7, "tg-1", 1, 0, 0
            ]),
        ]
    );
    assert_eq!(number(&sql, "SELECT message_count FROM sessions"), 3);
    assert_eq!(number(&sql, "SELECT tool_call_count FROM sessions"), 1);
}

#[tokio::test]
async fn beginning_again_fills_gaps_and_reopens() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    end(&bench.store, &id, "agent_close").await;
    let again = |model: &str| NewSession {
        id: Some(id.clone()),
        source: "unknown".to_owned(),
        model: Some(model.to_owned()),
        system_prompt: Some("be".to_owned()),
        cwd: Some(PathBuf::from("/w")),
        model_config: Some(json!({"max_iterations": 90})),
        started_at: 9999.0,
        ..NewSession::default()
    };
    bench.store.begin(again("a")).await.unwrap();
    bench.store.begin(again("b")).await.unwrap();

    let row = bench.store.get("s1").await.unwrap();
    assert_eq!(row.text("source"), Some("cli"));
    assert_eq!(row.text("model"), Some("a"));
    assert_eq!(row.text("cwd"), Some("/w"));
    assert_eq!(row.text("model_config"), Some("{\"max_iterations\": 90}"));
    assert_eq!(row.number("started_at"), Some(1002.0));
    assert_eq!(row.number("ended_at"), None);
    let none = NewSession::default();
    assert!(matches!(
        bench.store.begin(none).await,
        Err(StoreError::Invalid(_))
    ));
}

#[tokio::test]
async fn the_first_end_wins() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    end(&bench.store, &id, "compression").await;
    end(&bench.store, &id, "cli_close").await;
    assert_eq!(
        bench.store.get("s1").await.unwrap().text("end_reason"),
        Some("compression")
    );
    bench
        .store
        .update(&id, SessionUpdate::Reopen)
        .await
        .unwrap();
    assert_eq!(
        bench.store.get("s1").await.unwrap().text("end_reason"),
        None
    );
    let nobody = SessionId::new("nobody");
    let result = bench.store.update(&nobody, SessionUpdate::Reopen).await;
    assert!(matches!(result, Err(StoreError::NotFound(_))));
    let result = bench
        .store
        .append(&nobody, vec![item(Message::user("x"), 1.0)])
        .await;
    assert!(matches!(result, Err(StoreError::NotFound(_))));
    assert!(bench.store.load(&nobody).await.unwrap().is_none());
}

#[tokio::test]
async fn compaction_hides_but_keeps_and_rewind_takes_back() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    say(&bench.store, &id, "old pineapple", 1.0).await;
    say(&bench.store, &id, "older mango", 2.0).await;
    let view = vec![item(Message::user("summary"), 3.0)];
    let all = RowId(i64::MAX);
    let rows = bench.store.compact(&id, all, view).await.unwrap();
    let kept = say(&bench.store, &id, "kept", 4.0).await;
    let undone = say(&bench.store, &id, "undone papaya", 5.0).await;
    assert_eq!(bench.store.rewind(&id, RowId(undone)).await.unwrap(), 1);

    let loaded = bench.store.load(&id).await.unwrap().unwrap();
    let ids: Vec<i64> = loaded.items.iter().map(|item| item.id.0).collect();
    assert_eq!(ids, [rows[0].0, kept]);
    assert!(loaded.compacted_before);
    assert_eq!(found(&bench.store, "pineapple").await, 1);
    assert_eq!(found(&bench.store, "papaya").await, 0);
    let row = bench.store.get("s1").await.unwrap();
    assert_eq!(row.number("message_count"), Some(3.0));
    assert_eq!(row.number("rewind_count"), Some(1.0));
    assert_eq!(bench.store.messages(&id, true).await.unwrap().len(), 5);
    assert_eq!(bench.store.messages(&id, false).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_row_that_came_from_elsewhere_meanwhile_survives_a_compaction() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    let seen = say(&bench.store, &id, "what we saw", 1.0).await;
    let meanwhile = say(&bench.store, &id, "said elsewhere meanwhile", 2.0).await;
    let view = vec![item(Message::user("summary"), 3.0)];
    let rows = bench.store.compact(&id, RowId(seen), view).await.unwrap();
    let loaded = bench.store.load(&id).await.unwrap().unwrap();
    let ids: Vec<i64> = loaded.items.iter().map(|item| item.id.0).collect();
    assert_eq!(ids, [meanwhile, rows[0].0]);
    let row = bench.store.get("s1").await.unwrap();
    assert_eq!(row.number("message_count"), Some(2.0));
}

#[tokio::test]
async fn replay_drops_what_is_not_conversation() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    let harness = "  Review the conversation above and update the skill library now";
    for message in [
        Message::user("<memory-context>secret</memory-context>\n\nhello"),
        Message::assistant("hi"),
        Message::user(harness),
        Message::assistant("reviewed"),
        Message::assistant("second answer stays"),
    ] {
        bench
            .store
            .append(&id, vec![item(message, 1.0)])
            .await
            .unwrap();
    }
    bench
        .sql()
        .execute_batch(
            "INSERT INTO messages (session_id, role, timestamp) VALUES ('s1', 'session_meta', 1);
             INSERT INTO messages (session_id, role, content, tool_calls, timestamp)
                VALUES ('s1', 'assistant', 'broken calls', '[{\"id\": ', 1);",
        )
        .unwrap();
    let loaded = bench.store.load(&id).await.unwrap().unwrap();
    let messages: Vec<Message> = loaded.items.into_iter().map(|item| item.message).collect();
    assert_eq!(
        messages,
        [
            Message::user("hello"),
            Message::assistant("hi"),
            Message::assistant("second answer stays"),
            Message::assistant("broken calls"),
        ]
    );
    assert_eq!(bench.store.messages(&id, true).await.unwrap().len(), 7);
}

#[tokio::test]
async fn a_compressed_session_goes_on_in_its_tip() {
    let bench = Bench::new();
    let store = &bench.store;
    let root = begin(store, "root", "cli", None).await;
    say(store, &root, "long ago", 1.0).await;
    end(store, &root, "compression").await;
    let tip = begin(store, "tip", "cli", Some(&root)).await;
    say(store, &tip, "summary", 2.0).await;
    let branch = begin(store, "branch", "cli", Some(&root)).await;
    let config = Some(json!({"_branched_from": "root"}));
    let update = SessionUpdate::Model {
        model: "m".to_owned(),
        config,
    };
    store.update(&branch, update).await.unwrap();

    let loaded = store.load(&root).await.unwrap().unwrap();
    assert_eq!(loaded.id, tip);
    assert!(loaded.compacted_before);
    assert_eq!(store.resolve_for_resume("root").await.unwrap(), tip);
    // An append to the closed session lands where the conversation goes on.
    say(store, &root, "late", 3.0).await;
    assert_eq!(store.messages(&tip, false).await.unwrap().len(), 2);
    assert_eq!(store.messages(&root, false).await.unwrap().len(), 1);
}

fn usage(model: &str, provider: &str, task: &str, cost: Cost) -> SessionUpdate {
    SessionUpdate::Usage(UsageEntry {
        route: Route {
            provider: provider.to_owned(),
            model: model.to_owned(),
            base_url: "http://h/v1".to_owned(),
            format: WireFormat::ChatCompletions,
            credential: None,
        },
        task: task.to_owned(),
        usage: Usage {
            cache_write_hour: 0,
            input: 100,
            output: 10,
            cache_read: 5,
            cache_write: 1,
            reasoning: 2,
            reported_cost_usd: None,
        },
        cost,
        at: 50.0,
    })
}

#[tokio::test]
async fn usage_is_counted_per_session_and_per_model() {
    let bench = Bench::new();
    let store = &bench.store;
    let session = NewSession {
        id: Some("s1".into()),
        source: "cli".to_owned(),
        model: Some("asked".to_owned()),
        ..NewSession::default()
    };
    store.begin(session).await.unwrap();
    let id = SessionId::new("s1");
    let estimate = Cost::Estimated {
        usd: 0.25,
        source: PriceSource::OfficialDocsSnapshot,
    };
    for update in [
        usage("fallback", "p1", "", estimate),
        usage("other", "p2", "", Cost::Actual { usd: 0.5 }),
        usage("small", "p1", "title_generation", Cost::Unknown),
        usage("other", "p2", "", Cost::Unknown),
    ] {
        store.update(&id, update).await.unwrap();
    }
    let row = store.get("s1").await.unwrap();
    assert_eq!(row.text("model"), Some("fallback"));
    assert_eq!(row.text("billing_provider"), Some("p1"));
    assert_eq!(row.number("api_call_count"), Some(3.0));
    assert_eq!(row.number("input_tokens"), Some(300.0));
    assert_eq!(row.number("reasoning_tokens"), Some(6.0));
    assert_eq!(row.number("estimated_cost_usd"), Some(0.25));
    assert_eq!(row.number("actual_cost_usd"), Some(0.5));
    assert_eq!(row.text("cost_status"), Some("unknown"));
    let rows = texts(
        &bench.sql(),
        "SELECT json_array(model, task, api_call_count, output_tokens, estimated_cost_usd,
            actual_cost_usd, cost_status, cost_source) FROM session_model_usage ORDER BY model",
    );
    assert_eq!(
        rows,
        [
            r#"["fallback","",1,10,0.25,0.0,"estimated","official_docs_snapshot"]"#,
            r#"["other","",2,20,0.0,0.5,"unknown","none"]"#,
            r#"["small","title_generation",1,10,0.0,0.0,"unknown","none"]"#,
        ]
    );
}

#[tokio::test]
async fn a_session_begins_with_its_first_words_and_an_answer_brings_its_cost() {
    let bench = Bench::new();
    let store = &bench.store;
    let session = |id: &str| NewSession {
        id: Some(id.into()),
        source: "api_server".to_owned(),
        ..NewSession::default()
    };
    let first = vec![item(Message::user("hello"), 1.0)];
    let rows = store.begin_with(session("s1"), first.clone()).await;
    assert_eq!(rows.unwrap().len(), 1);
    let id = SessionId::new("s1");
    let SessionUpdate::Usage(cost) = usage("m", "p", "", Cost::Actual { usd: 0.5 }) else {
        unreachable!("that is what it makes");
    };
    let answer = vec![item(Message::assistant("hi"), 2.0)];
    store
        .append_with(&id, answer.clone(), cost.clone())
        .await
        .unwrap();
    let row = store.get("s1").await.unwrap();
    assert_eq!(row.number("message_count"), Some(2.0));
    assert_eq!(row.number("api_call_count"), Some(1.0));
    assert_eq!(row.number("actual_cost_usd"), Some(0.5));
    assert_eq!(store.messages(&id, false).await.unwrap().len(), 2);
    // All or nothing.
    let nowhere = SessionId::new("s2");
    let lost = store.append_with(&nowhere, answer, cost).await;
    assert!(matches!(lost, Err(StoreError::NotFound(_))), "{lost:?}");
    let nameless = store.begin_with(session(""), first).await;
    assert!(
        matches!(nameless, Err(StoreError::Invalid(_))),
        "{nameless:?}"
    );
    let count = "SELECT (SELECT COUNT(*) FROM messages) || ' ' ||
                        (SELECT COUNT(*) FROM session_model_usage)";
    assert_eq!(texts(&bench.sql(), count), ["2 1"]);
}

#[tokio::test]
async fn titles_are_unique_and_move_along_compressions() {
    let bench = Bench::new();
    let store = &bench.store;
    let one = bench.begin("s1").await;
    let two = bench.begin("s2").await;
    let three = bench.begin("s3").await;
    assert_eq!(
        store.set_title(&one, " Tea  time ", false).await.unwrap(),
        "Tea time"
    );
    let taken = store.set_title(&two, "Tea time", false).await;
    assert!(matches!(taken, Err(StoreError::TitleTaken { holder, .. }) if holder == "s1"));
    assert_eq!(
        store.set_title(&two, "Tea time", true).await.unwrap(),
        "Tea time #2"
    );
    assert_eq!(
        store.set_title(&three, "Tea time", true).await.unwrap(),
        "Tea time #3"
    );
    // An automatic title never replaces one that is there.
    assert_eq!(
        store.set_title(&three, "Else", true).await.unwrap(),
        "Tea time #3"
    );

    end(store, &one, "compression").await;
    let tip = begin(store, "tip", "cli", Some(&one)).await;
    assert_eq!(
        store.set_title(&tip, "Tea time", false).await.unwrap(),
        "Tea time"
    );
    assert_eq!(store.get("s1").await.unwrap().text("title"), None);
    assert_eq!(store.rename(&tip, "").await.unwrap(), "");
    assert_eq!(store.get("tip").await.unwrap().text("title"), None);
}

#[tokio::test]
async fn one_compaction_at_a_time() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    let ttl = Duration::from_mins(5);
    let lock = |holder: &'static str| bench.store.lock_compaction(&id, holder, ttl);
    assert!(lock("a").await.unwrap());
    assert!(lock("a").await.unwrap());
    assert!(!lock("b").await.unwrap());
    let release = SessionUpdate::ReleaseCompaction {
        holder: "b".to_owned(),
    };
    bench.store.update(&id, release).await.unwrap();
    assert!(!lock("b").await.unwrap());
    bench
        .sql()
        .execute("UPDATE compression_locks SET expires_at = 1", [])
        .unwrap();
    assert!(lock("b").await.unwrap());
}

#[tokio::test]
async fn small_updates_reach_their_columns() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    let row = say(&bench.store, &id, "hi", 1.0).await;
    for update in [
        SessionUpdate::SystemPrompt("you are".to_owned()),
        SessionUpdate::CompactionCooldown {
            until: Some(77.0),
            error: Some("down".to_owned()),
        },
        SessionUpdate::WireText {
            row: RowId(row),
            text: "hi + context".to_owned(),
        },
    ] {
        bench.store.update(&id, update).await.unwrap();
    }
    let loaded = bench.store.load(&id).await.unwrap().unwrap();
    assert_eq!(loaded.system_prompt.as_deref(), Some("you are"));
    assert_eq!(loaded.compaction_cooldown_until, Some(77.0));
    let Message::User(user) = &loaded.items[0].message else {
        panic!("a user message")
    };
    assert_eq!(user.wire_text.as_deref(), Some("hi + context"));
}

fn any_message() -> impl Strategy<Value = Message> {
    let text = prop_oneof![any::<String>(), "[a-z \\n\"\\\\ü]{0,20}"];
    prop_oneof![
        (text.clone(), proptest::option::of("[a-z]{1,9}")).prop_map(|(text, wire_text)| {
            Message::User(UserMessage {
                content: Content::Text(text),
                wire_text,
            })
        }),
        (
            text.clone(),
            proptest::option::of("[a-z]{1,9}"),
            proptest::collection::vec(text.clone(), 0..3)
        )
            .prop_map(|(text, reasoning, arguments)| {
                let call = |(index, arguments): (usize, String)| ToolCall {
                    id: format!("call_{index}"),
                    name: "t".to_owned(),
                    arguments,
                    ..ToolCall::default()
                };
                // Who wrote a plain text is asked by nobody, and not kept.
                let written_by = reasoning.as_ref().map(|word| {
                    Box::new(WrittenBy {
                        provider: "p".to_owned(),
                        model: word.clone(),
                    })
                });
                Message::Assistant(AssistantMessage {
                    text,
                    reasoning,
                    tool_calls: arguments.into_iter().enumerate().map(call).collect(),
                    finish: Some(FinishReason::Stop),
                    blobs: Vec::new(),
                    written_by,
                })
            }),
        text.prop_map(|text| Message::Tool(ToolMessage {
            call_id: "call_0".to_owned(),
            name: "t".to_owned(),
            content: Content::Text(text),
            disposition: None,
        })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_log_reads_back(messages in proptest::collection::vec(any_message(), 1..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new();
            let id = bench.begin("s1").await;
            let items = messages.iter().cloned().map(|message| item(message, 1.0)).collect();
            bench.store.append(&id, items).await.unwrap();
            let loaded = bench.store.load(&id).await.unwrap().unwrap();
            let back: Vec<Message> = loaded.items.into_iter().map(|item| item.message).collect();
            prop_assert_eq!(back, messages);
            Ok(())
        })?;
    }
}

/// `sessions.auto_prune`: what ended long ago goes, once in a while, and never what is open.
#[tokio::test]
async fn old_sessions_are_pruned_once_in_a_while() {
    use hermes_store::AutoPrune;
    use std::sync::Arc;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let clock = Arc::new(hermes_testkit::clock::ManualClock::at(100 * 86_400));
    let store = hermes_store::Store::open(&path, clock.clone()).unwrap();
    for id in ["ended", "in-use"] {
        let id = begin(&store, id, "cli", None).await;
        say(&store, &id, "hello", 1000.0).await;
        end(&store, &id, "agent_close").await;
    }
    begin(&store, "open", "cli", None).await;
    let wish = AutoPrune {
        retention_days: 90,
        min_interval_hours: 24,
        vacuum: true,
    };
    assert_eq!(
        store.auto_prune(wish, Some("in-use")).await.unwrap(),
        Some(1)
    );
    let left = |store: &hermes_store::Store| {
        let conn = rusqlite::Connection::open(store.path()).unwrap();
        texts(&conn, "SELECT id FROM sessions ORDER BY id")
    };
    assert_eq!(left(&store), ["in-use", "open"]);
    assert_eq!(
        store.auto_prune(wish, None).await.unwrap(),
        None,
        "not yet again"
    );
    clock.advance(Duration::from_hours(25));
    assert_eq!(store.auto_prune(wish, None).await.unwrap(), Some(1));
    assert_eq!(left(&store), ["open"]);
}

/// Conversations are nobody else's, in new files and in old ones.
#[tokio::test]
async fn the_database_is_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let bench = Bench::new();
    bench.begin("s1").await;
    for end in ["", "-wal", "-shm"] {
        let path = PathBuf::from(format!("{}{end}", bench.path().display()));
        assert_eq!(mode(&path), 0o600, "{end}");
    }
    let path = bench.path();
    bench.store.clone().close().await.unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let again = super::open(&path);
    assert_eq!(mode(&path), 0o600);
    drop(again);
}
