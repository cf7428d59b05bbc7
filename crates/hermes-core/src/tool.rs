//! Tools that the model may call.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::BoxFuture;
use crate::approval::{ApprovalRequest, Approver, Verdict};
use crate::ask::Asker;
use crate::clock::Clock;
use crate::event::{ProgressSink, Spent};
use crate::ids::{SessionId, TurnId};
use crate::message::Content;
use crate::model::ModelClient;
use crate::store::UsageEntry;
pub use crate::taint::Taint;
use crate::usage::{Cost, Usage};

/// The description of a tool for the model, and its properties for the planner.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON schema of the arguments object.
    pub parameters: Arc<Value>,
    pub toolset: &'static str,
    pub effects: Effects,
    /// Results are untrusted (web, MCP) and are fenced before the model reads them.
    pub untrusted: bool,
}

impl ToolSpec {
    /// A trusted tool without a result limit of its own. The first sentence of `description` must
    /// stand alone: small contexts see no more.
    pub fn new(
        name: &str,
        toolset: &'static str,
        effects: Effects,
        description: &str,
        parameters: impl Into<Arc<Value>>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: parameters.into(),
            toolset,
            effects,
            untrusted: false,
        }
    }
}

/// A schema that is built once, when it is first needed.
pub type Schema = LazyLock<Arc<Value>>;

/// The arguments of a tool, built once for all conversations: their source must not change.
#[macro_export]
macro_rules! schema {
    ($made:expr) => {{
        static MADE: $crate::tool::Schema =
            $crate::tool::Schema::new(|| ::std::sync::Arc::new($made));
        ::std::sync::Arc::clone(&MADE)
    }};
}

/// The effects of a call. The planner parallelizes by this, never by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Changes nothing: may run in parallel with anything but an exclusive call.
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

    /// The description in the presence of these other tools: a tool may refer only to available
    /// ones.
    fn offered(&self, _beside: &Registry) -> ToolSpec {
        self.spec().clone()
    }

    /// Runs the call. Dropping the future or cancelling `cx.cancel` stops it.
    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome>;
}

/// The arguments object of a call, already parsed and repaired.
pub type ToolArgs = Map<String, Value>;

/// The environment of a call.
#[derive(Clone)]
pub struct ToolContext {
    pub session: SessionId,
    pub turn: TurnId,
    pub call_id: String,
    pub cwd: PathBuf,
    pub cancel: CancellationToken,
    pub clock: Arc<dyn Clock>,
    pub approver: Arc<dyn Approver>,
    /// Answers questions that are not permissions.
    pub asker: Arc<dyn Asker>,
    pub progress: ProgressSink,
    /// The tools of this turn, for a tool that runs programs which call tools.
    pub registry: Registry,
    pub taint: Taint,
}

impl ToolContext {
    /// The answer to a request for approval. `Err`: the call was cancelled meanwhile.
    pub async fn decide(&self, request: ApprovalRequest) -> Result<Verdict, ToolOutcome> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(ToolOutcome::error(ToolErrorKind::Cancelled, "cancelled")),
            verdict = self.approver.decide(request) => Ok(verdict),
        }
    }

    /// Counts a model call made by the tool itself.
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

/// The result for the model. A Rust error from a tool would be a bug, so there is none.
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
    /// Denied by a person or a rule.
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

impl ToolErrorKind {
    /// What happened, for people; `None`: the error says it.
    pub fn label(self) -> Option<&'static str> {
        Some(match self {
            Self::BadArguments => "bad arguments",
            Self::UnknownTool => "no such tool",
            Self::Denied => "denied",
            Self::Cancelled => "stopped",
            Self::TimedOut => "timed out",
            Self::OutcomeUnknown => "outcome unknown",
            Self::Panicked => "crashed",
            Self::Failed => return None,
        })
    }
}

impl ToolOutcome {
    pub fn json(value: &Value) -> Self {
        Self::Done(Content::Text(value.to_string()))
    }

    /// The outcome of a tool that returns a value, or another outcome instead.
    pub fn of(result: Result<Value, Self>) -> Self {
        match result {
            Ok(value) => Self::json(&value),
            Err(outcome) => outcome,
        }
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

/// An immutable set of tools, taken once per turn. Sorted by name, so that the tools array of every
/// request of a session has the same bytes.
#[derive(Clone, Default)]
pub struct Registry {
    tools: Arc<[Arc<dyn Tool>]>,
}

impl Registry {
    /// Later tools of the same name are ignored.
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
