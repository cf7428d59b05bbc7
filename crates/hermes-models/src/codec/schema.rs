//! Tool schemas in the dialect of an endpoint.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::quirks::SchemaDialect;

type SchemaNode = Map<String, Value>;

/// Keywords whose value maps names to schemas.
const NAMED: &[&str] = &["properties", "patternProperties", "$defs", "definitions"];
/// Keywords whose value is a list of schemas.
const LISTED: &[&str] = &["anyOf", "oneOf", "allOf", "prefixItems"];
/// Keywords whose value is a schema.
const NESTED: &[&str] = &[
    "items",
    "contains",
    "not",
    "additionalProperties",
    "propertyNames",
];

/// Keywords supported by Gemini.
const GEMINI: &[&str] = &[
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "anyOf",
    "propertyOrdering",
    "default",
    "items",
    "minimum",
    "maximum",
];

/// `schema` in the endpoint's dialect; always an object schema.
pub(super) fn adapt(schema: &Value, dialect: SchemaDialect) -> Cow<'_, Value> {
    let Some(node) = schema.as_object() else {
        return Cow::Owned(json!({ "type": "object", "properties": {} }));
    };
    match dialect {
        SchemaDialect::Standard if node.contains_key("properties") => Cow::Borrowed(schema),
        SchemaDialect::Standard => {
            let mut node = node.clone();
            node.entry("type").or_insert_with(|| "object".into());
            node.insert("properties".into(), json!({}));
            Cow::Owned(Value::Object(node))
        }
        SchemaDialect::Moonshot => {
            let mut node = moonshot(node);
            node.insert("type".into(), "object".into());
            node.entry("properties").or_insert_with(|| json!({}));
            require_known(&mut node);
            Cow::Owned(Value::Object(node))
        }
        SchemaDialect::Gemini => {
            let mut node = gemini(&resolved(node, node, &mut Vec::new()));
            node.entry("type").or_insert_with(|| "object".into());
            Cow::Owned(Value::Object(node))
        }
        SchemaDialect::Plain => {
            let node = gemini(&resolved(node, node, &mut Vec::new()));
            let mut node = plain(&node);
            // Some endpoints refuse alternatives at the top level.
            node.shift_remove("anyOf");
            node.insert("type".into(), "object".into());
            node.entry("properties").or_insert_with(|| json!({}));
            Cow::Owned(Value::Object(node))
        }
        SchemaDialect::Grammar => {
            let mut node = grammar(node);
            node.entry("properties").or_insert_with(|| json!({}));
            Cow::Owned(Value::Object(node))
        }
    }
}

/// A copy of `node` with `change` applied to every schema inside it.
fn map_children(node: &SchemaNode, change: fn(&SchemaNode) -> SchemaNode) -> SchemaNode {
    let each = |value: &Value| match value {
        Value::Object(child) => Value::Object(change(child)),
        other => other.clone(),
    };
    node.iter()
        .map(|(key, value)| {
            let value = match value {
                Value::Object(named) if NAMED.contains(&key.as_str()) => {
                    named.iter().map(|(k, v)| (k.clone(), each(v))).collect()
                }
                Value::Array(items) if LISTED.contains(&key.as_str()) => {
                    items.iter().map(each).collect()
                }
                Value::Object(_) if NESTED.contains(&key.as_str()) => each(value),
                other => other.clone(),
            };
            (key.clone(), value)
        })
        .collect()
}

/// llama.cpp compiles schemas to grammars and fails on some regular expressions.
fn grammar(node: &SchemaNode) -> SchemaNode {
    let mut node = map_children(node, grammar);
    node.shift_remove("pattern");
    node.shift_remove("format");
    node
}

/// Keywords that every endpoint accepts.
const PLAIN: &[&str] = &[
    "type",
    "description",
    "enum",
    "properties",
    "required",
    "items",
    "anyOf",
];

