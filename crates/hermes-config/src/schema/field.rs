//! Conversion of config.yaml values to types.
//!
//! Reading never fails as a whole: a leaf of the wrong type is reported and keeps its default.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde_json::{Map, Number, Value};

use crate::warning::{ConfigProblem, ConfigWarning};

/// A type that config.yaml can hold.
pub(crate) trait ConfigField: Sized {
    /// For warnings: "expected …".
    const EXPECTED: &'static str;
    /// A list of these may be written as a single item.
    const ALONE_IN_LIST: bool = false;
    /// Fields of a section that have no default, so that the default tree does not show them.
    const OPTIONAL: &'static [&'static str] = &[];

    /// `None`: the value is of another type.
    fn read(value: &Value, at: &str, warnings: &mut Vec<ConfigWarning>) -> Option<Self>;

    /// The value as config.yaml would spell it.
    fn write(&self) -> Value;

    /// The schema of the value and what is below it.
    fn shape() -> ConfigShape;
}

/// A key, and what is below it.
pub(crate) type Entry = (&'static str, fn() -> ConfigShape);

/// The schema of a part of config.yaml, for unknown keys, secrets and tests.
#[derive(Clone, Debug)]
pub(crate) enum ConfigShape {
    /// A single value and its type (for tests that generate values).
    #[cfg_attr(not(test), expect(dead_code, reason = "tests draw values by it"))]
    Leaf(&'static str),
    /// A single value that is never shown.
    Secret,
    /// The valid keys and their schemas.
    Section(Vec<Entry>),
    /// Any names, with the same schema for each.
    Names(fn() -> ConfigShape),
    /// A list of one schema.
    List(fn() -> ConfigShape),
    /// Defined elsewhere.
    Open,
}

/// Reads `value` into `slot`. Null means "not set"; a wrong type is reported.
pub(crate) fn read_leaf<T: ConfigField>(
    value: &Value,
    at: &str,
    slot: &mut T,
    warnings: &mut Vec<ConfigWarning>,
) {
    if value.is_null() {
        return;
    }
    match T::read(value, at, warnings) {
        Some(read) => *slot = read,
        None => warnings.push(ConfigWarning::new(
            at,
            ConfigProblem::WrongType {
                expected: T::EXPECTED,
                found: kind(value),
            },
        )),
    }
}

pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true/false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

impl ConfigField for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(value: &Value, _: &str, _: &mut Vec<ConfigWarning>) -> Option<Self> {
        match value {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) => match text.trim().to_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Some(true),
                "false" | "no" | "off" | "0" => Some(false),
                _ => None,
            },
            Value::Number(number) => match number.as_i64() {
                Some(0) => Some(false),
                Some(1) => Some(true),
                _ => None,
            },
            _ => None,
        }
    }

    fn write(&self) -> Value {
        Value::Bool(*self)
    }

    fn shape() -> ConfigShape {
        ConfigShape::Leaf(Self::EXPECTED)
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|number| number.is_finite())
}

macro_rules! whole_number {
    ($($ty:ty: $expected:literal),*) => {$(
        impl ConfigField for $ty {
            const EXPECTED: &'static str = $expected;

            fn read(value: &Value, _: &str, _: &mut Vec<ConfigWarning>) -> Option<Self> {
                if let Value::Number(number) = value
                    && let Some(exact) = number.as_i64()
                {
                    return exact.try_into().ok();
                }
                let number = number(value)?;
                // Beyond 2^53 a float does not identify an integer.
                let whole = number.fract().abs() < f64::EPSILON && number.abs() < 9e15;
                whole.then_some(number as i64)?.try_into().ok()
            }

            fn write(&self) -> Value {
                Value::from(*self)
            }

            fn shape() -> ConfigShape {
                ConfigShape::Leaf(Self::EXPECTED)
            }
        }
    )*};
}

whole_number!(
    u32: "a whole number, 0 or more",
    u64: "a whole number, 0 or more",
    i64: "a whole number"
);

impl ConfigField for f64 {
    const EXPECTED: &'static str = "a number";

