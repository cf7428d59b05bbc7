//! Limits on the size of an answer, so that an endless one ends.

use hermes_core::model::ModelEvent;

/// Text, reasoning and arguments of one answer. The longest of any model is a tenth of this.
pub(super) const MAX_CONTENT: usize = 8 << 20;
/// Data without content: keep-alives, signatures, unknown fields.
const MAX_WITHOUT_CONTENT: usize = if cfg!(test) { 4 << 20 } else { 32 << 20 };
/// Bytes on the wire per byte of content: one letter per event, with all overhead.
const MAX_OVERHEAD: usize = 1_000;
/// Total bytes received: signatures and details are kept as well, and the longest answers of real
/// models need half of it, with one token per event.
const MAX_RECEIVED: usize = if cfg!(test) { 12 << 20 } else { 128 << 20 };
/// Added for each call, because a slot is kept for it.
const BYTES_PER_CALL: usize = 1_000;

/// Measures an answer while it arrives.
#[derive(Debug, Default)]
pub(super) struct AnswerBound {
    received: usize,
    content: usize,
}

impl AnswerBound {
    pub(super) fn receive(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes);
    }

    pub(super) fn count(&mut self, events: &[ModelEvent]) {
        let sizes = events.iter().map(|event| match event {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) => text.len(),
            ModelEvent::ToolArguments { delta, .. } => delta.len(),
            ModelEvent::ToolStarted { id, name, .. } => BYTES_PER_CALL + id.len() + name.len(),
            _ => 0,
        });
        self.content = self.content.saturating_add(sizes.sum());
    }

    /// Why reading the answer is stopped.
    pub(super) fn exceeded(&self) -> Option<String> {
        if self.content > MAX_CONTENT {
            return Some(format!(
                "the answer is longer than {} MB and was stopped; ask for less, or in parts",
                MAX_CONTENT >> 20
            ));
        }
        let silent = MAX_WITHOUT_CONTENT.saturating_add(self.content.saturating_mul(MAX_OVERHEAD));
        let silent = silent.min(MAX_RECEIVED);
        (self.received > silent).then(|| {
            format!(
                "the server sent {} MB that hold no answer; it was stopped",
                self.received >> 20
            )
        })
    }
}
