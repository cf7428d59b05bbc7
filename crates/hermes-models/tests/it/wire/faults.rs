//! Servers that misbehave.

use hermes_core::message::FinishReason;
use hermes_core::model::{ErrorClass, ModelClient, ModelEvent, WireFormat};
use hermes_testkit::model_server::{ModelServer, Reply, ReplyGate, ScriptedCall};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{FORMATS, answer, client, events, failure, request};
use futures_util::StreamExt;
use hermes_core::message::Message;

const CHAT: WireFormat = WireFormat::ChatCompletions;

#[tokio::test]
async fn status_codes_have_their_classes() {
    let cases = [
        (401, "bad key", ErrorClass::Auth),
        (402, "no credits", ErrorClass::Billing),
        (429, "slow down", ErrorClass::RateLimit),
        (500, "oops", ErrorClass::Server),
        (503, "later", ErrorClass::Overloaded),
        (
            400,
            "prompt is too long: 9000 tokens > 8192 maximum",
            ErrorClass::ContextOverflow,
        ),
        (404, "model m not found", ErrorClass::ModelNotFound),
    ];
    for format in FORMATS {
        for (status, message, class) in cases {
            let server = ModelServer::start();
            server.push(Reply::error(status, message));
            let error = failure(&client(&server, format)).await;
            assert_eq!(error.class, class, "{format:?} {status}");
            assert_eq!(error.status, Some(status));
            assert_eq!(error.message, message);
        }
    }
    let server = ModelServer::start();
    server.push(Reply::rate_limited(17));
    let error = failure(&client(&server, CHAT)).await;
    assert_eq!(error.retry_after.map(|wait| wait.as_secs()), Some(17));
}

#[tokio::test]
async fn a_web_page_is_not_asked_for_again() {
    let server = ModelServer::start();
    let page = Reply::http(200, "<html>log in first</html>");
    server.push(page.header("content-type", "text/html; charset=utf-8"));
    let error = failure(&client(&server, CHAT)).await;
    assert_eq!(error.class, ErrorClass::Format);
    assert!(error.message.contains("web page"), "{}", error.message);
}

#[tokio::test]
async fn an_error_in_the_middle_of_the_stream() {
    for format in FORMATS {
        let server = ModelServer::start();
        let error = json!({"message": "Overloaded", "type": "overloaded_error", "code": "overloaded_error"});
        server.push(Reply::text("a b c d").deltas(4).error_event(3, error));
        let error = failure(&client(&server, format)).await;
        assert_eq!(error.class, ErrorClass::Overloaded, "{format:?}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_or_just_ends() {
    for format in FORMATS {
        let whole = Reply::text("one two three four").deltas(6);
        for reply in [whole.clone().cut_after_events(5), whole.end_after_events(5)] {
            let server = ModelServer::start();
            server.push(reply);
            let (message, _) = answer(&client(&server, format)).await;
            assert!(!message.text.is_empty(), "{format:?}");
            assert_eq!(message.finish, Some(FinishReason::Cut), "{format:?}");
        }
        let server = ModelServer::start();
        server.push(Reply::empty_stream());
        let error = failure(&client(&server, format)).await;
        assert_eq!(error.class, ErrorClass::EmptyStream, "{format:?}");
        let server = ModelServer::start();
        server.push(Reply::hangup());
        let error = failure(&client(&server, format)).await;
        assert_eq!(error.class, ErrorClass::Timeout, "{format:?}");
    }
}

#[tokio::test]
async fn malformed_events_are_reported() {
    let server = ModelServer::start();
    server.push(Reply::text("x").malformed_event(1));
    assert_eq!(
        failure(&client(&server, CHAT)).await.class,
        ErrorClass::BadResponse
    );
}

#[tokio::test]
async fn quirks_of_chat_servers() {
    let calls = || {
        Reply::tool_calls([
            ScriptedCall::new("c1", "read_file", &json!({"path": "a"})).chunks(4),
            ScriptedCall::new("c2", "todo", &json!({"x": 1})).chunks(2),
        ])
    };
    let replies = [
        calls().repeat_names(),
        calls().index_zero(),
        calls().no_done(),
        calls().finish_raw(json!(1)),
        calls().insert(0, ": OPENROUTER PROCESSING\n\n"),
    ];
    for reply in replies {
        let server = ModelServer::start();
        server.push(reply.clone());
        let (message, _) = answer(&client(&server, CHAT)).await;
        let seen: Vec<(&str, &str, &str)> = message
            .tool_calls
            .iter()
            .map(|call| {
                (
                    call.id.as_str(),
                    call.name.as_str(),
                    call.arguments.as_str(),
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("c1", "read_file", "{\"path\":\"a\"}"),
                ("c2", "todo", "{\"x\":1}")
            ],
            "{reply:?}"
        );
        assert_eq!(message.finish, Some(FinishReason::ToolCalls), "{reply:?}");
    }
    for id in [json!(42), Value::Null] {
        let server = ModelServer::start();
        server.push(Reply::tool_calls([ScriptedCall::new(
            "",
            "todo",
            &json!({}),
        )
        .id(id)]));
        let (message, _) = answer(&client(&server, CHAT)).await;
        assert!(!message.tool_calls[0].id.is_empty());
        assert_eq!(message.tool_calls[0].name, "todo");
    }
}

#[tokio::test]
async fn cancelling_and_dropping_close_the_connection() {
    let server = ModelServer::start();
    let gate = ReplyGate::new();
    server.push(Reply::text("a b c").deltas(3).hold_at(2, &gate));
    let cancel = CancellationToken::new();
    let client = client(&server, CHAT);
    let mut stream = client.stream(request([Message::user("hi")]), cancel.clone());
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Started)));
    gate.reached().await;
    cancel.cancel();
    let rest: Vec<_> = stream.collect().await;
    assert_eq!(
        rest.last().unwrap().as_ref().unwrap_err().class,
        ErrorClass::Cancelled
    );
    server.wait_for(|progress| progress.disconnects == 1).await;

    let gate = ReplyGate::new();
    server.push(Reply::text("never").hold(&gate));
    let mut stream = client.stream(request([Message::user("hi")]), CancellationToken::new());
    tokio::select! {
        _ = stream.next() => panic!("nothing can arrive"),
        () = gate.reached() => {}
    }
    drop(stream);
    server.wait_for(|progress| progress.disconnects == 2).await;
}

#[tokio::test]
async fn connections_are_reused() {
    let server = ModelServer::start();
    server.push_all([Reply::text("one"), Reply::text("two"), Reply::text("three")]);
    let client = client(&server, CHAT);
    for _ in 0..3 {
        assert!(events(&client).await.iter().all(Result::is_ok));
    }
    assert_eq!(server.progress().connections, 1);
}
