//! The part of JSON Schema that our schemas use: `type`, `required`, `properties`,
//! `additionalProperties`, `items`, `enum`. Anything else in a schema is an error, so that nothing
//! is believed to be checked that is not.

use serde_json::Value;

/// What does not fit, as `path: what is wrong`.
pub(super) fn check(value: &Value, schema: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    at("$", value, schema, &mut wrong);
    wrong
}

fn at(path: &str, value: &Value, schema: &Value, wrong: &mut Vec<String>) {
    let Some(rules) = schema.as_object() else {
        wrong.push(format!("{path}: the schema is not an object"));
        return;
    };
    for (rule, expected) in rules {
        match rule.as_str() {
            "$schema" | "title" | "description" => {}
            "type" => {
                let kinds: Vec<&str> = match expected {
                    Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
                    one => one.as_str().into_iter().collect(),
                };
                if !kinds.iter().any(|kind| is(value, kind)) {
                    wrong.push(format!("{path}: {value} is not {}", kinds.join(" or ")));
                }
            }
            "enum" => {
                let known = expected.as_array().is_some_and(|all| all.contains(value));
                if !known {
                    wrong.push(format!("{path}: {value} is not one of {expected}"));
                }
            }
            "required" => {
                for name in expected.as_array().into_iter().flatten() {
                    let name = name.as_str().unwrap_or_default();
                    if value.is_object() && value.get(name).is_none() {
                        wrong.push(format!("{path}: {name} is missing"));
                    }
                }
            }
            "properties" => {
                for (name, schema) in expected.as_object().into_iter().flatten() {
                    if let Some(value) = value.get(name) {
                        at(&format!("{path}.{name}"), value, schema, wrong);
                    }
                }
            }
            "additionalProperties" => more(path, value, expected, schema, wrong),
            "items" => {
                for (number, value) in value.as_array().into_iter().flatten().enumerate() {
                    at(&format!("{path}[{number}]"), value, expected, wrong);
                }
            }
            other => wrong.push(format!("{path}: the rule {other:?} is not known here")),
        }
    }
}

/// Names that the schema does not list: forbidden, or of one kind.
fn more(path: &str, value: &Value, rule: &Value, schema: &Value, wrong: &mut Vec<String>) {
    let listed = schema.get("properties").and_then(Value::as_object);
    for (name, value) in value.as_object().into_iter().flatten() {
        if listed.is_some_and(|listed| listed.contains_key(name)) {
            continue;
        }
        match rule {
            Value::Bool(true) => {}
            Value::Bool(false) => wrong.push(format!("{path}: {name} is not in the schema")),
            schema => at(&format!("{path}.{name}"), value, schema, wrong),
        }
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

#[test]
fn the_checker_finds_what_is_wrong() {
    use serde_json::json;
    let schema = json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {"a": {"type": ["integer", "null"]}, "b": {"type": "array", "items": {"enum": ["x"]}}},
    });
    assert!(check(&json!({"a": null, "b": ["x"]}), &schema).is_empty());
    for bad in [
        json!([]),
        json!({}),
        json!({"a": 1.5}),
        json!({"a": 1, "c": 1}),
        json!({"a": 1, "b": ["y"]}),
    ] {
        assert!(!check(&bad, &schema).is_empty(), "{bad}");
    }
    assert!(!check(&json!(1), &json!({"minimum": 3})).is_empty());
}
