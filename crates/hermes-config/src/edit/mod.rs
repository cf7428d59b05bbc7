//! Changes single settings of config.yaml and leaves every other byte unchanged.
//!
//! An edit splices text. The new text is then parsed again and must mean exactly what was intended;
//! otherwise the edit is refused and nothing changes.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod path;
mod position;
mod splice;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::fs::write_atomic;
use crate::load::{ConfigError, read_text};
use crate::yaml::{Document, YamlError};
pub use path::{KeyPath, PathError};

#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{at} is {found}, so nothing can be set below it")]
    NotASection { at: String, found: &'static str },
    #[error(
        "{at} is a list: {part:?} is not an index into it (it has {len} entries, counted from 0)"
    )]
    NoSuchIndex {
        at: String,
        part: String,
        len: usize,
    },
    #[error(
        "{0} comes from an anchor that other settings share; editing it here would change them too. Edit the file by hand"
    )]
    Shared(String),
    #[error("{0} is written in a way that cannot be edited safely here. Edit the file by hand")]
    Refused(String),
    #[error("{} was changed by someone else in the meantime; nothing was written. Try again", .0.display())]
    Changed(PathBuf),
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// A config.yaml being edited.
#[derive(Clone, Debug)]
pub struct ConfigDoc {
    path: PathBuf,
    /// The content of the file when it was opened.
    original: String,
    /// Without the byte order mark, which `original` may start with.
    text: String,
    tree: Value,
}

impl ConfigDoc {
    /// Opens the file; a missing one is empty. One that cannot be parsed is an error with its
    /// position, and is left unchanged.
    pub fn open(path: &Path) -> Result<Self, EditError> {
        Self::from_text(path, read_text(path)?)
    }

    fn from_text(path: &Path, original: String) -> Result<Self, EditError> {
        let text = original.trim_start_matches('\u{feff}').to_owned();
        let tree = read(&text).map_err(|source| ConfigError::Yaml {
            path: path.to_path_buf(),
            source,
        })?;
        if !matches!(tree, Value::Object(_) | Value::Null) {
            let found = kind(&tree);
            return Err(ConfigError::NotAMapping {
                path: path.to_path_buf(),
                found,
            }
            .into());
        }
        Ok(Self {
            path: path.to_path_buf(),
            original,
            text,
            tree,
        })
    }

