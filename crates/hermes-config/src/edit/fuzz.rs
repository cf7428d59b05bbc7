//! Edits of any text: what was written is read back, and nothing else changes.

use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use super::position::{line_start, next_line};
use super::{ConfigDoc, KeyPath, remove};
use crate::yaml::{self, Document, NodeId, YamlNodeKind, to_block, to_flow};

/// JSON may nest deeper than our YAML limit.
const MAX_DEPTH: usize = 60;

/// The first line is a key, the second a value as JSON, the rest a config.yaml.
pub fn yaml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut parts = text.splitn(3, '\n');
    let mut part = || parts.next().unwrap_or_default();
    let (path, value, text) = (part(), part(), part());
    let value: Value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    if depth(&value) > MAX_DEPTH {
        return;
    }
    for spelt in [to_block(&value), to_flow(&value)] {
        let read = yaml::parse(&spelt).map(|(value, _)| value).ok();
        assert_eq!(read.as_ref(), Some(&value), "spelt {spelt:?}");
    }
    let doc = ConfigDoc::from_text(Path::new("config.yaml"), text.to_owned());
    let (Ok(path), Ok(doc)) = (KeyPath::parse(path), doc) else {
        return;
    };
    assert_eq!(KeyPath::parse(&path.to_string()).as_ref(), Ok(&path));
    set(&doc, &path, &value);
    push(&doc, &path, &value);
    unset(&doc, &path);
}

fn set(doc: &ConfigDoc, path: &KeyPath, value: &Value) {
    let mut edited = doc.clone();
    match edited.set(path, value) {
        Ok(_) => {
            assert_eq!(path.get(&edited.tree), Some(value), "{:?}", edited.text);
            assert_read_back(&edited);
            let text = edited.text.clone();
            assert_eq!(edited.set(path, value).ok(), Some(false));
            assert_eq!(edited.text, text);
        }
        Err(_) => assert_eq!(edited.text, doc.text),
    }
    let changed = changed(&doc.text, &edited.text);
    let region = EditRegion::find(&doc.text, path);
    assert!(
        changed.is_empty()
            || region.lines.start <= changed.start && changed.end <= region.lines.end,
        "{:?} became {:?}: bytes {changed:?} changed, the entry has {:?}",
        doc.text,
        edited.text,
        region.lines
    );
    if !region.in_flow {
        assert_comments_stay(doc, &edited);
    }
}

fn push(doc: &ConfigDoc, path: &KeyPath, value: &Value) {
    let mut edited = doc.clone();
    if edited.push(path, value).is_err() {
        assert_eq!(edited.text, doc.text);
        return;
    }
    let mut list = match path.get(&doc.tree) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items.clone(),
        Some(other) => vec![other.clone()],
    };
    list.push(value.clone());
    assert_eq!(path.get(&edited.tree), Some(&Value::Array(list)));
    assert_read_back(&edited);
}

fn unset(doc: &ConfigDoc, path: &KeyPath) {
    let mut edited = doc.clone();
    let Ok(removed) = edited.unset(path) else {
        assert_eq!(edited.text, doc.text);
        return;
    };
    assert_eq!(removed, path.get(&doc.tree).is_some());
    assert_read_back(&edited);
    let mut expected = doc.tree.clone();
    remove(&mut expected, path.parts());
    // Sections that became empty may have been removed too.
    assert_eq!(
        without_empty(edited.tree.clone()),
        without_empty(expected),
        "{:?} became {:?}",
        doc.text,
        edited.text
    );
    let mut keeping = doc.clone();
    if keeping.unset_keeping_comments(path).is_ok() {
        assert_eq!(keeping.tree, edited.tree);
        if !EditRegion::find(&doc.text, path).in_flow {
            assert_comments_stay(doc, &keeping);
        }
    }
}

fn assert_read_back(doc: &ConfigDoc) {
    let read = yaml::parse(&doc.text).map(|(value, _)| value).ok();
    assert_eq!(read.as_ref(), Some(&doc.tree), "{:?}", doc.text);
}

