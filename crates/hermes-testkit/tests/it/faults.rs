//! Faults happen exactly where the script puts them.

use std::io::{Read, Write};

use hermes_testkit::model_server::{ModelServer, Reply, ReplyGate};
use serde_json::json;

use crate::client::{chat, chat_body, open, read};

#[test]
fn cuts_break_the_connection_and_ends_do_not() {
    let server = ModelServer::start();
    server.push(Reply::text("abcdef").deltas(6).cut_after_events(3));
    let cut = chat(&server, "hi");
    assert!(!cut.complete);
    assert_eq!(cut.data().len(), 3);

    server.push(Reply::text("abcdef").cut_after_bytes(50));
    let cut = chat(&server, "hi");
    assert!(!cut.complete);
    assert_eq!(cut.body.len(), 50);

    server.push(Reply::text("abcdef").deltas(6).end_after_events(3));
    let ended = chat(&server, "hi");
    assert!(ended.complete);
    assert_eq!(ended.data().len(), 3);

    server.push(Reply::empty_stream());
    let empty = chat(&server, "hi");
    assert!(empty.complete && empty.body.is_empty());

    server.push(Reply::hangup());
    assert_eq!(chat(&server, "hi").head, "");
}

#[test]
fn errors_carry_status_body_and_headers() {
    let server = ModelServer::start();
    for status in [401, 402, 403, 404, 413, 429, 500, 502, 503, 529] {
        server.push(Reply::error(status, "no"));
        let answer = chat(&server, "hi");
        assert_eq!(answer.status(), status.to_string());
        assert_eq!(answer.json()["error"]["message"], "no");
    }
    server.push(Reply::rate_limited(7));
    assert!(chat(&server, "hi").head.contains("retry-after: 7"));
    server.push(Reply::http(502, "<html>bad gateway</html>").header("content-type", "text/html"));
    let answer = chat(&server, "hi");
    assert_eq!(answer.body, "<html>bad gateway</html>");
    assert_eq!(answer.head.matches("content-type").count(), 1);
}

#[test]
fn broken_events_and_late_errors() {
    let server = ModelServer::start();
    server.push(
        Reply::text("ab")
            .deltas(2)
            .malformed_event(2)
            .insert(0, ": ping\n\n"),
    );
    let answer = chat(&server, "hi");
    assert!(answer.body.starts_with(": ping\n\n"));
    let broken = answer
        .body
        .lines()
        .filter(|line| line.starts_with("data: {"));
    let broken =
        broken.filter(|line| serde_json::from_str::<serde_json::Value>(&line[6..]).is_err());
    assert_eq!(broken.count(), 1);

    server.push(
        Reply::text("ab")
            .deltas(2)
            .error_event(2, json!({"message": "overloaded"})),
    );
    let data = chat(&server, "hi").data();
    assert_eq!(data.len(), 3);
    assert_eq!(data[2]["error"]["message"], "overloaded");
}

#[test]
fn torn_answers_arrive_whole() {
    let server = ModelServer::start();
    server.push(Reply::text("äöü€").torn(3));
    assert!(chat(&server, "hi").body.contains("äöü€"));
}

#[test]
fn a_held_answer_waits_for_its_gate() {
    let server = ModelServer::start();
    let gate = ReplyGate::new();
    server.push(Reply::text("later").hold(&gate));
    let stream = open(&server, "POST", "/v1/chat/completions", &chat_body("hi"));
    server.block_until(|progress| progress.requests == 1);
    assert_eq!(server.progress().answered, 0);
    gate.release();
    assert!(read(stream).body.contains("later"));

    // Held in the middle: what came before is there.
    let gate = ReplyGate::new();
    server.push(Reply::text("ab").deltas(2).hold_at(2, &gate));
    let mut stream = open(&server, "POST", "/v1/chat/completions", &chat_body("hi"));
    let mut seen = String::new();
    while !seen.contains("\"a\"") {
        let mut bytes = [0; 256];
        let count = stream.read(&mut bytes).unwrap();
        seen.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    assert!(!seen.contains("\"b\""));
    gate.release();
    assert!(stream.read_to_string(&mut seen).is_ok() && seen.contains("\"b\""));
}

#[test]
fn a_client_that_leaves_is_noticed() {
    let server = ModelServer::start();
    let gate = ReplyGate::new();
    server.push(Reply::text("never").hold_at(1, &gate));
    let stream = open(&server, "POST", "/v1/chat/completions", &chat_body("hi"));
    server.block_until(|progress| progress.requests == 1);
    drop(stream);
    let progress = server.block_until(|progress| progress.disconnects == 1);
    assert_eq!(progress.answered, 0);
}

#[test]
fn one_connection_serves_many_requests() {
    let server = ModelServer::start();
    server.push_default(Reply::text("ok").json_answer());
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    for number in 1..=3 {
        let body = chat_body("hi");
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        server.block_until(|progress| progress.answered == number);
    }
    assert_eq!(server.progress().connections, 1);
    let (requests, answers) = (server.requests(), server.answers());
    assert!(answers[0].ns >= requests[0].arrived_ns && answers[2].index == 2);
}
