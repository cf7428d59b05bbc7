//! Ids of tool calls. A missing or unfit id is replaced by one that follows from the call, never
//! by a random one: random ids would change the conversation's bytes on every request.

use std::borrow::Cow;
use std::collections::VecDeque;

use hermes_core::message::{AssistantMessage, ToolCall, ToolMessage};
use sha2::{Digest, Sha256};

use crate::quirks::ToolIds;

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Longest id that every format takes.
const MAX_LENGTH: usize = 64;

/// An id for a call that came without one. `salt` sets apart equal calls of different steps.
pub(super) fn derived(name: &str, arguments: &str, index: usize, salt: usize) -> String {
    let digest = Sha256::digest(format!("{name}:{arguments}:{index}:{salt}"));
    format!("call_{}", hex(&digest[..12]))
}

/// Hands out the ids of a conversation in its order, so that calls and results agree.
#[derive(Debug)]
pub(super) struct CallIds {
    style: ToolIds,
    /// Ids of the latest assistant message whose results have not been seen.
    open: VecDeque<String>,
}

impl CallIds {
    pub(super) fn new(style: ToolIds) -> Self {
        Self {
            style,
            open: VecDeque::new(),
        }
    }

    /// The wire ids of the calls of `message`, in their order.
    pub(super) fn of_calls(&mut self, message: &AssistantMessage) -> Vec<String> {
        let ids: Vec<String> = message
            .tool_calls
            .iter()
            .enumerate()
            .map(|(index, call)| self.of_call(call, index))
            .collect();
        self.open = ids.iter().cloned().collect();
        ids
    }

    fn of_call(&self, call: &ToolCall, index: usize) -> String {
        if call.id.is_empty() {
            let id = derived(&call.name, call.arguments.trim(), index, 0);
            return fit(&id, self.style).into_owned();
        }
        fit(&call.id, self.style).into_owned()
    }

    /// The wire id that a result answers to. A result without id belongs to the oldest call
    /// that has none yet.
    pub(super) fn of_result(&mut self, message: &ToolMessage) -> String {
        if message.call_id.is_empty() {
            return self.open.pop_front().unwrap_or_else(|| {
                fit(&derived(&message.name, "", 0, 0), self.style).into_owned()
            });
        }
        let id = fit(&message.call_id, self.style).into_owned();
        self.open.retain(|open| *open != id);
        id
    }
}

/// `id` as the endpoint takes it.
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
        let wire = ids.of_calls(&message);
        assert_ne!(wire[0], wire[2]);
        assert_eq!(wire[1], "kept");
        assert_eq!(ids.of_result(&result("kept")), "kept");
        assert_eq!(ids.of_result(&result("")), wire[0]);
        assert_eq!(ids.of_result(&result("")), wire[2]);
        assert_eq!(CallIds::new(ToolIds::Any).of_calls(&message), wire);
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
