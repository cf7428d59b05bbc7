use std::path::PathBuf;
use std::sync::Arc;

use hermes_core::clock::SystemRng;
use proptest::prelude::*;

use super::*;
use crate::db::connection::{AccessMode, connect};
use crate::db::writer::{DbWriter, WriterConfig};

/// What a caller does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Store,
    /// Stores, then finds that it should not have.
    Refuse,
    /// Stores, then breaks a rule of the table.
    Break,
    Panic,
    /// Rolls everything back, as a full disk does.
    EndAll,
    Maintain,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Store),
        1 => Just(Act::Refuse),
        1 => Just(Act::Break),
        1 => Just(Act::Panic),
        1 => Just(Act::EndAll),
        1 => Just(Act::Maintain),
    ]
}

fn open(dir: &std::path::Path) -> (PathBuf, Connection) {
    let path = dir.join("t.db");
    let conn = connect(&path, AccessMode::Write).unwrap();
    conn.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x INTEGER PRIMARY KEY)")
        .unwrap();
    (path, conn)
}

fn worker(path: PathBuf, conn: Connection) -> DbWriter {
    let config = WriterConfig {
        path,
        rng: Arc::new(SystemRng),
        busy_budget: Duration::from_secs(5),
        merge_fts: false,
    };
    DbWriter::start(conn, config).unwrap()
}

fn insert(conn: &Connection, x: i64) -> Result<(), DbError> {
    conn.execute("INSERT INTO t VALUES (?1)", [x])?;
    Ok(())
}

fn perform(conn: &Connection, act: Act, x: i64) -> Result<i64, DbError> {
    insert(conn, x)?;
    match act {
        Act::Store | Act::Maintain => Ok(x),
        Act::Refuse => Err(StoreError::Invalid("no".to_owned()).into()),
        Act::Break => insert(conn, x).map(|()| x),
        Act::Panic => panic!("a bug"),
        Act::EndAll => {
            conn.execute_batch("ROLLBACK")?;
            Err(StoreError::Invalid("the disk is full".to_owned()).into())
        }
    }
}

async fn story(acts: Vec<Act>) {
    let dir = tempfile::tempdir().unwrap();
    let (path, conn) = open(dir.path());
    let writer = worker(path.clone(), conn);
    // The thread is held until everybody waits, so that they really share a commit.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let hold = writer.run_exclusive("holding", move |_| {
        let _ = wait.recv();
        Ok(())
    });
    let all = futures_util::future::join_all(acts.iter().enumerate().map(|(x, act)| {
        let (writer, act, x) = (writer.clone(), *act, x as i64);
        async move {
            match act {
                Act::Maintain => {
                    writer
                        .run_exclusive("alone", move |conn| insert(conn, x).map(|()| x))
                        .await
                }
                act => {
                    writer
                        .transaction("together", move |conn| perform(conn, act, x))
                        .await
                }
            }
        }
    }));
    let release = async {
        // One round of the runtime: all of them are queued then.
        tokio::task::yield_now().await;
        go.send(()).unwrap();
    };
    let (held, outcomes, ()) = tokio::join!(hold, all, release);
    held.unwrap();
    let reader = connect(&path, AccessMode::Read).unwrap();
    for (x, (act, outcome)) in acts.iter().zip(outcomes).enumerate() {
        let stored: bool = reader
            .query_row(
                "SELECT EXISTS (SELECT 1 FROM t WHERE x = ?1)",
                [x as i64],
                |row| row.get(0),
            )
            .unwrap();
        let should = matches!(act, Act::Store | Act::Maintain);
        assert_eq!(stored, should, "{act:?} at {x}");
        assert_eq!(outcome.is_ok(), should, "{act:?} at {x}: {outcome:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whoever is told that it is stored finds it stored, whoever is told that it is not finds
    /// nothing, whatever the others do.
    #[test]
    fn one_that_fails_harms_no_other(acts in prop::collection::vec(act(), 1..100)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(story(acts));
    }
}
