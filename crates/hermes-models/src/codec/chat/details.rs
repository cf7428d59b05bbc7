//! `reasoning_details` of OpenRouter: structured reasoning that is sent back unchanged.

use serde_json::Value;

/// Fields that grow from chunk to chunk.
const GROWING: &[&str] = &["text", "summary"];

/// Maximum number of details per answer; each takes far more memory than bytes on the wire.
const MAX_DETAILS: usize = 20_000;

/// Merges the pieces of a stream into the details of the whole answer.
#[derive(Debug, Default)]
pub(super) struct ReasoningDetails {
    items: Vec<Value>,
}

impl ReasoningDetails {
    pub(super) fn push(&mut self, piece: &Value) {
        if !piece.is_object() {
            return;
        }
        match self.items.last_mut() {
            Some(last) if continues(last, piece) => merge(last, piece),
            _ => self.items.push(piece.clone()),
        }
    }

    /// Whether there are more than any real answer has.
    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= MAX_DETAILS
    }

    pub(super) fn finish(self) -> Option<Value> {
        (!self.items.is_empty()).then_some(Value::Array(self.items))
    }
}

/// The readable text of a piece.
pub(super) fn text(piece: &Value) -> Option<&str> {
    GROWING
        .iter()
        .find_map(|key| piece.get(key)?.as_str())
        .filter(|text| !text.is_empty())
}

fn continues(last: &Value, piece: &Value) -> bool {
    let same = |key: &str| last.get(key) == piece.get(key);
    piece.get("index").is_some()
        && same("index")
        && same("type")
        && piece.get("type").and_then(Value::as_str) != Some("reasoning.encrypted")
}

fn merge(last: &mut Value, piece: &Value) {
    let (Some(into), Some(from)) = (last.as_object_mut(), piece.as_object()) else {
        return;
    };
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::String(text)), Value::String(more)) if GROWING.contains(&key.as_str()) => {
                text.push_str(more);
            }
            (_, Value::Null) => {}
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pieces_of_one_index_join() {
        let mut details = ReasoningDetails::default();
        for piece in [
            json!({"type": "reasoning.text", "index": 0, "text": "a", "signature": null}),
            json!({"type": "reasoning.text", "index": 0, "text": "b"}),
            json!({"type": "reasoning.text", "index": 0, "signature": "sig"}),
            json!({"type": "reasoning.encrypted", "index": 1, "data": "x"}),
            json!({"type": "reasoning.encrypted", "index": 1, "data": "y"}),
        ] {
            details.push(&piece);
        }
        assert_eq!(
            details.finish(),
            Some(json!([
                {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "sig"},
                {"type": "reasoning.encrypted", "index": 1, "data": "x"},
                {"type": "reasoning.encrypted", "index": 1, "data": "y"},
            ]))
        );
    }
}