/// Only types, names and descriptions, and a type for the elements of every list.
fn plain(node: &SchemaNode) -> SchemaNode {
    let mut node = map_children(node, plain);
    node.retain(|word, _| PLAIN.contains(&word.as_str()));
    if node.get("type").and_then(Value::as_str) == Some("array") {
        node.entry("items")
            .or_insert_with(|| json!({ "type": "string" }));
    }
    node
}

/// Maximum depth of followed references.
const MAX_REFERENCES: usize = 12;

/// A copy of `node` with references replaced by their schemas. A self-reference ends as an object
/// of any shape.
fn resolved(node: &SchemaNode, root: &SchemaNode, passed: &mut Vec<String>) -> SchemaNode {
    let mut node = node.clone();
    if let Some(Value::String(name)) = node.shift_remove("$ref") {
        let target = name
            .strip_prefix('#')
            .and_then(|pointer| follow(root, pointer));
        let again = passed.contains(&name) || passed.len() >= MAX_REFERENCES;
        match target.filter(|_| !again) {
            Some(target) => {
                passed.push(name);
                let target = resolved(&target, root, passed);
                passed.pop();
                // Keywords next to the reference are more specific.
                for (key, value) in target {
                    node.entry(key).or_insert(value);
                }
            }
            None => {
                node.entry("type").or_insert_with(|| "object".into());
            }
        }
    }
    let mut each = |value: &mut Value| {
        if let Value::Object(child) = value {
            *child = resolved(child, root, passed);
        }
    };
    for (key, value) in &mut node {
        match value {
            // Definitions are copied where they are needed.
            Value::Object(named) if key == "properties" => named.values_mut().for_each(&mut each),
            Value::Array(items) if LISTED.contains(&key.as_str()) => {
                items.iter_mut().for_each(&mut each);
            }
            Value::Object(_) if NESTED.contains(&key.as_str()) => each(value),
            _ => {}
        }
    }
    node
}

fn follow(root: &SchemaNode, pointer: &str) -> Option<SchemaNode> {
    let mut parts = pointer.trim_start_matches('/').split('/');
    let first = root.get(parts.next()?)?;
    let found = parts.try_fold(first, |value, part| {
        value.get(part.replace("~1", "/").replace("~0", "~"))
    })?;
    found.as_object().cloned()
}

/// Expresses keywords that Gemini lacks with those it has.
fn in_gemini_words(node: &mut SchemaNode) {
    if let Some(Value::Array(all)) = node.shift_remove("allOf") {
        for part in all {
            merge(node, part);
        }
    }
    if let Some(branches) = node.shift_remove("oneOf") {
        node.entry("anyOf").or_insert(branches);
    }
    if let Some(only) = node.shift_remove("const") {
        let kind = kind_of(&only);
        if let Some(kind) = kind {
            node.entry("type").or_insert_with(|| kind.into());
        }
        if only.is_string() {
            node.entry("enum").or_insert_with(|| json!([only]));
        }
    }
    if let Some(Value::Array(kinds)) = node.get("type").cloned() {
        let real: Vec<&Value> = kinds.iter().filter(|kind| *kind != "null").collect();
        if real.len() < kinds.len() {
            node.insert("nullable".into(), true.into());
        }
        let first = real
            .first()
            .map_or_else(|| "string".into(), |kind| (*kind).clone());
        node.insert("type".into(), first);
    }
    if let Some(Value::Array(branches)) = node.get("anyOf").cloned() {
        let is_null = |branch: &Value| branch.get("type").and_then(Value::as_str) == Some("null");
        let real: Vec<Value> = branches
            .iter()
            .filter(|one| !is_null(one))
            .cloned()
            .collect();
        if real.len() < branches.len() {
            node.insert("nullable".into(), true.into());
        }
        if let [Value::Object(only)] = real.as_slice() {
            node.shift_remove("anyOf");
            for (key, value) in only {
                node.entry(key.as_str()).or_insert_with(|| value.clone());
            }
        } else {
            node.insert("anyOf".into(), real.into());
        }
    }
    if !node.contains_key("type")
        && let Some(kind) = node.get("enum").and_then(|list| kind_of(list.get(0)?))
    {
        node.insert("type".into(), kind.into());
    }
}

