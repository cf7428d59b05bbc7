//! The position in a grammar, byte by byte.
//!
//! A state is a stack: the current element on top of those that continue afterwards. Alternatives may begin
//! alike, so there are several states at a time. Every state knows the minimum number of bytes that complete
//! it; a state that cannot be completed is never reached.

use std::rc::Rc;

use super::node::{Grammar, GrammarNode, GrammarNodeId, UNREACHABLE};
use super::number::Digits;
use super::object::{self, ObjectAt};
use super::text::{self, StringState};

/// Maximum number of alternatives followed at a time; dropping some only makes the language smaller.
const MAX_ALTERNATIVES: usize = 1024;
/// Deeper values end on the shortest path (parsers stop at 128).
const MAX_VALUE_DEPTH: u16 = 48;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GrammarState {
    pub(super) top: GrammarFrame,
    pub(super) below: StackLink,
}

pub(super) type StackLink = Option<Rc<StackCell>>;

/// A frame that waits for the one above it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct StackCell {
    frame: GrammarFrame,
    below: StackLink,
    /// Bytes that complete this and all below, once the one above has ended.
    rest: u32,
    depth: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum GrammarFrame {
    Literal {
        node: GrammarNodeId,
        at: u32,
    },
    /// Waits for the child before `at`.
    Sequence {
        node: GrammarNodeId,
        at: u32,
    },
    Text {
        node: GrammarNodeId,
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
        inner: StringState,
    },
    Number {
        node: GrammarNodeId,
        so_far: Digits,
    },
    Array {
        node: GrammarNodeId,
        count: u32,
        at: ArrayAt,
    },
    Object {
        node: GrammarNodeId,
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

impl GrammarState {
    fn depth(&self) -> u16 {
        self.below.as_ref().map_or(0, |cell| cell.depth)
    }

    /// Minimum number of bytes that complete everything.
    pub(super) fn shortest(&self, grammar: &Grammar) -> u32 {
        // Below text only a call can wait, and none has begun.
        if matches!(self.top, GrammarFrame::Text { .. }) {
            return 0;
        }
        let rest = self.below.as_ref().map_or(0, |cell| cell.rest);
        self.top.left(grammar).saturating_add(rest).min(UNREACHABLE)
    }

    /// Whether the text may end here.
    pub(super) fn can_end(&self, grammar: &Grammar) -> bool {
        match self.top {
            GrammarFrame::Done | GrammarFrame::Text { .. } => true,
            GrammarFrame::Number { .. } if self.top.left(grammar) == 0 => {
                let mut after = Vec::new();
                pop(grammar, &self.below, &mut after);
                after.iter().any(|state| state.can_end(grammar))
            }
            _ => false,
        }
    }

    /// Adds the states after `byte`.
    pub(super) fn step(&self, grammar: &Grammar, byte: u8, out: &mut Vec<GrammarState>) {
        let from = out.len();
        self.advance(grammar, byte, out);
        if self.depth() >= MAX_VALUE_DEPTH && out.len() > from {
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
        out.truncate(MAX_ALTERNATIVES);
    }

    fn advance(&self, grammar: &Grammar, byte: u8, out: &mut Vec<GrammarState>) {
        match self.top {
            GrammarFrame::Literal { node, at } => {
                let GrammarNode::Literal(text) = &grammar.nodes[node as usize] else {
                    return;
                };
                if text.get(at as usize) != Some(&byte) {
                    return;
                }
                if at as usize + 1 == text.len() {
                    pop(grammar, &self.below, out);
                } else {
                    out.push(self.with(GrammarFrame::Literal { node, at: at + 1 }));
                }
            }
            GrammarFrame::Text {
                node,
                matched,
                fresh,
            } => self.text(grammar, (node, matched, fresh), byte, out),
            GrammarFrame::Quote { min, max } if byte == b'"' => {
                out.push(self.with(GrammarFrame::String {
                    need: min,
                    left: max,
                    inner: StringState::Plain,
                }));
            }
            GrammarFrame::String { need, left, inner } => {
                if byte == b'"' && inner == StringState::Plain {
                    if need == 0 {
                        pop(grammar, &self.below, out);
                    }
                } else if let Some(inner) = inner.step(byte) {
                    self.character(need, left, inner, out);
                }
            }
            GrammarFrame::Number { node, so_far } => self.number(grammar, node, so_far, byte, out),
            GrammarFrame::Array { node, count, at } => {
                self.array(grammar, (node, count, at), byte, out);
            }
            GrammarFrame::Object { node, seen, at } => {
                object::step(grammar, self, (node, seen, at), byte, out);
            }
            GrammarFrame::Quote { .. } | GrammarFrame::Sequence { .. } | GrammarFrame::Done => {}
        }
    }

    fn text(
        &self,
        grammar: &Grammar,
        at: (GrammarNodeId, u8, bool),
        byte: u8,
        out: &mut Vec<GrammarState>,
    ) {
        let (node, matched, fresh) = at;
        let GrammarNode::Text(text) = &grammar.nodes[node as usize] else {
            return;
        };
        if fresh && text.not_first == Some(byte) {
            return;
        }
        let matched = text::follow(&text.marker, matched, byte);
        if text.marker.is_empty() || usize::from(matched) < text.marker.len() {
            out.push(self.with(GrammarFrame::Text {
                node,
                matched,
                fresh: fresh && byte.is_ascii_whitespace(),
            }));
        } else if text.continues_after_marker {
            pop(grammar, &self.below, out);
        }
    }

    /// A character of a string has begun or continues.
    fn character(
        &self,
        need: u32,
        left: u32,
        (begins, inner): (bool, StringState),
        out: &mut Vec<GrammarState>,
    ) {
        let (need, left) = match (begins, left) {
            (false, left) => (need, left),
            (true, 0) => return,
            (true, left) => (need.saturating_sub(1), left - 1),
        };
        out.push(self.with(GrammarFrame::String { need, left, inner }));
    }

    fn number(
        &self,
        grammar: &Grammar,
        node: GrammarNodeId,
        so_far: Digits,
        byte: u8,
        out: &mut Vec<GrammarState>,
    ) {
        let GrammarNode::Number(range) = &grammar.nodes[node as usize] else {
            return;
        };
        if let Some(so_far) = range.step(so_far, byte) {
            out.push(self.with(GrammarFrame::Number { node, so_far }));
        } else if !so_far.is_new() && range.left(so_far) == 0 {
            // A number ends where something else begins.
            let mut after = Vec::new();
            pop(grammar, &self.below, &mut after);
            for state in after {
                state.advance(grammar, byte, out);
            }
        }
    }

    fn array(
        &self,
        grammar: &Grammar,
        at: (GrammarNodeId, u32, ArrayAt),
        byte: u8,
        out: &mut Vec<GrammarState>,
    ) {
        let (node, count, at) = at;
        let GrammarNode::Array { item, min, max } = &grammar.nodes[node as usize] else {
            return;
        };
        let at_frame = |count, at| self.with(GrammarFrame::Array { node, count, at });
        match (at, byte) {
            (ArrayAt::Open, b'[') => out.push(at_frame(0, ArrayAt::First)),
            (ArrayAt::First | ArrayAt::Item, b']') if count >= *min => {
                pop(grammar, &self.below, out);
            }
            (ArrayAt::Item, b',') if count < *max => out.push(at_frame(count, ArrayAt::Comma)),
            (ArrayAt::Comma, b' ') => out.push(at_frame(count, ArrayAt::Blank)),
            (ArrayAt::First, _) if *max == 0 => {}
            (ArrayAt::First | ArrayAt::Comma | ArrayAt::Blank, _) => {
                // Without an upper bound the number of items matters only up to the lower one.
                let next = match max {
                    &u32::MAX => (count + 1).min(*min),
                    _ => count + 1,
                };
                let below = at_frame(next, ArrayAt::Item).push(grammar);
                enter_with(grammar, *item, &below, byte, out);
            }
            _ => {}
        }
    }

    pub(super) fn with(&self, top: GrammarFrame) -> GrammarState {
        GrammarState {
            top,
            below: self.below.clone(),
        }
    }

    /// Pushes this below another frame.
    #[expect(clippy::unnecessary_wraps, reason = "what is below is always a link")]
    pub(super) fn push(self, grammar: &Grammar) -> StackLink {
        Some(Rc::new(StackCell {
            rest: self.shortest(grammar),
            depth: self.depth() + 1,
            frame: self.top,
            below: self.below,
        }))
    }
}

impl GrammarFrame {
    /// Minimum number of bytes that complete this frame.
    fn left(&self, grammar: &Grammar) -> u32 {
        match *self {
            GrammarFrame::Literal { node, at } => grammar.shortest[node as usize] - at,
            GrammarFrame::Sequence { node, at } => match &grammar.nodes[node as usize] {
                GrammarNode::Sequence(nodes) => nodes
                    .iter()
                    .skip(at as usize)
                    .map(|id| grammar.shortest[*id as usize])
                    .fold(0, u32::saturating_add),
                _ => UNREACHABLE,
            },
            GrammarFrame::Text { .. } | GrammarFrame::Done => 0,
            GrammarFrame::Quote { min, .. } => min.saturating_add(2),
            GrammarFrame::String { need, inner, .. } => {
                need.saturating_add(inner.left()).saturating_add(1)
            }
            GrammarFrame::Number { node, so_far } => match &grammar.nodes[node as usize] {
                GrammarNode::Number(range) if so_far.is_new() => range.shortest(),
                GrammarNode::Number(range) => range.left(so_far),
                _ => UNREACHABLE,
            },
            GrammarFrame::Array { node, count, at } => match &grammar.nodes[node as usize] {
                GrammarNode::Array { item, min, .. } => {
                    array_left(grammar.shortest[*item as usize], *min, count, at)
                }
                _ => UNREACHABLE,
            },
            GrammarFrame::Object { node, seen, at } => object::left(grammar, node, seen, at),
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

/// The initial states of `node`.
pub(super) fn enter(
    grammar: &Grammar,
    node: GrammarNodeId,
    below: &StackLink,
    out: &mut Vec<GrammarState>,
) {
    let top = match &grammar.nodes[node as usize] {
        GrammarNode::Either(nodes) => {
            for node in nodes {
                enter(grammar, *node, below, out);
            }
            return;
        }
        GrammarNode::Literal(text) if text.is_empty() => return pop(grammar, below, out),
        GrammarNode::Sequence(nodes) => {
            return match **nodes {
                [] => pop(grammar, below, out),
                // The last child needs nothing below it.
                [only] => enter(grammar, only, below, out),
                [first, ..] => {
                    let waiting = GrammarState {
                        top: GrammarFrame::Sequence { node, at: 1 },
                        below: below.clone(),
                    };
                    enter(grammar, first, &waiting.push(grammar), out);
                }
            };
        }
        GrammarNode::Literal(_) => GrammarFrame::Literal { node, at: 0 },
        GrammarNode::Text(_) => GrammarFrame::Text {
            node,
            matched: 0,
            fresh: true,
        },
        GrammarNode::String { min, max } => GrammarFrame::Quote {
            min: *min,
            max: *max,
        },
        GrammarNode::Number(_) => GrammarFrame::Number {
            node,
            so_far: Digits::default(),
        },
        GrammarNode::Array { .. } => GrammarFrame::Array {
            node,
            count: 0,
            at: ArrayAt::Open,
        },
        GrammarNode::Object(_) => GrammarFrame::Object {
            node,
            seen: 0,
            at: ObjectAt::Open,
        },
    };
    out.push(GrammarState {
        top,
        below: below.clone(),
    });
}

/// Begins `node` with its first byte.
pub(super) fn enter_with(
    grammar: &Grammar,
    node: GrammarNodeId,
    below: &StackLink,
    byte: u8,
    out: &mut Vec<GrammarState>,
) {
    let mut started = Vec::new();
    enter(grammar, node, below, &mut started);
    for state in started {
        state.advance(grammar, byte, out);
    }
}

/// Continues the frame below.
pub(super) fn pop(grammar: &Grammar, below: &StackLink, out: &mut Vec<GrammarState>) {
    let Some(cell) = below else {
        out.push(GrammarState {
            top: GrammarFrame::Done,
            below: None,
        });
        return;
    };
    let GrammarFrame::Sequence { node, at } = cell.frame else {
        out.push(GrammarState {
            top: cell.frame,
            below: cell.below.clone(),
        });
        return;
    };
    let GrammarNode::Sequence(nodes) = &grammar.nodes[node as usize] else {
        return;
    };
    let Some(next) = nodes.get(at as usize) else {
        return pop(grammar, &cell.below, out);
    };
    if at as usize + 1 == nodes.len() {
        return enter(grammar, *next, &cell.below, out);
    }
    let waiting = GrammarState {
        top: GrammarFrame::Sequence { node, at: at + 1 },
        below: cell.below.clone(),
    };
    enter(grammar, *next, &waiting.push(grammar), out);
}
