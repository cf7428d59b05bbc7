//! The conversation as it happened: append-only.
//!
//! What a model is shown is not the log but a projection of it ([`crate::project`]). Nothing in
//! the log is edited after it was appended; compaction replaces the visible part as a whole, and
//! the store keeps every row that was visible before.

use std::sync::Arc;

use hermes_core::ids::RowId;
use hermes_core::message::Message;
use hermes_core::store::{NewItem, StoredItem};

use crate::compress::summary;
use crate::tokens;
use crate::weight::{self, ConversationMemory};

/// Who wrote an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Person,
    Model,
    Tool,
    /// Written by the engine.
    Synthetic(Synthetic),
}

impl Origin {
    /// As far as a message itself tells: a row that is nothing but a summary is the engine's.
    pub(crate) fn of(message: &Message) -> Self {
        match message {
            Message::User(user) => {
                let text = user.content.text();
                let summary_text = summary::visible(&text);
                if summary_text.trim().is_empty() && !text.trim().is_empty() {
                    Self::Synthetic(Synthetic::Summary)
                } else {
                    Self::Person
                }
            }
            Message::Assistant(_) => Self::Model,
            Message::Tool(_) => Self::Tool,
        }
    }
}

/// Why the engine wrote an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synthetic {
    /// Asks the model to continue (cut answer, empty answer, announced but undone work).
    Nudge,
    /// Stands for an answer that had no visible text, so that a nudge can follow it.
    Placeholder,
    /// A summary of what was compacted away.
    Summary,
    /// Ends a tool sequence that was interrupted.
    Closing,
    /// Asks for the closing words when the iteration budget is gone.
    BudgetGone,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogItem {
    pub message: Arc<Message>,
    /// Set once the item is in the store.
    pub row: Option<RowId>,
    pub origin: Origin,
    /// `false`: scaffolding that lives only as long as the session's process.
    pub persist: bool,
    /// Seconds since the epoch.
    pub at: f64,
}

impl LogItem {
    pub(crate) fn new(mut message: Message, origin: Origin, at: f64) -> Self {
        message.shrink();
        Self {
            message: Arc::new(message),
            row: None,
            origin,
            persist: true,
            at,
        }
    }

    /// An item that is sent but never stored.
    pub(crate) fn ephemeral(message: Message, why: Synthetic, at: f64) -> Self {
        Self {
            persist: false,
            ..Self::new(message, Origin::Synthetic(why), at)
        }
    }

    pub(crate) fn to_new(&self) -> NewItem {
        NewItem {
            message: Message::clone(&self.message),
            at: self.at,
            token_count: None,
            platform_message_id: None,
        }
    }
}

impl From<StoredItem> for LogItem {
    fn from(stored: StoredItem) -> Self {
        let origin = Origin::of(&stored.message);
        Self {
            row: Some(stored.id),
            ..Self::new(stored.message, origin, stored.at)
        }
    }
}

/// The visible part of a conversation, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    items: Vec<LogItem>,
    tokens: u64,
    /// Of the items.
    bytes: usize,
    weight: ConversationMemory,
}

impl Log {
    pub(crate) fn from_stored(items: Vec<StoredItem>) -> Self {
        let mut log = Self::default();
        for item in items {
            log.push(item.into());
        }
        log
    }

    pub(crate) fn push(&mut self, item: LogItem) {
        self.tokens += tokens::message(&item.message);
        self.bytes += weight::item(&item);
        self.weight
            .set(weight::OPEN_CONVERSATION_BYTES + self.bytes);
        self.items.push(item);
    }

    pub(crate) fn items(&self) -> &[LogItem] {
        &self.items
    }

