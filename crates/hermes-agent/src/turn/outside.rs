//! What comes into a conversation from outside it: orders that are not the person's, secrets that
//! the model must not see, money that tools spend.

use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::event::Spent;
use hermes_core::message::{Content, Message, Part};
use hermes_core::redact;
use hermes_core::store::{SessionUpdate, StoredItem};
use hermes_core::taint::{brings_outside, says_from_outside};
use hermes_core::threat_scan::{self, ScanScope};
use hermes_core::tool::{ToolOutcome, ToolSpec};

use super::{Turn, TurnFlow};
use crate::fence;

/// Toolsets whose results are the home's own words: instructions are normal in them.
const OWN: [&str; 6] = [
    "clarify",
    "cronjob",
    "delegation",
    "memory",
    "skills",
    "todo",
];

/// Stands in a summary when the conversation it replaces had read from outside.
pub(crate) const READ_OUTSIDE: &str = "(This conversation has read material from outside.)";

/// What in a result reads like orders to the model. Such a result is fenced whoever brought it:
/// a file or the output of a command may hold a page as well.
pub(super) fn suspicious(spec: Option<&ToolSpec>, text: &str) -> Vec<String> {
    if spec.is_none_or(|spec| OWN.contains(&spec.toolset)) {
        return Vec::new();
    }
    threat_scan::scan(text, ScanScope::Context)
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Whether a text says that it, or a part of it, comes from outside.
pub(crate) fn is_from_outside(text: &str) -> bool {
    fence::is_fenced(text) || says_from_outside(text)
}

/// Whether a stored conversation has read from outside.
pub fn read_before(items: &[StoredItem]) -> bool {
    items.iter().any(|item| match &item.message {
        Message::Tool(result) => {
            brings_outside(&result.name) || is_from_outside(&result.content.text())
        }
        Message::User(user) => {
            let text = user.content.text();
            // What a message referred to goes over the wire beside it.
            let beside = user.wire_text.as_deref().is_some_and(is_from_outside);
            beside || is_from_outside(&text) || text.contains(READ_OUTSIDE)
        }
        Message::Assistant(answer) => answer.text.contains(READ_OUTSIDE),
    })
}

/// The outcome without secrets. `patterns`: also without what merely looks like a key.
pub(super) fn without_secrets(outcome: ToolOutcome, patterns: bool) -> ToolOutcome {
    match outcome {
        ToolOutcome::Done(Content::Text(text)) => {
            ToolOutcome::Done(Content::Text(hidden(text, patterns)))
        }
        ToolOutcome::Done(Content::Parts(parts)) => {
            let parts = parts.into_iter().map(|part| match part {
                Part::Text { text, .. } => Part::text(hidden(text, patterns)),
                other => other,
            });
            ToolOutcome::Done(Content::Parts(parts.collect()))
        }
        ToolOutcome::Error { kind, text } => ToolOutcome::Error {
            kind,
            text: hidden(text, patterns),
        },
    }
}

/// Copies only where there is something to hide.
pub(super) fn hidden(text: String, patterns: bool) -> String {
    let shown = if patterns {
        redact::keys(&text)
    } else {
        redact::known(&text)
    };
    match shown {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(shown) => shown,
    }
}

/// What tools spent and the turn has not counted yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolSpending(Arc<Mutex<Vec<Spent>>>);

impl ToolSpending {
    pub(super) fn add(&self, spent: Spent) {
        self.lock().push(spent);
    }

    fn take(&self) -> Vec<Spent> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Spent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Counts what tools spent on models. Calls of subagents stand in rows of their own.
    pub(super) async fn count_spending(&mut self) -> TurnFlow<()> {
        for spent in self.scope.spending.take() {
            self.budget.spend(&spent.entry.usage, spent.entry.cost);
            if !spent.recorded {
                self.update(SessionUpdate::Usage(spent.entry)).await?;
            }
            self.report_usage().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hermes_core::ids::RowId;
    use hermes_core::message::ToolMessage;
    use serde_json::json;

    use super::*;

    fn has_read(name: &str, text: &str) -> bool {
        let message = Message::Tool(ToolMessage {
            call_id: "c".to_owned(),
            name: name.to_owned(),
            content: Content::Text(text.to_owned()),
            disposition: None,
        });
        let item = StoredItem {
            id: RowId(1),
            message,
            at: 0.0,
        };
        read_before(&[item])
    }

    /// However short it is: what is short has no fence.
    #[test]
    fn a_stored_conversation_says_what_it_has_read() {
        assert!(has_read("mcp__mail__read", "hi"));
        assert!(has_read("web_search", "none"));
        assert!(has_read(
            "terminal",
            &json!({ "from_outside": true }).to_string()
        ));
        let report = json!({ "results": [{ "summary": "hi", "from_outside": true }] });
        assert!(has_read("delegate_task", &report.to_string()));
        assert!(has_read("x", &fence::fence("x", &"word ".repeat(20))));
        assert!(!has_read(
            "terminal",
            &json!({ "output": "hi" }).to_string()
        ));
        assert!(!has_read("read_file", "hi"));
    }
}
