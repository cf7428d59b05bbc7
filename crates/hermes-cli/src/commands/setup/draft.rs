//! What setup would write, before it is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use hermes_config::edit::{ConfigDoc, EditError, KeyPath};
use hermes_config::fs::write_atomic;
use hermes_config::home::Home;
use hermes_config::settings::{self, SetOptions};
use hermes_config::{Config, Loaded};
use serde_json::Value;

use super::keys::{self, PastedKey};
use crate::commands::{Context, model};
use crate::exit::{Exit, Failure, Outcome};

pub(super) struct SetupDraft<'a> {
    pub(super) cx: &'a Context,
    /// What config.yaml says now.
    before: String,
    pub(super) doc: ConfigDoc,
    /// Keys that were pasted and tried.
    pub(super) keys: Vec<PastedKey>,
    /// What the model section found out when it was left.
    pub(super) tried: Option<String>,
    /// Settings of the terminal that were answered.
    terminal: BTreeMap<String, String>,
    reset: bool,
}

/// A draft as it stood before something was answered.
pub(super) struct DraftSnapshot {
    doc: ConfigDoc,
    terminal: BTreeMap<String, String>,
}

impl<'a> SetupDraft<'a> {
    pub(super) fn open(cx: &'a Context, reset: bool) -> Result<Self, Failure> {
        let path = cx.home.config_path();
        let mut doc = ConfigDoc::open(&path).map_err(|error| edit_failure(&error))?;
        let before = doc.text().to_owned();
        if reset {
            let keys: Vec<String> = doc
                .tree()
                .as_object()
                .map(|tree| tree.keys().cloned().collect())
                .unwrap_or_default();
            for key in keys.iter().filter(|key| *key != "_config_version") {
                doc.unset(&KeyPath::new([key.as_str()]))
                    .map_err(|error| edit_failure(&error))?;
            }
        }
        Ok(Self {
            cx,
            before,
            doc,
            keys: Vec::new(),
            tried: None,
            terminal: BTreeMap::new(),
            reset,
        })
    }

    /// How it stands, to come back to.
    pub(super) fn mark(&self) -> DraftSnapshot {
        DraftSnapshot {
            doc: self.doc.clone(),
            terminal: self.terminal.clone(),
        }
    }

    pub(super) fn changed_since(&self, mark: &DraftSnapshot) -> bool {
        self.doc.text() != mark.doc.text()
    }

    pub(super) fn back_to(&mut self, mark: DraftSnapshot) {
        self.doc = mark.doc;
        self.terminal = mark.terminal;
    }

    pub(super) fn set(&mut self, path: &[&str], value: &Value) -> Outcome {
        if let ["terminal", key] = path {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            self.terminal.insert((*key).to_owned(), text);
        }
        self.doc
            .set(&KeyPath::new(path.iter().copied()), value)
            .map(drop)
            .map_err(|error| edit_failure(&error))
    }

    /// The configuration as it would be.
    pub(super) fn load(&self) -> Result<Loaded, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
        let dir = tempfile::tempdir().map_err(|error| failed(&error))?;
        write_atomic(
            &dir.path().join("config.yaml"),
            self.doc.text().as_bytes(),
            0o600,
        )
        .map_err(|error| failed(&error))?;
        Config::load(&Home::at(dir.path()), &self.cx.env).map_err(|error| failed(&error))
    }

    pub(super) fn config(&self) -> Result<Arc<Config>, Failure> {
        Ok(Arc::new(self.load()?.config))
    }

    /// Line by line what would change; no secret is in it.
    pub(super) fn changes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.before != self.doc.text() {
            lines.push("config.yaml".to_owned());
            let diff = similar::TextDiff::from_lines(self.before.as_str(), self.doc.text());
            for change in diff.iter_all_changes() {
                let sign = match change.tag() {
                    similar::ChangeTag::Delete => "-",
                    similar::ChangeTag::Insert => "+",
                    similar::ChangeTag::Equal => continue,
                };
                let text = change.value().trim_end();
                lines.push(format!("  {sign} {}", hidden(text)));
            }
        }
        let names = self.keys.iter().filter_map(PastedKey::name);
        let names: Vec<String> = names.map(|name| format!("  + {name}=(the key)")).collect();
        if !names.is_empty() {
            lines.push(".env".to_owned());
            lines.extend(names);
        }
        lines
    }

    pub(super) fn write(&mut self) -> Outcome {
        let cx = self.cx;
        cx.home
            .ensure()
            .map_err(|error| Failure::failed(error.to_string()))?;
        if self.reset && !self.before.is_empty() {
            let stamp = chrono::Local::now().format("%Y%m%d_%H%M%S");
            let backup_path = cx.home.join(format!("config.yaml.{stamp}.bak"));
            write_atomic(&backup_path, self.before.as_bytes(), 0o600)
                .map_err(|error| Failure::failed(format!("{}: {error}", backup_path.display())))?;
            cx.out
                .remark(format!("the old one is kept as {}", backup_path.display()));
        }
        for key in &self.keys {
            keys::store(cx, key)?;
        }
        model::stamp_new(&mut self.doc)?;
        self.doc.save().map_err(|error| edit_failure(&error))?;
        // The original reads settings of the terminal from .env, too: both must say the same.
        for (key, value) in &self.terminal {
            let options = SetOptions::default();
            settings::set(
                &cx.home,
                &cx.env,
                &format!("terminal.{key}"),
                value,
                options,
            )
            .map_err(|error| Failure::failed(error.to_string()))?;
        }
        Ok(())
    }
}

/// A line of the file without what nobody should see.
fn hidden(line: &str) -> String {
    match line.split_once(':') {
        Some((key, value))
            if !value.trim().is_empty()
                && hermes_config::redact::is_secret_key(key.trim().trim_start_matches("- ")) =>
        {
            format!("{key}: (hidden)")
        }
        _ => line.to_owned(),
    }
}

pub(super) fn edit_failure(error: &EditError) -> Failure {
    let exit = match error {
        EditError::Changed(_) => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
