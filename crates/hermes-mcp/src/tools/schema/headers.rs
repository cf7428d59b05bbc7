//! `x-mcp-header` of 2026-07-28: arguments that are also sent as headers.
//!
//! A tool with invalid annotations must not be offered over HTTP: servers and proxies would read
//! values that differ from the arguments.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

const KEY: &str = "x-mcp-header";

/// What is wrong with the annotations of a tool's input schema.
pub(crate) fn header_problem(schema: &Value) -> Option<String> {
    let mut seen = BTreeSet::new();
    object(schema, SchemaPosition::Root, &mut seen).err()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaPosition {
    Root,
    /// Reached through `properties` only.
    Property,
    Elsewhere,
}

fn object(
    schema: &Value,
    position: SchemaPosition,
    seen: &mut BTreeSet<String>,
) -> Result<(), String> {
    let schema = match schema {
        Value::Object(schema) => schema,
        Value::Array(items) => {
            return items
                .iter()
                .try_for_each(|item| object(item, SchemaPosition::Elsewhere, seen));
        }
        _ => return Ok(()),
    };
    if let Some(header) = schema.get(KEY) {
        if position != SchemaPosition::Property {
            return Err(format!("{KEY} stands where no argument is"));
        }
        annotation(header, schema, seen)?;
    }
    for (key, value) in schema {
        match key.as_str() {
            // Values, not schemas.
            KEY | "default" | "const" | "enum" | "examples" => {}
            "properties" => {
                let inside = match position {
                    SchemaPosition::Root | SchemaPosition::Property => SchemaPosition::Property,
                    SchemaPosition::Elsewhere => SchemaPosition::Elsewhere,
                };
                members(value, inside, seen)?;
            }
            "$defs" | "definitions" | "dependentSchemas" | "patternProperties" => {
                members(value, SchemaPosition::Elsewhere, seen)?;
            }
            _ => object(value, SchemaPosition::Elsewhere, seen)?,
        }
    }
    Ok(())
}

fn members(
    map: &Value,
    position: SchemaPosition,
    seen: &mut BTreeSet<String>,
) -> Result<(), String> {
    let members = map.as_object().into_iter().flatten();
    members
        .map(|(_, schema)| schema)
        .try_for_each(|schema| object(schema, position, seen))
}

fn annotation(
    header: &Value,
    schema: &Map<String, Value>,
    seen: &mut BTreeSet<String>,
) -> Result<(), String> {
    let name = header
        .as_str()
        .ok_or_else(|| format!("{KEY} is not a text"))?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(format!("{KEY} {name:?} is not a header name"));
    }
    if !seen.insert(name.to_ascii_lowercase()) {
        return Err(format!("{KEY} {name:?} is used twice"));
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(()),
        _ => Err(format!(
            "{KEY} {name:?} marks an argument that is not text, a whole number or a boolean"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::header_problem;

    fn with(property: &serde_json::Value) -> Option<String> {
        header_problem(&json!({"type": "object", "properties": {"a": property}}))
    }

    #[test]
    fn only_plain_arguments_with_a_name_of_their_own_become_headers() {
        assert_eq!(
            with(&json!({"type": "string", "x-mcp-header": "Region"})),
            None
        );
        assert_eq!(
            with(&json!({"type": "string", "default": {"x-mcp-header": ""}})),
            None
        );
        let nested = json!({"type": "object", "properties": {"b": {"type": "integer", "x-mcp-header": "B"}}});
        assert_eq!(with(&nested), None);
        for wrong in [
            json!({"type": "string", "x-mcp-header": ""}),
            json!({"type": "string", "x-mcp-header": "My Region"}),
            json!({"type": "string", "x-mcp-header": "Region:"}),
            json!({"type": "string", "x-mcp-header": "R\u{e9}gion"}),
            json!({"type": "string", "x-mcp-header": "a\r\nb"}),
            json!({"type": "string", "x-mcp-header": 1}),
            json!({"type": "object", "x-mcp-header": "O"}),
            json!({"type": "array", "x-mcp-header": "A"}),
            json!({"type": "number", "x-mcp-header": "N"}),
            json!({"x-mcp-header": "Untyped"}),
            json!({"type": "array", "items": {"type": "string", "x-mcp-header": "I"}}),
            json!({"anyOf": [{"type": "string", "x-mcp-header": "I"}]}),
        ] {
            assert!(with(&wrong).is_some(), "{wrong}");
        }
        let twice = json!({"properties": {
            "a": {"type": "string", "x-mcp-header": "Same"},
            "b": {"type": "string", "x-mcp-header": "same"},
        }});
        assert!(header_problem(&twice).is_some());
        assert!(header_problem(&json!({"x-mcp-header": "Root"})).is_some());
    }
}
