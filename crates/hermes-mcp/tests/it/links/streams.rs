//! Streams: only their own bytes prove that they are alive.

use std::time::Duration;

use hermes_mcp::{Certainty, FailureClass, LinkEvent, Op, ServerTarget};
use hermes_testkit::mcp_server::{Fault, FaultyServer, GetStream, Wire};
use serde_json::json;

use super::{Bench, ask, http_target, nothing, text, tool, within};

const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

fn http(server: &FaultyServer) -> Bench {
    Bench::new(ServerTarget::Http(http_target(&server.url())))
}

fn sse(server: &FaultyServer) -> Bench {
    Bench::new(ServerTarget::Sse(http_target(&server.url())))
}

fn accepted() -> Fault {
    Fault::status(202, "")
}

/// Contrary to the specification, but it occurs: "accepted", and the answer on the other stream.
#[tokio::test]
async fn an_answer_on_the_listening_stream_is_taken() {
    let server = FaultyServer::start();
    let link = http(&server).connect().await.unwrap();
    server.wait_for(|counts| counts.listening == 1).await;
    link.listening().await;
    server.fault("tools/call", accepted());
    let answer = async {
        server.wait_for(|counts| counts.calls == 1).await;
        let id = server.seen_of("tools/call")[0].body["id"].clone();
        let content = json!([{"type": "text", "text": "over here", "odd": 1}]);
        let message = json!({"jsonrpc": "2.0", "id": id, "result": {"content": content}});
        server.push_raw(&format!("data: {message}\n\n"));
    };
    let (result, ()) = tokio::join!(ask(&*link, tool("bump", nothing())), answer);
    let result = result.unwrap();
    assert_eq!(text(&result), "over here");
    assert_eq!(result["content"][0]["odd"], 1, "as it came");
}

#[tokio::test]
async fn an_answer_that_never_comes_on_the_listening_stream_is_not_waited_for() {
    let server = FaultyServer::start();
    let mut bench = http(&server);
    bench.connector.late_answer = SHORT_TIMEOUT;
    let link = bench.connect().await.unwrap();
    server.wait_for(|counts| counts.listening == 1).await;
    for op in [tool("bump", nothing()), Op::Probe, Op::ListResources] {
        server.fault("*", accepted());
        let failure = ask(&*link, op.clone()).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Ambiguous, "{op:?}: {failure}");
        assert_eq!(failure.certainty, Certainty::MaybeExecuted);
        assert!(failure.text.contains("sent no answer"), "{failure}");
    }
    ask(&*link, tool("bump", nothing())).await.unwrap();
}

#[tokio::test]
async fn only_a_successful_answer_is_a_sign_of_life() {
    let server = FaultyServer::start();
    server.get_stream(GetStream::Status(405));
    let link = http(&server).connect().await.unwrap();
    ask(&*link, Op::ListTools).await.unwrap();
    for fault in [
        Fault::status(400, "no"),
        Fault::status(404, ""),
        Fault::status(500, "oops"),
        Fault::status(503, "busy"),
        Fault::status(200, "<html>log in</html>"),
        accepted(),
        Fault::RpcError {
            code: -32000,
            message: "no".to_owned(),
        },
    ] {
        let before = link.last_activity();
        server.fault("ping", fault.clone());
        ask(&*link, Op::Probe).await.unwrap_err();
        assert_eq!(link.last_activity(), before, "{fault:?}");
    }
    let before = link.last_activity();
    ask(&*link, Op::Probe).await.unwrap();
    assert!(link.last_activity() > before);
}

/// The stream of HTTP+SSE is dead while POSTs are accepted: nothing arrives.
#[tokio::test]
async fn a_post_that_is_accepted_is_no_sign_of_life_of_the_stream() {
    let server = FaultyServer::start_as(Wire::Sse);
    let link = sse(&server).connect().await.unwrap();
    ask(&*link, Op::ListTools).await.unwrap();
    let before = link.last_activity();
    server.fault("ping", accepted());
    let failure = link
        .request(&Op::Probe, within(SHORT_TIMEOUT))
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::TimedOut, "{failure}");
    assert_eq!(link.last_activity(), before);
    ask(&*link, Op::Probe).await.unwrap();
    assert!(link.last_activity() > before);
}

#[tokio::test]
async fn a_silent_listening_stream_is_opened_again_as_often_as_the_keepalive_asks() {
    let server = FaultyServer::start();
    let mut bench = http(&server);
    bench.connector.keepalive_interval = SHORT_TIMEOUT;
    let link = bench.connect().await.unwrap();
    server.wait_for(|counts| counts.listening == 1).await;
    server.push_raw("id: here\ndata: \n\n");
    server.wait_for(|counts| counts.gets >= 3).await;
    ask(&*link, tool("bump", nothing())).await.unwrap();
    let seen = server.seen();
    let last = seen.iter().rfind(|seen| seen.verb == "GET").unwrap();
    assert_eq!(last.header("last-event-id"), Some("here"));
    assert!(bench.events.try_recv().is_err(), "nobody is told");
    assert_eq!(server.counts().sessions, 1);
}

