//! Tools: what the model may call.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::BoxFuture;
use crate::approval::Approver;
use crate::ask::Asker;
use crate::clock::Clock;
use crate::event::{ProgressSink, Spent};
use crate::ids::{SessionId, TurnId};
use crate::message::Content;
use crate::model::ModelClient;
use crate::store::UsageEntry;
pub use crate::taint::Taint;
use crate::usage::{Cost, Usage};

/// What the model is told of a tool, and what the planner needs to know of it.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON schema of the arguments object.
    pub parameters: Arc<Value>,
    pub toolset: &'static str,
    pub effects: Effects,
    /// Results come from outside (web, MCP) and are fenced before the model reads them.
    pub untrusted: bool,
    /// Largest result in characters that stays in the conversation; `None`: the session's budget.
    /// Larger results are spilled to a file and previewed.
    pub result_limit: Option<usize>,
}

/// A schema that is made once, when it is first needed.
pub type Schema = LazyLock<Arc<Value>>;

/// The arguments of a tool, made once for all conversations: what it is made from may not change.
#[macro_export]
macro_rules! schema {
    ($made:expr) => {{
        static MADE: $crate::tool::Schema =
            $crate::tool::Schema::new(|| ::std::sync::Arc::new($made));
        ::std::sync::Arc::clone(&MADE)
    }};
}

/// What a call touches. The planner runs calls in parallel by this, never by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Changes nothing: may run beside anything but an exclusive call.
    ReadOnly,
    /// Reads the files named by these arguments.
    ReadsPaths(&'static [&'static str]),
    /// Writes the files named by these arguments.
    WritesPaths(&'static [&'static str]),
    /// Runs alone.
    Exclusive,
    /// Waits for a person; runs alone and outside the batch deadline.
    Interactive,
}

pub trait Tool: Send + Sync {
    fn spec(&self) -> &ToolSpec;

    /// What the model is told beside these other tools: a tool may speak only of what is there.
    fn offered(&self, _beside: &Registry) -> ToolSpec {
        self.spec().clone()
    }

    /// Runs the call. Dropping the future or cancelling `cx.cancel` stops it.
    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome>;
}

/// The arguments object of a call, already parsed and repaired.
pub type ToolArgs = Map<String, Value>;

/// What a call runs in.
#[derive(Clone)]
pub struct ToolContext {
    pub session: SessionId,
    pub turn: TurnId,
    pub call_id: String,
    pub cwd: PathBuf,
    pub cancel: CancellationToken,
    pub clock: Arc<dyn Clock>,
    pub approver: Arc<dyn Approver>,
    /// Who answers questions that are no permissions.
    pub asker: Arc<dyn Asker>,
    pub progress: ProgressSink,
    /// The tools of this turn, for a tool that runs programs which call tools.
    pub registry: Registry,
    pub taint: Taint,
}

impl ToolContext {
    /// Counts a model call that the tool made for itself.
    pub fn spent_on(&self, client: &dyn ModelClient, task: &str, usage: Usage) {
        let info = client.info();
        self.progress.spent(Spent {
            entry: UsageEntry {
                route: client.route().clone(),
                task: task.to_owned(),
                usage,
                cost: Cost::of(&usage, info.prices.as_ref(), info.local),
                at: self.clock.epoch_seconds(),
            },
            recorded: false,
        });
    }
}

/// What the model reads back. A Rust error out of a tool would be our bug, so there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolOutcome {
    Done(Content),
    /// The tool ran and failed, or refused; the text says what to do about it.
    Error {
        kind: ToolErrorKind,
        text: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorKind {
    /// The arguments were wrong or unreadable.
    BadArguments,
    UnknownTool,
    /// A person or a rule said no.
    Denied,
    Cancelled,
    TimedOut,
    /// The work itself failed.
    Failed,
    /// It may or may not have happened.
    OutcomeUnknown,
    /// A bug in the tool: it panicked.
    Panicked,
}

impl ToolOutcome {
    pub fn json(value: &Value) -> Self {
        Self::Done(Content::Text(value.to_string()))
    }

    pub fn error(kind: ToolErrorKind, text: impl Into<String>) -> Self {
        Self::Error {
            kind,
            text: text.into(),
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error { .. })
    }
}

/// An immutable set of tools, taken once per turn. Order is by name, so that the tools array of
/// every request of a session is the same bytes.
#[derive(Clone, Default)]
pub struct Registry {
    tools: Arc<[Arc<dyn Tool>]>,
}

impl Registry {
    /// Later tools of the same name are ignored: the first one wins.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let mut by_name = std::collections::BTreeMap::new();
        for tool in tools {
            by_name.entry(tool.spec().name.clone()).or_insert(tool);
        }
        Self {
            tools: by_name.into_values().collect(),
        }
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let at = self
            .tools
            .binary_search_by(|tool| tool.spec().name.as_str().cmp(name))
            .ok()?;
        self.tools.get(at)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.spec().name.as_str())
    }

    pub fn specs(&self) -> Arc<[ToolSpec]> {
        self.tools.iter().map(|tool| tool.offered(self)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}
