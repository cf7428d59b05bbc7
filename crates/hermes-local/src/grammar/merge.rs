//! Merges schemas and interprets keywords.

use serde_json::{Map, Value};

/// Supported keywords about values.
const KEYWORDS: [&str; 22] = [
    "$ref",
    "type",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "items",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "nullable",
];

pub(super) fn constrains(schema: &Map<String, Value>) -> bool {
    KEYWORDS.iter().any(|keyword| schema.contains_key(*keyword))
}

/// A schema for values that satisfy both.
pub(super) fn both(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Bool(false), _) | (_, Value::Bool(false)) => Value::Bool(false),
        (Value::Object(a), Value::Object(b)) => Value::Object(both_objects(a, b)),
        (Value::Object(_), _) => a.clone(),
        _ => b.clone(),
    }
}

fn both_objects(a: &Map<String, Value>, b: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = with_null(a);
    for (keyword, theirs) in &with_null(b) {
        let Some(ours) = merged.get(keyword) else {
            merged.insert(keyword.clone(), theirs.clone());
            continue;
        };
        if ours == theirs {
            continue;
        }
        let value = match keyword.as_str() {
            "properties" | "$defs" | "definitions" => properties(ours, theirs),
            "required" | "allOf" => union(ours, theirs),
            "enum" => common(ours, theirs),
            "type" => common_types(ours, theirs),
            "items" | "additionalProperties" => both(ours, theirs),
            "minimum" | "minLength" | "minItems" => tighter(ours, theirs, f64::gt),
            "maximum" | "maxLength" | "maxItems" => tighter(ours, theirs, f64::lt),
            "anyOf" | "oneOf" => {
                // Both choices apply: the second one is added to `allOf`.
                let choice = Value::Object(Map::from_iter([(keyword.clone(), theirs.clone())]));
                append(&mut merged, "allOf", choice);
                continue;
            }
            _ => theirs.clone(),
        };
        merged.insert(keyword.clone(), value);
    }
    merged
}

/// `nullable` as one of the types, so that it is dropped with them if the other schema has no null.
fn with_null(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = schema.clone();
    if schema.shift_remove("nullable") == Some(Value::Bool(true)) {
        let mut names = types(&schema);
        // Any value includes null already.
        if !names.contains(&"any") && !names.contains(&"null") {
            names.push("null");
            let names: Value = names.into_iter().map(Value::from).collect();
            schema.insert("type".to_owned(), names);
        }
    }
    schema
}

fn append(schema: &mut Map<String, Value>, keyword: &str, value: Value) {
    match schema.get_mut(keyword) {
        Some(Value::Array(list)) => list.push(value),
        _ => {
            schema.insert(keyword.to_owned(), Value::Array(vec![value]));
        }
    }
}

fn properties(a: &Value, b: &Value) -> Value {
    let (Value::Object(a), Value::Object(b)) = (a, b) else {
        return b.clone();
    };
    let mut merged = a.clone();
    for (name, theirs) in b {
        let value = match merged.get(name) {
            Some(ours) if ours != theirs => Value::Object(Map::from_iter([(
                "allOf".to_owned(),
                [ours, theirs].into_iter().cloned().collect(),
            )])),
            _ => theirs.clone(),
        };
        merged.insert(name.clone(), value);
    }
    Value::Object(merged)
}

fn union(a: &Value, b: &Value) -> Value {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut all = list(a);
    for value in list(b) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    Value::Array(all)
}

fn common(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a
            .iter()
            .filter(|value| b.contains(value))
            .cloned()
            .collect(),
        _ => b.clone(),
    }
}

fn common_types(a: &Value, b: &Value) -> Value {
    let list = |value: &Value| match value {
        Value::Array(list) => list.clone(),
        one => vec![one.clone()],
    };
    let (a, b) = (list(a), list(b));
    let has = |list: &[Value], name: &Value| {
        // Integers are numbers.
        list.contains(name) || (name == "integer" && list.contains(&Value::from("number")))
    };
    let mut types: Vec<Value> = a.iter().filter(|name| has(&b, name)).cloned().collect();
    for name in b {
        if has(&a, &name) && !types.contains(&name) {
            types.push(name);
        }
    }
    Value::Array(types)
}

fn tighter(a: &Value, b: &Value, better: fn(&f64, &f64) -> bool) -> Value {
    match (a.as_f64(), b.as_f64()) {
        (Some(ours), Some(theirs)) if better(&ours, &theirs) => a.clone(),
        _ => b.clone(),
    }
}

pub(super) fn number(schema: &Map<String, Value>, keyword: &str) -> Option<f64> {
    schema.get(keyword).and_then(Value::as_f64)
}

/// A count; 2.0 is one too.
pub(super) fn size(schema: &Map<String, Value>, keyword: &str) -> Option<u32> {
    let size = number(schema, keyword)?;
    // Saturates.
    (size >= 0.0).then_some(size as u32)
}

/// The types that a schema names, or those its keywords are about.
pub(super) fn types(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => return vec![name],
        Some(Value::Array(names)) => {
            return names.iter().filter_map(Value::as_str).collect();
        }
        _ => {}
    }
    let about = |keywords: &[&str]| keywords.iter().any(|keyword| schema.contains_key(*keyword));
    let object = [
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
    ];
    if about(&object) {
        vec!["object"]
    } else if about(&["items", "minItems", "maxItems"]) {
        vec!["array"]
    } else if about(&["minLength", "maxLength"]) {
        vec!["string"]
    } else if about(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]) {
        vec!["number"]
    } else {
        vec!["any"]
    }
}

/// Whether a value is of the type (or one of the types) that a schema names.
pub(super) fn has_type(value: &Value, types: Option<&Value>) -> bool {
    let is = |name: &str| match name {
        "string" => value.is_string(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|it| it.fract() == 0.0)
        }
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    match types {
        Some(Value::String(name)) => is(name),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}
