//! Assembles the tool calls of a streamed answer from their pieces.
//!
//! Servers agree only on the arguments, which come in pieces that are joined. The name comes once,
//! in pieces, or complete with every piece; the id likewise, or late, or never; the index may be
//! missing or the same for every call. One rule for each decides, independent of the server:
//!
//! - which call a piece belongs to: [`StreamedCalls::locate`], unless [`StreamedCalls::begins_another`];
//! - whether a piece of a name is joined: [`StreamedCalls::fit`], by the names that were offered;
//! - whether a piece of an id is joined: [`is_whole_id`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use hermes_core::model::ModelEvent;
use hermes_core::tool::ToolSpec;
use serde_json::Value;

use crate::codec::ids;
use crate::codec::json::{id, text};

#[derive(Debug)]
pub(super) struct StreamedCalls {
    offered: Arc<[ToolSpec]>,
    slots: Vec<CallSlot>,
    /// The slot that each server index currently refers to.
    by_index: HashMap<u64, usize>,
}

/// A call in progress. It is held back until its id and name begin.
#[derive(Debug, Default)]
struct CallSlot {
    id: Option<String>,
    name: String,
    arguments: String,
    extra: Option<Value>,
    /// The server gave it an index.
    indexed: bool,
    /// Id and name as they were announced.
    announced: Option<(String, String)>,
    /// How much of the arguments was emitted.
    handed_out: usize,
}

/// A piece of a call as sent by the server.
struct CallPiece<'a> {
    index: Option<u64>,
    id: Option<String>,
    name: Option<&'a str>,
    arguments: Cow<'a, str>,
    extra: Option<&'a Value>,
}

/// How a piece of a name relates to the name so far.
enum NamePieceFit {
    /// A repetition.
    Same,
    /// The name becomes this.
    Longer(String),
    /// The name of something else.
    Other,
}

/// The position of a piece within its chunk.
#[derive(Clone, Copy)]
struct PiecePosition {
    position: usize,
    alone: bool,
}

