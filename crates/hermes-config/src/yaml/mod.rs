//! YAML as the original reads it: syntax by saphyr, semantics of PyYAML.
//!
//! A [`Document`] keeps the position of each node, which editing needs.

mod emit;
mod error;
mod scalar;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Value};

pub(crate) use emit::{Quotes, block_lines, flow, key as emit_key, scalar as emit_scalar};
pub use emit::{to_block, to_flow};
pub use error::YamlError;

/// Maximum number of values after alias expansion.
const MAX_VALUES: usize = 200_000;
const MAX_DEPTH: usize = 100;

/// Index of a node in its document.
pub(crate) type NodeId = usize;

#[derive(Debug)]
pub(crate) struct YamlNode {
    /// Byte range. Exact for scalars, aliases and flow collections; for block collections from the
    /// first child's start to the last one's end.
    pub(crate) span: Range<usize>,
    pub(crate) kind: YamlNodeKind,
    tag: Option<Tag>,
}

#[derive(Debug)]
pub(crate) enum YamlNodeKind {
    Scalar {
        text: String,
        style: ScalarStyle,
    },
    Sequence {
        items: Vec<NodeId>,
        flow: bool,
    },
    Mapping {
        entries: Vec<(NodeId, NodeId)>,
        flow: bool,
    },
    Alias(NodeId),
}

/// A key that occurs twice in one mapping. The later one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateKey {
    /// Dotted path.
    pub key: String,
    pub line: usize,
}

/// A parsed text with the position of every node.
#[derive(Debug)]
pub(crate) struct Document {
    text: String,
    nodes: Vec<YamlNode>,
    root: Option<NodeId>,
}

/// The value of a text. An empty one is null.
pub fn parse(text: &str) -> Result<(Value, Vec<DuplicateKey>), YamlError> {
    Document::parse(text)?.to_value()
}

impl Document {
    /// Reads `text`, which has no byte order mark.
    pub(crate) fn parse(text: &str) -> Result<Self, YamlError> {
        DocumentBuilder::new(text).run()
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn root(&self) -> Option<NodeId> {
        self.root
    }

    pub(crate) fn node(&self, id: NodeId) -> &YamlNode {
        &self.nodes[id]
    }

    /// Whether the node is a plain null scalar: `key:` or `key: ~`.
    pub(crate) fn is_null(&self, id: NodeId) -> bool {
        let node = self.node(id);
        matches!(&node.kind, YamlNodeKind::Scalar { text, style: ScalarStyle::Plain }
            if node.tag.is_none() && scalar::resolve(text) == scalar::PlainScalar::Null)
    }

    /// Whether the node is null because the value is missing.
    pub(crate) fn is_absent(&self, id: NodeId) -> bool {
        let node = self.node(id);
        node.span.is_empty()
            && matches!(&node.kind, YamlNodeKind::Scalar { text, style: ScalarStyle::Plain } if text.is_empty())
    }

    /// Whether `offset` is inside a scalar, where a `#` is not a comment.
    pub(crate) fn is_in_scalar(&self, offset: usize) -> bool {
        let inside = |node: &YamlNode| {
            matches!(node.kind, YamlNodeKind::Scalar { .. }) && node.span.contains(&offset)
        };
        self.nodes.iter().any(inside)
    }

    /// The text of a scalar node, which is what a mapping's key is known by.
    pub(crate) fn key_text(&self, id: NodeId) -> Option<&str> {
        match &self.node(id).kind {
            YamlNodeKind::Scalar { text, .. } => Some(text),
            YamlNodeKind::Alias(target) => self.key_text(*target),
            _ => None,
        }
    }

    pub(crate) fn to_value(&self) -> Result<(Value, Vec<DuplicateKey>), YamlError> {
        let mut reader = ValueReader {
            doc: self,
            left: MAX_VALUES,
            duplicates: Vec::new(),
            open: Vec::new(),
        };
        let value = match self.root {
            Some(root) => reader.value(root, "")?,
            None => Value::Null,
        };
        Ok((value, reader.duplicates))
    }
}

struct ValueReader<'a> {
    doc: &'a Document,
    left: usize,
    duplicates: Vec<DuplicateKey>,
    /// Nodes whose value is being read, to detect cycles.
    open: Vec<NodeId>,
}