    fn read(value: &Value, _: &str, _: &mut Vec<ConfigWarning>) -> Option<Self> {
        number(value)
    }

    fn write(&self) -> Value {
        Number::from_f64(*self).map_or(Value::Null, Value::Number)
    }

    fn shape() -> ConfigShape {
        ConfigShape::Leaf(Self::EXPECTED)
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

impl ConfigField for String {
    const EXPECTED: &'static str = "text";
    const ALONE_IN_LIST: bool = true;

    fn read(value: &Value, _: &str, _: &mut Vec<ConfigWarning>) -> Option<Self> {
        text(value)
    }

    fn write(&self) -> Value {
        Value::String(self.clone())
    }

    fn shape() -> ConfigShape {
        ConfigShape::Leaf(Self::EXPECTED)
    }
}

/// A keyword. `off`, `no`, `on` and `yes`, which YAML reads as booleans, become `off` and `on`.
/// Always lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigWord(String);

impl ConfigWord {
    pub fn new(word: &str) -> Self {
        Self(word.trim().to_lowercase())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for ConfigWord {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ConfigWord {
    fn from(word: &str) -> Self {
        Self::new(word)
    }
}

impl PartialEq<&str> for ConfigWord {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for ConfigWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ConfigField for ConfigWord {
    const EXPECTED: &'static str = "a word";

    fn read(value: &Value, _: &str, _: &mut Vec<ConfigWarning>) -> Option<Self> {
        match value {
            Value::Bool(flag) => Some(Self::new(if *flag { "on" } else { "off" })),
            other => text(other).map(|word| Self::new(&word)),
        }
    }

    fn write(&self) -> Value {
        Value::String(self.0.clone())
    }

    fn shape() -> ConfigShape {
        ConfigShape::Leaf(Self::EXPECTED)
    }
}

/// Text that is never shown: a key or token written into config.yaml.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() {
            "Secret(unset)"
        } else {
            "Secret(…)"
        })
    }
}

impl ConfigField for Secret {
    const EXPECTED: &'static str = "text";

    fn read(value: &Value, _: &str, _: &mut Vec<ConfigWarning>) -> Option<Self> {
        text(value).map(|secret| Self(secret.trim().to_owned()))
    }

    fn write(&self) -> Value {
        Value::String(self.0.clone())
    }

    fn shape() -> ConfigShape {
        ConfigShape::Secret
    }
}

/// Any value, interpreted by its reader.
impl ConfigField for Value {
    const EXPECTED: &'static str = "a value";

    fn read(value: &Value, _: &str, _: &mut Vec<ConfigWarning>) -> Option<Self> {
        Some(value.clone())
    }

    fn write(&self) -> Value {
        self.clone()
    }

    fn shape() -> ConfigShape {
        ConfigShape::Open
    }
}

/// A mapping whose content is defined elsewhere.
impl ConfigField for Map<String, Value> {
    const EXPECTED: &'static str = "a mapping";

    fn read(value: &Value, _: &str, _: &mut Vec<ConfigWarning>) -> Option<Self> {
        value.as_object().cloned()
    }

    fn write(&self) -> Value {
        Value::Object(self.clone())
    }

    fn shape() -> ConfigShape {
        ConfigShape::Open
    }
}

impl<T: ConfigField> ConfigField for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn read(value: &Value, at: &str, warnings: &mut Vec<ConfigWarning>) -> Option<Self> {
        T::read(value, at, warnings).map(Some)
    }

    fn write(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::write)
    }

    fn shape() -> ConfigShape {
        T::shape()
    }
}

impl<T: ConfigField> ConfigField for Vec<T> {
    const EXPECTED: &'static str = "a list";

    fn read(value: &Value, at: &str, warnings: &mut Vec<ConfigWarning>) -> Option<Self> {
        let Value::Array(items) = value else {
            return T::ALONE_IN_LIST
                .then(|| T::read(value, at, warnings).map(|item| vec![item]))
                .flatten();
        };
        let mut read = Self::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let mut slot = None;
            read_leaf::<Option<T>>(item, &format!("{at}.{index}"), &mut slot, warnings);
            read.extend(slot);
        }
        Some(read)
    }

    fn write(&self) -> Value {
        self.iter().map(T::write).collect()
    }

    fn shape() -> ConfigShape {
        ConfigShape::List(T::shape)
    }
}

