//! Mending damaged databases.

use hermes_store::{RepairOptions, RepairStrategy, repair_database};
use hermes_testkit::clock::ManualClock;
use pretty_assertions::assert_eq;

use super::{Bench, assert_sound, found, number, open, say};
use hermes_core::store::StoreError;
use rusqlite::Connection;

async fn damaged(sql: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    for text in ["one apple", "two pears"] {
        say(&bench.store, &id, text, 1.0).await;
    }
    let path = bench.path();
    bench.store.close().await.unwrap();
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(sql).unwrap();
    (bench.dir, path)
}

async fn mends(sql: &str, expected: RepairStrategy) {
    let (dir, path) = damaged(sql).await;
    let clock = ManualClock::default();
    let look = RepairOptions {
        check_only: true,
        backup: true,
    };
    let seen = repair_database(&path, look, &clock).unwrap();
    assert!(!seen.healthy && seen.backup.is_none());
    let report = repair_database(&path, RepairOptions::default(), &clock).unwrap();
    assert_eq!(
        (report.healthy, report.strategy),
        (true, Some(expected)),
        "{report:?}"
    );
    let backup = report.backup.unwrap();
    assert!(backup.exists() && backup.parent() == Some(dir.path()));
    let store = open(&path);
    assert_eq!(found(&store, "apple").await, 1);
    say(&store, &"s1".into(), "three", 2.0).await;
    store.close().await.unwrap();
    assert_sound(&path);
    let conn = Connection::open(&path).unwrap();
    assert_eq!(number(&conn, "SELECT COUNT(*) FROM messages"), 3);
}

#[tokio::test]
async fn a_torn_index_is_rebuilt() {
    mends(
        "UPDATE messages_fts_data SET block = x'00000000ffffffffff7f' WHERE id = 10",
        RepairStrategy::RebuildFts,
    )
    .await;
}

#[tokio::test]
async fn an_index_that_lost_its_texts_is_made_anew() {
    mends(
        "DELETE FROM messages_fts_content WHERE id = 1",
        RepairStrategy::DropFtsRebuild,
    )
    .await;
}

#[tokio::test]
async fn a_doubled_definition_is_removed() {
    mends(
        "PRAGMA writable_schema=ON;
         INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql)
            SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master WHERE name = 'state_meta';
         PRAGMA writable_schema=OFF;",
        RepairStrategy::DedupSchema,
    )
    .await;
}

#[tokio::test]
async fn a_sound_database_is_left_alone() {
    let (dir, path) = damaged("").await;
    let clock = ManualClock::default();
    let report = repair_database(&path, RepairOptions::default(), &clock).unwrap();
    assert!(report.healthy && report.problem.is_none() && report.backup.is_none());
    let missing = dir.path().join("none.db");
    let result = repair_database(&missing, RepairOptions::default(), &clock);
    assert!(matches!(result, Err(StoreError::NotFound(_))));
}

#[tokio::test]
async fn what_two_versions_of_sqlite_disagree_about_is_no_damage() {
    let (_dir, path) = damaged(
        "INSERT INTO messages (session_id, role, content, timestamp)
            VALUES ('s1', 'user', char(0) || 'json:[]', 1);
         UPDATE messages_fts_trigram_content SET c0 = '' WHERE id = 3;",
    )
    .await;
    let report = repair_database(&path, RepairOptions::default(), &ManualClock::default()).unwrap();
    assert_eq!(report.problem, None);
}

#[tokio::test]
async fn what_cannot_be_mended_is_kept_and_said() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("state.db");
    let rubbish = "not a database at all. ".repeat(400);
    std::fs::write(&path, &rubbish).unwrap();
    let report = repair_database(&path, RepairOptions::default(), &ManualClock::default()).unwrap();
    assert!(!report.healthy && report.error.is_some());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), rubbish);
    assert_eq!(
        std::fs::read_to_string(report.backup.unwrap()).unwrap(),
        rubbish
    );
}

#[tokio::test]
async fn optimizing_keeps_everything() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    say(&bench.store, &id, "apple", 1.0).await;
    let report = bench.store.optimize().await.unwrap();
    assert_eq!(report.indexes, ["messages_fts", "messages_fts_trigram"]);
    assert_eq!(found(&bench.store, "apple").await, 1);
}
