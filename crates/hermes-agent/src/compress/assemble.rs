//! Rows of the new view: the summary, and the user's words around it.

use std::sync::Arc;

use hermes_core::message::{Content, Message, Part, UserMessage};

use super::plan::SummaryPlan;
use super::summary;
use crate::tokens;

impl SummaryPlan {
    /// Whether a summary must be written; otherwise the previous one, if any, stays.
    pub fn needs_summary(&self) -> bool {
        !self.middle.is_empty()
    }

    /// The new view. `summary` is cut to the budget; where none is needed, it is not looked at.
    pub fn assemble(&self, summary: &str, todo: Option<&str>) -> Vec<Arc<Message>> {
        let mut view = self.head.clone();
        let body = if self.needs_summary() {
            fitted(summary, self.budget)
        } else {
            self.previous.clone().unwrap_or_default()
        };
        let text = |carried| {
            if body.is_empty() {
                return String::new();
            }
            summary::render(&body, todo, carried)
        };
        let mut tail = self.tail.iter();
        let row = if let Some(user) = &self.carried {
            Some(prefixed(user, &text(true)))
        } else if let Some(Message::User(user)) = self.tail.first().map(AsRef::as_ref) {
            tail.next();
            Some(prefixed(user, &text(false)))
        } else {
            (!body.is_empty()).then(|| UserMessage {
                content: Content::Text(text(false)),
                wire_text: None,
            })
        };
        view.extend(row.map(|user| Arc::new(Message::User(user))));
        view.extend(tail.cloned());
        view
    }
}

/// `user` with `text` in front of what was written.
fn prefixed(user: &UserMessage, text: &str) -> UserMessage {
    if text.is_empty() {
        return user.clone();
    }
    let content = match &user.content {
        Content::Text(own) => Content::Text(format!("{text}\n\n{own}")),
        Content::Parts(parts) => {
            let mut parts = parts.clone();
            match parts.iter_mut().find(|part| part.as_text().is_some()) {
                Some(part) => {
                    let own = part.as_text().unwrap_or_default();
                    *part = Part::text(format!("{text}\n\n{own}"));
                }
                None => parts.insert(0, Part::text(text)),
            }
            Content::Parts(parts)
        }
    };
    UserMessage {
        content,
        wire_text: user
            .wire_text
            .as_ref()
            .map(|wire| format!("{text}\n\n{wire}")),
    }
}

/// The summary within its budget: whole lines from the start, and a note if some are missing.
fn fitted(summary: &str, budget: u64) -> String {
    const NOTE: &str = "[the summary was longer and is cut here]";
    let summary = summary.trim();
    if tokens::text(summary) <= budget {
        return summary.to_owned();
    }
    let budget = budget.saturating_sub(tokens::text(NOTE) + 1);
    let mut fitting = String::new();
    let mut used = 0;
    for line in summary.split_inclusive('\n') {
        used += tokens::text(line);
        if used > budget {
            let left = budget.saturating_sub(tokens::text(&fitting));
            // A line that is as long as the budget is cut inside; a quarter is safe for any script.
            if fitting.is_empty() {
                fitting = line.chars().take(left as usize).collect();
            }
            break;
        }
        fitting.push_str(line);
    }
    format!("{}\n{NOTE}", fitting.trim_end())
}

/// A summary row without the summary: what the user wrote, or nothing.
pub(super) fn own_words(row: &Message, own: &str) -> Option<Message> {
    let Message::User(user) = row else {
        return (!own.is_empty()).then(|| Message::user(own));
    };
    let content = match &user.content {
        Content::Text(_) if own.is_empty() => return None,
        Content::Text(_) => Content::Text(own.to_owned()),
        Content::Parts(parts) => {
            let mut parts = parts.clone();
            if let Some(at) = parts.iter().position(|part| part.as_text().is_some()) {
                if own.is_empty() {
                    parts.remove(at);
                } else {
                    parts[at] = Part::text(own);
                }
            }
            if parts.is_empty() {
                return None;
            }
            Content::Parts(parts)
        }
    };
    let wire_text = user
        .wire_text
        .as_deref()
        .and_then(|wire| summary::split(wire).map(|split| split.own.to_owned()))
        .filter(|wire| !wire.is_empty());
    Some(Message::User(UserMessage { content, wire_text }))
}

/// Adds `text` to what was written.
pub(super) fn append(user: &mut UserMessage, text: &str) {
    match &mut user.content {
        Content::Text(own) => own.push_str(text),
        Content::Parts(parts) => parts.push(Part::text(text.trim_start())),
    }
    if let Some(wire) = &mut user.wire_text {
        wire.push_str(text);
    }
}
