//! Every shape of answer: readable ones are read, and the rest fails at once instead of at the
//! call's timeout.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use hermes_mcp::{Certainty, Era, FailureClass, McpFailure, Op, Protocol, ServerTarget};
use serde_json::{Value, json};

use super::{Bench, ask, http_target, nothing, text, tool};
use crate::mini::{MiniRequest, MiniResponse, MiniServer};

/// A server with a session whose answers to these methods come from the test; there is no listening
/// stream.
pub(super) async fn server(
    method: &'static str,
    respond: impl Fn(&MiniRequest) -> MiniResponse + Send + Sync + 'static,
) -> MiniServer {
    MiniServer::start(move |request| {
        let id = &request.body["id"];
        let named = request.body["method"].as_str().unwrap_or(&request.method);
        if named == method {
            return respond(request);
        }
        match named {
            "initialize" => initialized(id),
            "tools/list" => result(id, &json!({"tools": []})),
            "ping" => result(id, &json!({})),
            "get" => MiniResponse::status("405 Method Not Allowed"),
            _ => MiniResponse::status("202 Accepted"),
        }
    })
    .await
}

fn initialized(id: &Value) -> MiniResponse {
    let mut respond = result(
        id,
        &json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "mini", "version": "1"}}),
    );
    respond.head.push_str("\r\nmcp-session-id: s1");
    respond
}

fn result(id: &Value, result: &Value) -> MiniResponse {
    MiniResponse::json(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

pub(super) fn bench(server: &MiniServer) -> Bench {
    let mut bench = Bench::new(ServerTarget::Http(http_target(&server.url("/mcp"))));
    bench.connector.protocol = Protocol::Legacy;
    bench
}

fn ran(request: &MiniRequest) -> String {
    let result = json!({"content": [{"type": "text", "text": "ran"}]});
    json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result}).to_string()
}

