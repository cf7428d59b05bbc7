//! Questions to the person that need an answer rather than a permission: a choice, a text, a form,
//! a page to visit.
//!
//! Permissions are in [`crate::approval`]. A question may come from a tool (`clarify`) or from an
//! MCP server in the middle of a call.

mod field;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::BoxFuture;

/// A question that only the person can answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Identifies it in [`crate::event::AgentCommand::Reply`]; unique within the process.
    pub id: String,
    /// Who asks, for display: a tool, "MCP server wiki".
    pub from: String,
    /// The text of the question.
    pub text: String,
    pub want: Want,
}

/// The kind of answer expected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Want {
    /// A text: [`Answer::Text`].
    Text,
    /// One of these: [`Answer::Text`] with its value, or with other text if `other` allows it.
    Choice { options: Vec<Choice>, other: bool },
    /// Values of named fields: [`Answer::Form`].
    Form { fields: Vec<Field> },
    /// The person visits this page, or does not: [`Answer::Agreed`]. It is never opened
    /// automatically.
    Visit { url: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The value returned to the asker.
    pub value: String,
    /// The text shown to the person.
    pub title: String,
}

impl Choice {
    /// A choice whose title is its value.
    pub fn plain(value: impl Into<String>) -> Self {
        let value = value.into();
        Self {
            title: value.clone(),
            value,
        }
    }
}

/// One field of a form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// The key of its value in the answer.
    pub name: String,
    pub title: String,
    pub description: Option<String>,
    pub required: bool,
    pub kind: FieldKind,
    /// Used if the person enters nothing.
    pub default: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FieldKind {
    Text {
        /// `email`, `uri`, `date`, `date-time`.
        format: Option<String>,
        min_length: Option<u64>,
        max_length: Option<u64>,
    },
    Number {
        integer: bool,
        minimum: Option<f64>,
        maximum: Option<f64>,
    },
    Boolean,
    /// One of these.
    One {
        options: Vec<Choice>,
    },
    /// Any of these: an array of values.
    Several {
        options: Vec<Choice>,
        min_items: Option<u64>,
        max_items: Option<u64>,
    },
}

/// The person's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Answer {
    Text {
        text: String,
    },
    /// The values of the fields, already validated.
    Form {
        values: Map<String, Value>,
    },
    /// The person agreed to visit a page.
    Agreed,
    /// The person declined to answer.
    Declined {
        why: Option<String>,
    },
    /// No answer: no person is present, the time is over, or the turn was stopped.
    Unanswered {
        why: String,
    },
}

/// Asks the person questions.
pub trait Asker: Send + Sync {
    /// Waits for the answer. Dropping the future withdraws the question.
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer>;
}

/// For runs without a person: every question stays unanswered, at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeclineAll;

impl Asker for DeclineAll {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        let why = format!(
            "nobody is here to answer {}: this run has no person at it",
            question.from
        );
        Box::pin(std::future::ready(Answer::Unanswered { why }))
    }
}
