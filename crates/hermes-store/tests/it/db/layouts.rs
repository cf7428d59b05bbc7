//! Databases of other versions.

use std::path::Path;

use hermes_core::ids::SessionId;
use hermes_core::store::{SessionStore as _, SessionUpdate, StoreError};
use hermes_store::{ListFilter, Store};
use hermes_testkit::clock::ManualClock;
use pretty_assertions::assert_eq;
use rusqlite::Connection;
use serde_json::json;
use std::sync::Arc;
use tempfile::TempDir;

use super::{Bench, assert_sound, begin, found, number, open, say, texts};

/// The shape of schema 11: no gateway columns, no `active`, no usage table.
const V11: &str = "
    CREATE TABLE schema_version (version INTEGER NOT NULL);
    INSERT INTO schema_version VALUES (11);
    CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT,
        model_config TEXT, system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL,
        ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0,
        tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0,
        output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0,
        cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0,
        billing_provider TEXT, billing_base_url TEXT, billing_mode TEXT, estimated_cost_usd REAL,
        actual_cost_usd REAL, cost_status TEXT, cost_source TEXT, pricing_version TEXT, title TEXT,
        FOREIGN KEY (parent_session_id) REFERENCES sessions(id));
    CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL, content TEXT,
        tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
        token_count INTEGER, finish_reason TEXT, reasoning TEXT, reasoning_content TEXT,
        reasoning_details TEXT, codex_reasoning_items TEXT);
    CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT);
    INSERT INTO sessions (id, source, started_at, input_tokens, model, title) VALUES
        ('old', 'cli', 1, 70, 'm', 'Same'), ('newer', 'cli', 2, 0, 'm', 'Same');
    INSERT INTO sessions (id, source, started_at, parent_session_id) VALUES ('sub', 'cli', 3, 'old');
    INSERT INTO messages (session_id, role, content, timestamp) VALUES ('old', 'user', 'kiwi', 1);";

fn file(sql: &str) -> (TempDir, std::path::PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("state.db");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    (dir, path)
}

#[tokio::test]
async fn an_old_database_is_brought_up_to_date() {
    let (dir, path) = file(V11);
    std::fs::create_dir(dir.path().join("sessions")).unwrap();
    let index = json!({
        "_README": "x",
        "agent:main:telegram:dm:5": {
            "session_id": "old", "chat_type": "dm", "display_name": "Ann",
            "origin": {"chat_id": "5", "name": "ü"}, "memory_flushed": true
        }
    });
    std::fs::write(dir.path().join("sessions/sessions.json"), index.to_string()).unwrap();

    let store = open(&path);
    assert_eq!(store.schema_version(), 22);
    assert_eq!(found(&store, "kiwi").await, 1);
    assert_eq!(
        store
            .load(&"old".into())
            .await
            .unwrap()
            .unwrap()
            .items
            .len(),
        1
    );
    let old = store.get("old").await.unwrap();
    assert_eq!(old.text("title"), None);
    assert_eq!(old.text("session_key"), Some("agent:main:telegram:dm:5"));
    assert_eq!(
        old.text("origin_json"),
        Some("{\"chat_id\": \"5\", \"name\": \"\\u00fc\"}")
    );
    assert_eq!(old.number("expiry_finalized"), Some(1.0));
    assert_eq!(
        store.get("newer").await.unwrap().text("title"),
        Some("Same")
    );
    let sub = store.get("sub").await.unwrap();
    assert_eq!(
        sub.text("model_config"),
        Some("{\"_delegate_from\":\"old\"}")
    );
    let sql = Connection::open(&path).unwrap();
    assert_eq!(
        number(
            &sql,
            "SELECT input_tokens FROM session_model_usage WHERE task = ''"
        ),
        70
    );
    assert_eq!(number(&sql, "SELECT version FROM schema_version"), 22);
    say(&store, &"old".into(), "mango", 2.0).await;
    store.close().await.unwrap();
    assert_sound(&path);
}

#[tokio::test]
async fn a_fresh_database_and_an_upgraded_one_have_the_same_objects() {
    let (_dir, path) = file(V11);
    let old = open(&path);
    let fresh = Bench::new();
    let names = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name";
    assert_eq!(
        texts(&Connection::open(&path).unwrap(), names),
        texts(&fresh.sql(), names)
    );
    drop(old);
    assert_sound(&fresh.path());
}

#[tokio::test]
async fn missing_triggers_and_hidden_rows_are_mended_at_open() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    say(&bench.store, &id, "one", 1.0).await;
    let (dir, path) = (bench.dir, bench.store.path().to_owned());
    bench.store.close().await.unwrap();
    let sql = Connection::open(&path).unwrap();
    sql.execute_batch(
        "DROP TRIGGER messages_fts_insert;
         INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s1', 'user', 'unseen', 2);",
    )
    .unwrap();
    let store = open(&path);
    assert_eq!(found(&store, "unseen").await, 1);
    drop(store);
    drop(dir);
}

