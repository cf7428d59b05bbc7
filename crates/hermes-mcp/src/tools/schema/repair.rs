//! Repairs that make a schema acceptable to every provider.

use serde_json::{Map, Value, json};

use super::MAX_DEPTH;

/// Keywords whose value is a mapping of names to schemas.
const SCHEMA_MAP_KEYWORDS: &[&str] = &[
    "properties",
    "patternProperties",
    "$defs",
    "dependentSchemas",
];
/// Keywords whose value is data, not a schema.
const DATA_KEYWORDS: &[&str] = &[
    "default", "const", "enum", "examples", "example", "required",
];

/// A repaired copy whose root is an object schema.
pub(super) fn repaired(raw: &Value, remarks: &mut Vec<String>) -> Value {
    let mut root = match node(raw, 0, remarks) {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    if root.get("type").and_then(Value::as_str) != Some("object") {
        // Some providers refuse a union at the root; an object with the merged properties is
        // accepted.
        root.insert("type".to_owned(), json!("object"));
    }
    for union in ["oneOf", "anyOf", "allOf"] {
        if let Some(Value::Array(branches)) = root.shift_remove(union) {
            remarks.push(format!("{union} at the root was merged into one object"));
            merge_branches(&mut root, branches, union == "allOf");
        }
    }
    if !root.get("properties").is_some_and(Value::is_object) {
        root.insert("properties".to_owned(), json!({}));
    }
    prune_required(&mut root);
    root.shift_remove("$schema");
    root.shift_remove("$id");
    Value::Object(root)
}

/// Merges the properties of all branches; only `allOf` keeps its required properties.
fn merge_branches(root: &mut Map<String, Value>, branches: Vec<Value>, all: bool) {
    let mut properties = match root.shift_remove("properties") {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let mut required: Vec<Value> = match root.shift_remove("required") {
        Some(Value::Array(names)) => names,
        _ => Vec::new(),
    };
    for branch in branches {
        let Value::Object(mut branch) = branch else {
            continue;
        };
        if let Some(Value::Object(more)) = branch.shift_remove("properties") {
            for (name, schema) in more {
                properties.entry(name).or_insert(schema);
            }
        }
        if let (true, Some(Value::Array(names))) = (all, branch.shift_remove("required")) {
            for name in names {
                if !required.contains(&name) {
                    required.push(name);
                }
            }
        }
    }
    root.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        root.insert("required".to_owned(), Value::Array(required));
    }
}

fn node(raw: &Value, depth: usize, remarks: &mut Vec<String>) -> Value {
    if depth > MAX_DEPTH {
        remarks.push(format!("nested deeper than {MAX_DEPTH} levels: cut there"));
        return json!({});
    }
    let map = match raw {
        Value::Object(map) => map,
        // `true` accepts anything, like `{}`, which providers understand.
        Value::Bool(true) => return json!({}),
        other => return other.clone(),
    };
    let mut out = Map::new();
    for (key, value) in map {
        // Old drafts use this keyword; a property of this name is not renamed.
        let key = if key == "definitions" { "$defs" } else { key };
        out.insert(key.to_owned(), keyword(key, value, depth, remarks));
    }
    local_reference(&mut out, remarks);
    let mut out = collapse_nullable(out);
    fix_type(&mut out);
    if out.get("type").and_then(Value::as_str) == Some("object") {
        if !out.get("properties").is_some_and(Value::is_object) {
            out.insert("properties".to_owned(), json!({}));
        }
        prune_required(&mut out);
    }
    if out.get("type").and_then(Value::as_str) == Some("array") && !out.contains_key("items") {
        out.insert("items".to_owned(), json!({}));
    }
    Value::Object(out)
}

fn keyword(key: &str, value: &Value, depth: usize, remarks: &mut Vec<String>) -> Value {
    if DATA_KEYWORDS.contains(&key) {
        return value.clone();
    }
    match value {
        Value::Object(named) if SCHEMA_MAP_KEYWORDS.contains(&key) => named
            .iter()
            .map(|(name, schema)| (name.clone(), node(schema, depth + 1, remarks)))
            .collect(),
        Value::Object(_) => node(value, depth + 1, remarks),
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::Object(_) => node(item, depth + 1, remarks),
                other => other.clone(),
            })
            .collect(),
        other => other.clone(),
    }
}

/// Keeps a `$ref` within the schema. External ones are not fetched; they accept anything.
fn local_reference(out: &mut Map<String, Value>, remarks: &mut Vec<String>) {
    let Some(Value::String(target)) = out.get("$ref") else {
        return;
    };
    if let Some(rest) = target.strip_prefix("#/definitions/") {
        let target = format!("#/$defs/{rest}");
        out.insert("$ref".to_owned(), Value::String(target));
    } else if !target.starts_with('#') {
        remarks.push(format!("the reference to {target} is not followed"));
        out.shift_remove("$ref");
    }
}

/// Reduces "X or null" to X: `required` already expresses that it is optional.
fn collapse_nullable(mut out: Map<String, Value>) -> Map<String, Value> {
    for union in ["anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = out.get_mut(union) else {
            continue;
        };
        let before = branches.len();
        branches.retain(|branch| branch.get("type").and_then(Value::as_str) != Some("null"));
        if branches.len() == before {
            continue;
        }
        if branches.len() == 1 {
            let only = branches.remove(0);
            out.shift_remove(union);
            if let Value::Object(only) = only {
                for (key, value) in only {
                    // A description beside the union is more specific to the property.
                    out.entry(key).or_insert(value);
                }
            }
        } else if branches.is_empty() {
            out.shift_remove(union);
        }
        if out.get("default").is_some_and(Value::is_null) {
            out.shift_remove("default");
        }
    }
    out
}

/// Reduces `type` to one word, and adds it where the other keywords imply it.
fn fix_type(out: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = out.get("type") {
        let real: Vec<Value> = types
            .iter()
            .filter(|kind| kind.as_str() != Some("null"))
            .cloned()
            .collect();
        match real.as_slice() {
            [only] => {
                let only = only.clone();
                out.insert("type".to_owned(), only);
            }
            [] => {
                out.shift_remove("type");
            }
            _ => {
                let branches = real.into_iter().map(|kind| json!({"type": kind})).collect();
                out.shift_remove("type");
                out.entry("anyOf").or_insert(Value::Array(branches));
            }
        }
    }
    let untyped = !out.get("type").is_some_and(Value::is_string);
    if untyped && (out.contains_key("properties") || out.contains_key("required")) {
        out.insert("type".to_owned(), json!("object"));
    } else if untyped {
        out.shift_remove("type");
    }
}

/// Removes names from `required` that are not defined.
fn prune_required(out: &mut Map<String, Value>) {
    let Some(required) = out.shift_remove("required") else {
        return;
    };
    let names: Vec<Value> = match (required, out.get("properties")) {
        (Value::Array(names), Some(Value::Object(properties))) => {
            let mut existing: Vec<Value> = Vec::new();
            for name in names {
                let exists = name
                    .as_str()
                    .is_some_and(|name| properties.contains_key(name));
                if exists && !existing.contains(&name) {
                    existing.push(name);
                }
            }
            existing
        }
        _ => Vec::new(),
    };
    if !names.is_empty() {
        out.insert("required".to_owned(), Value::Array(names));
    }
}