    /// Raw estimate of the size, kept as the log grows so that nobody has to read it again.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// What it holds in memory, with what an open conversation holds beside it. Goes on being
    /// reckoned as the log changes.
    pub(crate) fn weight(&self) -> ConversationMemory {
        self.weight.clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn last(&self) -> Option<&LogItem> {
        self.items.last()
    }

    /// The newest stored row.
    pub(crate) fn last_row(&self) -> Option<RowId> {
        self.items.iter().filter_map(|item| item.row).max()
    }

    /// Whether a call of this id is in the log already. Some servers count from zero in every
    /// answer, and providers want ids that are unique in the whole conversation.
    pub(crate) fn knows_call(&self, id: &str) -> bool {
        self.items.iter().any(|item| match &*item.message {
            Message::Assistant(message) => message.tool_calls.iter().any(|call| call.id == id),
            Message::User(_) | Message::Tool(_) => false,
        })
    }

    /// Replaces the visible part. The rows it stood for stay in the store.
    pub(crate) fn replace(&mut self, view: Vec<LogItem>) {
        self.rebuild(view);
    }

    fn rebuild(&mut self, items: Vec<LogItem>) {
        self.items.clear();
        self.tokens = 0;
        self.bytes = 0;
        self.weight.set(weight::OPEN_CONVERSATION_BYTES);
        for item in items {
            self.push(item);
        }
    }

    /// The index at which the last `turns` turns of the person begin, and its row. What a summary
    /// stands for is out of reach.
    pub(crate) fn start_of_last_turns(&self, turns: usize) -> Option<(usize, RowId)> {
        self.items
            .iter()
            .enumerate()
            .rev()
            .take_while(|(_, item)| !holds_summary(&item.message))
            .filter(|(_, item)| item.origin == Origin::Person)
            .filter_map(|(at, item)| Some((at, item.row?)))
            .take(turns)
            .last()
    }

    /// Hides everything from `at` on (undo), and gives it.
    pub(crate) fn split_off(&mut self, at: usize) -> Vec<LogItem> {
        let mut retained = std::mem::take(&mut self.items);
        let hidden = retained.split_off(at.min(retained.len()));
        self.rebuild(retained);
        hidden
    }
}

fn holds_summary(message: &Message) -> bool {
    match message {
        Message::User(user) => summary::split(&user.content.text()).is_some(),
        Message::Assistant(answer) => summary::split(&answer.text).is_some(),
        Message::Tool(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(text: &str, row: i64) -> LogItem {
        LogItem {
            row: Some(RowId(row)),
            ..LogItem::new(Message::user(text), Origin::Person, 0.0)
        }
    }

    #[test]
    fn a_summary_is_not_something_the_person_said() {
        let summary = format!("{}\nfacts\n{}", summary::OPEN, summary::CLOSE);
        let merged = format!("{summary}\n\nand now?");
        assert_eq!(
            Origin::of(&Message::user(summary)),
            Origin::Synthetic(Synthetic::Summary)
        );
        assert_eq!(Origin::of(&Message::user(merged.as_str())), Origin::Person);
        let mut log = Log::default();
        log.push(person(&merged, 1));
        assert_eq!(
            log.start_of_last_turns(1),
            None,
            "undoing it would lose the summary"
        );
        log.push(person("later", 2));
        assert_eq!(log.start_of_last_turns(5), Some((1, RowId(2))));
        assert_eq!(Origin::of(&Message::user("plain")), Origin::Person);
    }

    #[test]
    fn turns_are_counted_by_what_the_person_said() {
        let mut log = Log::default();
        log.push(person("one", 1));
        log.push(LogItem::new(Message::assistant("1"), Origin::Model, 0.0));
        log.push(person("two", 3));
        log.push(LogItem::ephemeral(
            Message::user("go on"),
            Synthetic::Nudge,
            0.0,
        ));
        assert_eq!(log.start_of_last_turns(1), Some((2, RowId(3))));
        assert_eq!(log.start_of_last_turns(2), Some((0, RowId(1))));
        assert_eq!(log.start_of_last_turns(9), Some((0, RowId(1))));
        let hidden = log.split_off(2);
        assert_eq!(hidden.len(), 2);
        assert_eq!(log.items().len(), 2);
        assert_eq!(log.start_of_last_turns(0), None);
    }
}