impl ValueReader<'_> {
    fn error(&self, id: NodeId, message: impl Into<String>) -> YamlError {
        YamlError::at(&self.doc.text, self.doc.node(id).span.start, message)
    }

    fn value(&mut self, id: NodeId, at: &str) -> Result<Value, YamlError> {
        if self.left == 0 {
            return Err(self.error(id, "the aliases in this file unfold to far too many values"));
        }
        self.left -= 1;
        let node = self.doc.node(id);
        if let YamlNodeKind::Scalar { text, style } = &node.kind {
            return self.scalar(id, text, *style, node.tag.as_ref());
        }
        if self.open.contains(&id) {
            return Err(self.error(id, "this value contains itself"));
        }
        // Aliases can nest what is flat in the text.
        if self.open.len() > 2 * MAX_DEPTH {
            return Err(self.error(id, "nested too deeply"));
        }
        self.open.push(id);
        let value = match &node.kind {
            YamlNodeKind::Scalar { .. } => Value::Null,
            YamlNodeKind::Alias(target) => self.value(*target, at)?,
            YamlNodeKind::Sequence { items, .. } => {
                let mut values = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    values.push(self.value(*item, &join(at, &index.to_string()))?);
                }
                Value::Array(values)
            }
            YamlNodeKind::Mapping { entries, .. } => Value::Object(self.mapping(entries, at)?),
        };
        self.open.pop();
        Ok(value)
    }

    fn mapping(
        &mut self,
        entries: &[(NodeId, NodeId)],
        at: &str,
    ) -> Result<Map<String, Value>, YamlError> {
        let mut map = Map::new();
        for &(key, value) in entries {
            if self.is_merge(key) {
                self.merge(value, at, &mut map)?;
            }
        }
        let mut own = HashSet::new();
        for &(key, value) in entries {
            if self.is_merge(key) {
                continue;
            }
            let Some(name) = self.doc.key_text(key) else {
                return Err(self.error(key, "a key must be text, not a list or a mapping"));
            };
            let path = join(at, name);
            if !own.insert(name) {
                let line = self.doc.text[..self.doc.node(key).span.start]
                    .matches('\n')
                    .count()
                    + 1;
                self.duplicates.push(DuplicateKey {
                    key: path.clone(),
                    line,
                });
            }
            let value = self.value(value, &path)?;
            map.insert(name.to_owned(), value);
        }
        Ok(map)
    }

    /// `<<` merges one or more mappings; the first one with a key wins.
    fn merge(
        &mut self,
        value: NodeId,
        at: &str,
        into: &mut Map<String, Value>,
    ) -> Result<(), YamlError> {
        let sources = match self.value(value, at)? {
            Value::Object(map) => vec![map],
            Value::Array(items) => {
                let maps = items.into_iter().map(|item| match item {
                    Value::Object(map) => Ok(map),
                    _ => Err(self.error(value, "<< takes mappings only")),
                });
                maps.collect::<Result<_, _>>()?
            }
            _ => return Err(self.error(value, "<< takes a mapping or a list of mappings")),
        };
        for map in sources {
            for (key, value) in map {
                into.entry(key).or_insert(value);
            }
        }
        Ok(())
    }

    fn is_merge(&self, key: NodeId) -> bool {
        let node = self.doc.node(key);
        node.tag.is_none()
            && matches!(&node.kind, YamlNodeKind::Scalar { text, style: ScalarStyle::Plain } if text == "<<")
    }

    fn scalar(
        &self,
        id: NodeId,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
    ) -> Result<Value, YamlError> {
        let Some(tag) = tag else {
            return Ok(match style {
                ScalarStyle::Plain => scalar::resolve(text).into_value(text),
                _ => Value::String(text.to_owned()),
            });
        };
        let bad = || {
            self.error(
                id,
                format!("{text:?} is not a value of the type its tag names"),
            )
        };
        if !tag.is_yaml_core_schema() {
            return match (tag.handle.as_str(), tag.suffix.as_str()) {
                // The tag `!` alone has no meaning.
                ("" | "!", "" | "!") => self.scalar(id, text, style, None),
                _ => Err(self.error(id, format!("the tag {tag} means nothing here"))),
            };
        }
        match tag.suffix.as_str() {
            "str" | "binary" => Ok(Value::String(text.to_owned())),
            "null" => Ok(Value::Null),
            "bool" => match scalar::resolve(&text.to_lowercase()) {
                scalar::PlainScalar::Bool(flag) => Ok(Value::Bool(flag)),
                _ => Err(bad()),
            },
            "int" => Ok(scalar::integer(text).ok_or_else(bad)?.into_value(text)),
            "float" => match (scalar::float(text), text.replace('_', "").parse::<f64>()) {
                (Some(plain), _) => Ok(plain.into_value(text)),
                (None, Ok(number)) => Ok(serde_json::Number::from_f64(number)
                    .map_or_else(|| Value::String(text.to_owned()), Value::Number)),
                _ => Err(bad()),
            },
            "timestamp" => Ok(scalar::timestamp(text).ok_or_else(bad)?.into_value(text)),
            _ => Err(self.error(id, format!("the tag {tag} means nothing here"))),
        }
    }
}

