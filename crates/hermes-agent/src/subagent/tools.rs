//! What a child may use of what its parent has.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use hermes_core::tool::{Registry, Tool};

use super::BLOCKED;
use crate::session::ToolSource;
use crate::tools::{TodoList, todo_tool};

/// The beginning of the toolset of an MCP server.
const MCP: &str = "mcp-";

/// Where the tools of a parent come from. It is known only after its `delegate_task` was made,
/// and does not live for its children.
#[derive(Clone, Default)]
pub struct ParentTools(Arc<OnceLock<Weak<dyn ToolSource>>>);

impl ParentTools {
    /// Counts once: a session keeps its source.
    pub fn set(&self, source: &Arc<dyn ToolSource>) {
        let _ = self.0.set(Arc::downgrade(source));
    }

    fn now(&self) -> Option<Registry> {
        Some(self.0.get()?.upgrade()?.registry())
    }
}

/// The tools of one child.
pub(super) struct ChildTools {
    parent: ParentTools,
    /// What the parent had when it delegated.
    given: Registry,
    inherit_mcp: bool,
    /// Of two tools with one name the first counts: a child keeps a list of its own.
    own: Vec<Arc<dyn Tool>>,
    /// What the parent had at the last look, and what followed from it.
    last: Mutex<Option<(Registry, Registry)>>,
}

impl ChildTools {
    pub(super) fn new(
        (parent, given): (ParentTools, Registry),
        inherit_mcp: bool,
        orchestrator: Option<Arc<dyn Tool>>,
    ) -> Self {
        let todo = given.get("todo").map(|_| todo_tool(TodoList::default()));
        Self {
            parent,
            given,
            inherit_mcp,
            own: todo.into_iter().chain(orchestrator).collect(),
            last: Mutex::default(),
        }
    }

    fn is_inherited(&self, tool: &Arc<dyn Tool>) -> bool {
        let spec = tool.spec();
        !BLOCKED.contains(&spec.name.as_str())
            && (self.inherit_mcp || !spec.toolset.starts_with(MCP))
    }
}

impl ToolSource for ChildTools {
    fn registry(&self) -> Registry {
        let parent = self.parent.now().unwrap_or_else(|| self.given.clone());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((seen, own)) = &*last
            && seen.iter().count() == parent.iter().count()
            && seen
                .iter()
                .zip(parent.iter())
                .all(|(a, b)| Arc::ptr_eq(a, b))
        {
            return own.clone();
        }
        let inherited = parent.iter().filter(|tool| self.is_inherited(tool));
        let registry = Registry::new(self.own.iter().chain(inherited).cloned());
        *last = Some((parent, registry.clone()));
        registry
    }
}
