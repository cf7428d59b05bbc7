//! JSON schemas as grammars.
//!
//! A grammar never allows more than its schema, as far as the schema uses the keywords that tools use; other
//! keywords (`pattern`, `format`, `not`, …) are ignored.

use serde_json::{Map, Value};

use super::merge::{self, number, size};
use super::node::{
    Builder, GrammarNode, GrammarNodeId, MAX_NODES, MAX_PROPERTIES, Object, Property,
};
use super::number::Range;

/// Maximum nesting of schemas.
const MAX_SCHEMA_DEPTH: usize = 64;
/// Maximum length of a property name in bytes; positions in names have 16 bits.
const MAX_NAME_BYTES: usize = 1024;
/// Maximum depth of unspecified values.
const MAX_ANY_DEPTH: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error("a schema is an object or a boolean, not {0}")]
    NoSchema(String),
    #[error("`$ref` {0:?} leads nowhere: only references inside the same schema work")]
    Reference(String),
    #[error("the schema is too large or nests too deep")]
    TooLarge,
    #[error("no value satisfies the schema")]
    Impossible,
    #[error("{0:?} cannot be the name of a tool: use letters, digits, `_`, `-` and `.`")]
    ToolName(String),
}

pub(super) struct Compiler<'a> {
    root: &'a Value,
    pub(super) builder: Builder,
    /// References that are compiled or being compiled, with their nodes.
    known: Vec<(String, GrammarNodeId)>,
    /// References that lead here without anything being written.
    open: Vec<String>,
    any: Option<GrammarNodeId>,
    depth: usize,
}

type Compiled = Result<GrammarNodeId, SchemaError>;

impl<'a> Compiler<'a> {
    /// Adds to `builder`; references are resolved in `root`.
    pub(super) fn new(root: &'a Value, builder: Builder) -> Self {
        Self {
            root,
            builder,
            known: Vec::new(),
            open: Vec::new(),
            any: None,
            depth: 0,
        }
    }

    pub(super) fn compile(&mut self, schema: &Value) -> Compiled {
        if self.depth >= MAX_SCHEMA_DEPTH || self.builder.len() >= MAX_NODES {
            return Err(SchemaError::TooLarge);
        }
        self.depth += 1;
        let compiled = match schema {
            Value::Bool(true) => Ok(self.any()),
            Value::Bool(false) => Ok(self.builder.either(&[])),
            Value::Object(schema) => self.object_schema(schema),
            other => Err(SchemaError::NoSchema(other.to_string())),
        };
        self.depth -= 1;
        compiled
    }

    /// Compiles what is inside a value, so that something is written before it.
    fn inside(&mut self, schema: &Value) -> Compiled {
        let open = std::mem::take(&mut self.open);
        let compiled = self.compile(schema);
        self.open = open;
        compiled
    }

    fn object_schema(&mut self, schema: &Map<String, Value>) -> Compiled {
        if let Some(Value::String(reference)) = schema.get("$ref") {
            let mut others = schema.clone();
            others.shift_remove("$ref");
            if !merge::constrains(&others) {
                return self.reference(reference);
            }
            let target = resolve(self.root, reference)?.clone();
            return self.compile(&merge::both(&target, &Value::Object(others)));
        }
        if let Some(Value::Array(parts)) = schema.get("allOf") {
            let mut all = schema.clone();
            all.shift_remove("allOf");
            let mut all = Value::Object(all);
            for part in parts {
                all = merge::both(&all, &self.resolved(part)?);
            }
            return self.compile(&all);
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = schema.get(keyword) {
                let mut base = schema.clone();
                base.shift_remove(keyword);
                return self.branches(&base, branches);
            }
        }
        let nullable = schema.get("nullable") == Some(&Value::Bool(true));
        let fits = |value: &&Value| {
            (nullable && value.is_null()) || merge::has_type(value, schema.get("type"))
        };
        if let Some(value) = schema.get("const") {
            let value = Some(value).filter(fits);
            let value = value.map(|value| self.builder.literal(value.to_string()));
            return Ok(self.builder.either(value.as_slice()));
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            let values: Vec<GrammarNodeId> = values
                .iter()
                .filter(fits)
                .map(|value| self.builder.literal(value.to_string()))
                .collect();
            return Ok(self.builder.either(&values));
        }
        let mut types = merge::types(schema);
        if nullable && !types.contains(&"null") {
            types.push("null");
        }
        let compiled: Result<Vec<GrammarNodeId>, _> = types
            .iter()
            .map(|name| self.of_type(name, schema))
            .collect();
        Ok(self.builder.either(&compiled?))
    }