/// The stream of HTTP+SSE may be silent: the answer to a ping proves that it works.
#[tokio::test]
async fn silence_does_not_end_a_link_over_sse_unless_somebody_says_so() {
    let server = FaultyServer::start_as(Wire::Sse);
    let mut bench = sse(&server);
    bench.connector.keepalive_interval = Duration::from_millis(1);
    let link = bench.connect().await.unwrap();
    let waited = tokio::time::timeout(SHORT_TIMEOUT, link.closed()).await;
    assert!(waited.is_err(), "{waited:?}");
    bench.connector.sse_idle_timeout = Some(SHORT_TIMEOUT);
    let link = bench.connect().await.unwrap();
    assert!(link.closed().await.text.contains("not a byte"));
}

#[tokio::test]
async fn a_broken_event_fails_the_one_request_that_waits() {
    for broken in [
        r#"{"jsonrpc":"2.0","id":1,"resu"#,
        "<html>log in</html>",
        r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"other","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
    ] {
        let server = FaultyServer::start_as(Wire::Sse);
        let link = sse(&server).connect().await.unwrap();
        server.fault("tools/call", accepted());
        let answer = async {
            server.wait_for(|counts| counts.calls == 1).await;
            server.push_raw(&format!("data: {broken}\n\n"));
        };
        let (result, ()) = tokio::join!(ask(&*link, tool("bump", nothing())), answer);
        let failure = result.unwrap_err();
        assert_eq!(
            failure.class,
            FailureClass::Ambiguous,
            "{broken}: {failure}"
        );
        assert_eq!(failure.certainty, Certainty::MaybeExecuted);
        ask(&*link, tool("bump", nothing())).await.unwrap();
    }
}

/// The error is the tool's own; only its id is wrong.
#[tokio::test]
async fn an_error_under_another_id_answers_the_one_request_that_waits() {
    for id in ["null", "\"server-error\"", "4711"] {
        let server = FaultyServer::start_as(Wire::Sse);
        let link = sse(&server).connect().await.unwrap();
        server.fault("tools/call", accepted());
        let answer = async {
            server.wait_for(|counts| counts.calls == 1).await;
            let error = r#"{"code":-32000,"message":"not today"}"#;
            server.push_raw(&format!(
                "data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n\n"
            ));
        };
        let (result, ()) = tokio::join!(ask(&*link, tool("bump", nothing())), answer);
        let failure = result.unwrap_err();
        assert_eq!(failure.text, "not today", "{id}");
        assert_eq!(failure.rpc_code, Some(-32000), "{id}");
        ask(&*link, tool("bump", nothing())).await.unwrap();
    }
}

#[tokio::test]
async fn of_several_requests_none_is_blamed_but_the_link_is_suspected() {
    let server = FaultyServer::start_as(Wire::Sse);
    let mut bench = sse(&server);
    let link = bench.connect().await.unwrap();
    let slow = tool("slow", json!({"gate": "shut"}));
    let both = async { tokio::join!(ask(&*link, slow.clone()), ask(&*link, slow.clone())) };
    let script = async {
        server.wait_for(|counts| counts.running == 2).await;
        server.push_raw("data: {\"jsonrpc\":\n\n");
        let event = bench.event().await;
        assert!(matches!(event, LinkEvent::Suspect(_)), "{event:?}");
        server.gate("shut").release();
    };
    let ((one, two), ()) = tokio::join!(both, script);
    one.unwrap();
    two.unwrap();
}

/// A late answer to an abandoned request says nothing about others.
#[tokio::test]
async fn a_late_answer_does_not_fail_the_request_that_waits() {
    let server = FaultyServer::start_as(Wire::Sse);
    let link = sse(&server).connect().await.unwrap();
    server.fault("tools/call", accepted());
    let late = link
        .request(&tool("bump", nothing()), within(SHORT_TIMEOUT))
        .await;
    assert_eq!(late.unwrap_err().class, FailureClass::TimedOut);
    let id = server.seen_of("tools/call")[0].body["id"].clone();
    let slow = tool("slow", json!({"gate": "shut"}));
    let script = async {
        server.wait_for(|counts| counts.running == 1).await;
        let message = json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}});
        server.push_raw(&format!("data: {message}\n\n"));
        server.gate("shut").release();
    };
    let (result, ()) = tokio::join!(ask(&*link, slow), script);
    result.unwrap();
}

/// Some servers answer in reply to the POST instead of on the stream, and a proxy may return a page
/// there.
#[tokio::test]
async fn what_comes_in_reply_to_a_post_counts() {
    let server = FaultyServer::start_as(Wire::Sse);
    let link = sse(&server).connect().await.unwrap();
    server.fault("tools/call", Fault::status(200, "<html>log in</html>"));
    let failure = ask(&*link, tool("bump", nothing())).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Ambiguous, "{failure}");
    server.fault("ping", accepted());
    let failure = link
        .request(&Op::Probe, within(SHORT_TIMEOUT))
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::TimedOut, "{failure}");
    // The next id.
    let id = server.seen_of("ping")[0].body["id"].as_i64().unwrap() + 1;
    let error = json!({"code": -32000, "message": "not today"});
    let reply = json!({"jsonrpc": "2.0", "id": id, "error": error});
    server.fault("tools/call", Fault::status(200, &reply.to_string()));
    let failure = ask(&*link, tool("bump", nothing())).await.unwrap_err();
    assert_eq!(failure.text, "not today");
}