/// A mapping from names to `T`, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Named<T> {
    pub fn get(&self, name: &str) -> Option<&T> {
        self.iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl<T> FromIterator<(String, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl<T: ConfigField> ConfigField for Named<T> {
    const EXPECTED: &'static str = "a mapping";

    fn read(value: &Value, at: &str, warnings: &mut Vec<ConfigWarning>) -> Option<Self> {
        let mut entries = Vec::new();
        for (name, value) in value.as_object()? {
            let mut slot = None;
            read_leaf::<Option<T>>(value, &format!("{at}.{name}"), &mut slot, warnings);
            entries.extend(slot.map(|entry| (name.clone(), entry)));
        }
        Some(Self(entries))
    }

    fn write(&self) -> Value {
        Value::Object(
            self.iter()
                .map(|(name, entry)| (name.to_owned(), entry.write()))
                .collect(),
        )
    }

    fn shape() -> ConfigShape {
        ConfigShape::Names(T::shape)
    }
}

/// The mapping to read a section from: the value itself when it is one.
pub(crate) fn as_mapping(value: &Value) -> Option<Cow<'_, Map<String, Value>>> {
    value.as_object().map(Cow::Borrowed)
}

/// A section of config.yaml: a struct with a default for each field, read field by field.
///
/// Fields under `optional` have no default; they are `None` until set. `via` names a function that
/// turns other accepted spellings of the section into the usual mapping first. `[alone]`: where a
/// list of these is expected, a single one will do.
macro_rules! section {
    (
        $(#[$meta:meta])*
        struct $name:ident $([$alone:ident])? $(via $prepare:path)? {
            $($(#[$fmeta:meta])* $field:ident: $ty:ty = $default:expr,)*
        }
        $(optional {
            $($(#[$ometa:meta])* $opt:ident: $oty:ty,)*
        })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)*
            $($($(#[$ometa])* pub $opt: Option<$oty>,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                    $($($opt: None,)*)?
                }
            }
        }

        impl $crate::schema::field::ConfigField for $name {
            const EXPECTED: &'static str = "a mapping";
            const OPTIONAL: &'static [&'static str] = &[$($(stringify!($opt),)*)?];
            const ALONE_IN_LIST: bool = section!(@alone $($alone)?);

            fn read(
                value: &serde_json::Value,
                at: &str,
                warnings: &mut Vec<$crate::warning::ConfigWarning>,
            ) -> Option<Self> {
                let map = section!(@prepare value $(, $prepare)?)?;
                let path = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
                let mut section = Self::default();
                $(if let Some(value) = map.get(stringify!($field)) {
                    let at = path(stringify!($field));
                    $crate::schema::field::read_leaf(value, &at, &mut section.$field, warnings);
                })*
                $($(if let Some(value) = map.get(stringify!($opt)) {
                    let at = path(stringify!($opt));
                    $crate::schema::field::read_leaf(value, &at, &mut section.$opt, warnings);
                })*)?
                Some(section)
            }

            fn write(&self) -> serde_json::Value {
                let mut map = serde_json::Map::new();
                $(map.insert(stringify!($field).to_owned(), self.$field.write());)*
                $($(if let Some(value) = &self.$opt {
                    map.insert(stringify!($opt).to_owned(), value.write());
                })*)?
                serde_json::Value::Object(map)
            }

            fn shape() -> $crate::schema::field::ConfigShape {
                $crate::schema::field::ConfigShape::Section(vec![
                    $((stringify!($field), <$ty as $crate::schema::field::ConfigField>::shape),)*
                    $($((stringify!($opt), <$oty as $crate::schema::field::ConfigField>::shape),)*)?
                ])
            }
        }
    };
    (@alone) => { false };
    (@alone alone) => { true };
    (@prepare $value:ident) => { $crate::schema::field::as_mapping($value) };
    (@prepare $value:ident, $prepare:path) => { $prepare($value) };
}
pub(crate) use section;
