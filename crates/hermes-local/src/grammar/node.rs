//! The grammar as a graph of nodes for schemas and calls.

use super::number::Range;

pub(super) type GrammarNodeId = u32;

/// Marks a node that no finite text can complete.
pub(super) const UNREACHABLE: u32 = 1 << 24;
/// Maximum number of properties of one object, limited by the bit mask of seen ones.
pub(super) const MAX_PROPERTIES: usize = 128;
/// Maximum number of nodes: far more than tools need, few enough to compile quickly.
pub(super) const MAX_NODES: usize = 20_000;

#[derive(Debug)]
pub(super) enum GrammarNode {
    Literal(Box<[u8]>),
    Sequence(Box<[GrammarNodeId]>),
    Either(Box<[GrammarNodeId]>),
    Text(Text),
    String {
        min: u32,
        max: u32,
    },
    Number(Range),
    Array {
        item: GrammarNodeId,
        min: u32,
        max: u32,
    },
    Object(Box<Object>),
}

/// Free text, which may end at any time.
#[derive(Clone, Debug)]
pub(super) struct Text {
    /// Ends the text; its first byte occurs nowhere else in it. Empty: there is no marker.
    pub(super) marker: Box<[u8]>,
    /// Whether something follows the marker. If not, it may not be written.
    pub(super) continues_after_marker: bool,
    /// What the text may not begin with (after blanks).
    pub(super) not_first: Option<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) properties: Vec<Property>,
    /// The value of properties that are not listed.
    pub(super) extra: Option<GrammarNodeId>,
    /// The names, byte by byte; the first is the root. Set by [`Builder::finish`].
    pub(super) keys: Vec<NameNode>,
    /// The longest name, in characters that may be typed.
    pub(super) longest: u16,
}

#[derive(Debug)]
pub(super) struct Property {
    /// As it appears in JSON between the quotes.
    pub(super) name: Box<[u8]>,
    pub(super) value: GrammarNodeId,
    pub(super) required: bool,
}

#[derive(Debug, Default)]
pub(super) struct NameNode {
    pub(super) next: Vec<(u8, u32)>,
    /// The property whose name ends here.
    pub(super) ends: Option<u8>,
    /// Properties whose names pass through here.
    pub(super) reachable: u128,
    /// Bytes so far.
    pub(super) depth: u16,
    /// Bytes to the end of the current character or escape.
    pub(super) bytes_to_boundary: u8,
}

impl Object {
    /// Bytes of the required properties that are not in `seen`, and their number.
    pub(super) fn missing(&self, seen: u128, shortest: &[u32]) -> (u32, u32) {
        let mut bytes = 0_u32;
        let mut count = 0;
        for (index, property) in self.properties.iter().enumerate() {
            if property.required && seen & (1 << index) == 0 {
                let name = property.name.len() as u32;
                bytes = bytes.saturating_add(name + 3 + shortest[property.value as usize]);
                count += 1;
            }
        }
        (bytes.min(UNREACHABLE), count)
    }

    fn build_keys(&mut self, shortest: &[u32]) {
        let mut keys = vec![NameNode::default()];
        for (index, property) in self.properties.iter().enumerate() {
            if shortest[property.value as usize] >= UNREACHABLE {
                continue;
            }
            let bit = 1_u128 << index;
            let mut at = 0_usize;
            keys[0].reachable |= bit;
            for (offset, &byte) in property.name.iter().enumerate() {
                let known = keys[at].next.iter().find(|(edge, _)| *edge == byte);
                at = if let Some((_, to)) = known {
                    *to as usize
                } else {
                    let to = keys.len();
                    keys[at].next.push((byte, to as u32));
                    keys.push(NameNode {
                        depth: offset as u16 + 1,
                        bytes_to_boundary: u8::MAX,
                        ..NameNode::default()
                    });
                    to
                };
                let bytes_to_boundary = bytes_to_boundary(&property.name, offset + 1);
                keys[at].bytes_to_boundary = keys[at].bytes_to_boundary.min(bytes_to_boundary);
                keys[at].reachable |= bit;
            }
            keys[at].ends = Some(index as u8);
            self.longest = self.longest.max(property.name.len() as u16);
        }
        self.keys = keys;
    }
}

