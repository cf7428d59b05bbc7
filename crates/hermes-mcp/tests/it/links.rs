//! Links alone, without the actor: the guarantees of each transport.

mod answers;
mod children;
mod cookies;
mod handshake;
mod http;
mod questions;
mod servers;
mod streams;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hermes_mcp::{
    Children, ConnectRequest, Connector, EraCache, HttpClients, HttpTarget, Link, LinkCall,
    LinkEvent, McpConnector, McpFailure, MemoryEraCache, Op, ServerTarget, StdioTarget,
};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Longer than any test takes; a test that reaches it hangs.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// A connector and the events of its links.
pub(crate) struct Bench {
    pub(crate) connector: McpConnector,
    sender: mpsc::Sender<LinkEvent>,
    pub(crate) events: mpsc::Receiver<LinkEvent>,
    pub(crate) eras: Arc<MemoryEraCache>,
}

impl Bench {
    pub(crate) fn new(target: ServerTarget) -> Self {
        let (sender, events) = mpsc::channel(64);
        let eras = Arc::new(MemoryEraCache::default());
        let cache: Arc<dyn EraCache> = Arc::clone(&eras) as _;
        Self {
            connector: McpConnector::new("bench", target, cache),
            sender,
            events,
            eras,
        }
    }

    pub(crate) async fn connect(&self) -> Result<Arc<dyn Link>, McpFailure> {
        self.connect_within(TEST_TIMEOUT).await
    }

    pub(crate) async fn connect_within(&self, time: Duration) -> Result<Arc<dyn Link>, McpFailure> {
        let request = ConnectRequest {
            epoch: 1,
            deadline: Instant::now() + time,
            cancel: CancellationToken::new(),
            events: self.sender.clone(),
        };
        self.connector.connect(request).await
    }

    pub(crate) async fn event(&mut self) -> LinkEvent {
        let event = tokio::time::timeout(TEST_TIMEOUT, self.events.recv()).await;
        event.expect("no event").unwrap()
    }
}

pub(crate) fn within(time: Duration) -> LinkCall {
    LinkCall {
        deadline: Instant::now() + time,
        cancel: CancellationToken::new(),
        progress: None,
        origin: None,
        slot: None,
    }
}

pub(crate) async fn ask(link: &dyn Link, op: Op) -> Result<Value, McpFailure> {
    let output = link.request(&op, within(TEST_TIMEOUT)).await?;
    Ok(output.result)
}

pub(crate) fn tool(name: &str, arguments: Value) -> Op {
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object: {arguments}")
    };
    Op::CallTool {
        name: name.to_owned(),
        arguments,
    }
}

pub(crate) fn text(result: &Value) -> &str {
    let text = result["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text in {result}"))
}

pub(crate) fn names(list: &Value, member: &str) -> Vec<String> {
    let items = list[member].as_array().expect("a list");
    items
        .iter()
        .map(|item| item["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

pub(crate) fn http_target(url: &str) -> HttpTarget {
    let clients = HttpClients::new(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(hermes_mcp::CONNECT_TIMEOUT)
            .no_proxy()
            .build()
            .unwrap()
    });
    HttpTarget {
        url: url.parse().unwrap(),
        headers: HeaderMap::new(),
        clients: Arc::new(clients),
        tokens: None,
    }
}

pub(crate) fn stdio(command: &str, args: &[&str], home: &Path) -> StdioTarget {
    StdioTarget {
        command: command.to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        env: std::collections::BTreeMap::new(),
        cwd: None,
        children: Children::new(home, std::env::vars()),
    }
}

pub(crate) fn nothing() -> Value {
    json!({})
}