    /// The current settings; null for an empty file.
    pub fn tree(&self) -> &Value {
        &self.tree
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_changed(&self) -> bool {
        self.original.trim_start_matches('\u{feff}') != self.text
    }

    /// Whether the file was missing or empty.
    pub fn was_empty(&self) -> bool {
        self.original
            .trim_start_matches('\u{feff}')
            .trim()
            .is_empty()
    }

    /// Sets `path`, creating sections as needed. Returns whether anything changed.
    pub fn set(&mut self, path: &KeyPath, value: &Value) -> Result<bool, EditError> {
        if path.get(&self.tree) == Some(value) {
            return Ok(false);
        }
        let mut expected = self.tree.clone();
        put(&mut expected, path.parts(), value, "")?;
        let doc = self.document()?;
        let splices = splice::set(&doc, path, value)?;
        self.apply(path, splices, &expected)?;
        Ok(true)
    }

    /// Appends `value` to the list at `path`, which is created if missing.
    pub fn push(&mut self, path: &KeyPath, value: &Value) -> Result<(), EditError> {
        let mut items = match path.get(&self.tree) {
            Some(Value::Array(items)) => items.clone(),
            Some(Value::Null) | None => Vec::new(),
            Some(other) => vec![other.clone()],
        };
        items.push(value.clone());
        let list = Value::Array(items);
        let doc = self.document()?;
        if let Some(splices) = splice::push(&doc, path, value)? {
            let mut expected = self.tree.clone();
            put(&mut expected, path.parts(), &list, "")?;
            return self.apply(path, splices, &expected);
        }
        self.set(path, &list).map(drop)
    }

    /// Removes `path`, and sections that become empty. Returns whether it existed.
    pub fn unset(&mut self, path: &KeyPath) -> Result<bool, EditError> {
        self.remove(path, splice::Comments::Drop)
    }

    /// Like [`Self::unset`], but comments within the removed part are kept as separate lines.
    pub fn unset_keeping_comments(&mut self, path: &KeyPath) -> Result<bool, EditError> {
        self.remove(path, splice::Comments::Keep)
    }

    fn remove(&mut self, path: &KeyPath, comments: splice::Comments) -> Result<bool, EditError> {
        if path.get(&self.tree).is_none() {
            return Ok(false);
        }
        let before = (self.text.clone(), self.tree.clone());
        let done = self.remove_all(path, comments);
        if done.is_err() {
            (self.text, self.tree) = before;
        }
        done.map(|()| true)
    }

    fn remove_all(&mut self, path: &KeyPath, comments: splice::Comments) -> Result<(), EditError> {
        loop {
            let doc = self.document()?;
            let (splices, target) = splice::unset(&doc, path, comments)?;
            let mut expected = self.tree.clone();
            match target {
                // A key that occurs twice must not reappear with its first value.
                splice::Removed::Entry(target) if splice::is_duplicate(&doc, &target) => {
                    self.apply_or_duplicate(path, splices, &expected, Some(&target))?;
                    continue;
                }
                splice::Removed::Entry(target) => drop(remove(&mut expected, target.parts())),
                splice::Removed::Emptied(target, left) => {
                    put(&mut expected, target.parts(), &left, "")?;
                }
            }
            return self.apply(path, splices, &expected);
        }
    }

    /// Writes the file if anything changed: atomically, keeping its mode, owner and symlinks.
    pub fn save(&mut self) -> Result<bool, EditError> {
        if !self.is_changed() {
            return Ok(false);
        }
        if read_text(&self.path)? != self.original {
            return Err(EditError::Changed(self.path.clone()));
        }
        let mark = if self.original.starts_with('\u{feff}') {
            "\u{feff}"
        } else {
            ""
        };
        let text = format!("{mark}{}", self.text);
        write_atomic(&self.path, text.as_bytes(), 0o600).map_err(|source| EditError::Write {
            path: self.path.clone(),
            source,
        })?;
        self.original = text;
        Ok(true)
    }

    fn document(&self) -> Result<Document, EditError> {
        Document::parse(&self.text).map_err(|source| {
            ConfigError::Yaml {
                path: self.path.clone(),
                source,
            }
            .into()
        })
    }

    fn apply(
        &mut self,
        path: &KeyPath,
        splices: Vec<splice::Splice>,
        expected: &Value,
    ) -> Result<(), EditError> {
        self.apply_or_duplicate(path, splices, expected, None)
    }

    /// Applies the new text if it has the intended meaning. While a duplicate key is removed, its
    /// remaining occurrence determines the value; everything else must be unchanged.
    fn apply_or_duplicate(
        &mut self,
        path: &KeyPath,
        splices: Vec<splice::Splice>,
        expected: &Value,
        duplicate: Option<&KeyPath>,
    ) -> Result<(), EditError> {
        let text = splice::apply(&self.text, splices);
        let others = |tree: &Value| {
            let mut tree = tree.clone();
            if let Some(duplicate) = duplicate {
                remove(&mut tree, duplicate.parts());
            }
            tree
        };
        match read(&text) {
            Ok(tree) if others(&tree) == others(expected) => {
                self.tree = tree;
                self.text = text;
                Ok(())
            }
            _ => Err(EditError::Refused(path.to_string())),
        }
    }
}

fn read(text: &str) -> Result<Value, YamlError> {
    Ok(Document::parse(text)?.to_value()?.0)
}

pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "a list",
        Value::Object(_) => "a section",
        Value::Null => "empty",
        _ => "a single value",
    }
}

fn below(at: &str, part: &str) -> String {
    if at.is_empty() {
        part.to_owned()
    } else {
        format!("{at}.{part}")
    }
}

/// Sets a value in a tree: the expected result of a text edit.
pub(crate) fn put(
    tree: &mut Value,
    parts: &[String],
    value: &Value,
    at: &str,
) -> Result<(), EditError> {
    let Some((part, rest)) = parts.split_first() else {
        tree.clone_from(value);
        return Ok(());
    };
    if tree.is_null() {
        *tree = Value::Object(Map::new());
    }
    let child = below(at, part);
    match tree {
        Value::Object(map) => put(
            map.entry(part.clone()).or_insert(Value::Null),
            rest,
            value,
            &child,
        ),
        Value::Array(items) => {
            let len = items.len();
            let item = part
                .parse::<usize>()
                .ok()
                .and_then(|index| items.get_mut(index));
            match item {
                Some(item) => put(item, rest, value, &child),
                None => Err(EditError::NoSuchIndex {
                    at: at.to_owned(),
                    part: part.clone(),
                    len,
                }),
            }
        }
        other => Err(EditError::NotASection {
            at: at.to_owned(),
            found: kind(other),
        }),
    }
}

pub(crate) fn remove(tree: &mut Value, parts: &[String]) -> bool {
    let Some((part, rest)) = parts.split_first() else {
        return false;
    };
    match tree {
        Value::Object(map) if rest.is_empty() => map.shift_remove(part).is_some(),
        Value::Object(map) => map.get_mut(part).is_some_and(|value| remove(value, rest)),
        Value::Array(items) => match part
            .parse::<usize>()
            .ok()
            .filter(|index| *index < items.len())
        {
            Some(index) if rest.is_empty() => {
                items.remove(index);
                true
            }
            Some(index) => remove(&mut items[index], rest),
            None => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests;
