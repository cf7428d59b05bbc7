//! Which tools a subagent gets.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use hermes_core::model::ModelInfo;
use hermes_core::tool::{Registry, Tool, ToolSpec};
use hermes_core::tool_traits::tool_traits;

use crate::deferred;
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

    fn source(&self) -> Option<Arc<dyn ToolSource>> {
        self.0.get()?.upgrade()
    }

    fn now(&self) -> Option<Registry> {
        Some(self.source()?.registry())
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
        tool_traits(&spec.name).for_subagents
            && (self.inherit_mcp
                || !(spec.toolset.starts_with(MCP) || spec.toolset == deferred::TOOLSET))
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

    /// Without those that the parent's model has to search for, too.
    fn specs(&self, registry: &Registry, model: &ModelInfo) -> Arc<[ToolSpec]> {
        let all = registry.specs();
        let source = registry
            .get(deferred::SEARCH)
            .and_then(|_| self.parent.source());
        let Some(source) = source else {
            return all;
        };
        let sent = source.specs(registry, model);
        let names: BTreeSet<&str> = sent.iter().map(|spec| spec.name.as_str()).collect();
        let allowed =
            |spec: &&ToolSpec| !spec.toolset.starts_with(MCP) || names.contains(spec.name.as_str());
        all.iter().filter(allowed).cloned().collect()
    }
}
