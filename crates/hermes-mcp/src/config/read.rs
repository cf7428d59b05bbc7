//! Reads keys of a mapping: an invalid value becomes a problem and is replaced by its default.

use std::time::Duration;

use hermes_config::Env;
use serde_json::{Map, Value};

use super::Problem;

/// Maximum duration in the config file: a day.
const MAX_SECONDS: f64 = 86_400.0;

/// One mapping of the file.
pub(super) struct Reader<'a> {
    /// Dotted path of the mapping.
    at: String,
    map: &'a Map<String, Value>,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(at: String, map: &'a Map<String, Value>) -> Self {
        Self {
            at,
            map,
            problems: Vec::new(),
        }
    }

    /// The mapping under `key`; empty if missing.
    pub(super) fn section(&mut self, key: &str) -> Reader<'a> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        let map = match self.map.get(key) {
            Some(Value::Object(map)) => map,
            None | Some(Value::Null) => &EMPTY,
            Some(other) => {
                self.report_wrong_type(key, "settings", other);
                &EMPTY
            }
        };
        Reader::new(format!("{}.{key}", self.at), map)
    }

    pub(super) fn raw(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn problem(&mut self, key: &str, text: impl Into<String>, fatal: bool) {
        let key = if key.is_empty() {
            self.at.clone()
        } else {
            format!("{}.{key}", self.at)
        };
        self.problems.push(Problem {
            key,
            text: text.into(),
            fatal,
        });
    }

    fn report_wrong_type(&mut self, key: &str, expected: &str, found: &Value) {
        let text = format!(
            "expected {expected}, found {}; it is not used",
            describe(found)
        );
        self.problem(key, text, false);
    }

    pub(super) fn flag(&mut self, key: &str, default: bool) -> bool {
        let Some(value) = self.raw(key) else {
            return default;
        };
        parse_bool(value).unwrap_or_else(|| {
            self.report_wrong_type(key, "true or false", value);
            default
        })
    }

    /// A duration in seconds; 0 is invalid.
    pub(super) fn duration(&mut self, key: &str, default: u64) -> Duration {
        match self.seconds(key) {
            Some(0.0) => {
                self.problem(
                    key,
                    format!("0 would leave no time; {default} s are used"),
                    false,
                );
                Duration::from_secs(default)
            }
            Some(seconds) => Duration::from_secs_f64(seconds),
            None => Duration::from_secs(default),
        }
    }

    /// A duration in seconds; 0 means off, like a missing key.
    pub(super) fn optional_duration(&mut self, key: &str) -> Option<Duration> {
        let seconds = self.seconds(key)?;
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
    }

    pub(super) fn seconds(&mut self, key: &str) -> Option<f64> {
        let value = self.raw(key)?;
        match number(value) {
            Some(seconds) if (0.0..=MAX_SECONDS).contains(&seconds) => Some(seconds),
            Some(_) => {
                let text = "must be between 0 and 86400 seconds; the default is used";
                self.problem(key, text, false);
                None
            }
            None => {
                self.report_wrong_type(key, "seconds", value);
                None
            }
        }
    }

    pub(super) fn count(&mut self, key: &str, max: u32) -> Option<u32> {
        let value = self.raw(key)?;
        match number(value) {
            Some(count) if count.fract() == 0.0 && (0.0..=f64::from(max)).contains(&count) => {
                Some(count as u32)
            }
            _ => {
                self.report_wrong_type(key, &format!("a whole number up to {max}"), value);
                None
            }
        }
    }

    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        let value = self.raw(key)?;
        let text = scalar(value);
        if text.is_none() {
            self.report_wrong_type(key, "text", value);
        }
        text.filter(|text| !text.trim().is_empty())
    }

    /// One string or a list of strings.
    pub(super) fn texts(&mut self, key: &str) -> Vec<String> {
        let Some(value) = self.raw(key) else {
            return Vec::new();
        };
        let items = match value {
            Value::Array(items) => items.iter().map(scalar).collect::<Option<Vec<_>>>(),
            single => scalar(single).map(|text| vec![text]),
        };
        items.unwrap_or_else(|| {
            self.report_wrong_type(key, "text or a list of texts", value);
            Vec::new()
        })
    }

    /// A mapping of names to strings.
    pub(super) fn string_map(&mut self, key: &str) -> Vec<(String, String)> {
        let mut out = Vec::new();
        match self.raw(key) {
            None => {}
            Some(Value::Object(map)) => {
                for (name, value) in map {
                    match scalar(value) {
                        Some(text) => out.push((name.clone(), text)),
                        None if value.is_null() => {}
                        None => self.report_wrong_type(&format!("{key}.{name}"), "text", value),
                    }
                }
            }
            Some(other) => self.report_wrong_type(key, "a list of `name: value`", other),
        }
        out
    }

    /// One of the values in `choices`.
    pub(super) fn choice<T: Copy>(&mut self, key: &str, default: T, choices: &[(&str, T)]) -> T {
        let Some(text) = self.text(key) else {
            return default;
        };
        let lower = text.trim().to_ascii_lowercase();
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == lower) {
            return *value;
        }
        let known: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let text = format!(
            "{text:?} is unknown here, so the default is used; known: {}",
            known.join(", ")
        );
        self.problem(key, text, false);
        default
    }

    /// Reports keys that are not used.
    pub(super) fn report_unknown_keys(&mut self, known: &[&str]) {
        let unknown: Vec<&String> = self
            .map
            .keys()
            .filter(|key| !known.contains(&key.as_str()))
            .collect();
        for key in unknown {
            self.problem(key, "unknown key, kept but not used", false);
        }
    }
}

/// Accepts the usual spellings of yes and no.
pub(super) fn parse_bool(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        },
        Value::Number(number) => match number.as_u64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        },
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "settings".to_owned(),
        // It could be a misplaced secret, so only its type is shown.
        Value::String(_) => "a text".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
    }
}

/// Expands `${NAME}` and `${env:NAME}` in every string of `value`. Unset names are left unchanged
/// and added to `unset`.
pub(super) fn interpolate(value: &mut Value, env: &Env, unset: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains("${") => *text = expand(text, env, unset),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| interpolate(item, env, unset)),
        Value::Object(map) => map
            .values_mut()
            .for_each(|value| interpolate(value, env, unset)),
        _ => {}
    }
}

fn expand(text: &str, env: &Env, unset: &mut Vec<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(len) = rest[start + 2..].find('}').filter(|len| *len > 0) else {
            break;
        };
        let reference = &rest[start..=start + 2 + len];
        let name = rest[start + 2..start + 2 + len].trim();
        let name = name.strip_prefix("env:").map_or(name, str::trim);
        out.push_str(&rest[..start]);
        if let Some(value) = env.get(name).filter(|value| !value.is_empty()) {
            out.push_str(value);
        } else {
            out.push_str(reference);
            unset.push(name.to_owned());
        }
        rest = &rest[start + reference.len()..];
    }
    out.push_str(rest);
    out
}
