//! The faulty MCP server keeps its promises.

use std::io::Write;
use std::net::TcpStream;

use hermes_testkit::mcp_server::{Fault, FaultyServer, GetStream, Loss, Wire};
use serde_json::{Value, json};

use crate::client::{Answer, read};

fn send(server: &FaultyServer, head: &str, body: &Value) -> Answer {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let length = body.len();
    let request =
        format!("{head}host: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    read(stream)
}

fn post(server: &FaultyServer, session: &str, method: &str, params: &Value) -> Answer {
    let head = format!("POST /mcp HTTP/1.1\r\nmcp-session-id: {session}\r\n");
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    send(server, &head, &body)
}

fn bump(server: &FaultyServer, session: &str) -> Answer {
    post(server, session, "tools/call", &json!({"name": "bump"}))
}

fn session(server: &FaultyServer) -> String {
    let answer = post(
        server,
        "",
        "initialize",
        &json!({"protocolVersion": "2025-06-18"}),
    );
    assert_eq!(answer.json()["result"]["protocolVersion"], "2025-06-18");
    let line = answer
        .head
        .lines()
        .find(|l| l.starts_with("mcp-session-id"));
    line.unwrap().split(": ").nth(1).unwrap().to_owned()
}

#[test]
fn every_shape_of_a_lost_session_refuses_without_executing() {
    let server = FaultyServer::start();
    for loss in Loss::ALL {
        let id = session(&server);
        server.lose_sessions_as(loss).expire_sessions();
        let before = server.counts();
        let answer = bump(&server, &id);
        assert!(answer.complete, "{loss:?}");
        assert!(
            !answer.body.contains("\"result\""),
            "{loss:?}: {}",
            answer.body
        );
        let after = server.counts();
        assert_eq!(after.effects, before.effects, "{loss:?}");
        assert_eq!(after.refused, before.refused + 1, "{loss:?}");
    }
}

#[test]
fn resets_before_and_after_differ_in_the_effect_alone() {
    let server = FaultyServer::start();
    let id = session(&server);
    server.fault("tools/call", Fault::ResetBefore);
    assert_eq!(bump(&server, &id).head, "");
    assert_eq!(server.counts().effects, 0);
    server.fault("tools/call", Fault::ResetAfter);
    assert_eq!(bump(&server, &id).head, "");
    assert_eq!(server.counts().effects, 1);
    server.fault("tools/call", Fault::CutEvents(10));
    let cut = bump(&server, &id);
    assert!(!cut.complete);
    assert_eq!(server.counts().effects, 2);
    assert_eq!(bump(&server, &id).status(), "200");
}

#[test]
fn down_means_refused_and_up_means_the_same_port() {
    let server = FaultyServer::start();
    let id = session(&server);
    server.go_down();
    assert!(TcpStream::connect(server.address()).is_err());
    server.come_up();
    assert_eq!(
        bump(&server, &id).status(),
        "404",
        "a restart forgets sessions"
    );
    assert_eq!(bump(&server, &session(&server)).status(), "200");
}

#[test]
fn the_modern_era_knows_no_handshake() {
    let server = FaultyServer::start_as(Wire::Modern);
    let head = "POST /mcp HTTP/1.1\r\nmcp-protocol-version: 2026-07-28\r\n";
    let ask = |method: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
        send(&server, head, &body)
    };
    assert_eq!(ask("initialize").status(), "404");
    assert_eq!(ask("ping").status(), "404");
    let found = ask("server/discover").json();
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    assert_eq!(ask("tools/list").json()["result"]["resultType"], "complete");
    assert_eq!(post(&server, "", "tools/list", &json!({})).status(), "400");
}

#[test]
fn a_get_is_answered_as_told() {
    let server = FaultyServer::start();
    for status in [404, 405, 409, 400] {
        server.get_stream(GetStream::Status(status));
        let answer = send(&server, "GET /mcp HTTP/1.1\r\n", &Value::Null);
        assert_eq!(answer.status(), status.to_string());
    }
    assert_eq!(server.counts().gets, 4);
}
