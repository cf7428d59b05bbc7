//! How much of an answer is taken: an endless one must end.

use hermes_core::model::ModelEvent;

/// Text, thoughts and arguments of one answer. The longest that any model gives is a tenth of it.
pub(super) const MAX_CONTENT: usize = 8 << 20;
/// What may arrive without content: keep-alives, signatures, fields that are not known here.
const MAX_SILENT: usize = if cfg!(test) { 4 << 20 } else { 32 << 20 };
/// Bytes on the wire for one byte of content: one letter per event, with everything around it.
const WRAPPING: usize = 1_000;
/// Everything on the wire together: signatures and details are kept as well, and the longest answers
/// of real models come in half of it, one token per event.
const MAX_RECEIVED: usize = if cfg!(test) { 12 << 20 } else { 128 << 20 };
/// What a call counts beside its arguments: a slot is kept for it.
const PER_CALL: usize = 1_000;

/// Counts an answer while it arrives.
#[derive(Debug, Default)]
pub(super) struct Bound {
    received: usize,
    content: usize,
}

impl Bound {
    pub(super) fn receive(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes);
    }

    pub(super) fn count(&mut self, events: &[ModelEvent]) {
        let sizes = events.iter().map(|event| match event {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) => text.len(),
            ModelEvent::ToolArguments { delta, .. } => delta.len(),
            ModelEvent::ToolStarted { id, name, .. } => PER_CALL + id.len() + name.len(),
            _ => 0,
        });
        self.content = self.content.saturating_add(sizes.sum());
    }

    /// Why the answer is not read on.
    pub(super) fn exceeded(&self) -> Option<String> {
        if self.content > MAX_CONTENT {
            return Some(format!(
                "the answer is longer than {} MB and was stopped; ask for less, or in parts",
                MAX_CONTENT >> 20
            ));
        }
        let silent = MAX_SILENT.saturating_add(self.content.saturating_mul(WRAPPING));
        let silent = silent.min(MAX_RECEIVED);
        (self.received > silent).then(|| {
            format!(
                "the server sent {} MB that hold no answer; it was stopped",
                self.received >> 20
            )
        })
    }
}
