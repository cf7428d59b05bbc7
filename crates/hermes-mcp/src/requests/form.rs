//! The flat form schemas of elicitation, in all shapes up to 2026-07-28.

use hermes_core::ask::{Choice, Field, FieldKind};
use serde_json::{Map, Value};

use super::elicit::truncate;

/// Far more than a user fills in at a prompt.
const MAX_FIELDS: usize = 50;
const MAX_OPTIONS: usize = 500;

/// The fields of a form; required fields first where the schema names an order.
pub(super) fn fields(schema: &Value) -> Result<Vec<Field>, String> {
    if schema.is_null() {
        return Ok(Vec::new());
    }
    let properties = match &schema["properties"] {
        Value::Null => return Ok(Vec::new()),
        Value::Object(properties) => properties,
        _ => return Err("requestedSchema.properties must be an object".to_owned()),
    };
    if properties.len() > MAX_FIELDS {
        return Err(format!("a form of more than {MAX_FIELDS} fields"));
    }
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    properties
        .iter()
        .map(|(name, schema)| {
            let required = required.contains(&name.as_str());
            field(name, schema, required).map_err(|why| format!("field {name:?}: {why}"))
        })
        .collect()
}

/// Fills in defaults for missing values; returns an error for invalid ones.
pub(super) fn checked(
    mut values: Map<String, Value>,
    fields: &[Field],
) -> Result<Map<String, Value>, String> {
    let mut out = Map::new();
    for field in fields {
        let value = values
            .remove(&field.name)
            .filter(|value| !value.is_null())
            .or_else(|| field.default.clone());
        match value {
            Some(value) => {
                field
                    .check(&value)
                    .map_err(|why| format!("{}: {why}", field.name))?;
                out.insert(field.name.clone(), value);
            }
            None if field.required => return Err(format!("{} is missing", field.name)),
            None => {}
        }
    }
    Ok(out)
}

fn field(name: &str, schema: &Value, required: bool) -> Result<Field, String> {
    let text = |key: &str| schema[key].as_str().map(truncate);
    let field = Field {
        name: name.to_owned(),
        title: text("title").unwrap_or_else(|| truncate(name)),
        description: text("description"),
        required,
        kind: kind(schema)?,
        default: None,
    };
    // A default that violates its own schema is ignored.
    let default = Some(&schema["default"]).filter(|value| !value.is_null());
    let default = default.filter(|value| field.check(value).is_ok()).cloned();
    Ok(Field { default, ..field })
}

fn kind(schema: &Value) -> Result<FieldKind, String> {
    match schema["type"].as_str() {
        Some("string") => match options(schema, "oneOf")? {
            Some(options) => Ok(FieldKind::One { options }),
            None => Ok(FieldKind::Text {
                format: schema["format"].as_str().map(str::to_owned),
                min_length: schema["minLength"].as_u64(),
                max_length: schema["maxLength"].as_u64(),
            }),
        },
        Some(number @ ("number" | "integer")) => Ok(FieldKind::Number {
            integer: number == "integer",
            minimum: schema["minimum"].as_f64(),
            maximum: schema["maximum"].as_f64(),
        }),
        Some("boolean") => Ok(FieldKind::Boolean),
        Some("array") => {
            let options = options(&schema["items"], "anyOf")?;
            Ok(FieldKind::Several {
                options: options.ok_or("a list without choices cannot be asked for")?,
                min_items: schema["minItems"].as_u64(),
                max_items: schema["maxItems"].as_u64(),
            })
        }
        Some(other) => Err(format!("values of type {other:?} cannot be asked for")),
        None => match options(schema, "oneOf")? {
            Some(options) => Ok(FieldKind::One { options }),
            None => Err("the type is missing".to_owned()),
        },
    }
}

/// `enum` (with the older `enumNames`), or `{const, title}` under `titled`.
fn options(schema: &Value, titled: &str) -> Result<Option<Vec<Choice>>, String> {
    let texts = |key: &str| schema[key].as_array();
    let options: Option<Vec<Choice>> = if let Some(values) = texts("enum") {
        let names = texts("enumNames");
        let title = |at: usize| names?.get(at)?.as_str();
        let choice = |(at, value): (usize, &Value)| {
            let value = value.as_str()?;
            Some(Choice {
                value: value.to_owned(),
                title: truncate(title(at).unwrap_or(value)),
            })
        };
        values.iter().enumerate().map(choice).collect()
    } else if let Some(values) = texts(titled).or_else(|| texts("anyOf")) {
        let choice = |option: &Value| {
            let value = option["const"].as_str()?;
            Some(Choice {
                value: value.to_owned(),
                title: truncate(option["title"].as_str().unwrap_or(value)),
            })
        };
        values.iter().map(choice).collect()
    } else {
        return Ok(None);
    };
    let options = options.ok_or("choices must be texts")?;
    if options.is_empty() || options.len() > MAX_OPTIONS {
        return Err(format!("between 1 and {MAX_OPTIONS} choices are needed"));
    }
    Ok(Some(options))
}