/// Every comment-only line is still there.
fn assert_comments_stay(before: &ConfigDoc, after: &ConfigDoc) {
    let comments = |text: &str| -> Vec<String> {
        let Ok(doc) = Document::parse(text) else {
            return Vec::new();
        };
        let mut at = 0;
        let mut found = Vec::new();
        for line in text.split_inclusive('\n') {
            let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
            if line[blanks..].starts_with('#') && !doc.is_in_scalar(at + blanks) {
                found.push(line.trim().to_owned());
            }
            at += line.len();
        }
        found
    };
    let mut left = comments(&after.text);
    for comment in comments(&before.text) {
        let at = left.iter().position(|other| *other == comment);
        assert!(at.is_some(), "{:?} became {:?}", before.text, after.text);
        left.swap_remove(at.unwrap_or_default());
    }
}

/// The bytes of `old` that are not in `new`: everything between the common prefix and suffix.
fn changed(old: &str, new: &str) -> Range<usize> {
    let same = |pair: &(u8, u8)| pair.0 == pair.1;
    let start = old.bytes().zip(new.bytes()).take_while(same).count();
    let (old_rest, new_rest) = (&old.as_bytes()[start..], &new.as_bytes()[start..]);
    let backwards = old_rest.iter().rev().zip(new_rest.iter().rev());
    let end = backwards.take_while(|(a, b)| a == b).count();
    start..old.len() - end
}

/// The region that an edit may touch.
struct EditRegion {
    /// Lines of the entry, or of the nearest existing null entry above it. Empty if lines are only
    /// added.
    lines: Range<usize>,
    /// Whether it is in a flow collection, whose comments are removed with their entries.
    in_flow: bool,
}

impl EditRegion {
    fn find(text: &str, path: &KeyPath) -> Self {
        let mut region = Self {
            lines: 0..0,
            in_flow: false,
        };
        let Ok(doc) = Document::parse(text) else {
            return region;
        };
        let Some(mut node) = doc.root() else {
            return region;
        };
        let mut start = doc.node(node).span.start;
        let mut rest = path.parts();
        while let Some((part, after)) = rest.split_first()
            && let Some((key, next)) = entry(&doc, node, part)
        {
            region.in_flow |= is_flow(&doc, node);
            start = doc.node(key.unwrap_or(next)).span.start;
            (node, rest) = (next, after);
        }
        region.in_flow |= is_flow(&doc, node);
        if rest.is_empty() || doc.is_null(node) {
            let end = doc.node(node).span.end.max(start);
            // The end of a block scalar is the start of the next line.
            let end = if text[..end].ends_with('\n') {
                end
            } else {
                next_line(text, end)
            };
            region.lines = line_start(text, start)..end;
        }
        region
    }
}

fn entry(doc: &Document, node: NodeId, part: &str) -> Option<(Option<NodeId>, NodeId)> {
    match &doc.node(node).kind {
        YamlNodeKind::Mapping { entries, .. } => {
            let mut entries = entries.iter().rev();
            let (key, value) = entries.find(|(key, _)| doc.key_text(*key) == Some(part))?;
            Some((Some(*key), *value))
        }
        YamlNodeKind::Sequence { items, .. } => {
            Some((None, *items.get(part.parse::<usize>().ok()?)?))
        }
        _ => None,
    }
}

fn is_flow(doc: &Document, node: NodeId) -> bool {
    matches!(
        doc.node(node).kind,
        YamlNodeKind::Mapping { flow: true, .. } | YamlNodeKind::Sequence { flow: true, .. }
    )
}

fn without_empty(value: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(map) => {
            let entries = map
                .into_iter()
                .map(|(key, value)| (key, without_empty(value)));
            let kept = entries.filter(|(_, value)| !is_empty(value)).collect();
            // At the root of a file, an empty mapping and nothing are the same.
            let kept = Value::Object(kept);
            if is_empty(&kept) { Value::Null } else { kept }
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).collect()),
        other => other,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
