//! Lists, references, deletion, pruning.

use hermes_core::ids::SessionId;
use hermes_core::message::{Content, Message, Part, UserMessage};
use hermes_core::store::{NewSession, SessionStore as _, SessionUpdate, StoreError};
use hermes_store::{ListFilter, SessionFilter, SessionOrder, Store};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{Bench, begin, end, item, number, say, texts};

async fn mark(store: &Store, id: &SessionId, key: &str, value: &str) {
    let update = SessionUpdate::Model {
        model: "m".to_owned(),
        config: Some(json!({ key: value })),
    };
    store.update(id, update).await.unwrap();
}

/// root (compressed) → tip; a branch, a subagent run, an archived and a plain session.
async fn family(bench: &Bench) {
    let store = &bench.store;
    let root = begin(store, "root", "telegram", None).await;
    say(
        store,
        &root,
        "first question, which is long enough to be cut off somewhere here",
        10.0,
    )
    .await;
    end(store, &root, "compression").await;
    let tip = begin(store, "root_tip", "telegram", Some(&root)).await;
    say(store, &tip, "latest\nquestion", 90.0).await;
    store.set_title(&tip, "Chat", false).await.unwrap();
    let branch = begin(store, "branch", "cli", Some(&root)).await;
    mark(store, &branch, "_branched_from", "root").await;
    let sub = begin(store, "subagent", "subagent", Some(&tip)).await;
    mark(store, &sub, "_delegate_from", "root_tip").await;
    let hidden = begin(store, "archived", "cli", None).await;
    store.archive(&hidden, true).await.unwrap();
    let plain = begin(store, "plain", "cli", None).await;
    say(store, &plain, "hello", 50.0).await;
}

#[tokio::test]
async fn conversations_are_listed_as_they_stand() {
    let bench = Bench::new();
    family(&bench).await;
    let list = bench.store.list(ListFilter::default()).await.unwrap();
    let ids: Vec<&str> = list.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["branch", "plain", "root_tip"]);
    let chat = &list[2];
    assert_eq!(chat.lineage_root_id.as_deref(), Some("root"));
    assert_eq!(chat.title.as_deref(), Some("Chat"));
    assert_eq!(chat.preview, "latest question");
    assert_eq!((chat.started_at, chat.last_active), (1004.0, 90.0));

    let filter = ListFilter {
        order: SessionOrder::LastActive,
        ..ListFilter::default()
    };
    let ids: Vec<String> = bench
        .store
        .list(filter)
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(ids, ["branch", "root_tip", "plain"]);

    let filter = ListFilter {
        include_children: true,
        include_archived: true,
        source: Some("telegram".to_owned()),
        ..ListFilter::default()
    };
    let rows = bench.store.list(filter).await.unwrap();
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter()
            .any(|row| row.preview.ends_with("...") && row.preview.len() == 63)
    );
}

#[tokio::test]
async fn references_find_one_session_or_say_why_not() {
    let bench = Bench::new();
    let store = &bench.store;
    for id in ["20260101_a_1", "20260101_b_1", "20260101%x"] {
        bench.begin(id).await;
    }
    store
        .set_title(&"20260101_a_1".into(), "Tea", false)
        .await
        .unwrap();
    store
        .set_title(&"20260101_b_1".into(), "Tea #2", false)
        .await
        .unwrap();
    let resolve = |text: &'static str| store.resolve(text);
    assert_eq!(
        resolve("20260101_a_1").await.unwrap().as_str(),
        "20260101_a_1"
    );
    assert_eq!(
        resolve(" 20260101_a ").await.unwrap().as_str(),
        "20260101_a_1"
    );
    assert_eq!(resolve("20260101%").await.unwrap().as_str(), "20260101%x");
    assert_eq!(resolve("Tea").await.unwrap().as_str(), "20260101_b_1");
    assert!(matches!(
        resolve("nothing").await,
        Err(StoreError::NotFound(_))
    ));
    assert!(matches!(resolve(" ").await, Err(StoreError::Invalid(_))));
    let Err(StoreError::Ambiguous { candidates, .. }) = resolve("2026").await else {
        panic!("ambiguous");
    };
    assert_eq!(candidates.len(), 3);
}

