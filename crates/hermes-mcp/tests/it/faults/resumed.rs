//! Interrupted streams that are resumed, with and without gaps.

use std::time::Duration;

use hermes_testkit::mcp_server::{Fault, FaultyServer, GetStream};
use serde_json::json;

use crate::rig::{Rig, bump, call, text};

const EVERYTHING: usize = usize::MAX;

#[tokio::test]
async fn a_cut_answer_is_fetched_and_the_call_not_repeated() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    server.fault("tools/call", Fault::CutResumable { lost: 0 });
    assert_eq!(rig.text("bump", json!({})).await, "1");
    let counts = server.counts();
    assert_eq!((counts.calls, counts.effects, counts.sessions), (1, 1, 1));
    let resumed = server.seen().into_iter();
    let resumed: Vec<_> = resumed
        .filter_map(|seen| seen.header("last-event-id").map(str::to_owned))
        .collect();
    assert_eq!(resumed, ["cut-0"]);
    rig.stop().await;
}

/// The server lost some events before the answer: only progress, which is not needed.
#[tokio::test]
async fn a_gap_before_the_answer_does_no_harm() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    server.fault("tools/call", Fault::CutResumable { lost: 2 });
    let steps = call("steps", json!({"count": 3, "pause_ms": 0}));
    assert_eq!(text(&rig.op(steps).await.unwrap()), "all steps done");
    assert_eq!(server.counts().calls, 1);
    rig.stop().await;
}

/// The server lost the answer too, or does not support resumption: the call fails at once.
#[tokio::test]
async fn an_answer_in_the_gap_is_an_unknown_outcome() {
    for get in [
        GetStream::Open,
        GetStream::Status(405),
        GetStream::Status(400),
    ] {
        let server = FaultyServer::start();
        let rig = Rig::to(&server).await;
        server.get_stream(get);
        server.fault("tools/call", Fault::CutResumable { lost: EVERYTHING });
        let error = rig.op(bump()).await.unwrap_err();
        assert!(error.outcome_unknown, "{get:?}: {error:?}");
        assert_eq!(server.counts().effects, 1, "{get:?}");
        assert_eq!(rig.text("bump", json!({})).await, "2", "{get:?}");
        rig.stop().await;
    }
}

/// Messages sent while the stream was closed are lost; later ones arrive.
#[tokio::test]
async fn the_listening_stream_says_where_it_stopped_and_goes_on_after_the_gap() {
    let server = FaultyServer::start();
    let rig = Rig::to(&server).await;
    let mut catalogue = rig.server.catalogue();
    let gets = server.counts().gets;
    server.push_raw("id: before-the-gap\nretry: 1\ndata: \n\n");
    server.end_streams();
    let again =
        |counts: &hermes_testkit::mcp_server::Counts| counts.gets > gets && counts.listening == 1;
    server.wait_for(again).await;
    let seen = server.seen();
    let last = seen.iter().rfind(|seen| seen.verb == "GET").unwrap();
    assert_eq!(last.header("last-event-id"), Some("before-the-gap"));
    server.set_tool_count(4);
    server.notify("notifications/tools/list_changed", &json!({}));
    let changed = catalogue.wait_for(|lists| lists.as_ref().is_some_and(|l| l.tools.len() == 4));
    let changed = tokio::time::timeout(Duration::from_secs(20), changed).await;
    assert!(changed.is_ok());
    drop(changed);
    rig.stop().await;
}
