//! One server under the production manager.

use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

use hermes_core::clock::{SystemClock, SystemRng};
use hermes_mcp::{
    CallError, CallOptions, Children, ConnectionStatus, HttpClients, HttpTarget, LinkState,
    McpConnector, McpEvent, McpManager, MemoryEraCache, Op, ServerHandle, ServerSettings,
    ServerSpec, ServerTarget, StdioTarget,
};
use hermes_testkit::mcp_server::{FaultyServer, Wire};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// Longer than any test takes; a test that reaches it hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Rig {
    pub(crate) manager: McpManager,
    pub(crate) server: ServerHandle,
    events: broadcast::Receiver<McpEvent>,
}

impl Rig {
    /// Connected to the faulty server, with the settings changed.
    pub(crate) async fn with(
        server: &FaultyServer,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Self {
        let mut rig = Self::start(spec(&http(server), change));
        rig.ready().await;
        if server.opens_streams() {
            // A stream opened after the start of a script would reveal too much to the client.
            server.wait_for(|counts| counts.listening >= 1).await;
        }
        rig
    }

    pub(crate) async fn to(server: &FaultyServer) -> Self {
        Self::with(server, |_| {}).await
    }

    pub(crate) fn start(spec: ServerSpec) -> Self {
        let name = spec.settings.name.clone();
        let manager = McpManager::start(vec![spec], Arc::new(SystemClock), Arc::new(SystemRng));
        let events = manager.events();
        let server = manager.server(&name).unwrap();
        Self {
            manager,
            server,
            events,
        }
    }

    pub(crate) async fn ready(&mut self) -> ConnectionStatus {
        self.until(|status| status.state == LinkState::Ready).await
    }

    /// Waits for a state.
    pub(crate) async fn until(
        &mut self,
        wanted: impl Fn(&ConnectionStatus) -> bool,
    ) -> ConnectionStatus {
        let waiting = async {
            loop {
                let status = self.server.connection_status();
                if wanted(&status) {
                    return status;
                }
                // Lagging only means that there are new events.
                let _ = self.events.recv().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting)
            .await
            .unwrap_or_else(|_| panic!("stays in {:?}", self.server.status()))
    }

    pub(crate) async fn op(&self, op: Op) -> Result<Value, CallError> {
        let name = self.server.name();
        let calling = self.manager.call(name, op, CallOptions::default());
        let result = tokio::time::timeout(TEST_TIMEOUT, calling).await;
        let result = result.unwrap_or_else(|_| panic!("hangs: {:?}", self.server.status()));
        result.map(|output| output.result)
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, CallError> {
        self.op(call(tool, arguments)).await
    }

    /// Calls a tool that must work and returns its text.
    #[track_caller]
    pub(crate) fn text(
        &self,
        tool: &str,
        arguments: Value,
    ) -> impl Future<Output = String> + use<'_> {
        let tool = tool.to_owned();
        async move {
            match self.call(&tool, arguments).await {
                Ok(result) => text(&result),
                Err(error) => panic!("{tool}: {error:?}\n{:?}", self.server.status()),
            }
        }
    }

    pub(crate) async fn stop(self) {
        let stopping = self.manager.shutdown(Duration::from_secs(15));
        let stopped = tokio::time::timeout(TEST_TIMEOUT, stopping).await;
        stopped.expect("the manager stops");
    }
}

pub(crate) fn call(tool: &str, arguments: Value) -> Op {
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object: {arguments}")
    };
    Op::CallTool {
        name: tool.to_owned(),
        arguments,
    }
}

pub(crate) fn echo() -> Op {
    call("echo", json!({"text": "hello"}))
}

pub(crate) fn bump() -> Op {
    call("bump", json!({}))
}

/// The text of a tool's result.
pub(crate) fn text(result: &Value) -> String {
    let text = result["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text in {result}"))
        .to_owned()
}

pub(crate) fn http(server: &FaultyServer) -> ServerTarget {
    let sse = server.url().ends_with(wire_path(Wire::Sse));
    http_target(&server.url(), sse)
}

fn wire_path(wire: Wire) -> &'static str {
    match wire {
        Wire::Sse => "/sse",
        Wire::Legacy | Wire::Modern => "/mcp",
    }
}

pub(crate) fn http_target(url: &str, sse: bool) -> ServerTarget {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        rustls::crypto::ring::default_provider()
            .install_default()
            .unwrap();
    });
    let clients = HttpClients::new(|| {
        reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(hermes_mcp::CONNECT_TIMEOUT)
            .pool_idle_timeout(Duration::from_secs(20))
            .no_proxy()
            .build()
            .unwrap()
    });
    let target = HttpTarget {
        url: url.parse().unwrap(),
        headers: HeaderMap::new(),
        clients: Arc::new(clients),
        tokens: None,
    };
    if sse {
        ServerTarget::Sse(target)
    } else {
        ServerTarget::Http(target)
    }
}

/// A child, with its home for the registry and logs.
pub(crate) fn stdio_target(command: &Path, args: Vec<String>, home: &Path) -> ServerTarget {
    ServerTarget::Stdio(StdioTarget {
        command: command.to_string_lossy().into_owned(),
        args,
        env: std::collections::BTreeMap::new(),
        cwd: None,
        children: Children::new(home, std::env::vars()),
    })
}

/// Settings of a test: short timeouts, and no two tests share a host.
pub(crate) fn spec(target: &ServerTarget, change: impl FnOnce(&mut ServerSettings)) -> ServerSpec {
    named("peer", target, change)
}

/// One of several.
pub(crate) fn named(
    name: &str,
    target: &ServerTarget,
    change: impl FnOnce(&mut ServerSettings),
) -> ServerSpec {
    let connector = McpConnector::new(name, target.clone(), Arc::new(MemoryEraCache::default()));
    let mut settings = ServerSettings::new(name, target.kind(), connector.fingerprint.clone());
    settings.timeout = Duration::from_secs(10);
    settings.connect_timeout = Duration::from_secs(20);
    change(&mut settings);
    ServerSpec {
        settings,
        connector: Arc::new(connector),
    }
}
