//! Tools that need nothing but the session: the task list, questions to the person, other models.

mod clarify;
pub mod moa;
mod todo;

use std::sync::Arc;
use std::time::Duration;

use hermes_core::tool::Tool;

pub use todo::{TodoItem, TodoList, TodoStatus};

/// The `todo` tool on `list`.
pub fn todo_tool(list: TodoList) -> Arc<dyn Tool> {
    Arc::new(todo::Todo::new(list))
}

/// `clarify`; without a timeout the question waits until the person answers.
pub fn clarify_tool(timeout: Option<Duration>) -> Arc<dyn Tool> {
    Arc::new(clarify::Clarify::new(timeout))
}