/// Bytes after `from` until the content of a JSON string can end.
fn bytes_to_boundary(text: &[u8], from: usize) -> u8 {
    let whole = |to: &usize| {
        let text = std::str::from_utf8(&text[..*to]).ok();
        text.is_some_and(|text| serde_json::from_str::<String>(&format!("\"{text}\"")).is_ok())
    };
    let to = (from..=text.len()).find(whole).unwrap_or(text.len());
    (to - from) as u8
}

/// A compiled grammar: nodes, root, and the minimum number of bytes of each.
#[derive(Debug)]
pub struct Grammar {
    pub(super) nodes: Vec<GrammarNode>,
    pub(super) shortest: Vec<u32>,
    pub(super) root: GrammarNodeId,
}

impl Grammar {
    /// Length of the shortest valid text.
    pub fn shortest(&self) -> u32 {
        self.shortest[self.root as usize]
    }
}

#[derive(Debug, Default)]
pub(super) struct Builder {
    nodes: Vec<GrammarNode>,
}

impl Builder {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn add(&mut self, node: GrammarNode) -> GrammarNodeId {
        self.nodes.push(node);
        self.nodes.len() as GrammarNodeId - 1
    }

    pub(super) fn literal(&mut self, text: impl AsRef<[u8]>) -> GrammarNodeId {
        self.add(GrammarNode::Literal(text.as_ref().into()))
    }

    pub(super) fn sequence(&mut self, nodes: &[GrammarNodeId]) -> GrammarNodeId {
        self.add(GrammarNode::Sequence(nodes.into()))
    }

    pub(super) fn either(&mut self, nodes: &[GrammarNodeId]) -> GrammarNodeId {
        match nodes {
            [only] => *only,
            nodes => self.add(GrammarNode::Either(nodes.into())),
        }
    }

    /// A node that is defined later.
    pub(super) fn reserve(&mut self) -> GrammarNodeId {
        self.add(GrammarNode::Either(Box::default()))
    }

    pub(super) fn set(&mut self, id: GrammarNodeId, node: GrammarNodeId) {
        self.nodes[id as usize] = GrammarNode::Sequence([node].into());
    }

    /// Computes minimum lengths and removes what cannot be completed.
    pub(super) fn finish(mut self, root: GrammarNodeId) -> Grammar {
        let mut shortest = vec![UNREACHABLE; self.nodes.len()];
        loop {
            let mut changed = false;
            for id in 0..self.nodes.len() {
                let length = measure(&self.nodes[id], &shortest).min(UNREACHABLE);
                if length < shortest[id] {
                    shortest[id] = length;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        let possible = |id: &GrammarNodeId| shortest[*id as usize] < UNREACHABLE;
        for node in &mut self.nodes {
            match node {
                GrammarNode::Either(nodes) => {
                    *nodes = nodes.iter().copied().filter(possible).collect();
                }
                GrammarNode::Array { item, max, .. } if !possible(item) => *max = 0,
                GrammarNode::Object(object) => {
                    object.extra = object.extra.filter(|extra| possible(extra));
                    object.build_keys(&shortest);
                }
                _ => {}
            }
        }
        Grammar {
            nodes: self.nodes,
            shortest,
            root,
        }
    }
}

fn measure(node: &GrammarNode, shortest: &[u32]) -> u32 {
    let of = |id: &GrammarNodeId| shortest[*id as usize];
    match node {
        GrammarNode::Literal(text) => text.len() as u32,
        GrammarNode::Sequence(nodes) => nodes.iter().map(of).fold(0, u32::saturating_add),
        GrammarNode::Either(nodes) => nodes.iter().map(of).min().unwrap_or(UNREACHABLE),
        GrammarNode::Text(_) => 0,
        GrammarNode::String { min, max } if min > max => UNREACHABLE,
        GrammarNode::String { min, .. } => min.saturating_add(2),
        GrammarNode::Number(range) => range.shortest(),
        GrammarNode::Array { min, max, .. } if min > max => UNREACHABLE,
        GrammarNode::Array { min: 0, .. } => 2,
        GrammarNode::Array { item, min, .. } => of(item)
            .saturating_add(1)
            .saturating_mul(*min)
            .saturating_add(1),
        GrammarNode::Object(object) => {
            let (bytes, count) = object.missing(0, shortest);
            bytes + count.saturating_sub(1) + 2
        }
    }
}
