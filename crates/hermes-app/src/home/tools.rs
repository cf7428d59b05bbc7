//! The tools of a session on this home, limited to the toolsets that were asked for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::BoxFuture;
use hermes_core::model::ModelInfo;
use hermes_core::tool::{Registry, Tool, ToolSpec};

use super::toolsets;
use hermes_agent::deferred::Deferred;
use hermes_agent::tools::TodoList;
use hermes_agent::{ToolSource, deferred, lean};

use super::store_tools::{StoreTools, store_backed};

/// Sets that stand for everything a platform offers; the original names one per platform.
const EVERYTHING: &[&str] = &["all", "*"];
/// In a list of toolsets: none of those that come from outside.
const NOTHING_FED: &str = "no_mcp";

/// What a feed gave, by identity.
type FedTools = Arc<[Arc<dyn Tool>]>;

/// Tools that come and go while the process lives, e.g. those of MCP servers.
pub trait ToolFeed: Send + Sync {
    /// The toolsets it may fill, whether or not they have tools now.
    fn toolsets(&self) -> Vec<FedToolset>;

    /// The tools as they are now. The same `Arc` as long as nothing changed.
    fn tools(&self) -> FedTools;

    /// See [`ToolSource::prepare`].
    fn prepare(&self) -> BoxFuture<'_, Vec<String>>;
}

/// A toolset from outside and what people may call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FedToolset {
    /// `mcp-<server>`.
    pub name: String,
    /// The server's own name; a toolset of the home that is called the same is meant as well.
    pub alias: String,
    /// How the names of its tools begin.
    pub prefix: String,
}

impl FedToolset {
    fn is_called(&self, name: &str) -> bool {
        name == self.name || name == self.alias || name.starts_with(&self.prefix)
    }
}

/// Which toolsets a session gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolsetChoice {
    /// Toolsets and tools of the home itself. `None`: all.
    only: Option<Vec<String>>,
    /// The same for those from outside.
    fed: Option<Vec<String>>,
    disabled: Vec<String>,
    /// `fed` counts only if it names one that exists.
    fed_by_default: bool,
    nothing_fed: bool,
    /// What someone asked for by name: it stays in the smallest window.
    chosen: Vec<String>,
}

impl ToolsetChoice {
    /// As the config says for `platform`. Names that mean nothing here are left to the tools of
    /// other platforms.
    pub fn from_config(config: &hermes_config::Config, platform: &str) -> Self {
        let chosen = toolsets::listed(config, platform).unwrap_or_default();
        let (nothing_fed, wanted) = split(&chosen);
        let own = |name: &String| toolsets::tools_of(name).is_some();
        let fed: Vec<String> = wanted.iter().filter(|name| !own(name)).cloned().collect();
        Self {
            only: Some(toolsets::enabled(config, platform).into_iter().collect()),
            fed: (!fed.is_empty()).then_some(fed),
            disabled: config.agent.disabled_toolsets.clone(),
            fed_by_default: true,
            nothing_fed,
            chosen: wanted,
        }
    }

    /// As a person named them: toolsets or single tools; `none` for no tools at all.
    pub fn named(names: &[String]) -> Self {
        let (nothing_fed, names) = split(names);
        let everything =
            names.iter().any(|name| is_everything(name)) || (nothing_fed && names.is_empty());
        let only = (!everything).then_some(names);
        Self {
            fed: only.clone(),
            chosen: only.clone().unwrap_or_default(),
            only,
            disabled: Vec::new(),
            fed_by_default: false,
            nothing_fed,
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
        let fed = tools.fed_toolsets();
        self.only
            .iter()
            .flatten()
            .map(String::as_str)
            .filter(|name| !known.contains(name) && toolsets::tools_of(name).is_none())
            .filter(|name| !fed.iter().any(|set| set.is_called(name)))
            .collect()
    }

    /// Whether a session may use anything of this toolset from outside. `all` are its peers.
    pub fn wants(&self, set: &FedToolset, all: &[FedToolset]) -> bool {
        let names = |list: &[String]| list.iter().any(|name| set.is_called(name));
        let disabled = self
            .disabled
            .iter()
            .any(|name| *name == set.name || *name == set.alias);
        if self.nothing_fed || disabled {
            return false;
        }
        match &self.fed {
            None => true,
            Some(fed) if names(fed) => true,
            Some(fed) => {
                self.fed_by_default
                    && !fed
                        .iter()
                        .any(|name| all.iter().any(|other| other.is_called(name)))
            }
        }
    }

    fn allows(&self, spec: &ToolSpec) -> bool {
        self.only.as_deref().is_none_or(|list| names(list, spec)) && !names(&self.disabled, spec)
    }

    /// The same for a tool of `set`, which is wanted.
    fn allows_fed(&self, spec: &ToolSpec, set: &FedToolset) -> bool {
        if names(&self.disabled, spec) {
            return false;
        }
        let Some(only) = &self.fed else {
            return true;
        };
        let singled_out = only.iter().any(|name| name.starts_with(&set.prefix));
        let whole = only
            .iter()
            .any(|name| *name == set.name || *name == set.alias);
        !singled_out || whole || names(only, spec)
    }
}

fn names(list: &[String], spec: &ToolSpec) -> bool {
    list.iter().any(|name| {
        *name == spec.name
            || name == spec.toolset
            || toolsets::tools_of(name).is_some_and(|tools| tools.contains(spec.name.as_str()))
    })
}

fn split(names: &[String]) -> (bool, Vec<String>) {
    let names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();
    let without = |name: &String| name != NOTHING_FED;
    let nothing_fed = !names.iter().all(without);
    (nothing_fed, names.into_iter().filter(without).collect())
}

pub(super) fn is_everything(name: &str) -> bool {
    EVERYTHING.contains(&name) || name.starts_with("hermes-")
}

/// The tools of one session.
pub struct HomeTools {
    all: Vec<Arc<dyn Tool>>,
    registry: Registry,
    choice: ToolsetChoice,
    /// Toolsets and tools that the person named: these stay in the smallest window.
    chosen: Vec<String>,
    todos: TodoList,
    feed: Option<Arc<dyn ToolFeed>>,
    on_compacted: Option<Box<dyn Fn() + Send + Sync>>,
    /// What the feed gave last, and everything together.
    together: Mutex<Option<Together>>,
}

struct Together {
    fed: FedTools,
    registry: Registry,
    /// Tools of the registry that are not sent, but searched.
    deferred: Deferred,
}

impl HomeTools {
    /// `others` are the tools beside those that work on the home's own store.
    pub fn new(deps: StoreTools, others: Vec<Arc<dyn Tool>>, choice: &ToolsetChoice) -> Self {
        let todos = deps.todos.clone();
        let mut all = store_backed(deps);
        all.extend(others);
        let allowed = all
            .iter()
            .filter(|tool| choice.allows(tool.spec()))
            .cloned();
        Self {
            registry: Registry::new(allowed),
            chosen: choice.chosen.clone(),
            choice: choice.clone(),
            todos,
            all,
            feed: None,
            on_compacted: None,
            together: Mutex::new(None),
        }
    }

