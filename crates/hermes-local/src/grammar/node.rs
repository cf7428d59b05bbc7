//! What may be written, as a graph: the nodes that schemas and calls are made of.

use super::number::Range;

pub(super) type Id = u32;

/// Longer than anything that can be written: there is no way to complete this.
pub(super) const NEVER: u32 = 1 << 24;
/// Properties of one object that a mask of its seen ones has room for.
pub(super) const PROPERTIES: usize = 128;
/// Nodes of one grammar: far more than tools have, little enough to compile at once.
pub(super) const NODES: usize = 20_000;

#[derive(Debug)]
pub(super) enum Node {
    Literal(Box<[u8]>),
    Sequence(Box<[Id]>),
    Either(Box<[Id]>),
    Text(Text),
    String { min: u32, max: u32 },
    Number(Range),
    Array { item: Id, min: u32, max: u32 },
    Object(Box<Object>),
}

/// Free text, which may end at any time.
#[derive(Clone, Debug)]
pub(super) struct Text {
    /// What ends the text; its first byte is nowhere else in it. Empty: nothing does.
    pub(super) marker: Box<[u8]>,
    /// Whether the marker leads on. If not, it may not be written.
    pub(super) leads_on: bool,
    /// What the text may not begin with (after blanks).
    pub(super) not_first: Option<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) properties: Vec<Property>,
    /// The value of properties that are not named.
    pub(super) extra: Option<Id>,
    /// The names, byte by byte; the first is the root. Made by [`Builder::finish`].
    pub(super) keys: Vec<Key>,
    /// The longest name, in characters that may be typed.
    pub(super) longest: u16,
}

#[derive(Debug)]
pub(super) struct Property {
    /// As JSON has it between the quotes.
    pub(super) name: Box<[u8]>,
    pub(super) value: Id,
    pub(super) required: bool,
}

#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) next: Vec<(u8, u32)>,
    /// The property whose name ends here.
    pub(super) ends: Option<u8>,
    /// Properties whose names go through here.
    pub(super) through: u128,
    /// Bytes so far.
    pub(super) depth: u16,
    /// Bytes to the end of the character or the escape in whose middle this is.
    pub(super) to_whole: u8,
}

impl Object {
    /// Bytes that the required properties that are not in `seen` take, and how many they are.
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
        (bytes.min(NEVER), count)
    }

    fn build_keys(&mut self, shortest: &[u32]) {
        let mut keys = vec![Key::default()];
        for (index, property) in self.properties.iter().enumerate() {
            if shortest[property.value as usize] >= NEVER {
                continue;
            }
            let bit = 1_u128 << index;
            let mut at = 0_usize;
            keys[0].through |= bit;
            for (place, &byte) in property.name.iter().enumerate() {
                let known = keys[at].next.iter().find(|(edge, _)| *edge == byte);
                at = if let Some((_, to)) = known {
                    *to as usize
                } else {
                    let to = keys.len();
                    keys[at].next.push((byte, to as u32));
                    keys.push(Key {
                        depth: place as u16 + 1,
                        to_whole: u8::MAX,
                        ..Key::default()
                    });
                    to
                };
                let to_whole = to_whole(&property.name, place + 1);
                keys[at].to_whole = keys[at].to_whole.min(to_whole);
                keys[at].through |= bit;
            }
            keys[at].ends = Some(index as u8);
            self.longest = self.longest.max(property.name.len() as u16);
        }
        self.keys = keys;
    }
}

/// Bytes after `from` until the inside of a JSON string can stop.
fn to_whole(text: &[u8], from: usize) -> u8 {
    let whole = |to: &usize| {
        let text = std::str::from_utf8(&text[..*to]).ok();
        text.is_some_and(|text| serde_json::from_str::<String>(&format!("\"{text}\"")).is_ok())
    };
    let to = (from..=text.len()).find(whole).unwrap_or(text.len());
    (to - from) as u8
}

/// A grammar that can be followed: nodes, where to begin, and the bytes that each takes at least.
#[derive(Debug)]
pub struct Grammar {
    pub(super) nodes: Vec<Node>,
    pub(super) shortest: Vec<u32>,
    pub(super) root: Id,
}

impl Grammar {
    /// Bytes of the shortest text that this admits.
    pub fn shortest(&self) -> u32 {
        self.shortest[self.root as usize]
    }
}

#[derive(Debug, Default)]
pub(super) struct Builder {
    nodes: Vec<Node>,
}

impl Builder {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn add(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        self.nodes.len() as Id - 1
    }

    pub(super) fn literal(&mut self, text: impl AsRef<[u8]>) -> Id {
        self.add(Node::Literal(text.as_ref().into()))
    }

    pub(super) fn sequence(&mut self, nodes: &[Id]) -> Id {
        self.add(Node::Sequence(nodes.into()))
    }

    pub(super) fn either(&mut self, nodes: &[Id]) -> Id {
        match nodes {
            [only] => *only,
            nodes => self.add(Node::Either(nodes.into())),
        }
    }

    /// A node that is known later.
    pub(super) fn reserve(&mut self) -> Id {
        self.add(Node::Either(Box::default()))
    }

    pub(super) fn set(&mut self, id: Id, node: Id) {
        self.nodes[id as usize] = Node::Sequence([node].into());
    }

    /// Knows how short everything can be, and leaves out what cannot be completed.
    pub(super) fn finish(mut self, root: Id) -> Grammar {
        let mut shortest = vec![NEVER; self.nodes.len()];
        loop {
            let mut changed = false;
            for id in 0..self.nodes.len() {
                let length = measure(&self.nodes[id], &shortest).min(NEVER);
                if length < shortest[id] {
                    shortest[id] = length;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        let possible = |id: &Id| shortest[*id as usize] < NEVER;
        for node in &mut self.nodes {
            match node {
                Node::Either(nodes) => *nodes = nodes.iter().copied().filter(possible).collect(),
                Node::Array { item, max, .. } if !possible(item) => *max = 0,
                Node::Object(object) => {
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

fn measure(node: &Node, shortest: &[u32]) -> u32 {
    let of = |id: &Id| shortest[*id as usize];
    match node {
        Node::Literal(text) => text.len() as u32,
        Node::Sequence(nodes) => nodes.iter().map(of).fold(0, u32::saturating_add),
        Node::Either(nodes) => nodes.iter().map(of).min().unwrap_or(NEVER),
        Node::Text(_) => 0,
        Node::String { min, max } if min > max => NEVER,
        Node::String { min, .. } => min.saturating_add(2),
        Node::Number(range) => range.shortest(),
        Node::Array { min, max, .. } if min > max => NEVER,
        Node::Array { min: 0, .. } => 2,
        Node::Array { item, min, .. } => of(item)
            .saturating_add(1)
            .saturating_mul(*min)
            .saturating_add(1),
        Node::Object(object) => {
            let (bytes, count) = object.missing(0, shortest);
            bytes + count.saturating_sub(1) + 2
        }
    }
}
