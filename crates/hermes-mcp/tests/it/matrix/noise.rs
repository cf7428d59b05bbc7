//! Events that are not messages, on the stream of HTTP+SSE while calls wait: they were sent in
//! place of an answer, so the calls fail before their timeout.

use std::time::Duration;

use futures_util::future::join_all;
use hermes_core::task;
use hermes_mcp::CallOptions;
use hermes_testkit::mcp_server::combination::Transport;
use serde_json::json;
use tokio::time::Instant;

use super::stage::{Stage, TIMEOUT};
use super::time::{drive, with_virtual_time};
use crate::rig::call;

/// This many calls wait while these events arrive; returns how each ended, and when.
fn calls_under(events: &[String], count: usize) -> Vec<(bool, Duration)> {
    with_virtual_time(|| async {
        let stage = Stage::set(Transport::Sse, 1).await.unwrap();
        let began = Instant::now();
        let calls: Vec<_> = (0..count)
            .map(|_| {
                let peer = stage.peer.clone();
                task::spawn("noise-call", async move {
                    let result = peer.call(call("slow", json!({})), CallOptions::default());
                    let unknown = result.await.is_err_and(|error| error.outcome_unknown);
                    (unknown, began.elapsed())
                })
            })
            .collect();
        stage.settle().await;
        for event in events {
            stage
                .server
                .push_raw(&format!("event: message\ndata: {event}\n\n"));
        }
        let done = drive(&stage.activity(), TIMEOUT * 3, join_all(calls)).await;
        let done = done.unwrap().into_iter();
        done.map(|ended| ended.unwrap().unwrap()).collect()
    })
}

#[test]
fn what_is_no_message_fails_the_call_that_waits() {
    for event in [
        "not json at all",
        "[]",
        "{}",
        "<html>gone</html>",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"level":30,"message":"ready"}"#,
        r#"{"jsonrpc":"2.0","id":1,"resu"#,
    ] {
        for (unknown, took) in calls_under(&[event.to_owned()], 1) {
            assert!(
                unknown && took < Duration::from_secs(1),
                "{event}: {took:?}"
            );
        }
    }
}

#[test]
fn an_answer_with_nothing_in_it_fails_its_own_call() {
    let all: Vec<String> = (0..40)
        .map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#))
        .collect();
    for (unknown, took) in calls_under(&all, 3) {
        assert!(unknown && took < Duration::from_secs(1), "{took:?}");
    }
}

#[test]
fn a_word_keeps_the_stream_open() {
    let words = ["ping".to_owned(), "keep-alive".to_owned()];
    for (unknown, took) in calls_under(&words, 1) {
        assert!(unknown && took >= TIMEOUT, "{took:?}");
    }
}
