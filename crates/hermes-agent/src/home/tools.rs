//! The tools of a session on this home, limited to the toolsets that were asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use hermes_core::model::ModelInfo;
use hermes_core::tool::{Registry, Tool, ToolSpec};

use crate::lean;
use crate::session::ToolSource;
use crate::tools::{StoreTools, TodoList, store_backed};

/// Sets that stand for everything a platform offers; the original names one per platform.
const EVERYTHING: &[&str] = &["all", "*"];

/// Which toolsets a session gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolChoice {
    /// `None`: all.
    only: Option<Vec<String>>,
    disabled: Vec<String>,
}

impl ToolChoice {
    /// As the config says: `toolsets` without `agent.disabled_toolsets`. Names that mean nothing
    /// here are left to the tools of other platforms.
    pub fn from_config(config: &hermes_config::Config) -> Self {
        let wanted = &config.toolsets;
        let everything = wanted.is_empty() || wanted.iter().any(|name| is_everything(name));
        Self {
            only: (!everything).then(|| wanted.clone()),
            disabled: config.agent.disabled_toolsets.clone(),
        }
    }

    /// As a person named them: toolsets or single tools; `none` for no tools at all.
    pub fn named(names: &[String]) -> Self {
        let names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();
        let everything = names.iter().any(|name| is_everything(name));
        Self {
            only: (!everything).then_some(names),
            disabled: Vec::new(),
        }
    }

    /// Names of this choice that no tool answers to.
    pub fn unknown<'a>(&'a self, tools: &HomeTools) -> Vec<&'a str> {
        let known: BTreeSet<&str> = tools
            .all
            .iter()
            .flat_map(|tool| [tool.spec().name.as_str(), tool.spec().toolset])
            .chain(["none"])
            .collect();
        self.only
            .iter()
            .flatten()
            .map(String::as_str)
            .filter(|name| !known.contains(name))
            .collect()
    }

    fn allows(&self, spec: &ToolSpec) -> bool {
        let names = |list: &[String]| {
            list.iter()
                .any(|name| *name == spec.name || name == spec.toolset)
        };
        self.only.as_deref().is_none_or(names) && !names(&self.disabled)
    }
}

fn is_everything(name: &str) -> bool {
    EVERYTHING.contains(&name) || name.starts_with("hermes-")
}

/// The tools of one session.
pub struct HomeTools {
    all: Vec<Arc<dyn Tool>>,
    registry: Registry,
    /// Toolsets and tools that the person named: these stay in the smallest window.
    chosen: Vec<String>,
    todos: TodoList,
}

impl HomeTools {
    pub fn new(deps: StoreTools, choice: &ToolChoice) -> Self {
        let todos = deps.todos.clone();
        let all = store_backed(deps);
        let allowed = all
            .iter()
            .filter(|tool| choice.allows(tool.spec()))
            .cloned();
        Self {
            registry: Registry::new(allowed),
            chosen: choice.only.clone().unwrap_or_default(),
            todos,
            all,
        }
    }

    /// Every toolset there is, also those that were not chosen.
    pub fn toolsets(&self) -> BTreeSet<&'static str> {
        self.all.iter().map(|tool| tool.spec().toolset).collect()
    }
}

impl ToolSource for HomeTools {
    fn registry(&self) -> Registry {
        self.registry.clone()
    }

    fn specs(&self, registry: &Registry, model: &ModelInfo) -> Arc<[ToolSpec]> {
        lean::Mode::of(model.context_length).tools(&registry.specs(), &self.chosen)
    }

    fn carried_over(&self) -> Option<String> {
        self.todos.carried_over()
    }
}
