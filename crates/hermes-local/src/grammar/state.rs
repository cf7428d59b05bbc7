//! Where we are in a grammar, byte by byte.
//!
//! A state is a stack: what is being written, and below it what goes on afterwards. As
//! alternatives may begin alike, there are several states at a time. Every state knows how many
//! bytes complete it at the least; none is ever reached that cannot be completed.

use std::rc::Rc;

use super::node::{Grammar, Id, NEVER, Node};
use super::number::Digits;
use super::object::{self, ObjectAt};
use super::text::{self, Inner};

/// Alternatives that are followed at a time; the language only gets smaller by leaving some out.
const ALTERNATIVES: usize = 1024;
/// Deeper than this, values end on the shortest way (parsers stop at 128).
const DEPTH: u16 = 48;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) top: Frame,
    pub(super) below: Link,
}

pub(super) type Link = Option<Rc<Cell>>;

/// A frame that waits for what is above it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    frame: Frame,
    below: Link,
    /// Bytes that complete this and all below, once what is above has ended.
    rest: u32,
    depth: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Frame {
    Literal {
        node: Id,
        at: u32,
    },
    /// Waits for the child before `at`.
    Sequence {
        node: Id,
        at: u32,
    },
    Text {
        node: Id,
        matched: u8,
        fresh: bool,
    },
    /// A string that has not begun.
    Quote {
        min: u32,
        max: u32,
    },
    String {
        need: u32,
        left: u32,
        inner: Inner,
    },
    Number {
        node: Id,
        so_far: Digits,
    },
    Array {
        node: Id,
        count: u32,
        at: ArrayAt,
    },
    Object {
        node: Id,
        seen: u128,
        at: ObjectAt,
    },
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ArrayAt {
    Open,
    First,
    /// After a comma; one blank may follow.
    Comma,
    Blank,
    /// An item is being written, or has just ended.
    Item,
}

impl State {
    fn depth(&self) -> u16 {
        self.below.as_ref().map_or(0, |cell| cell.depth)
    }

    /// Bytes that complete everything at the least.
    pub(super) fn shortest(&self, grammar: &Grammar) -> u32 {
        // What waits below text is a call, and none has begun.
        if matches!(self.top, Frame::Text { .. }) {
            return 0;
        }
        let rest = self.below.as_ref().map_or(0, |cell| cell.rest);
        self.top.left(grammar).saturating_add(rest).min(NEVER)
    }

    /// Whether the text may end here.
    pub(super) fn can_end(&self, grammar: &Grammar) -> bool {
        match self.top {
            Frame::Done | Frame::Text { .. } => true,
            Frame::Number { .. } if self.top.left(grammar) == 0 => {
                let mut after = Vec::new();
                pop(grammar, &self.below, &mut after);
                after.iter().any(|state| state.can_end(grammar))
            }
            _ => false,
        }
    }

    /// Adds what can follow once `byte` is written.
    pub(super) fn step(&self, grammar: &Grammar, byte: u8, out: &mut Vec<State>) {
        let from = out.len();
        self.advance(grammar, byte, out);
        if self.depth() >= DEPTH && out.len() > from {
            let before = self.shortest(grammar);
            let mut index = from;
            while index < out.len() {
                if out[index].shortest(grammar) < before {
                    index += 1;
                } else {
                    out.swap_remove(index);
                }
            }
        }
        out.truncate(ALTERNATIVES);
    }

    fn advance(&self, grammar: &Grammar, byte: u8, out: &mut Vec<State>) {
        match self.top {
            Frame::Literal { node, at } => {
                let Node::Literal(text) = &grammar.nodes[node as usize] else {
                    return;
                };
                if text.get(at as usize) != Some(&byte) {
                    return;
                }
                if at as usize + 1 == text.len() {
                    pop(grammar, &self.below, out);
                } else {
                    out.push(self.with(Frame::Literal { node, at: at + 1 }));
                }
            }
            Frame::Text {
                node,
                matched,
                fresh,
            } => self.text(grammar, (node, matched, fresh), byte, out),
            Frame::Quote { min, max } if byte == b'"' => out.push(self.with(Frame::String {
                need: min,
                left: max,
                inner: Inner::Plain,
            })),
            Frame::String { need, left, inner } => {
                if byte == b'"' && inner == Inner::Plain {
                    if need == 0 {
                        pop(grammar, &self.below, out);
                    }
                } else if let Some(inner) = inner.step(byte) {
                    self.character(need, left, inner, out);
                }
            }
            Frame::Number { node, so_far } => self.number(grammar, node, so_far, byte, out),
            Frame::Array { node, count, at } => self.array(grammar, (node, count, at), byte, out),
            Frame::Object { node, seen, at } => {
                object::step(grammar, self, (node, seen, at), byte, out);
            }
            Frame::Quote { .. } | Frame::Sequence { .. } | Frame::Done => {}
        }
    }

    fn text(&self, grammar: &Grammar, at: (Id, u8, bool), byte: u8, out: &mut Vec<State>) {
        let (node, matched, fresh) = at;
        let Node::Text(text) = &grammar.nodes[node as usize] else {
            return;
        };
        if fresh && text.not_first == Some(byte) {
            return;
        }
        let matched = text::follow(&text.marker, matched, byte);
        if text.marker.is_empty() || usize::from(matched) < text.marker.len() {
            out.push(self.with(Frame::Text {
                node,
                matched,
                fresh: fresh && byte.is_ascii_whitespace(),
            }));
        } else if text.leads_on {
            pop(grammar, &self.below, out);
        }
    }

    /// A character of a string has begun, or goes on.
    fn character(
        &self,
        need: u32,
        left: u32,
        (begins, inner): (bool, Inner),
        out: &mut Vec<State>,
    ) {
        let (need, left) = match (begins, left) {
            (false, left) => (need, left),
            (true, 0) => return,
            (true, left) => (need.saturating_sub(1), left - 1),
        };
        out.push(self.with(Frame::String { need, left, inner }));
    }

    fn number(&self, grammar: &Grammar, node: Id, so_far: Digits, byte: u8, out: &mut Vec<State>) {
        let Node::Number(range) = &grammar.nodes[node as usize] else {
            return;
        };
        if let Some(so_far) = range.step(so_far, byte) {
            out.push(self.with(Frame::Number { node, so_far }));
        } else if !so_far.is_new() && range.left(so_far) == 0 {
            // A number ends where something else begins.
            let mut after = Vec::new();
            pop(grammar, &self.below, &mut after);
            for state in after {
                state.advance(grammar, byte, out);
            }
        }
    }

    fn array(&self, grammar: &Grammar, at: (Id, u32, ArrayAt), byte: u8, out: &mut Vec<State>) {
        let (node, count, at) = at;
        let Node::Array { item, min, max } = &grammar.nodes[node as usize] else {
            return;
        };
        let here = |count, at| self.with(Frame::Array { node, count, at });
        match (at, byte) {
            (ArrayAt::Open, b'[') => out.push(here(0, ArrayAt::First)),
            (ArrayAt::First | ArrayAt::Item, b']') if count >= *min => {
                pop(grammar, &self.below, out);
            }
            (ArrayAt::Item, b',') if count < *max => out.push(here(count, ArrayAt::Comma)),
            (ArrayAt::Comma, b' ') => out.push(here(count, ArrayAt::Blank)),
            (ArrayAt::First, _) if *max == 0 => {}
            (ArrayAt::First | ArrayAt::Comma | ArrayAt::Blank, _) => {
                // Without an upper bound the number of items matters only up to the lower one.
                let next = match max {
                    &u32::MAX => (count + 1).min(*min),
                    _ => count + 1,
                };
                let below = here(next, ArrayAt::Item).push(grammar);
                enter_with(grammar, *item, &below, byte, out);
            }
            _ => {}
        }
    }

    pub(super) fn with(&self, top: Frame) -> State {
        State {
            top,
            below: self.below.clone(),
        }
    }

    /// This, as what waits below something else.
    #[expect(clippy::unnecessary_wraps, reason = "what is below is always a link")]
    pub(super) fn push(self, grammar: &Grammar) -> Link {
        Some(Rc::new(Cell {
            rest: self.shortest(grammar),
            depth: self.depth() + 1,
            frame: self.top,
            below: self.below,
        }))
    }
}

impl Frame {
    /// Bytes that complete this frame at the least.
    fn left(&self, grammar: &Grammar) -> u32 {
        match *self {
            Frame::Literal { node, at } => grammar.shortest[node as usize] - at,
            Frame::Sequence { node, at } => match &grammar.nodes[node as usize] {
                Node::Sequence(nodes) => nodes
                    .iter()
                    .skip(at as usize)
                    .map(|id| grammar.shortest[*id as usize])
                    .fold(0, u32::saturating_add),
                _ => NEVER,
            },
            Frame::Text { .. } | Frame::Done => 0,
            Frame::Quote { min, .. } => min.saturating_add(2),
            Frame::String { need, inner, .. } => {
                need.saturating_add(inner.left()).saturating_add(1)
            }
            Frame::Number { node, so_far } => match &grammar.nodes[node as usize] {
                Node::Number(range) if so_far.is_new() => range.shortest(),
                Node::Number(range) => range.left(so_far),
                _ => NEVER,
            },
            Frame::Array { node, count, at } => match &grammar.nodes[node as usize] {
                Node::Array { item, min, .. } => {
                    array_left(grammar.shortest[*item as usize], *min, count, at)
                }
                _ => NEVER,
            },
            Frame::Object { node, seen, at } => object::left(grammar, node, seen, at),
        }
    }
}

fn array_left(item: u32, min: u32, count: u32, at: ArrayAt) -> u32 {
    let tail = |count: u32| {
        item.saturating_add(1)
            .saturating_mul(min.saturating_sub(count))
            .saturating_add(1)
    };
    match at {
        ArrayAt::Item => tail(count),
        ArrayAt::First if min == 0 => 1,
        ArrayAt::First => tail(0) - 1,
        ArrayAt::Open if min == 0 => 2,
        ArrayAt::Open => tail(0),
        ArrayAt::Comma | ArrayAt::Blank => item.saturating_add(tail(count + 1)),
    }
}

/// The states in which `node` begins.
pub(super) fn enter(grammar: &Grammar, node: Id, below: &Link, out: &mut Vec<State>) {
    let top = match &grammar.nodes[node as usize] {
        Node::Either(nodes) => {
            for node in nodes {
                enter(grammar, *node, below, out);
            }
            return;
        }
        Node::Literal(text) if text.is_empty() => return pop(grammar, below, out),
        Node::Sequence(nodes) => {
            return match **nodes {
                [] => pop(grammar, below, out),
                // What comes last needs nothing below it.
                [only] => enter(grammar, only, below, out),
                [first, ..] => {
                    let waiting = State {
                        top: Frame::Sequence { node, at: 1 },
                        below: below.clone(),
                    };
                    enter(grammar, first, &waiting.push(grammar), out);
                }
            };
        }
        Node::Literal(_) => Frame::Literal { node, at: 0 },
        Node::Text(_) => Frame::Text {
            node,
            matched: 0,
            fresh: true,
        },
        Node::String { min, max } => Frame::Quote {
            min: *min,
            max: *max,
        },
        Node::Number(_) => Frame::Number {
            node,
            so_far: Digits::default(),
        },
        Node::Array { .. } => Frame::Array {
            node,
            count: 0,
            at: ArrayAt::Open,
        },
        Node::Object(_) => Frame::Object {
            node,
            seen: 0,
            at: ObjectAt::Open,
        },
    };
    out.push(State {
        top,
        below: below.clone(),
    });
}

/// Begins `node` and writes its first byte.
pub(super) fn enter_with(
    grammar: &Grammar,
    node: Id,
    below: &Link,
    byte: u8,
    out: &mut Vec<State>,
) {
    let mut begun = Vec::new();
    enter(grammar, node, below, &mut begun);
    for state in begun {
        state.advance(grammar, byte, out);
    }
}

/// What waited below goes on.
pub(super) fn pop(grammar: &Grammar, below: &Link, out: &mut Vec<State>) {
    let Some(cell) = below else {
        out.push(State {
            top: Frame::Done,
            below: None,
        });
        return;
    };
    let Frame::Sequence { node, at } = cell.frame else {
        out.push(State {
            top: cell.frame,
            below: cell.below.clone(),
        });
        return;
    };
    let Node::Sequence(nodes) = &grammar.nodes[node as usize] else {
        return;
    };
    let Some(next) = nodes.get(at as usize) else {
        return pop(grammar, &cell.below, out);
    };
    if at as usize + 1 == nodes.len() {
        return enter(grammar, *next, &cell.below, out);
    }
    let waiting = State {
        top: Frame::Sequence { node, at: at + 1 },
        below: cell.below.clone(),
    };
    enter(grammar, *next, &waiting.push(grammar), out);
}