fn merge(node: &mut SchemaNode, part: Value) {
    let Value::Object(part) = part else {
        return;
    };
    for (key, value) in part {
        match (node.get_mut(&key), value) {
            (Some(Value::Object(mine)), Value::Object(more)) => mine.extend(more),
            (Some(Value::Array(mine)), Value::Array(more)) => mine.extend(more),
            (Some(_), _) => {}
            (None, value) => {
                node.insert(key, value);
            }
        }
    }
}

fn kind_of(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::Null => return None,
    })
}

fn gemini(node: &SchemaNode) -> SchemaNode {
    let mut node = map_children(node, gemini);
    in_gemini_words(&mut node);
    node.retain(|key, _| GEMINI.contains(&key.as_str()));
    let texts_only = |list: &Value| {
        list.as_array()
            .is_some_and(|items| items.iter().all(Value::is_string))
    };
    if node.get("enum").is_some_and(|list| !texts_only(list)) {
        node.shift_remove("enum");
    }
    if node.contains_key("required") {
        require_known(&mut node);
        if node["required"].as_array().is_some_and(Vec::is_empty) {
            node.shift_remove("required");
        }
    }
    node
}

fn moonshot(node: &SchemaNode) -> SchemaNode {
    let mut node = map_children(node, moonshot);
    if let Some(Value::Array(branches)) = node.get("anyOf").cloned() {
        node.shift_remove("type");
        let is_null = |branch: &Value| branch.get("type").and_then(Value::as_str) == Some("null");
        let real: Vec<Value> = branches.iter().filter(|b| !is_null(b)).cloned().collect();
        match real.as_slice() {
            [Value::Object(only)] => {
                node.shift_remove("anyOf");
                node.extend(only.clone());
            }
            [] => return node,
            _ => {
                node.insert("anyOf".into(), real.into());
                return node;
            }
        }
    }
    node.shift_remove("nullable");
    if !node.contains_key("$ref") {
        let kind = concrete_type(&node);
        node.insert("type".into(), kind.into());
    }
    if let Some(Value::Array(choices)) = node.get_mut("enum") {
        choices.retain(|choice| !choice.is_null() && choice.as_str() != Some(""));
        if choices.is_empty() {
            node.shift_remove("enum");
        }
    }
    if node.get("type").and_then(Value::as_str) == Some("object") {
        require_known(&mut node);
    }
    node
}

/// The type of a node, inferred if it is missing.
fn concrete_type(node: &SchemaNode) -> String {
    match node.get("type") {
        Some(Value::String(kind)) if !kind.is_empty() => return kind.clone(),
        Some(Value::Array(kinds)) => {
            let real = kinds
                .iter()
                .filter_map(Value::as_str)
                .find(|k| *k != "null");
            return real.unwrap_or("string").to_owned();
        }
        _ => {}
    }
    let has = |key: &str| node.contains_key(key);
    let guess = if has("properties") || has("required") || has("additionalProperties") {
        "object"
    } else if has("items") || has("prefixItems") {
        "array"
    } else {
        match node.get("enum").and_then(|list| list.get(0)) {
            Some(Value::Bool(_)) => "boolean",
            Some(Value::Number(number)) if number.is_f64() => "number",
            Some(Value::Number(_)) => "integer",
            _ => "string",
        }
    };
    guess.to_owned()
}

