//! A validator of JSON schemas that knows nothing of grammars.

use serde_json::{Map, Value};

pub(crate) fn valid(root: &Value, schema: &Value, value: &Value) -> bool {
    let schema = match schema {
        Value::Bool(yes) => return *yes,
        Value::Object(schema) => schema,
        _ => return false,
    };
    let list = |keyword: &str| schema.get(keyword).and_then(Value::as_array);
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        if !valid(root, target, value) {
            return false;
        }
    }
    let count = |branches: &Vec<Value>| {
        branches
            .iter()
            .filter(|branch| valid(root, branch, value))
            .count()
    };
    list("allOf").is_none_or(|all| count(all) == all.len())
        && list("anyOf").is_none_or(|any| count(any) > 0)
        && list("oneOf").is_none_or(|one| count(one) == 1)
        && list("enum").is_none_or(|values| values.contains(value))
        && schema.get("const").is_none_or(|constant| constant == value)
        && has_type(schema.get("type"), value)
        && number(schema, value)
        && text(schema, value)
        && array(root, schema, value)
        && object(root, schema, value)
}

fn has_type(types: Option<&Value>, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    };
    match types {
        None => true,
        Some(Value::Array(types)) => types.iter().any(is),
        Some(one) => is(one),
    }
}

fn number(schema: &Map<String, Value>, value: &Value) -> bool {
    let Some(value) = value.as_f64() else {
        return true;
    };
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    bound("minimum").is_none_or(|min| value >= min)
        && bound("maximum").is_none_or(|max| value <= max)
        && bound("exclusiveMinimum").is_none_or(|min| value > min)
        && bound("exclusiveMaximum").is_none_or(|max| value < max)
}

fn within(schema: &Map<String, Value>, min: &str, max: &str, length: usize) -> bool {
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
    bound(min).is_none_or(|min| length as u64 >= min)
        && bound(max).is_none_or(|max| length as u64 <= max)
}

fn text(schema: &Map<String, Value>, value: &Value) -> bool {
    let length = value.as_str().map(|text| text.chars().count());
    length.is_none_or(|length| within(schema, "minLength", "maxLength", length))
}

fn array(root: &Value, schema: &Map<String, Value>, value: &Value) -> bool {
    let Some(items) = value.as_array() else {
        return true;
    };
    within(schema, "minItems", "maxItems", items.len())
        && schema
            .get("items")
            .is_none_or(|schema| items.iter().all(|item| valid(root, schema, item)))
}

fn object(root: &Value, schema: &Map<String, Value>, value: &Value) -> bool {
    let Some(members) = value.as_object() else {
        return true;
    };
    let none = Map::new();
    let known = schema
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    let required = schema.get("required").and_then(Value::as_array);
    let has = |name: &Value| members.contains_key(name.as_str().unwrap());
    required.is_none_or(|names| names.iter().all(has))
        && members.iter().all(|(name, value)| match known.get(name) {
            Some(schema) => valid(root, schema, value),
            None => schema
                .get("additionalProperties")
                .is_none_or(|schema| valid(root, schema, value)),
        })
}