impl StreamedCalls {
    pub(super) fn new(offered: Arc<[ToolSpec]>) -> Self {
        Self {
            offered,
            slots: Vec::new(),
            by_index: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Takes the `tool_calls` of one chunk.
    pub(super) fn push(&mut self, calls: &[Value], out: &mut Vec<ModelEvent>) {
        let alone = calls.len() == 1;
        for (position, call) in calls.iter().enumerate() {
            self.take(
                &CallPiece::read(call),
                PiecePosition { position, alone },
                out,
            );
        }
    }

    /// Takes the `function_call` of older servers, at most one per answer.
    pub(super) fn push_function(&mut self, function: &Value, out: &mut Vec<ModelEvent>) {
        let piece = CallPiece {
            index: Some(0),
            id: None,
            ..CallPiece::read(function)
        };
        let piece_position = PiecePosition {
            position: 0,
            alone: true,
        };
        self.take(&piece, piece_position, out);
    }

    /// The answer ended: emits what was held back, and ids and names that grew since they were
    /// announced.
    pub(super) fn finish(&mut self, salt: usize, out: &mut Vec<ModelEvent>) {
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if slot.id.is_none() {
                let arguments = slot.arguments.trim();
                slot.id = Some(ids::derived(&slot.name, arguments, at, salt));
            }
            slot.announce(at, out);
            slot.hand_out(at, out);
        }
    }

    fn take(
        &mut self,
        piece: &CallPiece<'_>,
        piece_position: PiecePosition,
        out: &mut Vec<ModelEvent>,
    ) {
        let at = match self.locate(piece, piece_position) {
            Some(slot) if !self.begins_another(&self.slots[slot], piece) => slot,
            before => {
                let name = before.filter(|_| piece.name.is_none());
                let name = name.map(|before| self.slots[before].name.clone());
                self.slots.push(CallSlot {
                    name: name.unwrap_or_default(),
                    ..CallSlot::default()
                });
                self.slots.len() - 1
            }
        };
        if let Some(index) = piece.index {
            self.by_index.insert(index, at);
            self.slots[at].indexed = true;
        }
        self.fill(at, piece, out);
    }

    /// The call that a piece continues, unless it begins another one.
    fn locate(&self, piece: &CallPiece<'_>, piece_position: PiecePosition) -> Option<usize> {
        let same_id = |slot: &CallSlot| piece.id.is_some() && slot.id == piece.id;
        let last = || self.slots.len().checked_sub(1);
        let in_place = || {
            if piece_position.alone {
                last()
            } else {
                (piece_position.position < self.slots.len()).then_some(piece_position.position)
            }
        };
        let Some(index) = piece.index else {
            // Without an index the id selects the call. An unknown id is late, or a piece: it comes
            // without a name, with the rest of one, or to a call that has no id.
            let known = self.slots.iter().position(same_id);
            let open = |at: &usize| {
                let slot = &self.slots[*at];
                let rest = |name: &str| self.completes(&slot.name, name);
                piece.id.is_none() || slot.id.is_none() || piece.name.is_none_or(rest)
            };
            return known.or_else(|| in_place().filter(open));
        };
        if let Some(slot) = self.by_index.get(&index) {
            return Some(*slot);
        }
        // An index that comes late belongs to a call that has none.
        let bare = |at: &usize| !self.slots[*at].indexed;
        let known = self
            .slots
            .iter()
            .position(|slot| !slot.indexed && same_id(slot));
        let counted = usize::try_from(index).ok();
        known
            .or_else(|| counted.filter(|at| *at < self.slots.len()).filter(bare))
            .or_else(|| last().filter(|_| piece.name.is_none()).filter(bare))
    }

    /// Whether a piece begins another call although everything points to `slot`.
    fn begins_another(&self, slot: &CallSlot, piece: &CallPiece<'_>) -> bool {
        let again = piece.arguments.trim() == slot.arguments.trim();
        let object = piece.arguments.trim_start().starts_with('{');
        let Some(name) = piece.name else {
            // Nothing can follow a complete object: the next one is another call of the same tool.
            return object && !again && slot.arguments.trim() != NOTHING && slot.is_whole();
        };
        if self.completes(&slot.name, name) {
            return false;
        }
        let other = match self.fit(&slot.name, name) {
            NamePieceFit::Other => true,
            NamePieceFit::Same => false,
            // A call with complete arguments has its name.
            NamePieceFit::Longer(_) => self.is_offered(&slot.name) && slot.is_whole(),
        };
        match (slot.id.as_deref(), piece.id.as_deref()) {
            (Some(mine), Some(its)) if mine != its => {
                other || piece.index.is_none() || is_whole_id(mine, its) || slot.is_whole()
            }
            (Some(_), Some(_)) => other && slot.is_whole(),
            (mine, its) => {
                // Without ids, a second complete set of arguments is a second call, even if
                // identical; with an id, an identical set is a repetition of the whole call.
                let second = object && !(again && (mine.is_some() || its.is_some()));
                let next = other && slot.arguments.is_empty();
                (next && self.is_offered(&slot.name) && self.begins_offered(name))
                    || ((second || other) && slot.is_whole())
            }
        }
    }

    /// Names are joined as long as the result is a prefix of an offered one; a repeated name is not
    /// joined.
    fn fit(&self, known: &str, piece: &str) -> NamePieceFit {
        if known.len() > MAX_NAME_BYTES {
            return NamePieceFit::Same;
        }
        let joined = format!("{known}{piece}");
        if known.is_empty() {
            return NamePieceFit::Longer(joined);
        }
        let longer = self.begins_offered(&joined);
        if piece == known && (!longer || self.is_offered(known)) {
            NamePieceFit::Same
        } else if longer {
            NamePieceFit::Longer(joined)
        } else if self.begins_offered(piece) && piece.starts_with(known) {
            NamePieceFit::Longer(piece.to_owned())
        } else if self.is_offered(known) || self.is_offered(piece) {
            NamePieceFit::Other
        } else {
            NamePieceFit::Longer(joined)
        }
    }

    /// Whether a piece completes an incomplete name.
    fn completes(&self, known: &str, piece: &str) -> bool {
        !known.is_empty()
            && !self.is_offered(known)
            && self.begins_offered(&format!("{known}{piece}"))
    }

    fn is_offered(&self, name: &str) -> bool {
        self.offered.iter().any(|tool| tool.name == name)
    }

    fn begins_offered(&self, name: &str) -> bool {
        self.offered.iter().any(|tool| tool.name.starts_with(name))
    }

    fn fill(&mut self, at: usize, piece: &CallPiece<'_>, out: &mut Vec<ModelEvent>) {
        let name = piece.name.and_then(|piece| {
            let known = &self.slots[at].name;
            match self.fit(known, piece) {
                NamePieceFit::Longer(name) => Some(name),
                NamePieceFit::Other if !self.is_offered(known) => Some(piece.to_owned()),
                NamePieceFit::Other | NamePieceFit::Same => None,
            }
        });
        let slot = &mut self.slots[at];
        if let Some(name) = name {
            slot.name = name;
        }
        match (&mut slot.id, &piece.id) {
            (Some(known), Some(more))
                if known.len() <= MAX_NAME_BYTES && !is_whole_id(known, more) =>
            {
                known.push_str(more);
            }
            (None, Some(id)) => slot.id = Some(id.clone()),
            _ => {}
        }
        slot.push_arguments(&piece.arguments);
        if let Some(extra) = piece.extra {
            slot.extra = Some(extra.clone());
        }
        if slot.announced.is_none() {
            if slot.id.is_none() || slot.name.is_empty() {
                return;
            }
            slot.announce(at, out);
        } else if let Some(extra) = piece.extra {
            out.push(tool_extra(at, extra.clone()));
        }
        if slot.arguments.trim() != NOTHING {
            slot.hand_out(at, out);
        }
    }
}

/// Names and ids are not joined beyond this length.
const MAX_NAME_BYTES: usize = 256;

/// Arguments that mean "none yet".
const NOTHING: &str = "{}";

impl CallSlot {
    /// Adds a piece of the arguments.
    fn push_arguments(&mut self, delta: &str) {
        if delta.starts_with('{') && self.is_whole() {
            // Some servers repeat the whole call at the end, …
            if delta.trim() == self.arguments.trim() {
                return;
            }
            // … some begin with an empty object instead of nothing.
            if self.arguments.trim() == NOTHING && self.handed_out == 0 {
                self.arguments.clear();
            }
        }
        self.arguments.push_str(delta);
    }