#[tokio::test]
async fn deleting_takes_subagents_along_and_frees_branches() {
    let bench = Bench::new();
    family(&bench).await;
    let deleted = bench.store.delete(&"root_tip".into()).await.unwrap();
    assert_eq!(deleted.delegates, ["subagent"]);
    let left = texts(&bench.sql(), "SELECT id FROM sessions ORDER BY id");
    assert_eq!(left, ["archived", "branch", "plain", "root"]);
    assert_eq!(
        number(
            &bench.sql(),
            "SELECT COUNT(*) FROM messages WHERE session_id = 'root_tip'"
        ),
        0
    );
    bench.store.delete(&"root".into()).await.unwrap();
    assert_eq!(
        bench
            .store
            .get("branch")
            .await
            .unwrap()
            .text("parent_session_id"),
        None
    );
    let again = bench.store.delete(&"root".into()).await;
    assert!(matches!(again, Err(StoreError::NotFound(_))));
}

#[tokio::test]
async fn archiving_covers_the_whole_chain() {
    let bench = Bench::new();
    family(&bench).await;
    assert_eq!(
        bench.store.archive(&"root_tip".into(), true).await.unwrap(),
        2
    );
    let list = bench.store.list(ListFilter::default()).await.unwrap();
    assert!(list.iter().all(|row| row.id != "root_tip"));
    assert_eq!(bench.store.archive(&"root".into(), false).await.unwrap(), 2);
}

#[tokio::test]
async fn pruning_takes_only_ended_sessions_that_fit() {
    let bench = Bench::new();
    let store = &bench.store;
    for (id, source, started, ended) in [
        ("old", "cli", 10.0, true),
        ("old_open", "cli", 10.0, false),
        ("old_cron", "cron", 10.0, true),
        ("new", "cli", 900.0, true),
    ] {
        let session = NewSession {
            id: Some(id.into()),
            source: source.to_owned(),
            started_at: started,
            model: Some("Big-Model".to_owned()),
            cwd: Some("/w/100%_sure".into()),
            ..NewSession::default()
        };
        store.begin(session).await.unwrap();
        say(store, &id.into(), "text", started).await;
        if ended {
            end(store, &id.into(), "cli_close").await;
        }
    }
    let filter = SessionFilter {
        started_before: Some(500.0),
        source: Some("cli".to_owned()),
        model: Some("big".to_owned()),
        cwd: Some("/w/100%_sure/".to_owned()),
        min_messages: Some(1),
        ..SessionFilter::default()
    };
    let would = store.prune(filter.clone(), true).await.unwrap();
    assert_eq!(
        would.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(),
        ["old"]
    );
    assert_eq!(store.stats().await.unwrap().sessions, 4);
    let none = SessionFilter {
        title: Some("100%".to_owned()),
        ..filter.clone()
    };
    assert!(store.prune(none, false).await.unwrap().is_empty());
    assert_eq!(store.prune(filter, false).await.unwrap(), would);
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.sessions, stats.messages), (3, 3));
    assert_eq!(stats.by_source[0].source, "cli");

    let all = SessionFilter::default();
    assert_eq!(
        store
            .archive_matching(all.clone(), false)
            .await
            .unwrap()
            .len(),
        2
    );
    assert!(store.archive_matching(all, false).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_first_message_with_an_image_is_previewed_by_its_words() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    let parts = vec![Part::image("http://x/y.png"), Part::text("what is\nthis?")];
    let message = Message::User(UserMessage {
        content: Content::Parts(parts),
        wire_text: None,
    });
    bench
        .store
        .append(&id, vec![item(message, 1.0)])
        .await
        .unwrap();
    let list = bench.store.list(ListFilter::default()).await.unwrap();
    assert_eq!(list[0].preview, "what is this?");
}