fn join(at: &str, key: &str) -> String {
    if at.is_empty() {
        key.to_owned()
    } else {
        format!("{at}.{key}")
    }
}

/// A collection whose end has not been parsed yet.
struct OpenCollection {
    id: NodeId,
    anchor: usize,
    children: Vec<NodeId>,
    is_mapping: bool,
    flow: bool,
}

struct DocumentBuilder<'t> {
    text: &'t str,
    /// Byte offset of each character; empty when every character is one byte.
    offsets: Vec<usize>,
    nodes: Vec<YamlNode>,
    anchors: HashMap<usize, NodeId>,
    open: Vec<OpenCollection>,
    root: Option<NodeId>,
}

impl<'t> DocumentBuilder<'t> {
    fn new(text: &'t str) -> Self {
        let offsets = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().map(|(at, _)| at).collect()
        };
        Self {
            text,
            offsets,
            nodes: Vec::new(),
            anchors: HashMap::new(),
            open: Vec::new(),
            root: None,
        }
    }

    fn offset(&self, chars: usize) -> usize {
        if self.offsets.is_empty() {
            chars.min(self.text.len())
        } else {
            self.offsets.get(chars).copied().unwrap_or(self.text.len())
        }
    }

    fn run(mut self) -> Result<Document, YamlError> {
        let mut documents = 0;
        for event in Parser::new_from_str(self.text) {
            let (event, span) = event.map_err(|err| {
                YamlError::new(
                    self.text,
                    err.marker().line(),
                    err.marker().col() + 1,
                    err.info(),
                )
            })?;
            match event {
                Event::DocumentStart(_) => {
                    documents += 1;
                    if documents > 1 {
                        let at = self.offset(span.start.index());
                        return Err(YamlError::at(
                            self.text,
                            at,
                            "a second document starts here; there may be only one",
                        ));
                    }
                }
                Event::SequenceStart(anchor, tag) => {
                    self.start(span, anchor, tag.as_deref(), false);
                }
                Event::MappingStart(anchor, tag) => self.start(span, anchor, tag.as_deref(), true),
                Event::SequenceEnd | Event::MappingEnd => self.end(span),
                Event::Alias(anchor) => self.alias(span, anchor)?,
                Event::Scalar(text, style, anchor, tag) => {
                    self.scalar(span, text.into_owned(), style, anchor, tag.as_deref());
                }
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            }
            if self.open.len() > MAX_DEPTH {
                let at = self.offset(span.start.index());
                return Err(YamlError::at(self.text, at, "nested too deeply"));
            }
        }
        Ok(Document {
            text: self.text.to_owned(),
            nodes: self.nodes,
            root: self.root,
        })
    }

    fn push(&mut self, node: YamlNode) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn add_child(&mut self, id: NodeId) {
        match self.open.last_mut() {
            Some(parent) => parent.children.push(id),
            None => self.root = Some(id),
        }
    }

    fn scalar(
        &mut self,
        span: Span,
        text: String,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
    ) {
        let start = self.offset(span.start.index());
        let end = self.offset(span.end.index());
        let bare = anchor == 0 && tag.is_none();
        let span = match style {
            // The parser's position of an absent value varies; only its start is used.
            ScalarStyle::Plain if text.is_empty() && bare => start..start,
            ScalarStyle::Plain => start..start + self.text[start..end].trim_end().len(),
            ScalarStyle::SingleQuoted => start..self.quoted_end(start, '\''),
            ScalarStyle::DoubleQuoted => start..self.quoted_end(start, '"'),
            ScalarStyle::Literal | ScalarStyle::Folded => self.block_scalar(start, end),
        };
        let id = self.push(YamlNode {
            span,
            kind: YamlNodeKind::Scalar { text, style },
            tag: tag.cloned(),
        });
        if anchor != 0 {
            self.anchors.insert(anchor, id);
        }
        self.add_child(id);
    }

    /// One past the closing quote. Properties (`&a !!str`) may stand before the opening one.
    fn quoted_end(&self, start: usize, quote: char) -> usize {
        let Some(open) = self.text[start..].find(quote).map(|at| start + at + 1) else {
            return start;
        };
        let mut chars = self.text[open..].char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if quote == '"' && c == '\\' {
                chars.next();
            } else if c == quote {
                if quote == '\'' && chars.peek().is_some_and(|(_, next)| *next == '\'') {
                    chars.next();
                    continue;
                }
                return open + at + 1;
            }
        }
        self.text.len()
    }

    /// From the `|` or `>` to the end of the last line of the text. Trailing blank lines belong to
    /// it only if the header keeps them (`|+`).
    fn block_scalar(&self, start: usize, end: usize) -> Range<usize> {
        let header = self.text[..start].rfind(['|', '>']).unwrap_or(start);
        let keeps = self.text[header..]
            .lines()
            .next()
            .is_some_and(|line| line.contains('+'));
        let body = &self.text[header..end];
        // What the parser counts after the last newline is the next line's indentation.
        let mut end = match body.rfind('\n') {
            Some(last) if body[last..].trim().is_empty() => last + 1,
            _ => body.len(),
        };
        if !keeps {
            // The header's line is never blank, so this ends there at the latest.
            while let Some(last) = body[..end]
                .strip_suffix('\n')
                .and_then(|body| body.rfind('\n'))
            {
                if !body[last..end].trim().is_empty() {
                    break;
                }
                end = last + 1;
            }
        }
        header..header + end
    }

    fn alias(&mut self, span: Span, anchor: usize) -> Result<(), YamlError> {
        let range = self.offset(span.start.index())..self.offset(span.end.index());
        let target =
            self.anchors.get(&anchor).copied().ok_or_else(|| {
                YamlError::at(self.text, range.start, "this value contains itself")
            })?;
        let id = self.push(YamlNode {
            span: range,
            kind: YamlNodeKind::Alias(target),

            tag: None,
        });
        self.add_child(id);
        Ok(())
    }

    fn start(&mut self, span: Span, anchor: usize, tag: Option<&Tag>, is_mapping: bool) {
        let start = self.offset(span.start.index());
        // A flow collection's first event covers its bracket (after the properties, if any).
        let flow = self.text[start..self.offset(span.end.index())].ends_with(['[', '{']);
        let kind = if is_mapping {
            YamlNodeKind::Mapping {
                entries: Vec::new(),
                flow,
            }
        } else {
            YamlNodeKind::Sequence {
                items: Vec::new(),
                flow,
            }
        };
        let id = self.push(YamlNode {
            span: start..start,
            kind,
            tag: tag.cloned(),
        });
        self.open.push(OpenCollection {
            id,
            anchor,
            children: Vec::new(),
            is_mapping,
            flow,
        });
    }

    fn end(&mut self, span: Span) {
        let Some(open) = self.open.pop() else { return };
        let last = open
            .children
            .last()
            .map_or(0, |&id| self.nodes[id].span.end);
        let end = if open.flow {
            self.offset(span.start.index()) + 1
        } else {
            last
        };
        let start = self.nodes[open.id].span.start;
        let node = &mut self.nodes[open.id];
        node.span = start..end.clamp(start, self.text.len());
        node.kind = if open.is_mapping {
            let entries = open
                .children
                .as_chunks::<2>()
                .0
                .iter()
                .map(|&[key, value]| (key, value));
            YamlNodeKind::Mapping {
                entries: entries.collect(),
                flow: open.flow,
            }
        } else {
            YamlNodeKind::Sequence {
                items: open.children,
                flow: open.flow,
            }
        };
        if open.anchor != 0 {
            self.anchors.insert(open.anchor, open.id);
        }
        self.add_child(open.id);
    }
}

#[cfg(test)]
mod tests;
