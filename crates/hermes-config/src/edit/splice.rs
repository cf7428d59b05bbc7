//! Computes the byte ranges to replace.

use std::ops::Range;

use saphyr_parser::ScalarStyle;
use serde_json::{Map, Value};

use super::position::{
    after_colon, after_entry, column, comment_lines, dash, is_block_collection, is_block_scalar,
    line_start, newline, next_line, starts_line, step,
};
use super::{EditError, KeyPath};
use crate::yaml::{
    Document, NodeId, Quotes, YamlNodeKind, block_lines, emit_key, emit_scalar, flow,
};

/// Replace the bytes of `range` by `with`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Splice {
    range: Range<usize>,
    with: String,
}

impl Splice {
    fn insert(at: usize, with: impl Into<String>) -> Self {
        Self {
            range: at..at,
            with: with.into(),
        }
    }

    fn replace(range: Range<usize>, with: impl Into<String>) -> Self {
        Self {
            range,
            with: with.into(),
        }
    }

    fn delete(range: Range<usize>) -> Self {
        Self {
            range,
            with: String::new(),
        }
    }
}

/// The text after all splices, which do not overlap.
pub(super) fn apply(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|splice| splice.range.start);
    let mut out = String::with_capacity(text.len() + 64);
    let mut at = 0;
    for splice in splices {
        out.push_str(&text[at..splice.range.start.max(at)]);
        out.push_str(&splice.with);
        at = splice.range.end.max(at);
    }
    out.push_str(&text[at..]);
    out
}

/// How far a path matches the document.
struct PathMatch<'p> {
    /// The nodes on the path, from the root: (node, key within its mapping).
    chain: Vec<(NodeId, Option<NodeId>)>,
    /// The rest of the path.
    rest: &'p [String],
}

fn walk<'p>(doc: &Document, path: &'p KeyPath) -> Result<Option<PathMatch<'p>>, EditError> {
    let Some(root) = doc.root() else {
        return Ok(None);
    };
    let mut chain = vec![(root, None)];
    let mut rest = path.parts();
    let mut at = root;
    while let Some((part, after)) = rest.split_first() {
        let next = match &doc.node(at).kind {
            YamlNodeKind::Mapping { entries, .. } => {
                // The last of duplicate keys counts.
                let entry = entries
                    .iter()
                    .rev()
                    .find(|(key, _)| doc.key_text(*key) == Some(part));
                entry.map(|&(key, value)| (value, Some(key)))
            }
            YamlNodeKind::Sequence { items, .. } => {
                let item = part
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| items.get(index));
                item.map(|&item| (item, None))
            }
            YamlNodeKind::Alias(_) => return Err(EditError::Shared(path.to_string())),
            YamlNodeKind::Scalar { .. } => None,
        };
        let Some((node, key)) = next else { break };
        chain.push((node, key));
        at = node;
        rest = after;
    }
    Ok(Some(PathMatch { chain, rest }))
}

pub(super) fn set(doc: &Document, path: &KeyPath, value: &Value) -> Result<Vec<Splice>, EditError> {
    let refused = || EditError::Refused(path.to_string());
    let Some(found) = walk(doc, path)? else {
        return Ok(vec![append(doc, &nested(path.parts(), value))]);
    };
    let Some(&(node, key)) = found.chain.last() else {
        return Err(refused());
    };
    let parent = found
        .chain
        .len()
        .checked_sub(2)
        .map(|index| found.chain[index].0);
    let Some((name, below)) = found.rest.split_first() else {
        return replace(doc, parent, key, node, value).ok_or_else(refused);
    };
    let entry = Map::from_iter([(name.clone(), nested(below, value))]);
    match &doc.node(node).kind {
        YamlNodeKind::Mapping {
            entries,
            flow: true,
        } => Ok(vec![insert_flow(doc, node, entries, &entry)]),
        YamlNodeKind::Mapping {
            entries,
            flow: false,
        } => insert_block(doc, entries, &entry)
            .map(|splice| vec![splice])
            .ok_or_else(refused),
        _ if doc.is_null(node) && parent.is_none() => Ok(vec![append(doc, &Value::Object(entry))]),
        _ if doc.is_null(node) => {
            replace(doc, parent, key, node, &Value::Object(entry)).ok_or_else(refused)
        }
        YamlNodeKind::Alias(_) => Err(EditError::Shared(path.to_string())),
        _ => Err(refused()),
    }
}

