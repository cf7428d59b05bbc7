//! What a server offers, as it said it.

use std::sync::Arc;

use serde_json::Value;

use crate::failure::retry::ToolHints;
use crate::transport::link::LinkFacts;

/// The lists of one epoch, raw. Published before the first call of the epoch runs, and again when
/// the server says that they changed.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogueSnapshot {
    pub epoch: u64,
    /// Counts publications of this server.
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

    /// What the server says about a tool; nothing about one it does not have.
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
