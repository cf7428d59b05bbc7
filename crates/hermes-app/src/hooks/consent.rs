//! Which commands of `hooks:` a person agreed to: `shell-hooks-allowlist.json`, in the original's
//! form.

use std::path::PathBuf;

use hermes_config::Home;
use hermes_config::fs::write_atomic;
use serde_json::{Map, Value, json};

const FILE: &str = "shell-hooks-allowlist.json";

/// Where it is noted.
pub(crate) fn path(home: &Home) -> PathBuf {
    home.root().join(FILE)
}

/// The consents of one home.
pub struct Consent {
    path: PathBuf,
    all: Map<String, Value>,
}

impl Consent {
    /// A file that cannot be read is an error: taking it for empty would end in overwriting it.
    pub fn open(home: &Home) -> Result<Self, String> {
        let path = path(home);
        let all = match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| format!("{}: {error}", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        Ok(Self { path, all })
    }

    fn entries(&self) -> &[Value] {
        match self.all.get("approvals") {
            Some(Value::Array(entries)) => entries,
            _ => &[],
        }
    }

    pub fn given(&self, event: &str, command: &str) -> bool {
        self.entries()
            .iter()
            .any(|entry| names(entry, Some(event), command))
    }

    /// Agrees to a command on an event; `at` as RFC 3339.
    pub fn give(&mut self, event: &str, command: &str, at: &str) -> Result<(), String> {
        let mut entries = self.entries().to_vec();
        entries.retain(|entry| !names(entry, Some(event), command));
        entries.push(json!({"event": event, "command": command, "approved_at": at}));
        self.write(entries)
    }

    /// Revokes consent for all events. Returns their number.
    pub fn take_back(&mut self, command: &str) -> Result<usize, String> {
        let before = self.entries().len();
        let mut entries = self.entries().to_vec();
        entries.retain(|entry| !names(entry, None, command));
        let gone = before - entries.len();
        if gone > 0 {
            self.write(entries)?;
        }
        Ok(gone)
    }

    fn write(&mut self, entries: Vec<Value>) -> Result<(), String> {
        self.all.insert("approvals".to_owned(), entries.into());
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let text = serde_json::to_string_pretty(&self.all).map_err(|error| at(&error))?;
        write_atomic(&self.path, text.as_bytes(), 0o600).map_err(|error| at(&error))
    }
}

fn names(entry: &Value, event: Option<&str>, command: &str) -> bool {
    let is = |key: &str, value: &str| entry.get(key).and_then(Value::as_str) == Some(value);
    is("command", command) && event.is_none_or(|event| is("event", event))
}
