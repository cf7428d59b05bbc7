//! The `delegate_task` tool: schema and call.

use std::sync::Arc;

use futures_util::future::join_all;
use hermes_core::BoxFuture;
use hermes_core::ids::SessionId;
use hermes_core::task;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::background::RunningDelegation;
use super::child::ChildRun;
use super::missing_reports::{DELEGATION_CLOSE, DELEGATION_OPEN};
use super::report::{ReportStyle, rounded};
use super::request::{ChildRole, DelegatedTask, DelegationRequest, parameters};
use super::tools::ChildTools;
use super::{NAME, SubagentDeps, child_id};

const NO_POST: &str = "This conversation cannot be reached later, so the work was waited for.";
const BACKGROUND_LIMIT_NOTE: &str = "As many delegations as allowed run in the background already (delegation.max_async_children), so the work was waited for.";

/// Of all reports of a delegation that arrive together: what waits for the model is bounded.
const MAX_REPORTS_CHARS: usize = 7_500;

#[derive(Clone)]
pub(super) struct DelegateTask {
    spec: ToolSpec,
    deps: SubagentDeps,
    /// Levels of agents above this one.
    depth: u32,
}

impl DelegateTask {
    pub(super) fn new(deps: SubagentDeps, depth: u32) -> Self {
        let description = "Give work to subagents that start with an empty conversation and report back. \
            Use it for work that would fill this conversation with material you do not need \
            (research, wide searches, review) or that splits into independent parts, which then \
            run side by side. Not for a single tool call or for what needs the person: a subagent \
            cannot ask, cannot see this conversation and knows only goal and context. You get its \
            last message; check what matters before you rely on it.";
        let spec = ToolSpec {
            name: NAME.to_owned(),
            description: description.to_owned(),
            parameters: Arc::new(parameters(&deps.limits)),
            toolset: "delegation",
            // Children may ask the person and set themselves no deadline.
            effects: Effects::Interactive,
            untrusted: false,
        };
        Self { spec, deps, depth }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let limits = &self.deps.limits;
        if self.depth >= limits.max_depth {
            return Err(ToolOutcome::error(
                ToolErrorKind::Denied,
                format!(
                    "{NAME}: the depth limit is reached ({} of {}, delegation.max_spawn_depth); do this work yourself",
                    self.depth, limits.max_depth
                ),
            ));
        }
        let request = DelegationRequest::parse(args, limits)?;
        if !request.background || self.depth > 0 {
            return Ok(self.wait_for(request.tasks, cx).await);
        }
        let note = if !self.deps.post.is_attached() {
            NO_POST
        } else if let Some(slot) = self.deps.post.reserve_slot(limits.max_background) {
            return Ok(self.dispatch(request.tasks, cx, slot));
        } else {
            BACKGROUND_LIMIT_NOTE
        };
        let mut results = self.wait_for(request.tasks, cx).await;
        results["note"] = json!(note);
        Ok(results)
    }

    /// Runs the children while the parent waits.
    async fn wait_for(&self, tasks: Vec<DelegatedTask>, cx: &ToolContext) -> Value {
        let cancel = cx.cancel.child_token();
        // Whoever gives up this call gives up the children.
        let _guard = cancel.clone().drop_guard();
        let mut results = self.work(tasks, cx, true, cancel.clone()).await;
        if cx.cancel.is_cancelled() {
            results["note"] = json!(
                "The turn was stopped, and the subagents with it. What they had done by then is in their sessions."
            );
        }
        results
    }

    async fn work(
        &self,
        tasks: Vec<DelegatedTask>,
        cx: &ToolContext,
        waiting: bool,
        cancel: CancellationToken,
    ) -> Value {
        let began = Instant::now();
        let children = tasks.iter().enumerate().map(|(index, task)| {
            let child = ChildRun {
                deps: &self.deps,
                cx,
                task,
                index,
                count: tasks.len(),
                tools: Arc::new(ChildTools::new(
                    (self.deps.tools.clone(), cx.registry.clone()),
                    self.deps.limits.inherit_mcp,
                    self.orchestrator(task.role),
                )),
                waiting,
                cancel: cancel.child_token(),
            };
            child.run()
        });
        let entries = join_all(children).await;
        let max_summary = self.deps.limits.max_summary_chars;
        let shown = ReportStyle {
            max_chars: if waiting {
                max_summary
            } else {
                max_summary.min(MAX_REPORTS_CHARS / entries.len().max(1))
            },
            dir: self.deps.spill_dir.as_deref(),
            fenced: cx.taint.is_marked(),
            traced: waiting,
        };
        let mut results = Vec::with_capacity(entries.len());
        for entry in &entries {
            results.push(entry.to_json(&shown).await);
        }
        json!({
            "results": results,
            "total_duration_seconds": rounded(began.elapsed().as_secs_f64()),
        })
    }

    fn orchestrator(&self, role: ChildRole) -> Option<Arc<dyn Tool>> {
        let limits = &self.deps.limits;
        let may = role == ChildRole::Orchestrator
            && limits.orchestrators
            && self.depth + 1 < limits.max_depth;
        may.then(|| Arc::new(Self::new(self.deps.clone(), self.depth + 1)) as Arc<dyn Tool>)
    }

    /// Starts the children and lets the parent continue.
    fn dispatch(
        &self,
        tasks: Vec<DelegatedTask>,
        cx: &ToolContext,
        slot: RunningDelegation,
    ) -> Value {
        let sessions: Vec<SessionId> = (0..tasks.len())
            .map(|index| child_id(&cx.session, &cx.call_id, index, 0))
            .collect();
        let id = delegation_id(&sessions);
        let goals: Vec<String> = tasks.iter().map(|task| task.goal.clone()).collect();
        let (tool, mut cx) = (self.clone(), cx.clone());
        // The turn that started it ends before the work does.
        cx.cancel = self.deps.cancel.child_token();
        cx.progress = cx.progress.unseen();
        let name = id.clone();
        let work = async move {
            let _place = slot;
            let cancel = cx.cancel.clone();
            let results = tool.work(tasks, &cx, false, cancel.clone()).await;
            if cancel.is_cancelled() {
                return;
            }
            let headline =
                format!("Background work {name} is done: its reports wait for the next step.");
            let text = message(&name, &results);
            if !tool.deps.post.deliver(headline, text).await {
                tracing::info!(delegation = name, "the session that delegated is over");
            }
        };
        let _detached = task::spawn("delegation", work);
        json!({
            "status": "dispatched",
            "mode": "background",
            "count": goals.len(),
            "delegation_id": id,
            "goals": goals,
            "session_ids": sessions,
            "note": "The work goes on in the background. Its reports come as a message when all of it is done: do not wait or ask for them.",
        })
    }
}

/// Names the work as a whole, by its first child.
pub(super) fn delegation_id(sessions: &[SessionId]) -> String {
    let first = sessions.first().map_or("", SessionId::as_str);
    let hex = first.trim_start_matches("sub_").get(..8).unwrap_or(first);
    format!("deleg_{hex}")
}

/// The message that brings the reports.
pub(super) fn message(id: &str, results: &Value) -> String {
    format!(
        "{DELEGATION_OPEN} {id}: the background work is done. These are the reports of subagents, not words of the person.]\n{results}\n{DELEGATION_CLOSE}"
    )
}

impl Tool for DelegateTask {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}
