//! Sanitises the schemas of remote tools for the model.
//!
//! Many servers write JSON schemas that one provider or another refuses, and one bad tool makes the
//! whole request fail. The model therefore gets a repaired copy. [`SanitisedSchema::restore`]
//! reverses renamed properties before the arguments are sent to the server.

mod headers;
mod repair;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub(crate) use headers::header_problem;
pub(crate) use scan::suspicious_phrases;

/// Deeper levels of a schema are removed.
const MAX_DEPTH: usize = 24;
/// Maximum schema size of one tool; above it, first the descriptions are removed, then the schema.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// Maximum length of a tool description.
const MAX_DESCRIPTION_CHARS: usize = 4096;

/// A schema for the model, with the renames that must be reversed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SanitisedSchema {
    pub schema: Value,
    renames: Renames,
    /// Major changes, for status and logs.
    pub remarks: Vec<String>,
}

/// Names for the model → names of the server, per level.
#[derive(Clone, Debug, Default, PartialEq)]
struct Renames {
    names: BTreeMap<String, String>,
    /// By the server's name.
    properties: BTreeMap<String, Renames>,
    items: Option<Box<Renames>>,
}

impl Renames {
    fn is_empty(&self) -> bool {
        self.names.is_empty()
            && self.properties.values().all(Self::is_empty)
            && self.items.as_deref().is_none_or(Self::is_empty)
    }
}

impl SanitisedSchema {
    pub(crate) fn new(raw: &Value) -> Self {
        let mut remarks = Vec::new();
        let mut schema = repair::repaired(raw, &mut remarks);
        let mut renames = Renames::default();
        rename(&mut schema, &mut renames, 0);
        if !renames.is_empty() {
            remarks.push("properties with names that providers refuse were renamed".to_owned());
        }
        let schema = within_limits(schema, &mut remarks);
        Self {
            schema,
            renames,
            remarks,
        }
    }

    /// The arguments under the server's own names.
    pub(crate) fn restore(&self, arguments: Map<String, Value>) -> Map<String, Value> {
        if self.renames.is_empty() {
            return arguments;
        }
        restore_object(arguments, &self.renames)
    }
}

fn restore_object(object: Map<String, Value>, renames: &Renames) -> Map<String, Value> {
    object
        .into_iter()
        .map(|(name, value)| {
            let name = renames.names.get(&name).cloned().unwrap_or(name);
            let value = match renames.properties.get(&name) {
                Some(inner) => restore_value(value, inner),
                None => value,
            };
            (name, value)
        })
        .collect()
}

fn restore_value(value: Value, renames: &Renames) -> Value {
    match value {
        Value::Object(object) => Value::Object(restore_object(object, renames)),
        Value::Array(items) => match &renames.items {
            Some(inner) => items
                .into_iter()
                .map(|item| restore_value(item, inner))
                .collect(),
            None => Value::Array(items),
        },
        other => other,
    }
}

/// Whether every provider accepts it as a property name.
fn is_plain(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

fn rename(schema: &mut Value, renames: &mut Renames, depth: usize) {
    let Value::Object(node) = schema else {
        return;
    };
    if depth > MAX_DEPTH {
        return;
    }
    if let Some(items) = node.get_mut("items") {
        let mut inner = Renames::default();
        rename(items, &mut inner, depth + 1);
        if !inner.is_empty() {
            renames.items = Some(Box::new(inner));
        }
    }
    let Some(Value::Object(properties)) = node.get_mut("properties") else {
        return;
    };
    let mut taken: std::collections::BTreeSet<String> = properties
        .keys()
        .filter(|name| is_plain(name))
        .cloned()
        .collect();
    let old = std::mem::take(properties);
    for (name, mut value) in old {
        let mut inner = Renames::default();
        rename(&mut value, &mut inner, depth + 1);
        if !inner.is_empty() {
            renames.properties.insert(name.clone(), inner);
        }
        let shown = if is_plain(&name) {
            name
        } else {
            let shown = unused_plain_name(&name, &taken);
            renames.names.insert(shown.clone(), name);
            shown
        };
        taken.insert(shown.clone());
        properties.insert(shown, value);
    }
    if let Some(Value::Array(required)) = node.get_mut("required") {
        for entry in required.iter_mut() {
            let shown = renames
                .names
                .iter()
                .find(|(_, raw)| entry.as_str() == Some(raw.as_str()))
                .map(|(shown, _)| shown.clone());
            if let Some(shown) = shown {
                *entry = Value::String(shown);
            }
        }
    }
}

/// A plain variant of `name` that is not in `taken`.
fn unused_plain_name(name: &str, taken: &std::collections::BTreeSet<String>) -> String {
    let cleaned: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "_.-".contains(c) {
                c
            } else {
                '_'
            }
        })
        .take(48)
        .collect();
    let cleaned = if cleaned.is_empty() {
        "_".to_owned()
    } else {
        cleaned
    };
    if name.len() <= 64 && !taken.contains(&cleaned) {
        return cleaned;
    }
    let hashed = format!("{cleaned}_{}", crate::tools::naming::short_hash(name, 8));
    if taken.contains(&hashed) {
        format!("{cleaned}_{}", crate::tools::naming::short_hash(name, 12))
    } else {
        hashed
    }
}

fn within_limits(schema: Value, remarks: &mut Vec<String>) -> Value {
    if schema.to_string().len() <= MAX_SCHEMA_BYTES {
        return schema;
    }
    let bare = without_prose(&schema, false);
    if bare.to_string().len() <= MAX_SCHEMA_BYTES {
        remarks.push("the schema is very large: its descriptions were left out".to_owned());
        return bare;
    }
    remarks.push("the schema is too large and was left out: any arguments are taken".to_owned());
    serde_json::json!({"type": "object", "properties": {}, "additionalProperties": true})
}

fn without_prose(value: &Value, names: bool) -> Value {
    const PROSE: &[&str] = &["description", "title", "examples", "example", "$comment"];
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, _)| names || !PROSE.contains(&key.as_str()))
            .map(|(key, value)| {
                let of_names = !names && matches!(key.as_str(), "properties" | "$defs");
                (key.clone(), without_prose(value, of_names))
            })
            .collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| without_prose(item, false))
            .collect(),
        other => other.clone(),
    }
}

/// The tool description for the model: the server's own, with a limited length.
pub(crate) fn description(server: &str, tool: &str, text: Option<&str>) -> String {
    let text = text.map(str::trim).unwrap_or_default();
    if text.is_empty() {
        return format!("Tool {tool} of the MCP server {server}.");
    }
    let clean: String = text
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .take(MAX_DESCRIPTION_CHARS)
        .collect();
    if text.chars().count() > MAX_DESCRIPTION_CHARS {
        format!("{clean}…")
    } else {
        clean
    }
}