/// Appends an entry to the list at `path`, whose other entries keep their comments. `None`: there
/// is no block list to append to.
pub(super) fn push(
    doc: &Document,
    path: &KeyPath,
    value: &Value,
) -> Result<Option<Vec<Splice>>, EditError> {
    let Some(found) = walk(doc, path)? else {
        return Ok(None);
    };
    let Some(&(node, _)) = found.chain.last().filter(|_| found.rest.is_empty()) else {
        return Ok(None);
    };
    let text = doc.text();
    let YamlNodeKind::Sequence { items, flow: false } = &doc.node(node).kind else {
        return Ok(None);
    };
    let Some(&last) = items.last() else {
        return Ok(None);
    };
    let Some(dash) = dash(doc, last).filter(|at| starts_line(text, *at)) else {
        return Ok(None);
    };
    let list = Value::Array(vec![value.clone()]);
    let lines = block_lines(&list, column(text, dash), step(doc));
    let at = after_entry(doc, None, last);
    Ok(Some(vec![insert_lines(text, at, &lines)]))
}

/// `value` nested in mappings for each of `parts`.
fn nested(parts: &[String], value: &Value) -> Value {
    parts.iter().rev().fold(value.clone(), |inner, part| {
        Value::Object(Map::from_iter([(part.clone(), inner)]))
    })
}

fn with_newlines(lines: &[String], end: &str) -> String {
    lines.iter().flat_map(|line| [line.as_str(), end]).collect()
}

/// Inserts whole lines at the start of a line (or at the end of a text without a last newline).
fn insert_lines(text: &str, at: usize, lines: &[String]) -> Splice {
    let end = newline(text);
    let mut with = with_newlines(lines, end);
    if at > 0 && !text[..at].ends_with('\n') {
        with.insert_str(0, end);
    }
    Splice::insert(at, with)
}

fn append(doc: &Document, value: &Value) -> Splice {
    insert_lines(
        doc.text(),
        doc.text().len(),
        &block_lines(value, 0, step(doc)),
    )
}

fn insert_block(
    doc: &Document,
    entries: &[(NodeId, NodeId)],
    entry: &Map<String, Value>,
) -> Option<Splice> {
    let text = doc.text();
    let (first, _) = *entries.first()?;
    let (last, value) = *entries.last()?;
    let indent = column(text, doc.node(first).span.start);
    let lines = block_lines(&Value::Object(entry.clone()), indent, step(doc));
    Some(insert_lines(
        text,
        after_entry(doc, Some(last), value),
        &lines,
    ))
}

fn insert_flow(
    doc: &Document,
    node: NodeId,
    entries: &[(NodeId, NodeId)],
    entry: &Map<String, Value>,
) -> Splice {
    let spelt: Vec<String> = entry
        .iter()
        .map(|(name, value)| format!("{}: {}", emit_key(name), flow(value, Quotes::Plain)))
        .collect();
    let spelt = spelt.join(", ");
    match entries.last() {
        Some(&(key, value)) => {
            Splice::insert(flow_entry_end(doc, key, value), format!(", {spelt}"))
        }
        None => Splice::insert(doc.node(node).span.end - 1, spelt),
    }
}

fn flow_entry_end(doc: &Document, key: NodeId, value: NodeId) -> usize {
    if doc.is_absent(value) {
        after_colon(doc, key).unwrap_or(doc.node(key).span.end)
    } else {
        doc.node(value).span.end
    }
}

/// Replaces `node` with `value`.
fn replace(
    doc: &Document,
    parent: Option<NodeId>,
    key: Option<NodeId>,
    node: NodeId,
    value: &Value,
) -> Option<Vec<Splice>> {
    let text = doc.text();
    let in_flow = matches!(
        parent.map(|id| &doc.node(id).kind),
        Some(YamlNodeKind::Mapping { flow: true, .. } | YamlNodeKind::Sequence { flow: true, .. })
    );
    let block = !in_flow && matches!(value, Value::Object(map) if !map.is_empty());
    let block = block || (!in_flow && matches!(value, Value::Array(items) if !items.is_empty()));
    if doc.is_absent(node) {
        return Some(vec![fill(doc, key, node, value, block)]);
    }
    let spelt = spell(doc, node, value, in_flow);
    if is_block_collection(doc, node) {
        return replace_block(doc, key, node, value, block);
    }
    if is_block_scalar(doc, node) {
        let span = doc.node(node).span.clone();
        return Some(vec![Splice::replace(
            span,
            format!("{spelt}{}", newline(text)),
        )]);
    }
    Some(vec![Splice::replace(doc.node(node).span.clone(), spelt)])
}

/// Sets the value of a key (or list item) that has none.
fn fill(doc: &Document, key: Option<NodeId>, node: NodeId, value: &Value, block: bool) -> Splice {
    let text = doc.text();
    let spelt = flow_or_scalar(value, false);
    let Some(key) = key else {
        return Splice::insert(doc.node(node).span.start, format!(" {spelt}"));
    };
    let Some(colon) = after_colon(doc, key) else {
        return Splice::insert(doc.node(key).span.end, format!(": {spelt}"));
    };
    if block {
        let indent = column(text, doc.node(key).span.start) + step(doc);
        return insert_lines(
            text,
            next_line(text, colon),
            &block_lines(value, indent, step(doc)),
        );
    }
    Splice::insert(colon, format!(" {spelt}"))
}