    fn branches(&mut self, base: &Map<String, Value>, branches: &[Value]) -> Compiled {
        let bare = !merge::constrains(base);
        let mut compiled = Vec::with_capacity(branches.len());
        for branch in branches {
            let id = if bare {
                self.compile(branch)?
            } else {
                let branch = self.resolved(branch)?;
                self.compile(&merge::both(&Value::Object(base.clone()), &branch))?
            };
            compiled.push(id);
        }
        Ok(self.builder.either(&compiled))
    }

    /// The schema behind references, so that it can be merged with others.
    fn resolved(&self, schema: &Value) -> Result<Value, SchemaError> {
        let mut schema = schema.clone();
        for _ in 0..MAX_SCHEMA_DEPTH {
            let Some(Value::String(reference)) = schema.get("$ref") else {
                return Ok(schema);
            };
            let target = resolve(self.root, reference)?.clone();
            if let Some(others) = schema.as_object_mut() {
                others.shift_remove("$ref");
            }
            schema = merge::both(&target, &schema);
        }
        Err(SchemaError::TooLarge)
    }

    fn reference(&mut self, reference: &str) -> Compiled {
        if self.open.iter().any(|open| open == reference) {
            // It refers to itself, which adds nothing.
            return Ok(self.builder.either(&[]));
        }
        if let Some((_, id)) = self.known.iter().find(|(known, _)| known == reference) {
            return Ok(*id);
        }
        let target = resolve(self.root, reference)?.clone();
        let id = self.builder.reserve();
        self.known.push((reference.to_owned(), id));
        self.open.push(reference.to_owned());
        let compiled = self.compile(&target);
        self.open.pop();
        self.builder.set(id, compiled?);
        Ok(id)
    }

    fn of_type(&mut self, name: &str, schema: &Map<String, Value>) -> Compiled {
        Ok(match name {
            "string" => self.builder.add(GrammarNode::String {
                min: size(schema, "minLength").unwrap_or(0),
                max: size(schema, "maxLength").unwrap_or(u32::MAX),
            }),
            "integer" | "number" => {
                let range = range(Range::new(name == "number"), schema);
                self.builder.add(GrammarNode::Number(range))
            }
            "boolean" => {
                let values = ["true", "false"].map(|value| self.builder.literal(value));
                self.builder.either(&values)
            }
            "null" => self.builder.literal("null"),
            "array" => {
                let item = match schema.get("items") {
                    Some(items @ (Value::Object(_) | Value::Bool(_))) => self.inside(items)?,
                    _ => self.any(),
                };
                self.builder.add(GrammarNode::Array {
                    item,
                    min: size(schema, "minItems").unwrap_or(0),
                    max: size(schema, "maxItems").unwrap_or(u32::MAX),
                })
            }
            "object" => self.object(schema)?,
            _ => self.any(),
        })
    }