fn event(request: &MiniRequest) -> String {
    format!("event: message\ndata: {}\n\n", ran(request))
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

async fn call(server: &MiniServer) -> Result<Value, McpFailure> {
    let link = bench(server).connect().await.unwrap();
    ask(&*link, tool("t", nothing())).await
}

fn assert_unknown(failure: &McpFailure, what: &str) {
    assert_eq!(failure.class, FailureClass::Ambiguous, "{what}: {failure}");
    assert_eq!(failure.certainty, Certainty::MaybeExecuted, "{what}");
}

#[tokio::test]
async fn a_request_that_is_only_accepted_fails_at_once() {
    for (method, op) in [
        ("tools/call", tool("t", nothing())),
        ("ping", Op::Probe),
        ("tools/list", Op::ListTools),
    ] {
        for (head, body) in [
            ("202 Accepted", ""),
            ("202 Accepted\r\ncontent-type: text/plain", "Accepted"),
            ("204 No Content", ""),
            ("200 OK\r\ncontent-type: application/json", ""),
            ("200 OK\r\ncontent-type: application/json", "\u{feff} \n"),
            ("201 Created", ""),
        ] {
            let server = server(method, move |_| MiniResponse::bytes(head, body)).await;
            let link = bench(&server).connect().await.unwrap();
            let failure = ask(&*link, op.clone()).await.unwrap_err();
            assert_unknown(&failure, head);
            assert!(failure.text.contains("sent no answer"), "{failure}");
        }
    }
}

#[tokio::test]
async fn a_handshake_that_is_only_accepted_fails_at_once() {
    let server = server("initialize", |_| MiniResponse::status("202 Accepted")).await;
    let failure = bench(&server).connect().await.err().unwrap();
    assert_eq!(failure.class, FailureClass::NotSent, "{failure}");
    assert!(failure.text.contains("sent no answer"), "{failure}");
}

/// (head after the status, body)
fn readable(request: &MiniRequest) -> Vec<(&'static str, Vec<u8>)> {
    let (plain, event) = (ran(request), event(request));
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(plain.as_bytes()).unwrap();
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
    deflate.write_all(plain.as_bytes()).unwrap();
    let json = "content-type: application/json";
    let stream = "content-type: text/event-stream";
    vec![
        (json, plain.clone().into()),
        (json, format!("\u{feff}{plain}").into()),
        ("content-type: text/plain", plain.clone().into()),
        ("x-nothing: 1", plain.clone().into()),
        (stream, event.clone().into()),
        (stream, format!("\u{feff}{event}").into()),
        (stream, event.replace("data: ", "data: \u{feff}").into()),
        ("content-type: Text/Event-Stream", event.clone().into()),
        (json, event.clone().into()),
        ("x-nothing: 1", event.trim_end().into()),
        (
            "content-type: application/json\r\ncontent-encoding: gzip",
            gzip(&plain),
        ),
        (
            "content-type: application/json\r\ncontent-encoding: X-GZIP",
            gzip(&format!("\u{feff}{plain}")),
        ),
        (
            "content-type: application/json\r\ncontent-encoding: deflate",
            zlib.finish().unwrap(),
        ),
        (
            "content-type: application/json\r\ncontent-encoding: deflate",
            deflate.finish().unwrap(),
        ),
        (
            "content-type: text/event-stream\r\ncontent-encoding: gzip",
            gzip(&event),
        ),
        (stream, plain.clone().into()),
        (
            stream,
            format!("\u{feff}\r\n {}\n", plain.replace(',', ",\n")).into(),
        ),
        (
            "content-type: text/event-stream\r\ncontent-encoding: gzip",
            gzip(&plain),
        ),
    ]
}

#[tokio::test]
async fn what_can_be_read_is_read_whatever_its_status_and_coding() {
    for status in [
        "200 OK",
        "201 Created",
        "202 Accepted",
        "203 Odd",
        "206 Part",
    ] {
        for shape in 0..18 {
            let server = server("tools/call", move |request| {
                let (head, body) = readable(request).swap_remove(shape);
                MiniResponse::bytes(&format!("{status}\r\n{head}"), body)
            })
            .await;
            let result = call(&server).await;
            let result = result.unwrap_or_else(|why| panic!("{status} {shape}: {why}"));
            assert_eq!(text(&result), "ran", "{status} {shape}");
        }
    }
}

#[tokio::test]
async fn json_on_a_stream_that_stays_open_is_the_answer() {
    let server = server("tools/call", |request| MiniResponse {
        silent: true,
        ..MiniResponse::typed("text/event-stream", &ran(request))
    })
    .await;
    assert_eq!(text(&call(&server).await.unwrap()), "ran");
}

/// (description, head, body, missing bytes, whether the connection stays open)
fn broken(request: &MiniRequest) -> Vec<(&'static str, &'static str, Vec<u8>, usize, bool)> {
    let (plain, event) = (ran(request), event(request));
    let half = &plain[..plain.len() / 2];
    let json = "content-type: application/json";
    let stream = "content-type: text/event-stream";
    let packed = gzip(&plain);
    let cut = packed[..packed.len() / 2].to_vec();
    vec![
        ("cut body", json, half.into(), 40, false),
        ("cut JSON", json, half.into(), 0, false),
        ("other JSON", json, r#"{"ok":true}"#.into(), 0, false),
        (
            "no result",
            json,
            r#"{"jsonrpc":"2.0","id":1}"#.into(),
            0,
            false,
        ),
        ("a number", json, "7".into(), 0, false),
        (
            "page",
            "content-type: text/html",
            "<html>log in</html>".into(),
            0,
            false,
        ),
        ("page as JSON", json, "<html>log in</html>".into(), 0, false),
        ("cut stream", stream, event[..30].into(), 40, false),
        ("empty stream", stream, Vec::new(), 0, false),
        (
            "stream without answer",
            stream,
            ": nothing\n\n".into(),
            0,
            false,
        ),
        (
            "broken event",
            stream,
            format!("data: {half}\n\n").into(),
            0,
            true,
        ),
        (
            "other event",
            stream,
            "data: {\"ok\":true}\n\n".into(),
            0,
            true,
        ),
        ("page as event", stream, "data: <html>\n\n".into(), 0, true),
        (
            "cut gzip",
            "content-type: application/json\r\ncontent-encoding: gzip",
            cut,
            0,
            false,
        ),
        (
            "no gzip",
            "content-type: application/json\r\ncontent-encoding: gzip",
            plain.clone().into(),
            0,
            false,
        ),
        (
            "unknown coding",
            "content-type: application/json\r\ncontent-encoding: br",
            plain.into(),
            0,
            false,
        ),
    ]
}

#[tokio::test]
async fn what_cannot_be_read_fails_at_once_and_may_have_run() {
    for shape in 0..16 {
        let server = server("tools/call", move |request| {
            let (_, head, body, missing, silent) = broken(request).swap_remove(shape);
            MiniResponse {
                silent,
                missing,
                ..MiniResponse::bytes(&format!("200 OK\r\n{head}"), body)
            }
        })
        .await;
        let failure = call(&server).await.unwrap_err();
        assert_unknown(&failure, &format!("shape {shape}"));
        assert!(!failure.text.is_empty());
    }
}

/// The status decides: the rest of a stalled body is not awaited.
#[tokio::test]
async fn a_refusal_whose_body_stalls_is_a_refusal() {
    let server = server("tools/call", |_| MiniResponse {
        silent: true,
        ..MiniResponse::bytes("409 Conflict\r\ncontent-length: 99", "not now")
    })
    .await;
    let failure = call(&server).await.unwrap_err();
    assert_eq!(failure.http_status, Some(409), "{failure}");
    assert_eq!(failure.text, "HTTP 409: not now");
}

#[tokio::test]
async fn a_greeting_whose_answer_stalls_is_taken() {
    let server = server("notifications/initialized", |_| MiniResponse {
        silent: true,
        ..MiniResponse::bytes("202 Accepted\r\ncontent-length: 99", "")
    })
    .await;
    let link = bench(&server).connect().await.unwrap();
    ask(&*link, Op::ListTools).await.unwrap();
}

/// An old server that treats the request of the new era as a notification.
#[tokio::test]
async fn a_discovery_that_is_only_accepted_means_the_older_era() {
    let server = server("server/discover", |_| MiniResponse::status("202 Accepted")).await;
    let mut bench = bench(&server);
    bench.connector.protocol = Protocol::Auto;
    let link = bench.connect().await.unwrap();
    assert_eq!(link.facts().era, Era::Legacy);
    let requests = server.requests();
    let discoveries = requests
        .iter()
        .filter(|one| one.body["method"] == "server/discover");
    assert_eq!(discoveries.count(), 1);
}

/// A resumable stream: the answer was cut off after an event with an id.
fn resumable(_: &MiniRequest) -> MiniResponse {
    let stream = "200 OK\r\ncontent-type: text/event-stream";
    MiniResponse::bytes(stream, "id: e1\nretry: 1\ndata: \n\n")
}

#[tokio::test]
async fn a_resumption_that_is_refused_ends_the_call_at_once() {
    for status in ["405 No", "404 Gone", "500 Oops", "302 Found", "204 Nothing"] {
        let resumed = MiniServer::start(move |request| match request.body["method"].as_str() {
            Some("initialize") => initialized(&request.body["id"]),
            Some("tools/call") => resumable(request),
            _ if request.method == "get" => MiniResponse::status(status),
            _ => MiniResponse::status("202 Accepted"),
        })
        .await;
        let failure = call(&resumed).await.unwrap_err();
        assert_unknown(&failure, status);
        let requests = resumed.requests();
        let resumptions = requests
            .iter()
            .filter(|one| one.head.contains("last-event-id: e1"));
        assert_eq!(resumptions.count(), 1, "{status}");
    }
}

#[tokio::test]
async fn resumptions_that_bring_nothing_end() {
    let server = MiniServer::start(|request| match request.body["method"].as_str() {
        Some("initialize") => initialized(&request.body["id"]),
        Some("tools/call") => resumable(request),
        _ if request.head.contains("last-event-id") => resumable(request),
        _ if request.method == "get" => MiniResponse::status("405 No"),
        _ => MiniResponse::status("202 Accepted"),
    })
    .await;
    let failure = call(&server).await.unwrap_err();
    assert_unknown(&failure, "resumed for ever");
    assert!(failure.text.contains("resumed 5 times"), "{failure}");
}

#[tokio::test]
async fn a_compressed_refusal_is_read() {
    let refusal = json!({"jsonrpc": "2.0", "error": {"code": -32000, "message": "not today"}});
    let text = format!("\u{feff}{refusal}");
    let packed = gzip(&text);
    for (coding, body) in [("identity", text.into_bytes()), ("gzip", packed)] {
        let head = format!("409 Conflict\r\ncontent-encoding: {coding}");
        let server = server("tools/call", move |_| {
            MiniResponse::bytes(&head, body.clone())
        })
        .await;
        let failure = call(&server).await.unwrap_err();
        assert_eq!(failure.text, "HTTP 409: not today");
        assert_eq!(failure.rpc_code, Some(-32000));
    }
}
