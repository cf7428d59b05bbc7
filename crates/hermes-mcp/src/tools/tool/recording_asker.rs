//! Records the unanswered questions of a call: the server may not say why it failed, and the model
//! should know.

use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::BoxFuture;
use hermes_core::ask::{Answer, Asker, Question};
use hermes_core::message::{Content, Part};
use hermes_core::tool::ToolOutcome;

pub(super) struct RecordingAsker {
    inner: Arc<dyn Asker>,
    notes: Mutex<Vec<String>>,
}

impl RecordingAsker {
    pub(super) fn new(inner: Arc<dyn Asker>) -> Self {
        Self {
            inner,
            notes: Mutex::default(),
        }
    }

    /// Adds the unanswered questions to the outcome.
    pub(super) fn explain(&self, outcome: ToolOutcome) -> ToolOutcome {
        let notes = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        if notes.is_empty() {
            return outcome;
        }
        let note = format!("\n\n[{}]", notes.join(" "));
        match outcome {
            ToolOutcome::Done(Content::Text(text)) => {
                ToolOutcome::Done(Content::Text(text + &note))
            }
            ToolOutcome::Done(Content::Parts(mut parts)) => {
                parts.push(Part::text(note.trim_start()));
                ToolOutcome::Done(Content::Parts(parts))
            }
            ToolOutcome::Error { kind, text } => ToolOutcome::Error {
                kind,
                text: text + &note,
            },
        }
    }
}

impl Asker for RecordingAsker {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let (from, asked) = (question.from.clone(), question.text.clone());
            let answer = self.inner.ask(question).await;
            let note = match &answer {
                Answer::Unanswered { why } => Some(format!(
                    "{from} asked {asked:?} during this call and got no answer: {why}."
                )),
                Answer::Declined { .. } => Some(format!(
                    "{from} asked {asked:?} during this call; the person declined to answer."
                )),
                _ => None,
            };
            if let Some(note) = note {
                let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
                notes.push(note);
            }
            answer
        })
    }
}
