use hermes_core::clock::Clock;
use hermes_core::ids::SessionId;
use hermes_core::message::{Content, Message, ToolMessage};
use hermes_core::store::{NewItem, NewSession, SessionStore};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

async fn fill(store: &Store, id: &str, texts: &[&str]) {
    let id = SessionId::new(id);
    let session = NewSession {
        id: Some(id.clone()),
        source: "cli".to_owned(),
        started_at: 1_800_000_000.0,
        ..NewSession::default()
    };
    store.begin(session).await.unwrap();
    let items = texts.iter().map(|text| NewItem {
        message: Message::user(*text),
        at: 1_800_000_000.0,
        token_count: None,
        platform_message_id: None,
    });
    store.append(&id, items.collect()).await.unwrap();
}

async fn bench() -> Bench {
    let mut bench = Bench::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = Store::open(bench.deps.home.state_db(), clock).unwrap();
    fill(
        &store,
        "old",
        &["the copper kettle whistles", "and then silence"],
    )
    .await;
    fill(&store, "s1", &["the copper kettle again"]).await;
    bench.deps.store = Some(store);
    bench
}

/// What was said in a conversation that has read from outside comes from outside.
#[tokio::test]
async fn what_is_found_keeps_where_it_comes_from() {
    let bench = bench().await;
    let store = bench.deps.store.clone().unwrap();
    fill(&store, "tainted", &["the tin kettle"]).await;
    let page = Message::Tool(ToolMessage {
        call_id: "c".to_owned(),
        name: "mcp__mail__read".to_owned(),
        content: Content::Text("hi".to_owned()),
        disposition: None,
    });
    let item = NewItem {
        message: page,
        at: 1_800_000_000.0,
        token_count: None,
        platform_message_id: None,
    };
    let id = SessionId::new("tainted");
    store.append(&id, vec![item]).await.unwrap();
    let tools = bench.tools();
    for (query, is_outside) in [("copper", false), ("tin", true)] {
        let found = tools.ok("session_search", json!({ "query": query })).await;
        assert_eq!(found["from_outside"] == true, is_outside, "{found}");
        assert_eq!(tools.cx.taint.is_marked(), is_outside, "{query}");
    }
}

#[tokio::test]
async fn the_four_ways_of_looking_back() {
    let bench = bench().await;
    let tools = bench.tools();
    let found = tools
        .ok("session_search", json!({"query": "kettle", "limit": "5"}))
        .await;
    assert_eq!(
        (&found["mode"], &found["count"]),
        (&json!("discover"), &json!(1))
    );
    let hit = &found["results"][0];
    assert_eq!(
        hit["session_id"], "old",
        "the running conversation is left out"
    );
    let scrolled = tools
        .ok(
            "session_search",
            json!({"session_id": "old", "around_message_id": hit["match_message_id"]}),
        )
        .await;
    assert_eq!(scrolled["mode"], "scroll");
    assert_eq!(scrolled["messages"].as_array().unwrap().len(), 2);
    let read = tools
        .ok("session_search", json!({"session_id": "old"}))
        .await;
    assert_eq!(
        (&read["mode"], &read["message_count"]),
        (&json!("read"), &json!(2))
    );
    let browsed = tools.ok("session_search", json!({})).await;
    assert_eq!(browsed["mode"], "browse");
}

#[tokio::test]
async fn other_profiles_are_read_and_wrong_calls_explained() {
    let bench = bench().await;
    let other = bench.path("home/profiles/work");
    let store = Store::open(other.join("state.db"), Arc::new(SystemClock)).unwrap();
    fill(&store, "w1", &["an office matter"]).await;
    store.close().await.unwrap();
    let tools = bench.tools();
    let found = tools
        .ok(
            "session_search",
            json!({"query": "office", "profile": "work"}),
        )
        .await;
    assert_eq!(found["results"][0]["session_id"], "w1");
    let read = tools
        .ok("session_search", json!({"session_id": "@session:work/w1"}))
        .await;
    assert_eq!(read["session_id"], "w1");
    for (args, kind, expected) in [
        (
            json!({"profile": "../x", "query": "a"}),
            ToolErrorKind::BadArguments,
            "not a profile name",
        ),
        (
            json!({"profile": "ghost", "query": "a"}),
            ToolErrorKind::Failed,
            "no readable history",
        ),
        (
            json!({"query": "a", "sort": "best"}),
            ToolErrorKind::BadArguments,
            "newest or oldest",
        ),
        (
            json!({"around_message_id": 3}),
            ToolErrorKind::BadArguments,
            "needs the session_id",
        ),
        (
            json!({"session_id": "none"}),
            ToolErrorKind::Failed,
            "no session",
        ),
    ] {
        let (got, text) = tools.err("session_search", args.clone()).await;
        assert_eq!(got, kind, "{args}: {text}");
        assert!(text.contains(expected), "{args}: {text}");
    }
}