/// The shape of schema 30, reduced to what differs.
const V30: &str = "
    CREATE TABLE schema_version (version INTEGER NOT NULL);
    INSERT INTO schema_version VALUES (30);
    CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, prompt TEXT NOT NULL);
    INSERT INTO system_prompts VALUES ('h', 'stored prompt');
    CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, created_source TEXT,
        user_id TEXT, session_key TEXT, model TEXT, model_config TEXT, system_prompt TEXT,
        system_prompt_hash TEXT REFERENCES system_prompts(hash), parent_session_id TEXT,
        started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0,
        tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0,
        output_tokens INTEGER DEFAULT 0, cwd TEXT, billing_provider TEXT, title TEXT,
        last_activity_at REAL, archived INTEGER NOT NULL DEFAULT 0,
        hidden INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL, content TEXT,
        tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
        finish_reason TEXT, reasoning TEXT, active INTEGER NOT NULL DEFAULT 1,
        compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT, display_kind TEXT,
        display_order INTEGER);
    CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT);
    CREATE VIRTUAL TABLE messages_fts USING fts5(content, tool_name, tool_calls,
        content='messages', content_rowid='id');
    CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
        INSERT INTO messages_fts(rowid, content, tool_name, tool_calls)
        VALUES (new.id, new.content, new.tool_name, new.tool_calls); END;
    CREATE TRIGGER order_insert AFTER INSERT ON messages WHEN new.display_order IS NULL BEGIN
        UPDATE messages SET display_order = new.id WHERE id = new.id; END;
    INSERT INTO sessions (id, source, started_at, system_prompt_hash, title)
        VALUES ('v30', 'cli', 5, 'h', 'Future');
    INSERT INTO messages (session_id, role, content, timestamp, display_kind) VALUES
        ('v30', 'user', 'quokka facts', 5, NULL), ('v30', 'user', 'quokka scaffold', 6, 'hidden');";

fn objects(path: &Path) -> Vec<String> {
    let sql = Connection::open(path).unwrap();
    texts(
        &sql,
        "SELECT COALESCE(sql, name) FROM sqlite_master ORDER BY name",
    )
}

#[tokio::test]
async fn a_newer_database_is_used_as_a_guest() {
    let (_dir, path) = file(V30);
    let before = objects(&path);
    let store = open(&path);
    assert!(store.is_newer_schema());
    let id = SessionId::new("v30");
    let loaded = store.load(&id).await.unwrap().unwrap();
    assert_eq!(loaded.system_prompt.as_deref(), Some("stored prompt"));
    assert_eq!(loaded.items.len(), 2);
    say(&store, &id, "wombat news", 9.0).await;
    assert_eq!(found(&store, "wombat").await, 1);
    assert_eq!(found(&store, "quokka").await, 1);
    assert_eq!(
        store.export(&id).await.unwrap()["system_prompt"],
        "stored prompt"
    );
    let update = SessionUpdate::SystemPrompt("own".to_owned());
    store.update(&id, update).await.unwrap();
    let fresh = begin(&store, "fresh", "cli", None).await;
    assert!(
        store
            .lock_compaction(&fresh, "me", std::time::Duration::from_secs(1))
            .await
            .unwrap()
    );
    assert_eq!(
        store
            .load(&id)
            .await
            .unwrap()
            .unwrap()
            .system_prompt
            .as_deref(),
        Some("own")
    );
    assert_eq!(store.list(ListFilter::default()).await.unwrap().len(), 2);
    store.close().await.unwrap();

    let sql = Connection::open(&path).unwrap();
    assert_eq!(number(&sql, "SELECT version FROM schema_version"), 30);
    assert_eq!(
        number(&sql, "SELECT display_order FROM messages WHERE id = 3"),
        3
    );
    assert_eq!(
        texts(
            &sql,
            "SELECT created_source FROM sessions WHERE id = 'fresh'"
        ),
        ["cli"]
    );
    assert_eq!(
        texts(
            &sql,
            "SELECT CAST(last_activity_at AS TEXT) FROM sessions WHERE id = 'v30'"
        ),
        ["9.0"]
    );
    assert_eq!(objects(&path), before);
}

#[tokio::test]
async fn what_cannot_be_opened_is_refused_with_a_reason() {
    let (_dir, path) = file(
        "CREATE TABLE schema_version (version INTEGER); INSERT INTO schema_version VALUES (7); CREATE TABLE messages (id);",
    );
    let clock = || Arc::new(ManualClock::default());
    assert!(matches!(
        Store::open(&path, clock()),
        Err(StoreError::Unsupported { .. })
    ));
    let (_dir, path) = file("CREATE TABLE messages (id INTEGER)");
    assert!(matches!(
        Store::open(&path, clock()),
        Err(StoreError::Unsupported { .. })
    ));
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("state.db");
    assert!(matches!(
        Store::open_read_only(&path, clock()),
        Err(StoreError::NotFound(_))
    ));
    std::fs::write(
        &path,
        "this is no database, it is a text of some length".repeat(40),
    )
    .unwrap();
    assert!(matches!(
        Store::open(&path, clock()),
        Err(StoreError::Corrupt { .. })
    ));
}

#[tokio::test]
async fn reading_only_takes_no_write() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    say(&bench.store, &id, "hello", 1.0).await;
    let reader = Store::open_read_only(bench.path(), Arc::new(ManualClock::default())).unwrap();
    assert_eq!(reader.list(ListFilter::default()).await.unwrap().len(), 1);
    assert!(matches!(
        reader.delete(&id).await,
        Err(StoreError::Invalid(_))
    ));
}

#[tokio::test]
async fn an_old_database_can_be_read_without_touching_it() {
    let (_dir, path) = file(V11);
    let before = objects(&path);
    let reader = Store::open_read_only(&path, Arc::new(ManualClock::default())).unwrap();
    assert_eq!(reader.list(ListFilter::default()).await.unwrap().len(), 2);
    assert_eq!(
        reader.messages(&"old".into(), false).await.unwrap().len(),
        1
    );
    assert_eq!(
        reader
            .load(&"old".into())
            .await
            .unwrap()
            .unwrap()
            .items
            .len(),
        1
    );
    assert_eq!(reader.browse(5, None).await.unwrap().count, 2);
    assert_eq!(reader.stats().await.unwrap().schema_version, 11);
    assert!(reader.export(&"old".into()).await.is_ok());
    assert_eq!(found(&reader, "kiwi").await, 0);
    drop(reader);
    assert_eq!(objects(&path), before);
}
