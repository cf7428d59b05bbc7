//! Sections without a struct: their defaults define the type of each key.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::field::ConfigField as _;
use crate::warning::{ConfigProblem, ConfigWarning};

/// Defaults of untyped sections: they determine how `config set` parses a value, which keys are
/// known and their types.
const SECTIONS: &str = include_str!("untyped.json");

pub(crate) fn sections() -> &'static Map<String, Value> {
    static PARSED: LazyLock<Map<String, Value>> =
        LazyLock::new(|| serde_json::from_str(SECTIONS).unwrap_or_default());
    &PARSED
}

/// Reports values whose type differs from the default's, and replaces them with the default.
pub(crate) fn settle(tree: &mut Value, warnings: &mut Vec<ConfigWarning>) {
    for (name, default) in sections() {
        if let Some(value) = tree.get_mut(name) {
            settle_below(name, value, default, warnings);
        }
    }
}

fn settle_below(at: &str, value: &mut Value, default: &Value, warnings: &mut Vec<ConfigWarning>) {
    if let (Value::Object(map), Value::Object(defaults)) = (&mut *value, default) {
        for (key, default) in defaults {
            if let Some(value) = map.get_mut(key) {
                settle_below(&format!("{at}.{key}"), value, default, warnings);
            }
        }
        return;
    }
    if value.is_null() || default.is_null() || fits(at, value, default) {
        return;
    }
    let problem = ConfigProblem::WrongType {
        expected: expected(default),
        found: super::field::kind(value),
    };
    warnings.push(ConfigWarning::new(at, problem));
    value.clone_from(default);
}

fn fits(at: &str, value: &Value, default: &Value) -> bool {
    match default {
        Value::Bool(_) => bool::read(value, "", &mut Vec::new()).is_some(),
        Value::Number(_) => f64::read(value, "", &mut Vec::new()).is_some(),
        // Keywords such as `off` arrive as booleans; channels are often written as numbers or
        // lists.
        Value::String(_) => {
            let is_one = at.starts_with("tts.") || at.starts_with("stt.");
            !(value.is_object() || is_one && value.is_array())
        }
        Value::Array(_) => value.is_array() || value.is_string(),
        Value::Object(_) => value.is_object(),
        Value::Null => true,
    }
}

fn expected(default: &Value) -> &'static str {
    match default {
        Value::Bool(_) => bool::EXPECTED,
        Value::Number(_) => f64::EXPECTED,
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
        Value::String(_) | Value::Null => "text",
    }
}
