//! The task list of a session. It lives in memory; its results in the conversation are its store,
//! from which it is rebuilt when a session is resumed.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::BoxFuture;
use hermes_core::message::Message;
use hermes_core::schema;
use hermes_core::tool::{Effects, Tool, ToolArgs, ToolContext, ToolOutcome, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use hermes_core::args::Args;

const NAME: &str = "todo";
const MAX_ITEMS: usize = 256;
const MAX_CHARS: usize = 4_000;
/// A larger result in the history is no list of ours.
const MAX_RESULT: usize = 512_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    Pending,
    InProgress,
    Completed,
    Cancelled,
}

impl TodoStatus {
    const ALL: [Self; 4] = [
        Self::Pending,
        Self::InProgress,
        Self::Completed,
        Self::Cancelled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        let word = word.trim().to_lowercase();
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::InProgress)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    pub id: String,
    pub content: String,
    pub status: TodoStatus,
}

/// The list; clones share it.
#[derive(Clone, Debug, Default)]
pub struct TodoList {
    items: Arc<Mutex<Vec<TodoItem>>>,
}

impl TodoList {
    pub fn items(&self) -> Vec<TodoItem> {
        self.lock().clone()
    }

    /// The open items as text that survives a compaction; `None` when nothing is open. Finished
    /// ones are left out: reading them, models do the work again.
    pub fn carried_over(&self) -> Option<String> {
        let mut text = String::new();
        for item in self.lock().iter().filter(|item| item.status.is_open()) {
            let mark = if item.status == TodoStatus::InProgress {
                '>'
            } else {
                ' '
            };
            let _ = writeln!(
                text,
                "- [{mark}] {}. {} ({})",
                item.id,
                item.content,
                item.status.as_str()
            );
        }
        (!text.is_empty()).then(|| text.trim_end().to_owned())
    }

    /// Takes the list from the last result of this tool in a resumed conversation.
    pub fn restore<'a>(&self, history: impl DoubleEndedIterator<Item = &'a Message>) {
        let found = history.rev().find_map(|message| match message {
            Message::Tool(tool) if tool.name == NAME => {
                let text = tool.content.text();
                let value: Value = (text.len() <= MAX_RESULT)
                    .then(|| serde_json::from_str(&text).ok())
                    .flatten()?;
                value["todos"].as_array().cloned()
            }
            _ => None,
        });
        if let Some(items) = found {
            let mut restored: Vec<TodoItem> =
                items.iter().filter_map(|item| read(item).ok()).collect();
            restored.truncate(MAX_ITEMS);
            *self.lock() = restored;
        }
    }

    fn replace(&self, new: Vec<TodoItem>) {
        let mut items: Vec<TodoItem> = Vec::new();
        // Of two with one id the later one counts, at its place.
        for item in new {
            items.retain(|known| known.id != item.id);
            items.push(item);
        }
        items.truncate(MAX_ITEMS);
        *self.lock() = items;
    }

    fn merge(&self, changes: Vec<TodoChange>) {
        let mut items = self.lock();
        for change in changes {
            let Some(at) = items.iter().position(|item| item.id == change.id) else {
                if items.len() < MAX_ITEMS {
                    items.push(change.into_item());
                }
                continue;
            };
            if let Some(content) = change.content {
                items[at].content = content;
            }
            if let Some(status) = change.status {
                items[at].status = status;
            }
        }
    }

    fn to_json(&self) -> Value {
        let items = self.lock();
        let count = |status: TodoStatus| items.iter().filter(|item| item.status == status).count();
        json!({
            "todos": *items,
            "summary": {
                "total": items.len(),
                "pending": count(TodoStatus::Pending),
                "in_progress": count(TodoStatus::InProgress),
                "completed": count(TodoStatus::Completed),
                "cancelled": count(TodoStatus::Cancelled),
            },
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<TodoItem>> {
        // Every write leaves the list whole, so a panic elsewhere does not spoil it.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An item as sent; when merging, only what is there changes.
struct TodoChange {
    id: String,
    content: Option<String>,
    status: Option<TodoStatus>,
}

impl TodoChange {
    fn parse(value: &Value) -> Result<Self, String> {
        let text = |key: &str| match &value[key] {
            Value::String(text) => Some(text.trim().to_owned()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        if !value.is_object() {
            return Err("must be an object with id, content and status".to_owned());
        }
        let id = text("id")
            .filter(|id| !id.is_empty())
            .ok_or("needs an id")?;
        let status = match text("status").filter(|status| !status.is_empty()) {
            None => None,
            Some(word) => Some(TodoStatus::parse(&word).ok_or_else(|| {
                format!("has status {word:?}; use pending, in_progress, completed or cancelled")
            })?),
        };
        let content = text("content").filter(|content| !content.is_empty());
        Ok(Self {
            id,
            content: content.map(|content| capped(&content)),
            status,
        })
    }

    fn into_item(self) -> TodoItem {
        TodoItem {
            id: self.id,
            content: self
                .content
                .unwrap_or_else(|| "(no description)".to_owned()),
            status: self.status.unwrap_or(TodoStatus::Pending),
        }
    }
}

fn read(value: &Value) -> Result<TodoItem, String> {
    TodoChange::parse(value).map(TodoChange::into_item)
}

fn capped(content: &str) -> String {
    hermes_core::text::shorten_within(content, MAX_CHARS)
}

pub(super) struct Todo {
    spec: ToolSpec,
    list: TodoList,
}

impl Todo {
    pub(super) fn new(list: TodoList) -> Self {
        let parameters = schema!(json!({
            "type": "object",
            "properties": {
                "todos": {
                    "type": "array",
                    "description": "The items to write, most important first. Leave out to read the list.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": { "type": "string", "description": "Short and unique in the list." },
                            "content": { "type": "string", "description": "What is to be done." },
                            "status": {
                                "type": "string",
                                "enum": ["pending", "in_progress", "completed", "cancelled"],
                                "description": "Where it stands.",
                            },
                        },
                        "required": ["id", "content", "status"],
                    },
                },
                "merge": {
                    "type": "boolean",
                    "description": "true: change the items with these ids and add new ones. false: these items are the whole new list.",
                    "default": false,
                },
            },
            "required": [],
        }));
        let description = "Keep the task list of this conversation. \
            Use it for work of three steps or more, or when several things were asked for. \
            Keep exactly one item in_progress, mark an item completed as soon as it is done, and \
            when one turns out wrong, cancel it and add a better one. Without arguments it shows \
            the list; every call returns the whole list.";
        Self {
            spec: ToolSpec::new(NAME, NAME, Effects::Exclusive, description, parameters),
            list,
        }
    }

    fn run(&self, args: &ToolArgs) -> Result<Value, ToolOutcome> {
        let args = Args::new(NAME, args);
        let merge = args.flag("merge")?;
        if let Some(items) = args.list("todos")? {
            let mut changes = Vec::with_capacity(items.len());
            for (at, item) in items.iter().enumerate() {
                let change = TodoChange::parse(item);
                changes.push(change.map_err(|why| args.bad(&format!("item {} {why}", at + 1)))?);
            }
            if merge {
                self.list.merge(changes);
            } else {
                self.list
                    .replace(changes.into_iter().map(TodoChange::into_item).collect());
            }
        }
        Ok(self.list.to_json())
    }
}

impl Tool for Todo {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, _cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(std::future::ready(ToolOutcome::of(self.run(&args))))
    }
}
