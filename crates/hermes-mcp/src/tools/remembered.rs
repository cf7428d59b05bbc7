//! The stored lists of lazy servers (`lazy: true`), whose tools are offered without starting them.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::actor::CatalogueSnapshot;
use crate::transport::link::LinkFacts;

/// One server's file.
#[derive(Clone, Debug)]
pub struct SchemaFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Remembered {
    /// Fingerprint of the endpoint: another command or address is another server.
    fingerprint: String,
    facts: LinkFacts,
    tools: Vec<Value>,
    resources: Option<Vec<Value>>,
    prompts: Option<Vec<Value>>,
}

impl SchemaFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// `None`: there is no usable list, so the server must be started.
    pub(crate) fn load(&self, fingerprint: &str) -> Option<CatalogueSnapshot> {
        let text = std::fs::read(&self.path).ok()?;
        let stored: Remembered = serde_json::from_slice(&text)
            .map_err(|error| tracing::warn!(path = %self.path.display(), "not read: {error}"))
            .ok()?;
        (stored.fingerprint == fingerprint).then(|| CatalogueSnapshot {
            epoch: 0,
            revision: 1,
            facts: LinkFacts {
                child_pid: None,
                ..stored.facts
            },
            tools: Arc::new(stored.tools),
            resources: stored.resources.map(Arc::new),
            prompts: stored.prompts.map(Arc::new),
        })
    }

    pub(crate) fn store(&self, fingerprint: &str, snapshot: &CatalogueSnapshot) {
        let stored = Remembered {
            fingerprint: fingerprint.to_owned(),
            facts: snapshot.facts.clone(),
            tools: snapshot.tools.to_vec(),
            resources: snapshot.resources.as_deref().cloned(),
            prompts: snapshot.prompts.as_deref().cloned(),
        };
        let written = serde_json::to_vec(&stored)
            .map_err(|error| error.to_string())
            .and_then(|text| write_file(&self.path, &text).map_err(|error| error.to_string()));
        if let Err(error) = written {
            tracing::warn!(path = %self.path.display(), "the tools are not remembered: {error}");
        }
    }
}

pub(crate) fn write_file(path: &std::path::Path, text: &[u8]) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    hermes_config::fs::write_atomic(path, text, 0o600)
}