    fn object(&mut self, schema: &Map<String, Value>) -> Compiled {
        let empty = Map::new();
        let named = match schema.get("properties") {
            Some(Value::Object(named)) => Some(named),
            _ => None,
        };
        let required: Vec<&str> = match schema.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let extra = self.extra(schema, named.is_some())?;
        let mut properties = Vec::new();
        for (name, schema) in named.unwrap_or(&empty) {
            let required = required.contains(&name.as_str());
            let value = self.inside(schema)?;
            properties.push(property(name, value, required));
        }
        for name in required {
            if named.is_none_or(|named| !named.contains_key(name)) {
                let value = match schema.get("additionalProperties") {
                    Some(schema @ (Value::Object(_) | Value::Bool(_))) => self.inside(schema)?,
                    _ => self.any(),
                };
                properties.push(property(name, value, true));
            }
        }
        if properties.iter().any(|it| it.name.len() > MAX_NAME_BYTES) {
            return Err(SchemaError::TooLarge);
        }
        // Required properties come first if there are too many.
        if properties.len() > MAX_PROPERTIES {
            properties.sort_by_key(|property| !property.required);
            if properties[MAX_PROPERTIES..]
                .iter()
                .any(|property| property.required)
            {
                return Err(SchemaError::TooLarge);
            }
            properties.truncate(MAX_PROPERTIES);
        }
        Ok(self.builder.add(GrammarNode::Object(Box::new(Object {
            properties,
            extra,
            ..Object::default()
        }))))
    }

    /// The value of properties that the schema does not list. If names are listed, others must be allowed
    /// explicitly: a schema that does not mention them rarely wants them.
    fn extra(
        &mut self,
        schema: &Map<String, Value>,
        named: bool,
    ) -> Result<Option<GrammarNodeId>, SchemaError> {
        if schema.contains_key("patternProperties") || schema.contains_key("propertyNames") {
            return Ok(None);
        }
        match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => Ok(None),
            Some(schema @ (Value::Object(_) | Value::Bool(_))) => self.inside(schema).map(Some),
            _ if named => Ok(None),
            _ => Ok(Some(self.any())),
        }
    }

    /// Any value of bounded depth.
    fn any(&mut self) -> GrammarNodeId {
        if let Some(any) = self.any {
            return any;
        }
        let text = self.builder.add(GrammarNode::String {
            min: 0,
            max: u32::MAX,
        });
        let number = self.builder.add(GrammarNode::Number(Range::new(true)));
        let mut scalars = vec![text, number];
        scalars.extend(["true", "false", "null"].map(|value| self.builder.literal(value)));
        let mut any = self.builder.either(&scalars);
        for _ in 0..MAX_ANY_DEPTH {
            let array = self.builder.add(GrammarNode::Array {
                item: any,
                min: 0,
                max: u32::MAX,
            });
            let object = self.builder.add(GrammarNode::Object(Box::new(Object {
                extra: Some(any),
                ..Object::default()
            })));
            let mut all = scalars.clone();
            all.extend([array, object]);
            any = self.builder.either(&all);
        }
        self.any = Some(any);
        any
    }
}

fn property(name: &str, value: GrammarNodeId, required: bool) -> Property {
    let quoted = Value::from(name).to_string();
    Property {
        name: quoted.as_bytes()[1..quoted.len() - 1].into(),
        value,
        required,
    }
}

fn range(mut range: Range, schema: &Map<String, Value>) -> Range {
    let exclusive = |keyword| schema.get(keyword) == Some(&Value::Bool(true));
    // In old schemas `exclusiveMinimum` is a boolean modifier of `minimum`.
    if let Some(bound) = number(schema, "minimum") {
        range = range.at_least(bound, exclusive("exclusiveMinimum"));
    }
    if let Some(bound) = number(schema, "maximum") {
        range = range.at_most(bound, exclusive("exclusiveMaximum"));
    }
    if let Some(bound) = number(schema, "exclusiveMinimum") {
        range = range.at_least(bound, true);
    }
    if let Some(bound) = number(schema, "exclusiveMaximum") {
        range = range.at_most(bound, true);
    }
    range
}

fn resolve<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, SchemaError> {
    let wrong = || SchemaError::Reference(reference.to_owned());
    let pointer = reference.strip_prefix('#').ok_or_else(wrong)?;
    let decoded = pointer.replace("%24", "$").replace("%25", "%");
    root.pointer(&decoded).ok_or_else(wrong)
}
