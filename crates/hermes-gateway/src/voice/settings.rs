//! One section of the configuration (`stt:`, `tts:`) with the variables of the home.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub(super) struct VoiceSettings {
    value: Value,
    env: HashMap<String, String>,
}

impl VoiceSettings {
    pub(super) fn new(value: Option<&Value>, env: &HashMap<String, String>) -> Self {
        Self {
            value: value.cloned().unwrap_or_default(),
            env: env.clone(),
        }
    }

    /// The text at `path` (`openai/model`), unless it is empty.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let value = self.value.pointer(&format!("/{path}"))?;
        let text = match value {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Some(text).filter(|text| !text.is_empty())
    }

    pub(super) fn flag(&self, path: &str) -> Option<bool> {
        self.value.pointer(&format!("/{path}"))?.as_bool()
    }

    pub(super) fn seconds(&self, path: &str) -> Option<u64> {
        self.value.pointer(&format!("/{path}"))?.as_u64()
    }

    /// The first of these variables that is set.
    pub(super) fn var(&self, names: &[&str]) -> Option<String> {
        names
            .iter()
            .filter_map(|name| self.env.get(*name))
            .map(|value| value.trim().to_owned())
            .find(|value| !value.is_empty())
    }

    /// A program in the directories of `PATH`.
    pub(super) fn program(&self, names: &[&str]) -> Option<PathBuf> {
        let path = self.env.get("PATH").cloned().unwrap_or_default();
        std::env::split_paths(&path)
            .flat_map(|dir| names.iter().map(move |name| dir.join(name)))
            .find(|file| file.is_file())
    }
}