    /// With tools from outside besides.
    #[must_use]
    pub fn with_feed(mut self, feed: Arc<dyn ToolFeed>) -> Self {
        for set in feed.toolsets() {
            if self.chosen.contains(&set.alias) {
                self.chosen.push(set.name);
            }
        }
        self.feed = Some(feed);
        self
    }

    /// Called when the conversation was compacted: what tools believe the model has read is void.
    #[must_use]
    pub fn on_compacted(mut self, forget: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_compacted = Some(Box::new(forget));
        self
    }

    /// Every toolset there is, also those that were not chosen.
    pub fn toolsets(&self) -> BTreeSet<String> {
        let own = self.all.iter().map(|tool| tool.spec().toolset.to_owned());
        own.chain(self.fed_toolsets().into_iter().map(|set| set.name))
            .collect()
    }

    fn fed_toolsets(&self) -> Vec<FedToolset> {
        self.feed
            .as_ref()
            .map_or_else(Vec::new, |feed| feed.toolsets())
    }

    fn fed(&self, fed: FedTools) -> Together {
        let sets = self.fed_toolsets();
        let allowed = fed.iter().filter(|tool| {
            let set = sets.iter().find(|set| set.name == tool.spec().toolset);
            set.is_some_and(|set| {
                self.choice.wants(set, &sets) && self.choice.allows_fed(tool.spec(), set)
            })
        });
        let allowed: Vec<Arc<dyn Tool>> = allowed.cloned().collect();
        let named = |spec: &ToolSpec| self.chosen.contains(&spec.name);
        let deferred = deferred::choose(&allowed, deferred::LIMIT, named);
        let finding = deferred::tools(&allowed, &deferred);
        // The home's own tools come first: nothing from outside takes their names.
        let all = self.registry.iter().cloned().chain(finding);
        Together {
            registry: Registry::new(all.chain(allowed)),
            deferred,
            fed,
        }
    }
}

impl ToolSource for HomeTools {
    fn prepare(&self) -> BoxFuture<'_, Vec<String>> {
        match &self.feed {
            Some(feed) => feed.prepare(),
            None => Box::pin(std::future::ready(Vec::new())),
        }
    }

    fn registry(&self) -> Registry {
        let Some(feed) = &self.feed else {
            return self.registry.clone();
        };
        let fed = feed.tools();
        let mut together = self.together.lock().unwrap_or_else(PoisonError::into_inner);
        match &*together {
            Some(last) if Arc::ptr_eq(&last.fed, &fed) => last.registry.clone(),
            _ => {
                let now = self.fed(fed);
                let registry = now.registry.clone();
                *together = Some(now);
                registry
            }
        }
    }

    fn specs(&self, registry: &Registry, model: &ModelInfo) -> Arc<[ToolSpec]> {
        let mut specs = registry.specs();
        let together = self.together.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(deferred) = together.as_ref().map(|together| &together.deferred)
            && !deferred.is_empty()
        {
            let sent = specs.iter().filter(|spec| !deferred.contains(&spec.name));
            specs = sent.cloned().collect();
        }
        drop(together);
        match lean::PromptSize::for_model(model) {
            lean::PromptSize::Full => specs,
            mode => mode.tools(&specs, &self.chosen),
        }
    }

    fn carried_over(&self) -> Option<String> {
        self.todos.carried_over()
    }

    fn compacted(&self) {
        if let Some(forget) = &self.on_compacted {
            forget();
        }
    }
}

#[cfg(test)]
mod tests;
