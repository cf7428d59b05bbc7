//! Keys of `mcp_servers.<name>` and their effects.

use std::sync::Arc;
use std::time::Duration;

use hermes_config::{Env, Home, ProcessEnv};
use hermes_mcp::config::{ServerConfig, ServerTransport};
use hermes_mcp::{
    Children, FailureClass, LinkState, McpConnector, MemoryEraCache, SchemaFile, ServerSpec,
    ServerTarget, StdioTarget, config,
};
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::{Value, json};

use crate::mini::{MiniRequest, MiniResponse, MiniServer};
use crate::rig::{Rig, http_target};

fn read(entry: &Value) -> ServerConfig {
    let env = Env::from_process(&ProcessEnv::from_vars([("A", "b")]));
    let entry = config::server("srv", entry, &env, &Home::at("/nowhere"));
    entry
        .config
        .unwrap_or_else(|| panic!("{:?}", entry.problems))
}

/// A server of before 2026, whose answers have this content type.
fn legacy(request: &MiniRequest, content_type: &str) -> MiniResponse {
    let id = &request.body["id"];
    let result = match request.body["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "mini", "version": "1"},
        }),
        Some("tools/list") => json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
        Some("tools/call") => json!({"content": [{"type": "text", "text": "ran"}]}),
        _ if id.is_null() => return MiniResponse::status("202 Accepted"),
        _ => json!({}),
    };
    let mut respond = MiniResponse::typed(
        content_type,
        &json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string(),
    );
    respond.head.push_str("\r\nmcp-session-id: s1");
    respond
}

fn spec(server: &MiniServer, more: &Value) -> ServerSpec {
    let mut entry = json!({"url": server.url("/mcp"), "protocol": "legacy"});
    for (key, value) in more.as_object().into_iter().flatten() {
        entry[key] = value.clone();
    }
    let config = read(&entry);
    let mut target = http_target(&server.url("/mcp"), false);
    if let (ServerTarget::Http(target), ServerTransport::Http { headers, .. }) =
        (&mut target, &config.transport)
    {
        let named = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        });
        target.headers = named.collect::<HeaderMap>();
    }
    let mut connector = McpConnector::new("srv", target, Arc::new(MemoryEraCache::default()));
    connector.protocol = config.protocol;
    connector.sse_idle_timeout = config.sse_idle_timeout;
    connector.any_content_type = config.skip_preflight;
    ServerSpec {
        settings: config.settings(),
        connector: Arc::new(connector),
    }
}

#[tokio::test]
async fn skip_preflight_reads_answers_of_a_wrong_type() {
    // An answer with our id is read whatever its type; here the ids are missing.
    let server = MiniServer::start(|request| {
        let mut response = legacy(request, "text/plain");
        if let Ok(mut message) = serde_json::from_slice::<Value>(&response.body) {
            message["id"] = Value::Null;
            response.body = message.to_string().into();
        }
        response
    })
    .await;
    let mut strict = Rig::start(spec(&server, &json!({})));
    let parked = strict
        .until(|status| matches!(status.state, LinkState::Parked { .. }))
        .await;
    let why = parked.state.why().unwrap_or_default().to_owned();
    assert!(why.contains("skip_preflight"), "{why}");
    let error = strict.server.status().last_error.unwrap();
    assert_eq!(error.class, FailureClass::Permanent);
    strict.stop().await;
    let mut lenient = Rig::start(spec(&server, &json!({"skip_preflight": true})));
    lenient.ready().await;
    assert_eq!(lenient.text("t", json!({})).await, "ran");
    lenient.stop().await;
}

#[tokio::test]
async fn sse_idle_timeout_opens_a_silent_stream_again() {
    let silent = |request: &MiniRequest| match request.method.as_str() {
        "get" => MiniResponse::silence(),
        "delete" => MiniResponse::status("200 OK"),
        _ => legacy(request, "application/json"),
    };
    let gets = |server: &MiniServer| {
        let requests = server.requests();
        requests
            .iter()
            .filter(|request| request.method == "get")
            .count()
    };
    let server = MiniServer::start(silent).await;
    let mut rig = Rig::start(spec(&server, &json!({"sse_idle_timeout": 0.2})));
    rig.ready().await;
    let again = async {
        while gets(&server) < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again)
        .await
        .expect("the stream is opened again");
    // The stream is optional: the link remains the same.
    assert_eq!(rig.text("t", json!({})).await, "ran");
    assert_eq!(rig.server.connection_status().epoch, 1);
    rig.stop().await;
    // Silence is allowed unless configured otherwise.
    let server = MiniServer::start(silent).await;
    let mut rig = Rig::start(spec(&server, &json!({})));
    rig.ready().await;
    rig.server.listening().await;
    assert_eq!(gets(&server), 1);
    rig.stop().await;
}

#[tokio::test]
async fn identity_header_is_sent() {
    let server = MiniServer::start(|request| legacy(request, "application/json")).await;
    for (identity, line) in [
        (json!("X-Hermes-Profile"), "x-hermes-profile: default"),
        (json!({"name": "X-Who", "value": "ada"}), "x-who: ada"),
    ] {
        let mut rig = Rig::start(spec(&server, &json!({ "identity_header": identity })));
        rig.ready().await;
        rig.text("t", json!({})).await;
        let requests = server.requests();
        assert!(
            requests.last().unwrap().head.contains(line),
            "{}",
            requests.last().unwrap().head
        );
        rig.stop().await;
    }
}

/// A server that records each of its starts.
const LOCAL: &str = r#"
echo started >> "$STARTS"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"local","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) answer '{"content":[{"type":"text","text":"ran"}]}' ;;
  esac
done
"#;

fn local(home: &std::path::Path, script: &str) -> ServerSpec {
    let config = read(&json!({"command": "/bin/sh", "lazy": true}));
    let starts = home.join("starts").to_string_lossy().into_owned();
    let target = ServerTarget::Stdio(StdioTarget {
        command: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: [("STARTS".to_owned(), starts)].into(),
        cwd: None,
        children: Children::new(home, std::env::vars()),
    });
    let mut connector = McpConnector::new("srv", target, Arc::new(MemoryEraCache::default()));
    connector.schemas = Some(SchemaFile::new(home.join("cache/mcp-schemas/srv.json")));
    ServerSpec {
        settings: config.settings(),
        connector: Arc::new(connector),
    }
}

#[tokio::test]
async fn a_lazy_server_starts_with_its_first_call_once_its_tools_are_known() {
    let home = tempfile::tempdir().unwrap();
    let starts = || {
        let text = std::fs::read_to_string(home.path().join("starts"));
        text.unwrap_or_default().lines().count()
    };
    let mut first = Rig::start(local(home.path(), LOCAL));
    first.ready().await;
    assert_eq!(starts(), 1, "nothing is known yet");
    first.stop().await;

    let second = Rig::start(local(home.path(), LOCAL));
    let status = second.server.settled().await;
    assert_eq!(status.state, LinkState::Recycled);
    let known = second.server.catalogue().borrow().clone().unwrap();
    assert!(known.has_tool("t"));
    assert_eq!(starts(), 1, "offered without being started");
    assert_eq!(second.text("t", json!({})).await, "ran");
    assert_eq!(starts(), 2);
    second.stop().await;

    // Another command is another server.
    let other = format!("{LOCAL}\n# changed");
    let mut third = Rig::start(local(home.path(), &other));
    third.ready().await;
    assert_eq!(starts(), 3);
    third.stop().await;
}
