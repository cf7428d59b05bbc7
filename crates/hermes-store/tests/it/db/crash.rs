//! A process that dies while it writes leaves a sound database with every row it was told of.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use hermes_core::clock::Rng as _;
use hermes_testkit::clock::SeqRng;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{assert_sound, begin, open, say};

const CHILD: &str = "HERMES_STORE_CRASH_CHILD";
const NAME: &str = "db::crash::a_killed_writer_loses_nothing_it_acknowledged";

/// The child: appends until it is killed, and says each row id after its commit.
async fn write_for_ever(path: PathBuf) {
    let store = open(&path);
    let id = begin(&store, "s1", "cli", None).await;
    for turn in 0_u32.. {
        let row = say(
            &store,
            &id,
            &format!("message {turn} of a long talk"),
            f64::from(turn),
        )
        .await;
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nROW {row}").unwrap();
        out.flush().unwrap();
    }
}

#[tokio::test]
async fn a_killed_writer_loses_nothing_it_acknowledged() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_for_ever(path.into()).await;
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("state.db");
    let rng = SeqRng::new(7);
    let mut acknowledged: Vec<i64> = Vec::new();
    for _ in 0..10 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let rows = 1 + rng.next_u64() % 120;
        let mut seen = 0;
        for line in lines.by_ref() {
            if let Some(row) = line.unwrap().strip_prefix("ROW ") {
                acknowledged.push(row.parse().unwrap());
                seen += 1;
                if seen >= rows {
                    break;
                }
            }
        }
        assert!(seen >= rows, "the child ended by itself after {seen} rows");
        child.kill().unwrap();
        // Rows said between the last one read and the kill count as well.
        for line in lines.map_while(Result::ok) {
            if let Some(row) = line.strip_prefix("ROW ").and_then(|row| row.parse().ok()) {
                acknowledged.push(row);
            }
        }
        child.wait().unwrap();
        assert_sound(&path);
    }
    let conn = Connection::open(&path).unwrap();
    let mut exists = conn
        .prepare("SELECT 1 FROM messages WHERE id = ?1")
        .unwrap();
    for row in &acknowledged {
        assert!(
            exists.exists([row]).unwrap(),
            "row {row} was acknowledged and is gone"
        );
    }
    let store = open(&path);
    let loaded = hermes_core::store::SessionStore::load(&store, &"s1".into())
        .await
        .unwrap();
    assert!(loaded.unwrap().items.len() >= acknowledged.len());
}
