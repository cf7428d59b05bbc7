//! One child, from its first message to its report.

use std::sync::Arc;

use hermes_core::event::{AgentCommand, AgentEvent, Spent, TurnSummary};
use hermes_core::ids::SessionId;
use hermes_core::store::{NewSession, SessionUpdate, UsageEntry};
use hermes_core::tool::ToolContext;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::approve::ChildAskers;
use super::report::{ChildReport, ChildStatus, trace};
use super::request::DelegatedTask;
use super::tools::ChildTools;
use super::{MAX_RUNS_PER_ID, SubagentDeps, child_id};
use crate::events::EventReceiver;
use crate::session::{Session, SessionDeps, SessionHandle, SessionStart, ToolSource};

const MAX_GOAL_CHARS: usize = 40;
const MAX_DETAIL_CHARS: usize = 80;

/// A child that is about to work.
pub(super) struct ChildRun<'a> {
    pub deps: &'a SubagentDeps,
    pub cx: &'a ToolContext,
    pub task: &'a DelegatedTask,
    pub index: usize,
    pub count: usize,
    pub tools: Arc<ChildTools>,
    /// The parent waits for it.
    pub waiting: bool,
    pub cancel: CancellationToken,
}

impl ChildRun<'_> {
    /// Works to the end. Whatever goes wrong is in the entry; nothing of it reaches the siblings.
    pub(super) async fn run(self) -> ChildReport {
        let began = Instant::now();
        let mut entry = match self.start().await {
            Ok((id, handle, events)) => self.attend(id, &handle, events).await,
            Err(error) => ChildReport::broken(self.index, error),
        };
        entry.seconds = began.elapsed().as_secs_f64();
        self.progress(&format!("ended: {:?}", entry.status).to_lowercase());
        entry
    }

    async fn start(&self) -> Result<(SessionId, SessionHandle, EventReceiver), String> {
        let id = self.free_id().await?;
        let deps = self.deps;
        let mut settings = deps.settings.clone();
        settings.max_turns = deps.limits.max_iterations;
        // Together they may spend once more what the parent may, not as often as they are many.
        let share = self.count.max(1) as f64;
        settings.max_cost_usd = settings.max_cost_usd.map(|usd| usd / share);
        settings.titles = false;
        settings.taint = Some(self.cx.taint.clone());
        if deps.limits.reasoning.is_some() {
            settings.reasoning = deps.limits.reasoning;
        }
        // A child must have stopped before its parent gives up waiting for it.
        settings.tools.cancel_grace /= 2;
        let label = self.label();
        let voices = ChildAskers::of(self.cx, &label, self.waiting, deps.limits.auto_approve);
        let parts = SessionDeps {
            router: Arc::clone(&deps.router),
            store: Arc::clone(&deps.store),
            tools: Arc::clone(&self.tools) as Arc<dyn ToolSource>,
            prompt: Arc::clone(&deps.prompt),
            approver: Some(voices.approver),
            asker: Some(voices.asker),
            // What its task refers to is fetched as its own commands are run.
            repositories: None,
            settings,
            clock: Arc::clone(&deps.clock),
            rng: Arc::clone(&deps.rng),
            cancel: self.cancel.clone(),
        };
        let start = SessionStart::New(Box::new(NewSession {
            id: Some(id.clone()),
            source: "subagent".to_owned(),
            parent: Some(self.cx.session.clone()),
            // Keeps it out of lists of conversations even when its parent is deleted.
            model_config: Some(json!({ "_delegate_from": self.cx.session.as_str() })),
            cwd: Some(self.cx.cwd.clone()),
            started_at: deps.clock.epoch_seconds(),
            ..NewSession::default()
        }));
        let (handle, events) = Session::start(parts, start).map_err(|error| error.to_string())?;
        Ok((id, handle, events))
    }

    async fn free_id(&self) -> Result<SessionId, String> {
        for run in 0..MAX_RUNS_PER_ID {
            let id = child_id(&self.cx.session, &self.cx.call_id, self.index, run);
            match self.deps.store.load(&id).await {
                Ok(None) => return Ok(id),
                Ok(Some(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("no session id is free for the subagent".to_owned())
    }

    async fn attend(
        &self,
        id: SessionId,
        handle: &SessionHandle,
        mut events: EventReceiver,
    ) -> ChildReport {
        let mut entry = ChildReport {
            session: Some(id.clone()),
            status: ChildStatus::Failed,
            error: None,
            ..ChildReport::broken(self.index, String::new())
        };
        let message = match &self.task.context {
            Some(context) => format!("{}\n\nContext:\n{context}", self.task.goal),
            None => self.task.goal.clone(),
        };
        // A session that is already over answers with the end of its events.
        let _ = handle
            .send(AgentCommand::Submit(message.as_str().into()))
            .await;
        let mut timed_out = false;
        let ended = match self.deps.limits.timeout {
            None => self.follow(&mut events, &mut entry).await,
            Some(limit) => {
                let in_time = tokio::time::timeout(limit, self.follow(&mut events, &mut entry));
                if let Ok(ended) = in_time.await {
                    ended
                } else {
                    timed_out = true;
                    let _ = handle.send(AgentCommand::Interrupt).await;
                    self.follow(&mut events, &mut entry).await
                }
            }
        };
        match ended {
            Some(ended) => entry.judge(ended, timed_out),
            None if self.cancel.is_cancelled() => {
                entry.status = ChildStatus::Interrupted;
                entry.exit_reason = "interrupted";
                entry.error = Some("it was stopped before it began".to_owned());
            }
            None => entry.error = Some("it ended without a word; see logs/errors.log".to_owned()),
        }
        let _ = handle.send(AgentCommand::Close).await;
        while events.recv().await.is_some() {}
        self.close(&id, &mut entry).await;
        entry
    }

    /// Reads what happens in the child until its turn ends.
    async fn follow(
        &self,
        events: &mut EventReceiver,
        entry: &mut ChildReport,
    ) -> Option<TurnSummary> {
        while let Some(next) = events.recv().await {
            match next.event {
                AgentEvent::TurnStarted { route, .. } => {
                    entry.model = Some(route.model.clone());
                }
                AgentEvent::RouteChanged { to, .. } => entry.model = Some(to.model),
                AgentEvent::ToolStarted {
                    name, arguments, ..
                } => self.progress(&format!("{name} {}", cut(&arguments, MAX_DETAIL_CHARS))),
                AgentEvent::ToolProgress { text, .. } if text.starts_with('[') => {
                    // A child of the child.
                    self.progress(&text);
                }
                AgentEvent::Retrying { message, .. } => self.progress(&message),
                AgentEvent::TurnFinished { summary } => {
                    self.count(entry, &summary);
                    return Some(summary);
                }
                _ => {}
            }
        }
        None
    }

    /// What the child spent counts for its parent too; it stands in the child's own row.
    fn count(&self, entry: &ChildReport, summary: &TurnSummary) {
        if summary.calls == 0 {
            return;
        }
        let Ok(client) = self.deps.router.primary() else {
            return;
        };
        let mut route = client.route().clone();
        if let Some(model) = &entry.model {
            route.model.clone_from(model);
        }
        self.cx.progress.spent(Spent {
            entry: UsageEntry {
                route,
                task: "delegation".to_owned(),
                usage: summary.usage,
                cost: summary.cost,
                at: self.deps.clock.epoch_seconds(),
            },
            recorded: true,
        });
    }

    async fn close(&self, id: &SessionId, entry: &mut ChildReport) {
        let store = &self.deps.store;
        match store.load(id).await {
            Ok(Some(stored)) => entry.trace = trace(&stored.items),
            // It never said anything, so there is no row.
            Ok(None) => return,
            Err(error) => tracing::warn!(%error, "a subagent's session could not be read"),
        }
        let end = SessionUpdate::End {
            reason: "agent_close".to_owned(),
            at: self.deps.clock.epoch_seconds(),
        };
        if let Err(error) = store.update(id, end).await {
            tracing::warn!(%error, "a subagent's session was not marked as ended");
        }
    }

    fn label(&self) -> String {
        let goal = cut(&self.task.goal, MAX_GOAL_CHARS);
        format!("subagent {} of {}: {goal}", self.index + 1, self.count)
    }

    fn progress(&self, what: &str) {
        let position = format!("[{}/{}]", self.index + 1, self.count);
        self.cx.progress.report(format!("{position} {what}"));
    }
}

/// The beginning, on one line.
pub(super) fn cut(text: &str, chars: usize) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match line.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
        None => line,
    }
}
