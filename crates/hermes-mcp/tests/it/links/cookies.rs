//! Load balancers that find the process of a session by a cookie.

use std::sync::atomic::{AtomicUsize, Ordering};

use hermes_mcp::{Op, ServerTarget};
use serde_json::json;

use super::{Bench, ask, http_target};
use crate::mini::{MiniRequest, MiniResponse, MiniServer};

/// More than chance finds.
const PROCESSES: usize = 40;

/// The process that the balancer leads a request to, and what it says.
fn balanced(asked: &MiniRequest, requests: &AtomicUsize) -> MiniResponse {
    let number = |name: &str| -> Option<usize> {
        let (_, rest) = asked.head.split_once(name)?;
        let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    let any = requests.fetch_add(1, Ordering::Relaxed) % PROCESSES;
    let process = number("pod=").unwrap_or(any);
    let id = &asked.body["id"];
    if asked.body["method"] == "initialize" {
        let result = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "mini", "version": "1"},
        });
        let mut say = MiniResponse::json(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        let cookie = format!("set-cookie: pod={process}; Path=/; HttpOnly");
        let session = format!("mcp-session-id: session-{process}");
        say.head = [say.head, session, cookie].join("\r\n");
        return say;
    }
    if number("session-id: session-") != Some(process) {
        return MiniResponse::status("404 Not Found");
    }
    match (asked.method.as_str(), id.is_null()) {
        ("post", false) => {
            MiniResponse::json(&json!({"jsonrpc": "2.0", "id": id, "result": {"tools": []}}))
        }
        ("post", true) => MiniResponse::status("202 Accepted"),
        _ => MiniResponse::status("405 Method Not Allowed"),
    }
}

#[tokio::test]
async fn requests_of_a_session_carry_its_cookies_and_a_new_one_begins_without() {
    let requests = AtomicUsize::new(0);
    let server = MiniServer::start(move |asked| balanced(asked, &requests)).await;
    let bench = Bench::new(ServerTarget::Http(http_target(&server.url("/mcp"))));
    for _ in 0..2 {
        let link = bench.connect().await.unwrap();
        for _ in 0..10 {
            ask(&*link, Op::ListTools).await.unwrap();
        }
        link.close().await;
    }
    let handshakes = server.requests();
    let handshakes = handshakes
        .iter()
        .filter(|asked| asked.body["method"] == "initialize");
    assert!(handshakes.clone().count() == 2);
    for handshake in handshakes {
        assert!(!handshake.head.contains("\ncookie:"), "{}", handshake.head);
    }
}
