//! Runs the calls of a step, segment by segment, and commits their results in call order.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hermes_core::event::{AgentEvent, TurnExit};
use hermes_core::message::{Message, ToolMessage};
use hermes_core::tool::{Effects, ToolContext, ToolErrorKind, ToolOutcome};
use hermes_core::tool_traits::tool_traits;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::call::{CallOutcome, CallStart, progress};
use super::judge::MAX_UNKNOWN_TOOLS;
use super::result::{ResultBudget, append, content_of, disposition, error_text, message, preview};
use super::{Turn, TurnFlow, TurnScope, TurnState, messages, millis, outside};
use crate::guard::GuardFinding;
use crate::log::{LogItem, Origin};
use crate::plan::{CallAction, ParallelCalls, PreparedCall, segments};
use crate::prompt;

/// The results of a step on their way into the log.
struct ResultBatch {
    calls: Vec<PreparedCall>,
    /// Results by call; taken out when committed.
    ready: Vec<Option<ToolMessage>>,
    committed: usize,
    result_budget: ResultBudget,
    stop: Option<String>,
}

impl Turn<'_> {
    pub(super) async fn run_tools(&mut self, calls: Vec<PreparedCall>) -> TurnFlow<TurnState> {
        let refund = calls.iter().all(|one| tool_traits(&one.call.name).refunded);
        let plan = segments(&calls, &self.conv.cwd);
        let mut batch = ResultBatch {
            ready: calls.iter().map(|_| None).collect(),
            calls,
            committed: 0,
            result_budget: self.result_budget(),
            stop: None,
        };
        for segment in plan {
            self.run_segment(&segment, &mut batch).await?;
        }
        self.after_tools = true;
        if let Some(message) = batch.stop {
            return Err(TurnExit::LoopStopped { message });
        }
        if self.scope.cancel.is_cancelled() {
            return Err(TurnExit::Interrupted);
        }
        if self.counts.unknown_tools >= MAX_UNKNOWN_TOOLS {
            return Err(TurnExit::Partial {
                why: "the model kept calling tools that do not exist".into(),
            });
        }
        if refund {
            self.budget.refund();
        }
        Ok(TurnState::Prepare)
    }

    async fn run_segment(
        &mut self,
        segment: &ParallelCalls,
        batch: &mut ResultBatch,
    ) -> TurnFlow<()> {
        let mut starting = Vec::new();
        for &at in segment.calls() {
            if let Some(outcome) = self.refusal(at, batch) {
                self.take_result(at, outcome, batch).await?;
            } else {
                starting.push(at);
            }
        }
        self.tool_calls += starting.len() as u32;
        let settings = &self.scope.deps.settings.tools;
        let limit = match segment {
            ParallelCalls::Together(_) => settings.batch_deadline,
            ParallelCalls::Alone(_) => settings.alone_deadline,
            ParallelCalls::Person(_) => None,
        };
        let deadline = limit.map(|limit| Instant::now() + limit);
        let workers = Semaphore::new(settings.workers.max(1));
        let scope = self.scope.clone();
        let mut running: FuturesUnordered<_> = starting
            .iter()
            .filter_map(|&at| Some((at, self.start(&scope, &batch.calls[at], deadline)?)))
            .map(|(at, start)| {
                let workers = &workers;
                async move {
                    // Never closed, so there is always a permit in the end.
                    let _permit = workers.acquire().await;
                    (at, start.run_in_time().await)
                }
            })
            .collect();
        while let Some((at, ran)) = running.next().await {
            self.finish_call(at, ran, batch).await?;
        }
        Ok(())
    }

    /// Why a call does not run, if it does not.
    fn refusal(&self, at: usize, batch: &mut ResultBatch) -> Option<ToolOutcome> {
        if self.scope.cancel.is_cancelled() {
            return Some(ToolOutcome::error(
                ToolErrorKind::Cancelled,
                messages::SKIPPED_STOP,
            ));
        }
        if batch.stop.is_some() {
            return Some(ToolOutcome::error(
                ToolErrorKind::Cancelled,
                messages::SKIPPED_GUARD,
            ));
        }
        match &batch.calls[at].work {
            CallAction::Refuse { kind, text } => Some(ToolOutcome::error(*kind, text.clone())),
            CallAction::Run { signature, .. } => {
                let why = self.guard.before(signature)?;
                batch.stop = Some(why);
                Some(ToolOutcome::error(
                    ToolErrorKind::Denied,
                    messages::SKIPPED_GUARD,
                ))
            }
        }
    }

    fn start<'s>(
        &self,
        scope: &'s TurnScope,
        prepared: &PreparedCall,
        deadline: Option<Instant>,
    ) -> Option<CallStart<'s>> {
        let CallAction::Run { tool, args, .. } = &prepared.work else {
            return None;
        };
        let call = &prepared.call;
        let context = ToolContext {
            session: self.conv.id.clone(),
            turn: scope.id,
            call_id: call.id.clone(),
            cwd: self.conv.cwd.clone(),
            cancel: scope.cancel.child_token(),
            clock: scope.deps.clock.clone(),
            approver: scope.approver.clone(),
            asker: scope.asker.clone(),
            progress: progress(scope, &call.id),
            registry: self.registry.clone(),
            taint: self.conv.taint.clone(),
        };
        Some(CallStart {
            scope,
            context,
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            tool: tool.clone(),
            args: args.clone(),
            deadline,
        })
    }

    async fn finish_call(
        &mut self,
        at: usize,
        ran: CallOutcome,
        batch: &mut ResultBatch,
    ) -> TurnFlow<()> {
        self.count_spending().await?;
        let patterns = self.scope.deps.settings.tools.redact;
        let outcome = outside::without_secrets(ran.outcome, patterns);
        let call = &batch.calls[at].call;
        let (call_id, name) = (call.id.clone(), call.name.clone());
        let error = match &outcome {
            ToolOutcome::Done(_) => None,
            ToolOutcome::Error { kind, .. } => Some(*kind),
        };
        let shown = content_of(outcome.clone()).0;
        self.emit(AgentEvent::ToolFinished {
            call_id,
            name,
            error,
            preview: preview(&shown, error),
            millis: millis(ran.elapsed),
        })
        .await;
        self.take_result(at, outcome, batch).await
    }

    /// Makes the result ready and commits every result that is next in order.
    async fn take_result(
        &mut self,
        at: usize,
        outcome: ToolOutcome,
        batch: &mut ResultBatch,
    ) -> TurnFlow<()> {
        let (mut content, error) = content_of(outcome);
        let finding = self.watch(&batch.calls[at], &content, error);
        let (spec, call) = match &batch.calls[at] {
            PreparedCall {
                call,
                work: CallAction::Run { tool, .. },
            } => (Some(tool.spec()), call),
            PreparedCall { call, .. } => (None, call),
        };
        content = self
            .tame(call, spec, content, &mut batch.result_budget)
            .await;
        match finding {
            GuardFinding::Fine => {}
            GuardFinding::Warn(text) => append(&mut content, &format!("\n\n[Note: {text}]")),
            GuardFinding::Stop(why) => batch.stop = Some(why),
        }
        if let (CallAction::Run { args, .. }, None) = (&batch.calls[at].work, error)
            && let Some(hint) = self.conv.hints.after_call(args)
        {
            append(&mut content, &hint);
        }
        let known = disposition(spec, error);
        batch.ready[at] = Some(message(call, content, known));
        self.commit_ready(batch).await
    }

    async fn commit_ready(&mut self, batch: &mut ResultBatch) -> TurnFlow<()> {
        let mut next: VecDeque<ToolMessage> = VecDeque::new();
        while let Some(ready) = batch.ready.get_mut(batch.committed).and_then(Option::take) {
            next.push_back(ready);
            batch.committed += 1;
        }
        let last_of_step = batch.committed == batch.ready.len();
        while let Some(mut row) = next.pop_front() {
            let mut steered = None;
            if last_of_step && next.is_empty() && !self.scope.cancel.is_cancelled() {
                steered = self.scope.mailbox.take();
                if let Some(reports) = self.scope.informed.take() {
                    append(&mut row.content, &format!("\n\n{reports}"));
                }
            }
            if let Some(text) = &steered {
                let block = prompt::steer_block_for(&self.conv.system, text);
                append(&mut row.content, &block);
            }
            let item = LogItem::new(Message::Tool(row), Origin::Tool, self.now());
            self.commit(item, None).await?;
            if let Some(text) = steered {
                self.emit(AgentEvent::Steered { text }).await;
            }
        }
        Ok(())
    }

    /// Loop guard, and the account of failed writes.
    fn watch(
        &mut self,
        prepared: &PreparedCall,
        content: &hermes_core::message::Content,
        error: Option<ToolErrorKind>,
    ) -> GuardFinding {
        let CallAction::Run {
            tool,
            args,
            signature,
        } = &prepared.work
        else {
            return GuardFinding::Fine;
        };
        if error == Some(ToolErrorKind::Cancelled) {
            return GuardFinding::Fine;
        }
        let effects = tool.spec().effects;
        if let Effects::WritesPaths(keys) = effects {
            let named = keys.iter().find_map(|key| args.get(*key)?.as_str());
            let what = named.unwrap_or(&prepared.call.name).to_owned();
            if error.is_some() {
                self.failed_writes.insert(what, preview_line(content));
            } else {
                self.failed_writes.remove(&what);
            }
        }
        let repeatable = matches!(effects, Effects::ReadOnly | Effects::ReadsPaths(_));
        self.guard
            .after(signature, content, error.is_some(), repeatable)
    }
}

fn preview_line(content: &hermes_core::message::Content) -> String {
    let text = error_text(content);
    hermes_core::text::shorten(text.lines().next().unwrap_or_default(), 120)
}
