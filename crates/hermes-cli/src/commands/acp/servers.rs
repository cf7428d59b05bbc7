//! MCP servers that the editor passes, for one conversation.

use std::sync::Arc;

use hermes_app::{AppContext, OwnServer, ServerAddress};
use hermes_mcp::config::ServerEntry;
use hermes_mcp::{Toolbox, config};
use serde_json::{Map, Value, json};

use crate::wiring::mcp;

/// Starts them. `used_names`: names of servers that the home has.
pub(super) fn start(
    servers: Vec<OwnServer>,
    used_names: &[String],
    cx: &AppContext,
) -> (Option<Arc<Toolbox>>, Vec<String>) {
    if servers.is_empty() {
        return (None, Vec::new());
    }
    let mut names: Vec<String> = used_names.to_vec();
    let mut entries: Vec<ServerEntry> = Vec::new();
    for server in servers {
        let name = free(&server.name, &names);
        entries.push(config::server(
            &name,
            &entry(server.address),
            &cx.env,
            &cx.home,
        ));
        names.push(name);
    }
    let problems = entries
        .iter()
        .flat_map(|entry| &entry.problems)
        .filter(|problem| problem.fatal)
        .map(|problem| format!("an MCP server of the editor is not used: {problem}"))
        .collect();
    (Some(Arc::new(mcp::start_all(cx, entries, None))), problems)
}

/// The tools of a server are called by its name, so that no two may have the same.
fn free(name: &str, used_names: &[String]) -> String {
    let is_free = |name: &String| !used_names.contains(name);
    let own = name.to_owned();
    if is_free(&own) {
        return own;
    }
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    numbered.into_iter().find(is_free).unwrap_or(own)
}

/// As it would stand in config.yaml.
fn entry(address: ServerAddress) -> Value {
    let map = |pairs: Vec<(String, String)>| -> Map<String, Value> {
        let pairs = pairs.into_iter();
        pairs
            .map(|(key, value)| (key, Value::from(value)))
            .collect()
    };
    match address {
        ServerAddress::Stdio { command, args, env } => json!({
            "command": command.display().to_string(),
            "args": args,
            "env": map(env),
        }),
        ServerAddress::Http { url, headers } => json!({ "url": url, "headers": map(headers) }),
        ServerAddress::Sse { url, headers } => json!({
            "url": url,
            "headers": map(headers),
            "transport": "sse",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_servers_have_one_name() {
        let used_names = ["files".to_owned(), "files-2".to_owned()];
        assert_eq!(free("wiki", &used_names), "wiki");
        assert_eq!(free("files", &used_names), "files-3");
    }
}
