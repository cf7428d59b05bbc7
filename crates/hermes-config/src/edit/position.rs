//! Positions in the text: lines, colons, dashes, the end of an entry.

use saphyr_parser::ScalarStyle;

use crate::yaml::{Document, NodeId, YamlNodeKind};

pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// The start of the next line, or the end of the text.
pub(super) fn next_line(text: &str, at: usize) -> usize {
    text[at..]
        .find('\n')
        .map_or(text.len(), |newline| at + newline + 1)
}

/// The newline this text uses.
pub(super) fn newline(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// One past the colon after a key. `None`: the key has no colon (`{z}`), or not next to it.
pub(super) fn after_colon(doc: &Document, key: NodeId) -> Option<usize> {
    let end = doc.node(key).span.end;
    let rest = &doc.text()[end..];
    let colon = end + (rest.len() - rest.trim_start_matches([' ', '\t']).len());
    doc.text()[colon..].starts_with(':').then_some(colon + 1)
}

/// Whether the node is a list or mapping in block style.
pub(super) fn is_block_collection(doc: &Document, id: NodeId) -> bool {
    matches!(
        doc.node(id).kind,
        YamlNodeKind::Mapping { flow: false, .. } | YamlNodeKind::Sequence { flow: false, .. }
    )
}

pub(super) fn is_block_scalar(doc: &Document, id: NodeId) -> bool {
    matches!(
        doc.node(id).kind,
        YamlNodeKind::Scalar {
            style: ScalarStyle::Literal | ScalarStyle::Folded,
            ..
        }
    )
}

/// The start of the first line after the entry `key: value` (or the list item `value`).
pub(super) fn after_entry(doc: &Document, key: Option<NodeId>, value: NodeId) -> usize {
    let text = doc.text();
    if doc.is_absent(value) {
        let at = match key {
            Some(key) => after_colon(doc, key).unwrap_or(doc.node(key).span.end),
            None => doc.node(value).span.start,
        };
        return next_line(text, at);
    }
    match &doc.node(value).kind {
        YamlNodeKind::Mapping {
            entries,
            flow: false,
        } if !entries.is_empty() => {
            let (key, value) = entries[entries.len() - 1];
            after_entry(doc, Some(key), value)
        }
        YamlNodeKind::Sequence { items, flow: false } if !items.is_empty() => {
            after_entry(doc, None, items[items.len() - 1])
        }
        // It ends with the newline of its last line.
        _ if is_block_scalar(doc, value) => {
            let end = doc.node(value).span.end;
            if text[..end].ends_with('\n') {
                end
            } else {
                next_line(text, end)
            }
        }
        _ => next_line(text, doc.node(value).span.end),
    }
}

/// The dash of a block list's item.
pub(super) fn dash(doc: &Document, item: NodeId) -> Option<usize> {
    let before = doc.text()[..doc.node(item).span.start].trim_end_matches([' ', '\t', '\n', '\r']);
    before.ends_with('-').then(|| before.len() - 1)
}

/// The column of `at` in bytes.
pub(super) fn column(text: &str, at: usize) -> usize {
    at - line_start(text, at)
}

/// Whether only spaces precede `at` on its line.
pub(super) fn starts_line(text: &str, at: usize) -> bool {
    text[line_start(text, at)..at].bytes().all(|c| c == b' ')
}

/// The indentation this document uses for a level below the root.
pub(super) fn step(doc: &Document) -> usize {
    let Some(YamlNodeKind::Mapping {
        entries,
        flow: false,
    }) = doc.root().map(|root| &doc.node(root).kind)
    else {
        return 2;
    };
    entries
        .iter()
        .find_map(|&(key, value)| {
            let YamlNodeKind::Mapping {
                entries,
                flow: false,
            } = &doc.node(value).kind
            else {
                return None;
            };
            let inner = column(doc.text(), doc.node(entries.first()?.0).span.start);
            inner.checked_sub(column(doc.text(), doc.node(key).span.start))
        })
        .filter(|step| (1..=8).contains(step))
        .unwrap_or(2)
}

/// The lines of `text` that are comments and nothing else.
pub(super) fn comment_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n')
        .filter(|line| line.trim_start().starts_with('#'))
}
