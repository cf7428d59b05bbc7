//! Parsing of tool arguments. Models send numbers as text and lists as JSON text; unambiguous
//! values are accepted, everything else is an error that states what to pass.

use crate::tool::{ToolArgs, ToolErrorKind, ToolOutcome};
use serde_json::Value;

/// The arguments of a call to `tool`.
pub struct Args<'a> {
    tool: &'static str,
    args: &'a ToolArgs,
}

impl<'a> Args<'a> {
    pub fn new(tool: &'static str, args: &'a ToolArgs) -> Self {
        Self { tool, args }
    }

    pub fn all(&self) -> &'a ToolArgs {
        self.args
    }

    /// Null counts as absent, because strict providers fill every field.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.args.get(name).filter(|value| !value.is_null())
    }

    pub fn text(&self, name: &str) -> Result<Option<&'a str>, ToolOutcome> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", other)),
        }
    }

    /// A required, non-blank text. `example` shows what to pass.
    pub fn required(&self, name: &str, example: &str) -> Result<&'a str, ToolOutcome> {
        match self.text(name)? {
            Some(text) if !text.trim().is_empty() => Ok(text),
            _ => Err(self.bad(&format!("{name} is missing; pass {example}"))),
        }
    }

    pub fn integer(&self, name: &str) -> Result<Option<i64>, ToolOutcome> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = match value {
            Value::Number(number) => number.as_i64().or_else(|| {
                number
                    .as_f64()
                    .filter(|n| n.fract() == 0.0)
                    .map(|n| n as i64)
            }),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, "a whole number", value)),
        }
    }

    pub fn flag(&self, name: &str) -> Result<bool, ToolOutcome> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(on)) => Ok(*on),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(other) => Err(self.wrong(name, "true or false", other)),
        }
    }

    /// A list, also if it came as JSON text.
    pub fn list(&self, name: &str) -> Result<Option<Vec<Value>>, ToolOutcome> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value {
            Value::Array(items) => Ok(Some(items.clone())),
            Value::String(text) => match serde_json::from_str(text) {
                Ok(Value::Array(items)) => Ok(Some(items)),
                _ => Err(self.wrong(name, "a list", value)),
            },
            other => Err(self.wrong(name, "a list", other)),
        }
    }

    pub fn bad(&self, why: &str) -> ToolOutcome {
        ToolOutcome::error(ToolErrorKind::BadArguments, format!("{}: {why}", self.tool))
    }

    fn wrong(&self, name: &str, wanted: &str, got: &Value) -> ToolOutcome {
        let got = match got {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.bad(&format!("{name} must be {wanted}, not {got}"))
    }
}
