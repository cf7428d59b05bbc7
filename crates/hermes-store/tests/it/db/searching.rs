//! Full-text search and recall.

use hermes_core::ids::SessionId;
use hermes_core::message::{AssistantMessage, Message, ToolCall};
use hermes_core::store::{SessionStore as _, StoreError};
use hermes_store::{DiscoverRequest, ScrollRequest, SearchOptions, SearchOrder};
use pretty_assertions::assert_eq;

use super::{Bench, begin, item, say};

async fn ids(bench: &Bench, query: &str, options: SearchOptions) -> Vec<i64> {
    let hits = bench.store.search(query, options).await.unwrap();
    hits.into_iter().map(|hit| hit.id).collect()
}

#[tokio::test]
async fn words_phrases_prefixes_and_tool_calls_are_found() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    let one = say(&bench.store, &id, "the dark roast coffee", 1.0).await;
    let two = say(
        &bench.store,
        &id,
        "roast in the dark, file my-app.config.ts",
        2.0,
    )
    .await;
    let call = ToolCall {
        id: "call_1".to_owned(),
        name: "write_file".to_owned(),
        arguments: "{\"path\": \"coffee.txt\"}".to_owned(),
        ..ToolCall::default()
    };
    let message = Message::Assistant(AssistantMessage {
        tool_calls: vec![call],
        ..AssistantMessage::default()
    });
    let rows = bench
        .store
        .append(&id, vec![item(message, 3.0)])
        .await
        .unwrap();
    let three = rows[0].0;

    let all = SearchOptions::default;
    let sorted = |mut ids: Vec<i64>| {
        ids.sort_unstable();
        ids
    };
    assert_eq!(sorted(ids(&bench, "dark roast", all()).await), [one, two]);
    assert_eq!(ids(&bench, "\"dark roast\"", all()).await, [one]);
    assert_eq!(ids(&bench, "my-app.config.ts", all()).await, [two]);
    assert_eq!(sorted(ids(&bench, "coff*", all()).await), [one, three]);
    assert_eq!(ids(&bench, "coffee NOT roast", all()).await, [three]);
    assert_eq!(ids(&bench, "roast: (", all()).await.len(), 2);
    for nothing in ["", "   ", "\"", "*", "(", "-", "'"] {
        assert!(ids(&bench, nothing, all()).await.is_empty(), "{nothing}");
    }
    let user = SearchOptions {
        roles: vec!["user".to_owned()],
        ..all()
    };
    assert_eq!(ids(&bench, "coffee", user).await, [one]);
    let newest = SearchOptions {
        sort: SearchOrder::Newest,
        ..all()
    };
    assert_eq!(ids(&bench, "roast", newest).await, [two, one]);
    let hits = bench.store.search("dark", all()).await.unwrap();
    assert!(hits.iter().all(|hit| hit.snippet.contains(">>>dark<<<")));
}

#[tokio::test]
async fn scripts_without_spaces_are_found() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    let tokyo = say(&bench.store, &id, "昨日は東京タワーに行った", 1.0).await;
    let osaka = say(&bench.store, &id, "大阪の話", 2.0).await;
    let all = SearchOptions::default;
    assert_eq!(ids(&bench, "東京タワー", all()).await, [tokyo]);
    assert_eq!(ids(&bench, "大阪", all()).await, [osaka]);
    assert_eq!(ids(&bench, "大阪 OR 東京", all()).await, [osaka, tokyo]);
    assert!(ids(&bench, "京都", all()).await.is_empty());
}

/// More messages with the words "common word" than are ranked.
fn many(bench: &Bench) {
    let sql = bench.sql();
    sql.execute_batch(
        "BEGIN;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
         INSERT INTO messages (session_id, role, content, timestamp)
            SELECT 's1', CASE WHEN i % 2 THEN 'user' ELSE 'tool' END,
                   'common word ' || i, i FROM n;
         COMMIT;",
    )
    .unwrap();
}

#[tokio::test]
async fn common_words_are_searched_from_the_newest() {
    let bench = Bench::new();
    bench.begin("s1").await;
    many(&bench);
    let options = |sort| SearchOptions {
        sort,
        roles: vec!["user".to_owned()],
        limit: 3,
        offset: 1,
        ..SearchOptions::default()
    };
    assert_eq!(
        ids(&bench, "common", options(SearchOrder::Newest)).await,
        [2497, 2495, 2493]
    );
    assert_eq!(
        ids(&bench, "common", options(SearchOrder::Oldest)).await,
        [3, 5, 7]
    );
    let hits = bench
        .store
        .search("common word", options(SearchOrder::Relevance))
        .await
        .unwrap();
    assert_eq!(hits.len(), 3);
    assert!(
        hits.iter()
            .all(|hit| hit.snippet.starts_with(">>>common<<< >>>word<<<"))
    );
}

#[tokio::test]
async fn a_rare_alternative_is_not_drowned_by_a_common_one() {
    let bench = Bench::new();
    let id = bench.begin("s1").await;
    let rare = say(&bench.store, &id, "a zeppelin, long ago", 0.5).await;
    many(&bench);
    let limited = SearchOptions {
        limit: 3,
        ..SearchOptions::default()
    };
    for query in ["zeppelin OR common", "common OR zeppelin OR word"] {
        let found = ids(&bench, query, limited.clone()).await;
        assert_eq!((found.len(), found[0]), (3, rare), "{query}");
    }
}