/// Makes `required` a list that names only known properties.
fn require_known(node: &mut SchemaNode) {
    let known = node.get("properties").and_then(Value::as_object);
    let required: Vec<Value> = node
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|name| {
            let name = name.as_str().unwrap_or_default();
            known.is_none_or(|known| known.contains_key(name))
        })
        .cloned()
        .collect();
    node.insert("required".into(), required.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn wild() -> Value {
        json!({
            "$schema": "x",
            "type": "object",
            "properties": {
                "any": { "description": "anything" },
                "maybe": { "type": "string", "anyOf": [{ "type": "string", "pattern": "\\d" }, { "type": "null" }] },
                "pick": { "enum": [1, 2, null] },
                "format": { "type": "string", "format": "date" },
                "deep": { "type": ["object", "null"], "properties": { "x": {} }, "required": ["x", "gone"] },
            },
            "additionalProperties": false,
        })
    }

    #[test]
    fn moonshot_wants_a_type_everywhere() {
        assert_eq!(
            *adapt(&wild(), SchemaDialect::Moonshot),
            json!({
                "$schema": "x",
                "type": "object",
                "properties": {
                    "any": { "description": "anything", "type": "string" },
                    "maybe": { "type": "string", "pattern": "\\d" },
                    "pick": { "enum": [1, 2], "type": "integer" },
                    "format": { "type": "string", "format": "date" },
                    "deep": { "type": "object", "properties": { "x": { "type": "string" } }, "required": ["x"] },
                },
                "additionalProperties": false,
                "required": [],
            })
        );
    }

    #[test]
    fn gemini_knows_few_words() {
        let wild = wild();
        let schema = adapt(&wild, SchemaDialect::Gemini);
        assert_eq!(schema.get("$schema"), None);
        assert_eq!(schema.get("additionalProperties"), None);
        assert_eq!(schema["properties"]["pick"], json!({"type": "integer"}));
        assert_eq!(schema["properties"]["deep"]["type"], "object");
        assert_eq!(schema["properties"]["deep"]["nullable"], true);
        assert_eq!(schema["properties"]["deep"]["required"], json!(["x"]));
        // A property may be called like a keyword that is not known.
        assert_eq!(schema["properties"]["format"]["format"], "date");
    }

    /// Every property keeps a type, however the schema spells it.
    #[test]
    fn gemini_gets_types_from_what_it_does_not_know() {
        let wild = json!({
            "type": "object",
            "$defs": {
                "Colour": {"type": "string", "enum": ["red", "blue"]},
                "Tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}},
            },
            "properties": {
                "colour": {"$ref": "#/$defs/Colour", "description": "which"},
                "tree": {"$ref": "#/$defs/Tree"},
                "one": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                "fixed": {"const": "on"},
                "count": {"const": 3},
                "both": {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]},
                "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                "listed": {"type": "array", "items": {"$ref": "#/$defs/Colour"}},
                "lost": {"$ref": "https://elsewhere.test/x.json"},
            },
        });
        let schema = adapt(&wild, SchemaDialect::Gemini);
        let at = |name: &str| &schema["properties"][name];
        assert_eq!(
            *at("colour"),
            json!({"description": "which", "type": "string", "enum": ["red", "blue"]})
        );
        assert_eq!(at("tree")["properties"]["left"]["type"], "object");
        assert_eq!(at("one")["anyOf"][1]["type"], "integer");
        assert_eq!(*at("fixed"), json!({"type": "string", "enum": ["on"]}));
        assert_eq!(*at("count"), json!({"type": "integer"}));
        assert_eq!(at("both")["properties"]["b"]["type"], "string");
        assert_eq!(*at("maybe"), json!({"nullable": true, "type": "number"}));
        assert_eq!(at("listed")["items"]["enum"][0], "red");
        assert_eq!(at("lost")["type"], "object");
        let text = schema.to_string();
        for word in ["$ref", "$defs", "oneOf", "allOf", "const"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn grammars_take_no_patterns() {
        let wild = wild();
        let schema = adapt(&wild, SchemaDialect::Grammar);
        assert_eq!(
            schema["properties"]["maybe"]["anyOf"][0],
            json!({ "type": "string" })
        );
        assert_eq!(schema["properties"]["format"], json!({ "type": "string" }));
    }

    #[test]
    fn an_empty_schema_becomes_an_object() {
        let empty = json!({ "type": "object", "properties": {} });
        assert_eq!(*adapt(&json!({}), SchemaDialect::Standard), empty);
        assert_eq!(*adapt(&Value::Null, SchemaDialect::Gemini), empty);
    }
}
