//! Drives the production manager from outside, for `cargo xtask bench` and `soak`: `drive <home>
//! '{"servers": [{"name", "url" | "command", "args"}], …}'`.
//!
//! Besides `servers`: `timeout_s` of a call, `concurrency` per server, `reads`, the tools that may
//! be repeated. The module `batch` describes its standard input.

mod batch;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batch::{Call, Failed, Outcome};
use hermes_core::clock::{SystemClock, SystemRng};
use hermes_mcp::{
    CONNECT_TIMEOUT, CallOptions, Children, HttpClients, HttpTarget, McpConnector, McpManager,
    MemoryEraCache, Op, ReportedState, RetryMode, ServerSettings, ServerSpec, ServerTarget,
    StdioTarget,
};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// Longer than connecting to all servers takes.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome {
    let mut args = std::env::args().skip(1);
    let (Some(home), Some(setup)) = (args.next(), args.next()) else {
        return Err("usage: drive <home> <setup as JSON>".into());
    };
    let setup: Value = serde_json::from_str(&setup)?;
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "there is a TLS provider already")?;
    let children = Children::new(Path::new(&home), std::env::vars());
    let servers = setup["servers"].as_array().ok_or("servers are a list")?;
    let mut specs = Vec::new();
    for server in servers {
        specs.push(spec(server, &setup, &children)?);
    }
    let manager = Arc::new(McpManager::start(
        specs,
        Arc::new(SystemClock),
        Arc::new(SystemRng),
    ));
    let ready = manager.wait_ready(READY_TIMEOUT).await;
    let states: Vec<_> = manager.status().iter().map(|status| status.state).collect();
    let about = json!({"ready": ready && states.iter().all(|state| *state == ReportedState::Ready),
                       "states": states});
    let caller = Arc::clone(&manager);
    batch::serve(about, move |one| call(Arc::clone(&caller), one)).await?;
    manager.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

async fn call(manager: Arc<McpManager>, one: Call) -> Result<(), Failed> {
    let op = match one.op.as_str() {
        "list_tools" => Op::ListTools,
        "list_resources" => Op::ListResources,
        "list_prompts" => Op::ListPrompts,
        _ => Op::CallTool {
            name: one.tool,
            arguments: one.arguments,
        },
    };
    let result = manager.call(&one.server, op, CallOptions::default()).await;
    match result {
        Ok(output) if output.result["isError"] == true => Err(Failed {
            text: output.result.to_string(),
            unknown: false,
        }),
        Ok(_) => Ok(()),
        Err(error) => Err(Failed {
            text: format!("{:?}: {error}", error.class()),
            unknown: error.outcome_unknown,
        }),
    }
}

fn spec(
    server: &Value,
    setup: &Value,
    children: &Arc<Children>,
) -> Result<ServerSpec, Box<dyn std::error::Error>> {
    let name = server["name"].as_str().unwrap_or("bench");
    let target = target(server, children)?;
    let connector = McpConnector::new(name, target, Arc::new(MemoryEraCache::default()));
    let fingerprint = connector.fingerprint.clone();
    let mut settings = ServerSettings::new(name, connector.target.kind(), fingerprint);
    if let Some(seconds) = setup["timeout_s"].as_u64() {
        settings.timeout = Duration::from_secs(seconds);
    }
    if let Some(calls) = setup["concurrency"].as_u64() {
        settings.max_concurrency = calls as usize;
    }
    for tool in setup["reads"].as_array().into_iter().flatten() {
        let tool = tool.as_str().ok_or("reads are names of tools")?;
        settings
            .retry
            .tools
            .insert(tool.to_owned(), RetryMode::Always);
    }
    Ok(ServerSpec {
        settings,
        connector: Arc::new(connector),
    })
}

fn target(
    server: &Value,
    children: &Arc<Children>,
) -> Result<ServerTarget, Box<dyn std::error::Error>> {
    if let Some(url) = server["url"].as_str() {
        let client = || {
            reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(Duration::from_secs(20))
                .no_proxy()
                .build()
        };
        // Checked here, where an error can be reported.
        client()?;
        return Ok(ServerTarget::Http(HttpTarget {
            url: url.parse()?,
            headers: HeaderMap::new(),
            clients: Arc::new(HttpClients::new(move || client().unwrap_or_default())),
            tokens: None,
        }));
    }
    let command = server["command"].as_str().ok_or("no url and no command")?;
    let args = server["args"].as_array().into_iter().flatten();
    Ok(ServerTarget::Stdio(StdioTarget {
        command: command.to_owned(),
        args: args
            .filter_map(|word| word.as_str().map(str::to_owned))
            .collect(),
        env: BTreeMap::new(),
        cwd: None,
        children: Arc::clone(children),
    }))
}
