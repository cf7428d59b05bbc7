//! Locks held by others, damage, replaced files.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::message::Message;
use hermes_core::store::{SessionStore as _, StoreError};
use hermes_store::{OpenOptions, Store};
use hermes_testkit::clock::{FixedRng, ManualClock};

use super::{Bench, begin, item, open, say};

fn impatient(path: &std::path::Path) -> Store {
    let options = OpenOptions {
        rng: Arc::new(FixedRng(0)),
        busy_budget: Duration::ZERO,
    };
    Store::open_with(path, Arc::new(ManualClock::default()), options).unwrap()
}

#[tokio::test]
async fn a_lock_that_stays_is_reported_as_busy_and_one_that_goes_is_waited_for() {
    let bench = Bench::new();
    bench.begin("s1").await;
    let other = bench.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = impatient(&bench.path());
    let result = store
        .append(&"s1".into(), vec![item(Message::user("x"), 1.0)])
        .await;
    assert!(matches!(result, Err(StoreError::Busy { .. })), "{result:?}");

    let id = "s1".into();
    let release = async {
        tokio::task::yield_now().await;
        other.execute_batch("ROLLBACK").unwrap();
    };
    let (row, ()) = tokio::join!(say(&bench.store, &id, "later", 1.0), release);
    assert_eq!(row, 1);
}

#[tokio::test]
async fn a_replaced_file_stops_writing() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    say(&bench.store, &id, "before", 1.0).await;
    let path = bench.path();
    std::fs::rename(&path, path.with_extension("moved")).unwrap();
    std::fs::write(&path, b"").unwrap();
    for _ in 0..2 {
        let result = bench
            .store
            .append(&id, vec![item(Message::user("x"), 1.0)])
            .await;
        let Err(StoreError::Corrupt { detail, .. }) = result else {
            panic!("{result:?}");
        };
        assert!(detail.contains("replaced"), "{detail}");
    }
}

#[tokio::test]
async fn damage_stops_writing_for_good() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    say(&bench.store, &id, "before", 1.0).await;
    // What a torn index looks like: its structure record is rubbish.
    bench
        .sql()
        .execute(
            "UPDATE messages_fts_data SET block = x'00000000ffffffffff7f' WHERE id = 10",
            [],
        )
        .unwrap();
    let result = bench
        .store
        .append(&id, vec![item(Message::user("x"), 1.0)])
        .await;
    assert!(
        matches!(result, Err(StoreError::Corrupt { .. })),
        "{result:?}"
    );
    let result = bench.store.begin(hermes_core::store::NewSession {
        id: Some("s2".into()),
        source: "cli".to_owned(),
        ..Default::default()
    });
    let error = result.await.unwrap_err();
    assert!(
        error.to_string().contains("hermes sessions repair"),
        "{error}"
    );
    assert_eq!(bench.store.messages(&id, true).await.unwrap().len(), 1);
}

#[tokio::test]
async fn two_handles_write_side_by_side() {
    let bench = Bench::new();
    let second = open(&bench.path());
    begin(&second, "s2", "cli", None).await;
    bench.begin("s1").await;
    for index in 0..60 {
        say(&bench.store, &"s1".into(), "one", f64::from(index)).await;
        say(&second, &"s2".into(), "two", f64::from(index)).await;
    }
    let stats = bench.store.stats().await.unwrap();
    assert_eq!((stats.sessions, stats.messages), (2, 120));
    second.close().await.unwrap();
    bench.store.close().await.unwrap();
}
