//! Tools, resources and prompts of a server, as listed by it.

use std::sync::Arc;

use serde_json::Value;

use crate::failure::retry::ToolHints;
use crate::transport::link::LinkFacts;

/// The raw lists of one epoch. Published before the epoch's first call, and again whenever the
/// server reports a change.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogueSnapshot {
    pub epoch: u64,
    /// Incremented with each publication for this server.
    pub revision: u64,
    pub facts: LinkFacts,
    pub tools: Arc<Vec<Value>>,
    pub resources: Option<Arc<Vec<Value>>>,
    pub prompts: Option<Arc<Vec<Value>>>,
}

impl CatalogueSnapshot {
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools
            .iter()
            .any(|tool| tool.get("name").and_then(Value::as_str) == Some(name))
    }

    /// The server's hints for a tool; the default for unknown tools.
    pub fn hints(&self, name: &str) -> ToolHints {
        let annotations = self
            .tools
            .iter()
            .find(|tool| tool.get("name").and_then(Value::as_str) == Some(name))
            .and_then(|tool| tool.get("annotations"));
        let hint = |key: &str| {
            annotations
                .and_then(|annotations| annotations.get(key))
                .and_then(Value::as_bool)
                .unwrap_or(false)
        };
        ToolHints {
            read_only: hint("readOnlyHint"),
            idempotent: hint("idempotentHint"),
        }
    }
}