    /// Whether the arguments are complete.
    fn is_whole(&self) -> bool {
        self.arguments.trim_end().ends_with('}')
            && serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }

    /// Announces id and name if they changed.
    fn announce(&mut self, at: usize, out: &mut Vec<ModelEvent>) {
        let now = (self.id.clone().unwrap_or_default(), self.name.clone());
        if self.announced.as_ref() == Some(&now) {
            return;
        }
        let first = self.announced.is_none();
        out.push(ModelEvent::ToolStarted {
            slot: at,
            id: now.0.clone(),
            name: now.1.clone(),
        });
        self.announced = Some(now);
        if let (true, Some(extra)) = (first, &self.extra) {
            out.push(tool_extra(at, extra.clone()));
        }
    }

    fn hand_out(&mut self, at: usize, out: &mut Vec<ModelEvent>) {
        let delta = &self.arguments[self.handed_out..];
        if !delta.is_empty() {
            out.push(ModelEvent::ToolArguments {
                slot: at,
                delta: delta.to_owned(),
            });
        }
        self.handed_out = self.arguments.len();
    }
}

impl<'a> CallPiece<'a> {
    fn read(call: &'a Value) -> Self {
        let function = call.get("function").unwrap_or(call);
        Self {
            index: call.get("index").and_then(|index| {
                let number = index.as_u64();
                number.or_else(|| index.as_str()?.parse().ok())
            }),
            id: id(call, "id"),
            name: text(function, "name"),
            arguments: arguments(function),
            extra: call.get("extra_content").filter(|extra| !extra.is_null()),
        }
    }
}

/// Whether an id is complete by itself and not a piece that continues `known`: a repetition, or
/// another of its kind, from servers that generate an id for every chunk.
fn is_whole_id(known: &str, id: &str) -> bool {
    const MIN_SHARED_CHARS: usize = 4;
    const MIN_LONG_CHARS: usize = 32;
    let shared = known.bytes().zip(id.bytes()).take_while(|(a, b)| a == b);
    known == id || shared.count() >= MIN_SHARED_CHARS || known.len().min(id.len()) >= MIN_LONG_CHARS
}

fn tool_extra(slot: usize, extra: Value) -> ModelEvent {
    ModelEvent::ToolExtra {
        slot,
        response_item_id: None,
        extra: Some(extra),
    }
}

/// The arguments in a piece of a call; some servers send an object instead of its text.
fn arguments(function: &Value) -> Cow<'_, str> {
    match function.get("arguments") {
        Some(Value::String(text)) => text.as_str().into(),
        Some(object @ Value::Object(_)) => object.to_string().into(),
        _ => "".into(),
    }
}

#[cfg(test)]
mod tests;
