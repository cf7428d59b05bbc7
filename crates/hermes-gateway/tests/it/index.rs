//! The index of chats in a home with many of them.

use std::sync::Arc;

use hermes_core::clock::SystemClock;
use hermes_gateway::{SessionEntry, SessionIndex, SessionKey, SessionSharing};
use hermes_platforms::MessageSource;
use hermes_store::Store;
use hermes_testkit::home::TempHome;
use pretty_assertions::assert_eq;
use serde_json::Value;

fn chat(platform: &str, chat: usize, thread: Option<&str>) -> SessionEntry {
    let source = MessageSource {
        platform: platform.to_owned(),
        chat_id: chat.to_string(),
        chat_type: "group".to_owned(),
        user_id: Some("7".to_owned()),
        thread_id: thread.map(str::to_owned),
        ..MessageSource::default()
    };
    let now = chrono::DateTime::from_timestamp(1_767_323_045, 0).unwrap();
    let key = SessionKey::new_for(&source, SessionSharing::default());
    SessionEntry::new(key, format!("s{chat}"), source, now.naive_utc())
}

async fn open(home: &TempHome) -> SessionIndex {
    let store = Store::open(home.path().join("state.db"), Arc::new(SystemClock)).unwrap();
    let sessions = home.path().join("sessions");
    SessionIndex::open(store, &sessions, true).await.unwrap().0
}

fn mirror(home: &TempHome) -> Value {
    let path = home.path().join("sessions/sessions.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The mirror was written whole for every chat: 4.5 million entries for these 3,000.
#[tokio::test]
async fn the_work_for_a_chat_does_not_grow_with_their_number() {
    const CHATS: usize = 3_000;
    let home = TempHome::new();
    let index = open(&home).await;
    for number in 0..CHATS {
        index.put(&chat("telegram", number, None)).await.unwrap();
        // A few are in the mirror at once.
        if number == 5 {
            assert_eq!(mirror(&home).as_object().unwrap().len(), 7);
        }
    }
    assert!(
        index.mirrored() <= 170 * CHATS as u64,
        "{}",
        index.mirrored()
    );
    index.flush().await.unwrap();
    let whole = index.mirrored();
    let all = mirror(&home);
    // With the note.
    assert_eq!(all.as_object().unwrap().len(), CHATS + 1);
    // What has not changed is not written again.
    index.flush().await.unwrap();
    assert_eq!(index.mirrored(), whole);
    // What is forgotten is gone from it at once.
    let key = chat("telegram", 17, None).session_key;
    index.forget(std::slice::from_ref(&key)).await.unwrap();
    assert!(mirror(&home).get(key.as_str()).is_none());
}

#[tokio::test]
async fn the_entries_of_one_chat_are_found() {
    let home = TempHome::new();
    let index = open(&home).await;
    for entry in [
        chat("telegram", 1, None),
        chat("telegram", 1, Some("t")),
        chat("slack", 1, None),
        chat("telegram", 11, None),
    ] {
        index.put(&entry).await.unwrap();
    }
    let threads = |platform: &str, chat: &str| -> Vec<Option<String>> {
        let found = index.entries_of(platform, chat).into_iter();
        found.map(|entry| entry.origin.unwrap().thread_id).collect()
    };
    assert_eq!(threads("telegram", "1"), [None, Some("t".to_owned())]);
    assert_eq!(threads("slack", "1"), [None]);
    assert_eq!(threads("slack", "11"), []);
}
