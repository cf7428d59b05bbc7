//! Remembers the questions of a call that got no answer: the server may not say why it failed, and
//! the model should know.

use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::BoxFuture;
use hermes_core::ask::{Answer, Asker, Question};
use hermes_core::message::{Content, Part};
use hermes_core::tool::ToolOutcome;

pub(super) struct Heard {
    person: Arc<dyn Asker>,
    notes: Mutex<Vec<String>>,
}

impl Heard {
    pub(super) fn new(person: Arc<dyn Asker>) -> Self {
        Self {
            person,
            notes: Mutex::default(),
        }
    }

    /// The outcome, with what was not answered.
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

impl Asker for Heard {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let (from, asked) = (question.from.clone(), question.text.clone());
            let answer = self.person.ask(question).await;
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
