//! What a large history costs, measured by what is read of it.

use hermes_store::insights::UsageWindow;
use hermes_store::{ListFilter, SearchOptions, SessionOrder};
use pretty_assertions::assert_eq;
use rusqlite::Connection;

use super::Bench;

/// Sessions with prompts as large as real ones and two messages each, half of them with a title.
fn fill(conn: &mut Connection, sessions: usize) {
    let prompt = "You are an agent. ".repeat(1_100);
    let change = conn.transaction().unwrap();
    for at in 0..sessions {
        let id = format!("20260101_{at:06}_ab");
        let title = (at % 2 == 1).then(|| format!("Title {at}"));
        change
            .execute(
                "INSERT INTO sessions (id, source, model_config, system_prompt, started_at, message_count, title)
                 VALUES (?1, ?2, '{}', ?3, ?4, 2, ?5)",
                rusqlite::params![id, if at % 3 == 0 { "cli" } else { "telegram" }, prompt, at as f64, title],
            )
            .unwrap();
        for role in ["user", "assistant"] {
            change
                .execute(
                    "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?1, ?2, ?3, ?4)",
                    rusqlite::params![id, role, format!("question {at} of someone"), 1_000.0 + at as f64],
                )
                .unwrap();
        }
    }
    change.commit().unwrap();
}

/// Bytes that this process has read so far; `None` where the system does not tell.
fn bytes_read() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "))?;
    line.parse().ok()
}

#[tokio::test]
async fn finding_a_conversation_reads_little_of_the_database() {
    let bench = Bench::new();
    fill(&mut bench.sql(), 1_000);
    let store = &bench.store;
    let size = std::fs::metadata(bench.path()).unwrap().len()
        + std::fs::metadata(bench.dir.path().join("state.db-wal")).map_or(0, |meta| meta.len());
    let before = bytes_read();
    let active = ListFilter {
        order: SessionOrder::LastActive,
        source: Some("cli".to_owned()),
        limit: 5,
        ..ListFilter::default()
    };
    let rows = store.list(active).await.unwrap();
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(
        ids,
        ["999", "996", "993", "990", "987"].map(|at| format!("20260101_000{at}_ab"))
    );
    for (reference, found) in [
        ("20260101_000007", "20260101_000007_ab"),
        ("Title 9", "20260101_000009_ab"),
        ("question 998 of", "20260101_000998_ab"),
    ] {
        assert_eq!(store.resolve(reference).await.unwrap().as_str(), found);
    }
    assert!(store.resolve("no such thing").await.is_err());
    if let (Some(before), Some(after)) = (before, bytes_read()) {
        let read = after - before;
        assert!(read * 4 < size, "{read} of {size} bytes were read");
    }
}

#[tokio::test]
async fn a_report_reads_a_bounded_number_of_messages() {
    let bench = Bench::new();
    let conn = bench.sql();
    // The search index is not what is measured.
    conn.execute_batch(
        "DROP TRIGGER messages_fts_insert; DROP TRIGGER messages_fts_trigram_insert;
         INSERT INTO sessions (id, source, started_at, message_count, tool_call_count)
            VALUES ('old', 'cli', 100, 7, 3), ('new', 'cli', 900000, 100001, 0);
         WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < 100001)
         INSERT INTO messages (session_id, role, content, timestamp)
            SELECT 'new', 'user', 'x', 900000 FROM n;",
    )
    .unwrap();
    let found = bench.store.insights(UsageWindow::default()).await.unwrap();
    assert_eq!(found.messages.user, 100_000);
    assert_eq!(found.messages.total, 100_001 + 7);
    assert_eq!((found.unread.sessions, found.unread.messages), (2, 8));
    assert_eq!((found.sessions, found.tool_calls), (2, 3));
    let placed: i64 = found.quarters.iter().map(|quarter| quarter.messages).sum();
    assert_eq!(placed, found.messages.total);
}

#[tokio::test]
async fn a_prefix_of_nearly_every_message_finds_the_newest() {
    let bench = Bench::new();
    let conn = bench.sql();
    conn.execute_batch(
        "DROP TRIGGER messages_fts_trigram_insert;
         INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 100);
         WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < 21000)
         INSERT INTO messages (session_id, role, content, timestamp)
            SELECT 's', 'user', 'preparing thing ' || at || CASE at % 100 WHEN 0 THEN ' rare' ELSE '' END,
                at FROM n;",
    )
    .unwrap();
    let search = |query: &'static str| bench.store.search(query, SearchOptions::default());
    for query in [
        "prep*",
        "prep* thing",
        "thing prep* AND rare",
        "rare OR prep*",
    ] {
        let hits = search(query).await.unwrap();
        assert_eq!(hits.len(), 20, "{query}");
        let marked = |text: &str| text.contains(">>>preparing<<<") || text.contains(">>>rare<<<");
        assert!(
            hits.iter().all(|hit| marked(&hit.snippet)),
            "{query}: {hits:?}"
        );
    }
    assert_eq!(search("prep* NOT thing").await.unwrap(), []);
    assert_eq!(search("prep* nothing*").await.unwrap(), []);
    // What reading for one search costs: far less than the lists of every word with this beginning.
    let rare = search("rar*").await.unwrap();
    assert_eq!(rare.len(), 20);
}
