//! Arguments brought to the types their schema asks for. Open models write numbers and lists as
//! text; what can only mean one thing is taken, anything else stays as it was written, so that the
//! tool can say what is wrong with it.

use hermes_core::tool::ToolArgs;
use serde_json::{Map, Number, Value};

/// Schemas nest no deeper than this; what is below stays as it is.
const MAX_SCHEMA_DEPTH: usize = 16;

pub(super) fn coerce(args: &mut ToolArgs, schema: &Value) {
    properties(args, schema, MAX_SCHEMA_DEPTH);
}

fn properties(object: &mut Map<String, Value>, schema: &Value, depth: usize) {
    let Some(known) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    for (name, value) in object.iter_mut() {
        if let Some(schema) = known.get(name) {
            shape(value, schema, depth);
        }
    }
}

fn shape(value: &mut Value, schema: &Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    let wanted = AllowedTypes::of(schema);
    if wanted.takes(value) {
        within(value, schema, depth);
        return;
    }
    if let Some(better) = read(value, &wanted) {
        *value = better;
        within(value, schema, depth);
    }
}

/// The parts of a value that has the right type already.
fn within(value: &mut Value, schema: &Value, depth: usize) {
    match value {
        Value::Object(object) => properties(object, schema, depth),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for item in items {
                    shape(item, schema, depth);
                }
            }
        }
        _ => {}
    }
}

fn read(value: &Value, wanted: &AllowedTypes<'_>) -> Option<Value> {
    if let Value::String(text) = value
        && let Some(better) = read_text(text.trim(), wanted)
    {
        return Some(better);
    }
    // A bare value for a list of one. An object may as well be a mistake in the nesting.
    let scalar = !matches!(value, Value::Array(_) | Value::Object(_) | Value::Null);
    (scalar && wanted.has("array")).then(|| Value::Array(vec![value.clone()]))
}

fn read_text(text: &str, wanted: &AllowedTypes<'_>) -> Option<Value> {
    if wanted.nullable() && text.eq_ignore_ascii_case("null") {
        return Some(Value::Null);
    }
    if wanted.has("boolean") {
        match text.to_ascii_lowercase().as_str() {
            "true" => return Some(Value::Bool(true)),
            "false" => return Some(Value::Bool(false)),
            _ => {}
        }
    }
    if wanted.has("integer") || wanted.has("number") {
        if let Ok(number) = text.parse::<i64>() {
            return Some(Value::from(number));
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        if let Some(number) = number {
            if number.fract() == 0.0 && number.abs() < 9e15 {
                return Some(Value::from(number as i64));
            }
            if wanted.has("number") {
                return Number::from_f64(number).map(Value::Number);
            }
        }
    }
    let json = match text.as_bytes().first() {
        Some(b'[') if wanted.has("array") => true,
        Some(b'{') => wanted.has("object"),
        _ => false,
    };
    json.then(|| serde_json::from_str(text).ok()).flatten()
}

/// The types a schema allows.
struct AllowedTypes<'a>(Vec<&'a str>);

impl<'a> AllowedTypes<'a> {
    fn of(schema: &'a Value) -> Self {
        let mut types = Vec::new();
        collect(schema, &mut types);
        for any in ["anyOf", "oneOf"] {
            for branch in schema
                .get(any)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                collect(branch, &mut types);
            }
        }
        if schema.get("nullable") == Some(&Value::Bool(true)) {
            types.push("null");
        }
        Self(types)
    }

    fn has(&self, kind: &str) -> bool {
        self.0.contains(&kind)
    }

    fn nullable(&self) -> bool {
        self.has("null")
    }

    /// Whether the value is of an allowed type. A schema without types takes everything.
    fn takes(&self, value: &Value) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|kind| match *kind {
                "string" => value.is_string(),
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                "boolean" => value.is_boolean(),
                "array" => value.is_array(),
                "object" => value.is_object(),
                "null" => value.is_null(),
                _ => true,
            })
    }
}

fn collect<'a>(schema: &'a Value, types: &mut Vec<&'a str>) {
    match schema.get("type") {
        Some(Value::String(kind)) => types.push(kind),
        Some(Value::Array(kinds)) => types.extend(kinds.iter().filter_map(Value::as_str)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn coerced(schema: &Value, value: &Value) -> Value {
        let mut args = Map::new();
        args.insert("x".to_owned(), value.clone());
        coerce(
            &mut args,
            &json!({"type": "object", "properties": {"x": schema}}),
        );
        args.remove("x").unwrap()
    }

    #[test]
    fn what_can_only_mean_one_thing_is_taken() {
        for (schema, written, taken) in [
            (json!({"type": "integer"}), json!("42"), json!(42)),
            (json!({"type": "integer"}), json!("42.0"), json!(42)),
            (json!({"type": "number"}), json!(" 1.5 "), json!(1.5)),
            (json!({"type": "boolean"}), json!("True"), json!(true)),
            (
                json!({"type": ["string", "null"]}),
                json!("null"),
                json!("null"),
            ),
            (
                json!({"type": ["integer", "null"]}),
                json!("null"),
                json!(null),
            ),
            (
                json!({"type": "integer", "nullable": true}),
                json!("NULL"),
                json!(null),
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                json!("a"),
                json!(["a"]),
            ),
            (
                json!({"type": "array", "items": {"type": "integer"}}),
                json!("[\"1\", 2]"),
                json!([1, 2]),
            ),
            (
                json!({"type": "array", "items": {"type": "integer"}}),
                json!(["3"]),
                json!([3]),
            ),
            (
                json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
                json!("{\"n\": \"7\"}"),
                json!({"n": 7}),
            ),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
                json!("5"),
                json!(5),
            ),
        ] {
            assert_eq!(coerced(&schema, &written), taken, "{schema} {written}");
        }
    }

    #[test]
    fn what_is_right_or_unclear_stays() {
        for (schema, written) in [
            (json!({"type": "string"}), json!("42")),
            (json!({"type": "integer"}), json!("forty")),
            (json!({"type": "integer"}), json!("1.5")),
            (json!({"type": "number"}), json!("inf")),
            (json!({"type": "boolean"}), json!("yes")),
            (json!({"type": "object"}), json!("{broken")),
            (json!({"type": "array"}), json!({"a": 1})),
            (json!({}), json!("42")),
        ] {
            assert_eq!(coerced(&schema, &written), written, "{schema} {written}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Coercing twice changes nothing more, and text that is wanted stays the same text.
        #[test]
        fn it_settles(text in ".{0,20}", kind in prop::sample::select(vec!["string", "integer", "number", "boolean", "array", "object"])) {
            let schema = json!({"type": kind, "items": {"type": "string"}});
            let once = coerced(&schema, &json!(text));
            prop_assert_eq!(coerced(&schema, &once), once.clone());
            if kind == "string" {
                prop_assert_eq!(once, json!(text));
            }
        }
    }
}