/// Replaces a block list or mapping. Comment lines within it are kept.
fn replace_block(
    doc: &Document,
    key: Option<NodeId>,
    node: NodeId,
    value: &Value,
    block: bool,
) -> Option<Vec<Splice>> {
    let text = doc.text();
    let end = after_entry(doc, key, node);
    let spelt = flow_or_scalar(value, false);
    let Some(key) = key else {
        let start = doc.node(node).span.start;
        let comments: String = comment_lines(&text[next_line(text, start).min(end)..end]).collect();
        let with = format!("{spelt}{}{comments}", newline(text));
        return Some(vec![Splice::replace(start..end, with)]);
    };
    let colon = after_colon(doc, key)?;
    let start = next_line(text, colon);
    let comments: String = comment_lines(&text[start.min(end)..end]).collect();
    if block {
        let indent = column(text, doc.node(key).span.start) + step(doc);
        let lines = with_newlines(&block_lines(value, indent, step(doc)), newline(text));
        return Some(vec![Splice::replace(
            start..end,
            format!("{comments}{lines}"),
        )]);
    }
    Some(vec![
        Splice::insert(colon, format!(" {spelt}")),
        Splice::replace(start..end, comments),
    ])
}

/// The value with the quotes of the old one.
fn spell(doc: &Document, node: NodeId, value: &Value, in_flow: bool) -> String {
    let quotes = match &doc.node(node).kind {
        YamlNodeKind::Scalar {
            style: ScalarStyle::SingleQuoted,
            ..
        } => Quotes::Single,
        YamlNodeKind::Scalar {
            style: ScalarStyle::DoubleQuoted,
            ..
        } => Quotes::Double,
        _ => Quotes::Plain,
    };
    match value {
        Value::Array(_) | Value::Object(_) => flow(value, Quotes::Plain),
        other => emit_scalar(other, quotes, in_flow),
    }
}

fn flow_or_scalar(value: &Value, in_flow: bool) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => flow(value, Quotes::Plain),
        other => emit_scalar(other, Quotes::Plain, in_flow),
    }
}

/// What an [`unset`] removed.
pub(super) enum Removed {
    /// The entry at this path, which may be a section above the requested one.
    Entry(KeyPath),
    /// The collection at this path lost its last entry; this is left.
    Emptied(KeyPath, Value),
}

/// Whether the last key of `path` occurs more than once in its mapping.
pub(super) fn is_duplicate(doc: &Document, path: &KeyPath) -> bool {
    let Some((last, parents)) = path.parts().split_last() else {
        return false;
    };
    let parents = KeyPath::new(parents.iter().cloned());
    let Ok(Some(found)) = walk(doc, &parents) else {
        return false;
    };
    match found.chain.last().map(|&(node, _)| &doc.node(node).kind) {
        Some(YamlNodeKind::Mapping { entries, .. }) if found.rest.is_empty() => {
            entries
                .iter()
                .filter(|(key, _)| doc.key_text(*key) == Some(last))
                .count()
                > 1
        }
        _ => false,
    }
}

/// What happens to comments within a removed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comments {
    Drop,
    Keep,
}

