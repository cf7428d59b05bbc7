//! Dotted paths into config.yaml.

use std::fmt;

/// `section.key`, `list.0.key`. A part that itself has a dot is quoted: `"kettle.box"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPath(Vec<String>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("{0:?} is not a key: a part between its dots is empty")]
    EmptyPart(String),
    #[error("{0:?} is not a key: a quote is not closed, or text follows it")]
    Quotes(String),
}

impl KeyPath {
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut parts = Vec::new();
        let mut rest = text.trim();
        loop {
            let (part, after) = match rest.strip_prefix('"') {
                Some(quoted) => {
                    let end = quoted
                        .find('"')
                        .ok_or_else(|| PathError::Quotes(text.to_owned()))?;
                    (&quoted[..end], &quoted[end + 1..])
                }
                None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
            };
            if part.is_empty() {
                return Err(PathError::EmptyPart(text.to_owned()));
            }
            parts.push(part.to_owned());
            if after.is_empty() {
                return Ok(Self(parts));
            }
            rest = after
                .strip_prefix('.')
                .ok_or_else(|| PathError::Quotes(text.to_owned()))?;
        }
    }

    pub fn new<P: Into<String>>(parts: impl IntoIterator<Item = P>) -> Self {
        Self(parts.into_iter().map(Into::into).collect())
    }

    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// The value at this path of `tree`. Lists take indices.
    pub fn get<'v>(&self, tree: &'v serde_json::Value) -> Option<&'v serde_json::Value> {
        self.0.iter().try_fold(tree, |value, part| match value {
            serde_json::Value::Object(map) => map.get(part),
            serde_json::Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

impl KeyPath {
    /// The same, to change it.
    pub(crate) fn get_mut<'v>(
        &self,
        tree: &'v mut serde_json::Value,
    ) -> Option<&'v mut serde_json::Value> {
        self.0.iter().try_fold(tree, |value, part| match value {
            serde_json::Value::Object(map) => map.get_mut(part),
            serde_json::Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            if part.contains('.') || part.trim() != part {
                write!(f, "\"{part}\"")?;
            } else {
                f.write_str(part)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_and_show_alike() {
        for text in [
            "a",
            "a.b.0.c",
            "\"kettle.box\"",
            "providers.\"x.y\".api",
            "\" a\"",
        ] {
            assert_eq!(KeyPath::parse(text).unwrap().to_string(), text);
        }
        for text in ["", ".", "a.", ".a", "a..b", "\"a", "\"a\"b", "\"\""] {
            assert!(KeyPath::parse(text).is_err(), "{text}");
        }
    }
}
