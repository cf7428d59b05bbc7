//! Optional request fields: what is omitted when an endpoint refuses one.
//!
//! Everything we send besides the conversation itself is optional: an effort, a summary, a cache
//! marker, a limit. If an endpoint refuses one of them by name, it is dropped or lowered, the call
//! is repeated once, and what helped is kept per model and address, also for the next start. No
//! field has code of its own for that: [`refused`] finds the field that an error names among those
//! that were sent, and [`FieldChange`] describes the change. An error that names nothing gets one
//! attempt without any of them ([`without_options`]).

mod apply;
mod book;
mod effort_levels;
mod error_names;
mod format;
mod plain;
mod refused;
mod shape;

use serde::{Deserialize, Serialize};

pub use book::FieldRuleCache;
pub(crate) use book::RuleCertainty;
pub(crate) use format::{FormatDemand, asks_for_other_format, other_format};
pub(crate) use plain::{is_unexplained, without_options};
pub(crate) use refused::refused;
pub(crate) use shape::{has_images, refused_shape};

/// Path of the size limit for inline images, in bytes of their data URL.
pub(crate) const IMAGE_BYTES: &str = "images.bytes";
/// The same for the longest side, in pixels.
pub(crate) const IMAGE_SIDE: &str = "images.side";
/// Path of the reasoning that assistant messages send back.
pub(crate) const REASONING_CONTENT: &str = "messages.*.reasoning_content";
/// Path of the signatures that calls send back.
pub(crate) const CALL_SIGNATURES: &str = "messages.*.tool_calls.*.extra_content";
/// Not fields of a body but ways to write it. If dropped: ids of calls are rewritten to a form that
/// every endpoint accepts, …
pub(crate) const TOOL_IDS: &str = "conversation.tool_ids";
/// … the system prompt is placed in the first user message, …
pub(crate) const SYSTEM_ROLE: &str = "conversation.system_role";
/// … images are replaced by a note, …
pub(crate) const IMAGES: &str = "conversation.images";
/// … tool results are plain text, …
pub(crate) const RESULT_PARTS: &str = "conversation.result_parts";
/// … schemas keep only what every endpoint accepts.
pub(crate) const SCHEMA_WORDS: &str = "conversation.schema_words";
/// Paths below this one are headers.
pub(crate) const HEADERS: &str = "headers.";

/// The change of a field before the request is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum FieldChange {
    /// It is omitted.
    Drop,
    /// It has another name here.
    Rename { to: String },
    /// A number is lowered to this.
    AtMost { limit: u64 },
    /// A value is not accepted; with those that are, if the endpoint stated them.
    NotValue {
        value: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        instead: Vec<String>,
    },
    /// The endpoint requires it.
    Require,
}

/// A change and its field: a path with dots, `*` for every element of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FieldRule {
    pub(crate) field: String,
    #[serde(flatten)]
    pub(crate) change: FieldChange,
}

impl FieldRule {
    pub(crate) fn new(field: &str, change: FieldChange) -> Self {
        Self {
            field: field.to_owned(),
            change,
        }
    }

    /// For the log.
    pub(crate) fn describe(&self) -> String {
        let field = &self.field;
        match &self.change {
            FieldChange::Drop => format!("{field} is left out"),
            FieldChange::Rename { to } => format!("{field} is sent as {to}"),
            FieldChange::AtMost { limit } => format!("{field} is at most {limit}"),
            FieldChange::NotValue { value, instead } if instead.is_empty() => {
                format!("{field} is not {value:?}")
            }
            FieldChange::NotValue { value, instead } => {
                format!("{field} is not {value:?} but one of {}", instead.join(", "))
            }
            FieldChange::Require => format!("{field} is always sent"),
        }
    }
}

/// The changes for one model at one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldRules(Vec<FieldRule>);

impl FieldRules {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &FieldRule> {
        self.0.iter()
    }

    /// Adds a rule; a stronger one of its kind replaces it. `false`: nothing is new, so repeating
    /// the call would get the same answer.
    pub(crate) fn add(&mut self, rule: FieldRule) -> bool {
        if self.0.contains(&rule) {
            return false;
        }
        let replaces = |old: &FieldRule| {
            old.field == rule.field
                && match (&old.change, &rule.change) {
                    (
                        FieldChange::NotValue { value: a, .. },
                        FieldChange::NotValue { value: b, .. },
                    ) => a == b,
                    (old, new) => std::mem::discriminant(old) == std::mem::discriminant(new),
                }
        };
        // A limit that is not lower than the refused one adds nothing.
        let stale = |old: &FieldRule| match (&old.change, &rule.change) {
            (FieldChange::AtMost { limit: a }, FieldChange::AtMost { limit: b }) => {
                old.field == rule.field && a <= b
            }
            _ => false,
        };
        if self.0.iter().any(stale) {
            return false;
        }
        self.0.retain(|old| !replaces(old));
        self.0.push(rule);
        true
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        for rule in other.iter() {
            self.add(rule.clone());
        }
    }

    pub(crate) fn limit(&self, field: &str) -> Option<u64> {
        self.0.iter().find_map(|rule| match rule.change {
            FieldChange::AtMost { limit } if rule.field == field => Some(limit),
            _ => None,
        })
    }

    pub(crate) fn requires(&self, field: &str) -> bool {
        self.0
            .iter()
            .any(|rule| rule.field == field && rule.change == FieldChange::Require)
    }

    pub(crate) fn drops(&self, field: &str) -> bool {
        self.0
            .iter()
            .any(|rule| rule.field == field && rule.change == FieldChange::Drop)
    }
}

impl FromIterator<FieldRule> for FieldRules {
    fn from_iter<T: IntoIterator<Item = FieldRule>>(rules: T) -> Self {
        let mut all = Self::default();
        for rule in rules {
            all.add(rule);
        }
        all
    }
}
