//! Objects: properties in any order, each once, with all required ones.

use super::node::{Grammar, GrammarNode, GrammarNodeId, Object, UNREACHABLE};
use super::state::{GrammarFrame, GrammarState, enter_with, pop};
use super::text::StringState;

/// Maximum length of a name that the schema does not list.
const MAX_NAME_CHARS: u16 = 64;
/// Index of a name that is not a known one.
const OTHER: u32 = u32::MAX;
/// A property that is not a known one.
const EXTRA: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ObjectAt {
    Open,
    First,
    /// After a comma; one blank may follow.
    Comma,
    Blank,
    /// Inside a name: the node among the known names, characters written, and the position in one.
    NameNode {
        key: u32,
        length: u16,
        inner: StringState,
    },
    Colon {
        property: u8,
    },
    /// After a colon; one blank may follow.
    Before {
        property: u8,
    },
    Spaced {
        property: u8,
    },
    /// A value is being written, or has just ended.
    Value,
}

type At = (GrammarNodeId, u128, ObjectAt);

pub(super) fn step(
    grammar: &Grammar,
    state: &GrammarState,
    (node, seen, at): At,
    byte: u8,
    out: &mut Vec<GrammarState>,
) {
    let GrammarNode::Object(object) = &grammar.nodes[node as usize] else {
        return;
    };
    let at_frame = |seen, at| state.with(GrammarFrame::Object { node, seen, at });
    let complete = |seen| object.missing(seen, &grammar.shortest).1 == 0;
    match (at, byte) {
        (ObjectAt::Open, b'{') => out.push(at_frame(0, ObjectAt::First)),
        (ObjectAt::First | ObjectAt::Value, b'}') if complete(seen) => {
            pop(grammar, &state.below, out);
        }
        (ObjectAt::Value, b',') if object.has_more(seen) => {
            out.push(at_frame(seen, ObjectAt::Comma));
        }
        (ObjectAt::Comma, b' ') => out.push(at_frame(seen, ObjectAt::Blank)),
        (ObjectAt::First | ObjectAt::Comma | ObjectAt::Blank, b'"') if object.has_more(seen) => {
            let at = ObjectAt::NameNode {
                key: 0,
                length: 0,
                inner: StringState::Plain,
            };
            out.push(at_frame(seen, at));
        }
        (ObjectAt::NameNode { key, length, inner }, b'"')
            if inner == StringState::Plain && object.between_characters(key) =>
        {
            if let Some(property) = object.named(key, length, seen) {
                let seen = seen | bit(property);
                out.push(at_frame(seen, ObjectAt::Colon { property }));
            }
        }
        (ObjectAt::NameNode { key, length, inner }, _) => {
            if let Some(at) = object.spell(key, length, inner, seen, byte) {
                out.push(at_frame(seen, at));
            }
        }
        (ObjectAt::Colon { property }, b':') => {
            out.push(at_frame(seen, ObjectAt::Before { property }));
        }
        (ObjectAt::Before { property }, b' ') => {
            out.push(at_frame(seen, ObjectAt::Spaced { property }));
        }
        (ObjectAt::Before { property } | ObjectAt::Spaced { property }, _) => {
            if let Some(value) = object.value(property) {
                let below = at_frame(seen, ObjectAt::Value).push(grammar);
                enter_with(grammar, value, &below, byte, out);
            }
        }
        _ => {}
    }
}

/// Minimum number of bytes that complete the object.
pub(super) fn left(grammar: &Grammar, node: GrammarNodeId, seen: u128, at: ObjectAt) -> u32 {
    let GrammarNode::Object(object) = &grammar.nodes[node as usize] else {
        return UNREACHABLE;
    };
    let shortest = &grammar.shortest;
    let tail = |seen| {
        let (bytes, count) = object.missing(seen, shortest);
        bytes.saturating_add(count + 1)
    };
    let value = |property| {
        let value = object
            .value(property)
            .map_or(UNREACHABLE, |id| shortest[id as usize]);
        value.saturating_add(tail(seen | bit(property)))
    };
    match at {
        ObjectAt::Open | ObjectAt::First => {
            let (bytes, count) = object.missing(seen, shortest);
            let open = u32::from(at == ObjectAt::Open);
            bytes.saturating_add(count.saturating_sub(1) + 1 + open)
        }
        ObjectAt::Value => tail(seen),
        ObjectAt::Comma | ObjectAt::Blank => 1 + name_left(grammar, object, seen, 0, 0),
        ObjectAt::NameNode { key, length, inner } => {
            let name = name_left(grammar, object, seen, key, length);
            name.saturating_add(inner.left())
        }
        ObjectAt::Colon { property } => value(property).saturating_add(1),
        ObjectAt::Before { property } | ObjectAt::Spaced { property } => value(property),
    }
}

