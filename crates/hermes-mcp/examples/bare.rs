//! The protocol library alone, for comparison: `bare <home> '{"servers": [{"url" | "command",
//! "args"}]}'`, one server. The module `batch` describes its standard input.

mod batch;

use std::process::Stdio;
use std::sync::Arc;

use batch::{Call, Failed, Outcome};
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{Peer, RoleClient};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome {
    let mut args = std::env::args().skip(1);
    let (Some(_home), Some(setup)) = (args.next(), args.next()) else {
        return Err("usage: bare <home> <setup as JSON>".into());
    };
    let setup: Value = serde_json::from_str(&setup)?;
    let server = &setup["servers"][0];
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "there is a TLS provider already")?;
    let mut child = None;
    let service = if let Some(url) = server["url"].as_str() {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
        ().serve(StreamableHttpClientTransport::with_client(client, config))
            .await?
    } else {
        let command = server["command"].as_str().ok_or("no url and no command")?;
        let args = server["args"].as_array().into_iter().flatten();
        let mut started = tokio::process::Command::new(command)
            .args(args.filter_map(Value::as_str))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = started.stdout.take().ok_or("stdout is piped")?;
        let input = started.stdin.take().ok_or("stdin is piped")?;
        child = Some(started);
        ().serve((output, input)).await?
    };
    let peer = Arc::new(service.peer().clone());
    let about = json!({"ready": true});
    batch::serve(about, move |one| call(Arc::clone(&peer), one)).await?;
    // A clean end is not part of the measurement.
    let _ = service.cancel().await;
    drop(child);
    Ok(())
}

async fn call(peer: Arc<Peer<RoleClient>>, one: Call) -> Result<(), Failed> {
    if one.op != "call_tool" || one.server != "bench" {
        return Err(Failed {
            text: format!("only tools of one server: {} of {}", one.op, one.server),
            unknown: false,
        });
    }
    let params = CallToolRequestParams::new(one.tool).with_arguments(one.arguments);
    match peer.call_tool(params).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Failed {
            text: error.to_string(),
            unknown: false,
        }),
    }
}
