//! MCP servers through the binary.

mod asking;
mod commands;
mod login;
mod long_lived;
mod matrix;
mod reload;
mod restarts;
mod results;
mod safety;
pub(crate) mod serve;
mod slow;
mod turns;

use hermes_testkit::mcp_server::FaultyServer;
use hermes_testkit::model_server::RecordedRequest;
use serde_json::json;

use crate::CliHarness;

/// A home with a scripted model and one MCP server `srv`.
fn with_server(server: &FaultyServer, more: &str) -> CliHarness {
    CliHarness::with_config(&format!(
        "mcp_discovery_timeout: 30\nmcp_servers:\n  srv:\n    url: {}\n{more}",
        server.url()
    ))
}

/// The tools array of a request, as bytes.
fn tools_of(request: &RecordedRequest) -> String {
    let body: serde_json::Value = serde_json::from_str(&request.body_text()).unwrap();
    json!(body["tools"]).to_string()
}