/// Removes the entry at `path`, or the nearest section above it that would be left empty.
pub(super) fn unset(
    doc: &Document,
    path: &KeyPath,
    comments: Comments,
) -> Result<(Vec<Splice>, Removed), EditError> {
    let refused = || EditError::Refused(path.to_string());
    let found = walk(doc, path)?
        .filter(|found| found.rest.is_empty())
        .ok_or_else(refused)?;
    let mut depth = path.parts().len();
    loop {
        let (parent, _) = *found.chain.get(depth - 1).ok_or_else(refused)?;
        let (node, key) = *found.chain.get(depth).ok_or_else(refused)?;
        let target = KeyPath::new(path.parts()[..depth].iter().cloned());
        let above = KeyPath::new(path.parts()[..depth - 1].iter().cloned());
        match &doc.node(parent).kind {
            YamlNodeKind::Mapping { entries, .. } if entries.len() == 1 && depth > 1 => {
                let holder = found.chain[depth - 1].1;
                // Comments in the section are worth more than a tidy file.
                if holder.is_some() && has_comments(doc, holder, parent) {
                    let splices =
                        remove_entry(doc, parent, entries, key, node).ok_or_else(refused)?;
                    let left = match &doc.node(parent).kind {
                        YamlNodeKind::Mapping { flow: true, .. } => Value::Object(Map::new()),
                        _ => Value::Null,
                    };
                    return Ok((splices, Removed::Emptied(above, left)));
                }
                depth -= 1;
            }
            YamlNodeKind::Mapping { entries, .. } => {
                let mut splices =
                    remove_entry(doc, parent, entries, key, node).ok_or_else(refused)?;
                if comments == Comments::Keep && is_block_collection(doc, parent) {
                    for splice in &mut splices {
                        splice.with = comments_in(doc, splice.range.clone());
                    }
                }
                return Ok((
                    splices,
                    if entries.len() == 1 {
                        Removed::Emptied(KeyPath::new::<String>([]), emptied_root(doc, parent))
                    } else {
                        Removed::Entry(target)
                    },
                ));
            }
            YamlNodeKind::Sequence { items, flow } => {
                if items.len() == 1 {
                    let grandparent = found.chain.get(depth.wrapping_sub(2)).map(|&(id, _)| id);
                    let holder = found.chain[depth - 1].1;
                    let empty = Value::Array(Vec::new());
                    let splices =
                        replace(doc, grandparent, holder, parent, &empty).ok_or_else(refused)?;
                    return Ok((splices, Removed::Emptied(above, empty)));
                }
                let splices = if *flow {
                    let spans: Vec<_> = items.iter().map(|&id| doc.node(id).span.clone()).collect();
                    remove_listed(
                        &spans,
                        items
                            .iter()
                            .position(|&id| id == node)
                            .ok_or_else(refused)?,
                    )
                } else {
                    remove_item(doc, node).ok_or_else(refused)?
                };
                return Ok((splices, Removed::Entry(target)));
            }
            YamlNodeKind::Alias(_) | YamlNodeKind::Scalar { .. } => return Err(refused()),
        }
    }
}

/// The comments of a range, each on a line of its own.
fn comments_in(doc: &Document, range: Range<usize>) -> String {
    let text = doc.text();
    let mut lines = String::new();
    let mut at = range.start;
    for line in text[range].split_inclusive('\n') {
        let comment = line.char_indices().find(|&(offset, c)| {
            let after_blank = line[..offset].ends_with([' ', '\t']) || offset == 0;
            c == '#' && after_blank && !doc.is_in_scalar(at + offset)
        });
        if let Some((offset, _)) = comment {
            lines.push_str(line[offset..].trim_end());
            lines.push_str(newline(text));
        }
        at += line.len();
    }
    lines
}

fn emptied_root(doc: &Document, root: NodeId) -> Value {
    match &doc.node(root).kind {
        YamlNodeKind::Mapping { flow: true, .. } => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

fn has_comments(doc: &Document, key: Option<NodeId>, section: NodeId) -> bool {
    let start = doc.node(section).span.start;
    let from = key.map_or(start, |key| {
        next_line(doc.text(), doc.node(key).span.end).min(start)
    });
    let until = after_entry(doc, key, section);
    comment_lines(&doc.text()[from..until.max(from)])
        .next()
        .is_some()
}

fn remove_entry(
    doc: &Document,
    parent: NodeId,
    entries: &[(NodeId, NodeId)],
    key: Option<NodeId>,
    value: NodeId,
) -> Option<Vec<Splice>> {
    let text = doc.text();
    let key = key?;
    let index = entries.iter().position(|&(other, _)| other == key)?;
    if !is_block_collection(doc, parent) {
        let spans: Vec<_> = entries
            .iter()
            .map(|&(key, value)| doc.node(key).span.start..flow_entry_end(doc, key, value))
            .collect();
        return Some(remove_listed(&spans, index));
    }
    let start = doc.node(key).span.start;
    let end = after_entry(doc, Some(key), value);
    if starts_line(text, start) {
        return Some(vec![Splice::delete(line_start(text, start)..end)]);
    }
    // The first key after a list's dash: the next one replaces it.
    let &(next, _) = entries.get(index + 1)?;
    let next = doc.node(next).span.start;
    let between = &text[end.min(next)..next];
    comment_lines(between)
        .next()
        .is_none()
        .then(|| vec![Splice::delete(start..next)])
}

/// Removes one of several things with commas between them.
fn remove_listed(spans: &[Range<usize>], index: usize) -> Vec<Splice> {
    let range = match (index.checked_sub(1), spans.get(index + 1)) {
        (Some(before), _) => spans[before].end..spans[index].end,
        (None, Some(after)) => spans[index].start..after.start,
        (None, None) => spans[index].clone(),
    };
    vec![Splice::delete(range)]
}

fn remove_item(doc: &Document, item: NodeId) -> Option<Vec<Splice>> {
    let text = doc.text();
    let dash = dash(doc, item)?;
    starts_line(text, dash).then(|| {
        vec![Splice::delete(
            line_start(text, dash)..after_entry(doc, None, item),
        )]
    })
}