/// Bytes from inside a name to the end of the object.
fn name_left(grammar: &Grammar, object: &Object, seen: u128, key: u32, length: u16) -> u32 {
    let shortest = &grammar.shortest;
    let tail = |seen| {
        let (bytes, count) = object.missing(seen, shortest);
        bytes.saturating_add(count + 1)
    };
    let mut best = UNREACHABLE;
    if let Some(extra) = object.extra {
        // At most two more characters: one, or two if one would make a known name.
        let more = match object.named(key, length, seen) {
            Some(EXTRA) => 0,
            _ => {
                2 + object
                    .keys
                    .get(key as usize)
                    .map_or(0, |key| u32::from(key.bytes_to_boundary))
            }
        };
        best = shortest[extra as usize]
            .saturating_add(more + 2)
            .saturating_add(tail(seen));
    }
    let Some(key) = object.keys.get(key as usize) else {
        return best;
    };
    for (index, property) in object.properties.iter().enumerate() {
        let bit = 1_u128 << index;
        if key.reachable & !seen & bit == 0 {
            continue;
        }
        let name = property.name.len() as u32 - u32::from(key.depth);
        let length = shortest[property.value as usize]
            .saturating_add(name + 2)
            .saturating_add(tail(seen | bit));
        best = best.min(length);
    }
    best
}

fn bit(property: u8) -> u128 {
    if property == EXTRA { 0 } else { 1 << property }
}

impl Object {
    fn value(&self, property: u8) -> Option<GrammarNodeId> {
        match property {
            EXTRA => self.extra,
            known => self.properties.get(known as usize).map(|known| known.value),
        }
    }

    fn has_more(&self, seen: u128) -> bool {
        self.extra.is_some() || self.keys[0].reachable & !seen != 0
    }

    /// Whether a name may end or diverge from the known ones here.
    fn between_characters(&self, key: u32) -> bool {
        self.keys
            .get(key as usize)
            .is_none_or(|key| key.bytes_to_boundary == 0)
    }

    /// The property whose name is complete; `None` if it occurred already.
    fn named(&self, key: u32, length: u16, seen: u128) -> Option<u8> {
        let known = self.keys.get(key as usize);
        match known.and_then(|key| key.ends) {
            Some(property) if seen & bit(property) == 0 => Some(property),
            Some(_) => None,
            None if length == 0 || self.extra.is_none() => None,
            None => self.between_characters(key).then_some(EXTRA),
        }
    }

    /// One more byte of a name.
    fn spell(
        &self,
        key: u32,
        length: u16,
        inner: StringState,
        seen: u128,
        byte: u8,
    ) -> Option<ObjectAt> {
        if let Some(known) = self.keys.get(key as usize) {
            let next = known.next.iter().find(|(edge, _)| *edge == byte);
            if let Some((_, next)) = next {
                let there = &self.keys[*next as usize];
                if there.reachable & !seen != 0 || self.extra.is_some() {
                    return Some(ObjectAt::NameNode {
                        key: *next,
                        length: length + 1,
                        inner: StringState::Plain,
                    });
                }
                return None;
            }
            if known.bytes_to_boundary > 0 {
                return None;
            }
        }
        self.extra?;
        if length >= self.longest.max(MAX_NAME_CHARS) + 8 && inner == StringState::Plain {
            return None;
        }
        // No escapes in other names, so that none of them is a known one in disguise.
        let (begins, inner) = inner
            .step(byte)
            .filter(|(_, inner)| *inner != StringState::Escape)?;
        Some(ObjectAt::NameNode {
            key: OTHER,
            length: length + u16::from(begins),
            inner,
        })
    }
}
