//! Ids of tool calls. A missing or invalid id is replaced by one derived from the call, never by a
//! random one: random ids would change the conversation's bytes on every request.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};

use hermes_core::message::{AssistantMessage, ToolCall, ToolMessage};
use sha2::{Digest, Sha256};

use crate::quirks::ToolIds;

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Maximum length that every endpoint accepts.
const MAX_LENGTH: usize = 40;

/// An id for a call that came without one. `salt` distinguishes equal calls of different steps.
pub(super) fn derived(name: &str, arguments: &str, index: usize, salt: usize) -> String {
    let digest = Sha256::digest(format!("{name}:{arguments}:{index}:{salt}"));
    format!("call_{}", hex(&digest[..12]))
}

/// Assigns the ids of a conversation in order, so that calls and results agree.
#[derive(Debug)]
pub(super) struct CallIds {
    style: ToolIds,
    /// Ids of the latest assistant message whose results have not been seen: as in the log, and as
    /// sent.
    open: VecDeque<(String, String)>,
    /// Ids already sent. Some servers restart their numbering in each answer, others require unique
    /// ids.
    used: HashSet<String>,
}

impl CallIds {
    pub(super) fn new(style: ToolIds) -> Self {
        Self {
            style,
            open: VecDeque::new(),
            used: HashSet::new(),
        }
    }

    /// The wire ids of the calls of `message`, in order. `own`: this endpoint issued them, and may
    /// encode more than a name in them.
    pub(super) fn wire_ids(&mut self, message: &AssistantMessage, own: bool) -> Vec<String> {
        let ids: Vec<String> = message
            .tool_calls
            .iter()
            .enumerate()
            .map(|(index, call)| self.of_call(call, index, own))
            .collect();
        let known = message.tool_calls.iter().map(|call| call.id.clone());
        self.open = known.zip(ids.iter().cloned()).collect();
        ids
    }

    fn of_call(&mut self, call: &ToolCall, index: usize, own: bool) -> String {
        if own && self.style == ToolIds::Any && !call.id.is_empty() {
            return call.id.clone();
        }
        let known = if call.id.is_empty() {
            derived(&call.name, call.arguments.trim(), index, 0)
        } else {
            call.id.clone()
        };
        let mut id = fit(&known, self.style).into_owned();
        let mut again = 1;
        while !self.used.insert(id.clone()) {
            again += 1;
            id = fit(&derived(&known, "", again, 0), self.style).into_owned();
        }
        id
    }

    /// The wire id that a result refers to. A result without id belongs to the oldest call that has
    /// none yet.
    pub(super) fn result_id(&mut self, message: &ToolMessage) -> String {
        if message.call_id.is_empty() {
            let nameless = self.open.iter().position(|(known, _)| known.is_empty());
            return match self.open.remove(nameless.unwrap_or(0)) {
                Some((_, id)) => id,
                None => fit(&derived(&message.name, "", 0, 0), self.style).into_owned(),
            };
        }
        let known = |(id, _): &(String, String)| *id == message.call_id;
        let at = self.open.iter().position(known);
        let wire = at.and_then(|at| self.open.remove(at)).map(|(_, id)| id);
        wire.unwrap_or_else(|| fit(&message.call_id, self.style).into_owned())
    }
}

/// `id` in a form that the endpoint accepts.
fn fit(id: &str, style: ToolIds) -> Cow<'_, str> {
    match style {
        ToolIds::Any if id.len() <= MAX_LENGTH => id.into(),
        ToolIds::Any => format!("call_{}", hex(&Sha256::digest(id)[..12])).into(),
        ToolIds::Word => {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            if id.len() > MAX_LENGTH {
                format!("call_{}", hex(&Sha256::digest(id)[..12])).into()
            } else if id.chars().all(fits) {
                id.into()
            } else {
                id.replace(|c| !fits(c), "_").into()
            }
        }
        ToolIds::Nine => {
            if id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()) {
                return id.into();
            }
            let digest = Sha256::digest(id);
            let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
            digest.iter().take(9).map(letter).collect::<String>().into()
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hermes_core::message::Content;

    fn call(id: &str, name: &str) -> ToolCall {
        ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: "{}".into(),
            ..ToolCall::default()
        }
    }

    fn result(id: &str) -> ToolMessage {
        ToolMessage {
            call_id: id.into(),
            name: "x".into(),
            content: Content::from("ok"),
            disposition: None,
        }
    }

    #[test]
    fn missing_ids_match_their_results_by_order() {
        let message = AssistantMessage {
            tool_calls: vec![call("", "a"), call("kept", "b"), call("", "a")],
            ..AssistantMessage::default()
        };
        let mut ids = CallIds::new(ToolIds::Any);
        let wire = ids.wire_ids(&message, false);
        assert_ne!(wire[0], wire[2]);
        assert_eq!(wire[1], "kept");
        assert_eq!(ids.result_id(&result("kept")), "kept");
        assert_eq!(ids.result_id(&result("")), wire[0]);
        assert_eq!(ids.result_id(&result("")), wire[2]);
        assert_eq!(CallIds::new(ToolIds::Any).wire_ids(&message, false), wire);
    }

    #[test]
    fn ids_that_come_again_are_told_apart() {
        for style in [ToolIds::Any, ToolIds::Word, ToolIds::Nine] {
            let mut ids = CallIds::new(style);
            let step = AssistantMessage {
                tool_calls: vec![call("call_0", "a"), call("call_0", "b")],
                ..AssistantMessage::default()
            };
            let mut wire = Vec::new();
            for _ in 0..3 {
                let calls = ids.wire_ids(&step, false);
                let answered = [result("call_0"), result("call_0")].map(|r| ids.result_id(&r));
                assert_eq!(calls, answered);
                wire.extend(calls);
            }
            assert_eq!(wire.iter().collect::<HashSet<_>>().len(), 6, "{wire:?}");
        }
    }

    #[test]
    fn the_endpoint_gets_its_own_ids_back() {
        let long = format!("call_1__thought__{}", "s".repeat(300));
        let step = AssistantMessage {
            tool_calls: vec![call(&long, "a")],
            ..AssistantMessage::default()
        };
        let mut ids = CallIds::new(ToolIds::Any);
        assert_eq!(ids.wire_ids(&step, true), std::slice::from_ref(&long));
        assert_eq!(ids.result_id(&result(&long)), long);
        let foreign = CallIds::new(ToolIds::Any).wire_ids(&step, false);
        assert!(foreign[0].len() <= MAX_LENGTH, "{foreign:?}");
    }

    #[test]
    fn foreign_ids_are_made_to_fit() {
        assert_eq!(fit("functions.run:0", ToolIds::Word), "functions_run_0");
        assert_eq!(fit("abc123XYZ", ToolIds::Nine), "abc123XYZ");
        assert_eq!(fit("call_1", ToolIds::Nine).len(), 9);
        assert_eq!(fit("call_1", ToolIds::Nine), fit("call_1", ToolIds::Nine));
        assert!(fit(&"x".repeat(80), ToolIds::Any).len() <= MAX_LENGTH);
    }
}