/// Twelve messages about zeppelins, alternating user and assistant.
async fn zeppelins(bench: &Bench, id: &str, source: &str) -> (SessionId, Vec<i64>) {
    let id = begin(&bench.store, id, source, None).await;
    let mut rows = Vec::new();
    for index in 0..12 {
        let text = if index == 6 {
            "the zeppelin lands"
        } else {
            "more talk"
        };
        let message = if index % 2 == 0 {
            Message::user(text)
        } else {
            Message::assistant(text)
        };
        let ids = bench
            .store
            .append(&id, vec![item(message, f64::from(index))])
            .await
            .unwrap();
        rows.push(ids[0].0);
    }
    (id, rows)
}

#[tokio::test]
async fn discovery_shows_the_place_and_the_ends() {
    let bench = Bench::new();
    let (cron, _) = zeppelins(&bench, "daily", "cron").await;
    let (talk, rows) = zeppelins(&bench, "talk", "cli").await;
    zeppelins(&bench, "run", "subagent").await;
    let request = |limit, current: Option<&SessionId>| DiscoverRequest {
        query: "zeppelin".to_owned(),
        limit,
        current: current.cloned(),
        ..DiscoverRequest::default()
    };
    let found = bench.store.discover(request(5, None)).await.unwrap();
    let sessions: Vec<&str> = found
        .results
        .iter()
        .map(|hit| hit.session_id.as_str())
        .collect();
    assert_eq!(sessions, ["talk", "daily"]);
    let hit = &found.results[0];
    assert_eq!(hit.match_message_id, Some(rows[6]));
    assert_eq!(hit.snippet, "the >>>zeppelin<<< lands  ");
    assert_eq!((hit.messages_before, hit.messages_after), (5, 5));
    let shown: Vec<i64> = hit.messages.iter().map(|message| message.id).collect();
    assert_eq!(shown, rows[1..12]);
    assert!(hit.messages[5].anchor);
    assert_eq!(
        hit.bookend_start.iter().map(|it| it.id).collect::<Vec<_>>(),
        [rows[0]]
    );
    assert!(hit.bookend_end.is_empty());

    let json = serde_json::to_value(&found).unwrap();
    let keys: Vec<&String> = json["results"][0].as_object().unwrap().keys().collect();
    for key in [
        "session_id",
        "when",
        "source",
        "model",
        "title",
        "matched_role",
        "match_message_id",
        "snippet",
        "bookend_start",
        "messages",
        "bookend_end",
        "messages_before",
        "messages_after",
    ] {
        assert!(keys.iter().any(|it| *it == key), "{key}");
    }
    assert_eq!(json["sessions_searched"], 2);

    let found = bench.store.discover(request(5, Some(&talk))).await.unwrap();
    assert_eq!(found.results[0].session_id, cron.as_str());
    assert_eq!(found.count, 1);

    bench
        .store
        .set_title(&talk, "Airships", false)
        .await
        .unwrap();
    let by_title = DiscoverRequest {
        query: "`Airships`".to_owned(),
        limit: 3,
        ..Default::default()
    };
    let found = bench.store.discover(by_title).await.unwrap();
    assert_eq!(found.results[0].matched_role, "session_title");
    assert_eq!(found.results[0].match_message_id, Some(rows[0]));
}

#[tokio::test]
async fn scrolling_reading_browsing() {
    let bench = Bench::new();
    let (talk, rows) = zeppelins(&bench, "talk", "cli").await;
    let (other, other_rows) = zeppelins(&bench, "other", "cli").await;
    let scroll = |around, window, current: Option<&SessionId>| {
        bench.store.scroll(ScrollRequest {
            session: talk.clone(),
            around,
            window,
            current: current.cloned(),
        })
    };
    let view = scroll(rows[2], 4, Some(&other)).await.unwrap();
    assert_eq!((view.messages_before, view.messages_after), (2, 4));
    assert_eq!(view.messages.len(), 7);
    assert_eq!(scroll(rows[0], 99, None).await.unwrap().window, 20);
    assert!(matches!(
        scroll(rows[0], 5, Some(&talk)).await,
        Err(StoreError::Invalid(_))
    ));
    assert!(matches!(
        scroll(other_rows[0], 5, None).await,
        Err(StoreError::Invalid(_))
    ));

    let whole = bench.store.read_session(&talk).await.unwrap();
    assert_eq!((whole.message_count, whole.truncated), (12, false));
    for index in 0..30 {
        say(&bench.store, &talk, "on and on", 100.0 + f64::from(index)).await;
    }
    let cut = bench.store.read_session(&talk).await.unwrap();
    assert_eq!(
        (cut.message_count, cut.truncated, cut.messages.len()),
        (42, true, 30)
    );
    assert!(matches!(
        bench.store.read_session(&"nobody".into()).await,
        Err(StoreError::NotFound(_))
    ));

    let recent = bench.store.browse(5, Some(other)).await.unwrap();
    assert_eq!(
        recent
            .results
            .iter()
            .map(|it| it.session_id.as_str())
            .collect::<Vec<_>>(),
        ["talk"]
    );
}
