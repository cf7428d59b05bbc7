//! Removes keys and logins from a profile before it is exported.
//!
//! Three nets, each for what slips through the others: files that hold nothing but secrets stay
//! here, keys of settings that take secrets are taken out, and no known secret and nothing that
//! looks like the key of a service leaves in any other file.

use std::path::Path;

use hermes_config::edit::{ConfigDoc, KeyPath};
use hermes_config::redact::is_secret_path;
use hermes_config::{Config, Env, Home, ProcessEnv, secrets};
use hermes_core::redact;
use serde_json::Value;

/// Names of files and directories that hold nothing but keys and logins, wherever they are.
const SECRET_NAMES: [&str; 12] = [
    "mcp-tokens",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    "credentials.json",
    "credentials",
    "token.json",
    "tokens.json",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
];
const SECRET_ENDS: [&str; 5] = ["pem", "key", "p12", "pfx", "keystore"];

/// Whether a file or directory of this name stays here.
pub(super) fn is_secret_file(name: &str) -> bool {
    let lower = name.to_lowercase();
    let env = lower.starts_with(".env.")
        || lower == ".env"
        || Path::new(&lower)
            .extension()
            .is_some_and(|kind| kind == "env");
    // Also what was put aside of them: `auth.json.corrupt`, `.env.bak`.
    let auth = lower.starts_with("auth.json");
    let end = Path::new(&lower)
        .extension()
        .and_then(|end| end.to_str())
        .is_some_and(|end| SECRET_ENDS.contains(&end));
    env || auth
        || end
        || SECRET_NAMES.contains(&lower.as_str())
        || hermes_core::private::is_secret_name(&lower)
}

/// What becomes of the content of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StrippedFile {
    /// There was nothing in it.
    Same,
    Changed(Vec<u8>),
    /// It holds a secret that cannot be taken out.
    LeftOut,
}

/// The secrets of one profile.
pub(super) struct SecretStripper {
    /// Value and name.
    values: Vec<(String, String)>,
}

impl SecretStripper {
    pub(super) fn from_profile(dir: &Path) -> Self {
        let home = Home::at(dir);
        let mut values = Vec::new();
        if let Ok(env) = Env::load(&home, &ProcessEnv::default()) {
            values = secrets::values(&home, &env);
            if let Ok(loaded) = Config::load(&home, &env) {
                values.extend(secrets::config_values(&loaded.tree));
            }
        }
        // Short ones are words; a secret that holds another goes as a whole.
        values.retain(|(_, value)| value.chars().count() >= 8);
        values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        values.dedup();
        Self { values }
    }

    pub(super) fn values(&self) -> &[(String, String)] {
        &self.values
    }

    pub(super) fn strip(&self, path: &Path, bytes: &[u8]) -> StrippedFile {
        let Ok(text) = std::str::from_utf8(bytes) else {
            let holds = self
                .values
                .iter()
                .any(|(_, value)| contains(bytes, value.as_bytes()));
            return if holds {
                StrippedFile::LeftOut
            } else {
                StrippedFile::Same
            };
        };
        let name = path.file_name().and_then(|name| name.to_str());
        let end = path.extension().and_then(|end| end.to_str());
        let settled = match (name.unwrap_or_default(), end) {
            ("config.yaml", _) => strip_config(path),
            (_, Some("json")) => strip_json(text),
            _ => None,
        };
        let mut cleaned = settled.unwrap_or_else(|| text.to_owned());
        for (name, value) in &self.values {
            if cleaned.contains(value.as_str()) {
                cleaned = cleaned.replace(value.as_str(), &format!("[removed: {name}]"));
            }
        }
        // Settings name what they hold; in prose and code only keys of services are certain.
        let cleaned = match end {
            Some("yaml" | "yml" | "json" | "toml" | "ini") => redact::secrets(&cleaned),
            _ => redact::keys(&cleaned),
        };
        let cleaned = redact::addresses(&cleaned).into_owned();
        if cleaned == text {
            StrippedFile::Same
        } else {
            StrippedFile::Changed(cleaned.into_bytes())
        }
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// config.yaml without the keys that take secrets; the rest keeps its comments.
fn strip_config(path: &Path) -> Option<String> {
    let mut doc = ConfigDoc::open(path).ok()?;
    let mut found = Vec::new();
    collect(&mut Vec::new(), doc.tree(), &mut found);
    for parts in found {
        doc.unset(&KeyPath::new(parts)).ok()?;
    }
    Some(doc.text().to_owned())
}

fn strip_json(text: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    let mut found = Vec::new();
    collect(&mut Vec::new(), &value, &mut found);
    if found.is_empty() {
        return None;
    }
    for parts in found {
        blank(&mut value, &parts);
    }
    serde_json::to_string_pretty(&value).ok()
}

fn blank(value: &mut Value, parts: &[String]) {
    let Some((first, rest)) = parts.split_first() else {
        *value = Value::Null;
        return;
    };
    let below = match value {
        Value::Object(map) => map.get_mut(first),
        Value::Array(items) => first.parse::<usize>().ok().and_then(|at| items.get_mut(at)),
        _ => None,
    };
    if let Some(below) = below {
        blank(below, rest);
    }
}

/// Paths of secrets, the last of a list first: taking one out must not move the others.
fn collect(path: &mut Vec<String>, value: &Value, found: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                path.push(key.clone());
                collect(path, value, found);
                path.pop();
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate().rev() {
                path.push(index.to_string());
                collect(path, item, found);
                path.pop();
            }
        }
        Value::String(text) if is_secret_path(path) => {
            let reference = text.is_empty() || (text.starts_with("${") && text.ends_with('}'));
            if !reference {
                found.push(path.clone());
            }
        }
        Value::Number(_) if is_secret_path(path) => found.push(path.clone()),
        _ => {}
    }
}
