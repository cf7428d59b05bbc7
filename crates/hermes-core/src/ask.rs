//! Questions to the person that want an answer rather than a permission: a choice, some words, a
//! form, a page to visit.
//!
//! Permissions are [`crate::approval`]'s. A question may come from a tool (`clarify`) or from
//! an MCP server that needs to know something in the middle of a call.

mod field;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::BoxFuture;

/// Something only the person knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Names it in [`crate::event::AgentCommand::Reply`]; unique within the process.
    pub id: String,
    /// Who asks, for the person: a tool, "MCP server wiki".
    pub from: String,
    /// What is asked.
    pub text: String,
    pub want: Want,
}

/// What an answer looks like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Want {
    /// Some words: [`Answer::Text`].
    Text,
    /// One of these: [`Answer::Text`] with its value, or with other words where `other` allows.
    Choice { options: Vec<Choice>, other: bool },
    /// Values of named fields: [`Answer::Form`].
    Form { fields: Vec<Field> },
    /// The person visits this page, or does not: [`Answer::Agreed`]. Nobody opens it unasked.
    Visit { url: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// What the asker gets.
    pub value: String,
    /// What the person reads.
    pub title: String,
}

impl Choice {
    /// One that reads as it is.
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
    /// Taken where the person says nothing.
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

/// What the person said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Answer {
    Text {
        text: String,
    },
    /// The values of the fields, already checked against them.
    Form {
        values: Map<String, Value>,
    },
    /// Yes, to a page.
    Agreed,
    /// The person does not want to answer.
    Declined {
        why: Option<String>,
    },
    /// There is no answer: nobody is there, the time is over, the turn was stopped.
    Unanswered {
        why: String,
    },
}

/// Whoever can be asked.
pub trait Asker: Send + Sync {
    /// Waits for the answer. Dropping the future withdraws the question.
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer>;
}

/// For runs with nobody to ask: every question stays unanswered, at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Asker for Nobody {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        let why = format!(
            "nobody is here to answer {}: this run has no person at it",
            question.from
        );
        Box::pin(std::future::ready(Answer::Unanswered { why }))
    }
}
