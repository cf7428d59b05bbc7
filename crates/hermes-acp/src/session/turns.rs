//! Sends session events to the editor.

use agent_client_protocol::v1::schema::{
    CompactionStatus, CompactionUpdate, SessionUpdate, StopReason,
};
use agent_client_protocol::{Error, ErrorCode};
use hermes_agent::turn::explain;
use hermes_core::event::{AgentEvent, NoticeLevel, TurnExit, TurnSummary};

use super::{EditorSession, MAX_PROGRESS_BYTES, RunningTool, is_report};
use crate::{calls, updates};

/// Only one compaction runs at a time.
const COMPACTION: &str = "compaction";

impl EditorSession {
    pub(super) async fn event(&mut self, event: AgentEvent) {
        let report = is_report(&event);
        match event {
            AgentEvent::TurnStarted { route, .. } => {
                self.turn = true;
                self.cancelled = false;
                self.route = Some(route);
            }
            AgentEvent::TextDelta { text } => self.outlet.update(updates::text(text)).await,
            AgentEvent::ReasoningDelta { text } => {
                self.outlet.update(updates::thought(text)).await;
            }
            AgentEvent::StepDiscarded { why } => {
                let text = format!("The answer begins again: {why}");
                self.outlet.notice(NoticeLevel::Warning, &text).await;
            }
            AgentEvent::ToolStarted { .. }
            | AgentEvent::ToolProgress { .. }
            | AgentEvent::ToolFinished { .. } => self.tool(event).await,
            AgentEvent::ApprovalNeeded { request } => self.ask_permission(request),
            AgentEvent::QuestionAsked { question } => self.ask(question),
            AgentEvent::QuestionClosed { question } => {
                if let Some(shown) = self.asked.remove(&question) {
                    shown.cancel();
                }
            }
            AgentEvent::QueueChanged { waiting } => self.queued = waiting,
            AgentEvent::TurnFinished { summary } => self.finished(summary).await,
            // The session of a conversation that was left for another ends so too.
            AgentEvent::Closed => {}
            other => self.remark(other).await,
        }
        if report && let Some(command) = &mut self.command {
            command.reported = true;
        }
        if let Some(command) = self
            .command
            .take_if(|command| command.reports && command.reported)
        {
            command.answer();
        }
    }

    async fn tool(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::ToolStarted {
                call_id,
                name,
                arguments,
            } => {
                let call = calls::started(&call_id, &name, &arguments, &self.cwd);
                let prints = matches!(name.as_str(), "terminal" | "process");
                let progress = String::new();
                self.outlet.update(SessionUpdate::ToolCall(call)).await;
                if let Some(terminals) = &self.terminals {
                    terminals.started(&call_id);
                }
                self.running
                    .insert(call_id, RunningTool { prints, progress });
            }
            AgentEvent::ToolProgress { call_id, text } => {
                let Some(running) = self.running.get_mut(&call_id) else {
                    return;
                };
                if running.prints {
                    running.progress.clear();
                }
                add(&mut running.progress, &text);
                let update = calls::progressed(&call_id, &running.progress);
                self.outlet.call(update).await;
            }
            AgentEvent::ToolFinished {
                call_id,
                name,
                error,
                preview,
                ..
            } => {
                self.running.remove(&call_id);
                let changes = self.edits.take(&call_id);
                let failed = error.is_some() || (self.cancelled && was_cut(&preview));
                let mut update = calls::ended(&call_id, &name, &preview, failed, &changes);
                let terminal = self.terminals.as_ref().and_then(|t| t.ended(&call_id));
                if terminal.is_some() {
                    update.fields.content = terminal;
                }
                self.outlet.call(update).await;
                if let Some(plan) = calls::plan(&name, &preview) {
                    self.outlet.update(SessionUpdate::Plan(plan)).await;
                }
            }
            _ => {}
        }
    }

    /// Notices besides the answer.
    async fn remark(&mut self, event: AgentEvent) {
        let compacts = self
            .outlet
            .client
            .session
            .as_ref()
            .is_some_and(|session| session.compaction.is_some());
        let (level, text) = match event {
            AgentEvent::Retrying {
                message,
                attempt,
                delay_ms,
                ..
            } => {
                let seconds = delay_ms.div_ceil(1000);
                let text = format!("{message}; attempt {} follows in {seconds} s", attempt + 1);
                (NoticeLevel::Warning, text)
            }
            AgentEvent::RouteChanged { to, why, .. } => {
                self.route = Some(to.clone());
                let text = format!("{} ({}) answers from here on: {why}", to.model, to.provider);
                (NoticeLevel::Info, text)
            }
            AgentEvent::CompactionStarted { .. } | AgentEvent::Compacted { .. } if compacts => {
                let status = match event {
                    AgentEvent::Compacted { .. } => CompactionStatus::Completed,
                    _ => CompactionStatus::InProgress,
                };
                let update = CompactionUpdate::new(COMPACTION, status);
                let update = SessionUpdate::CompactionUpdate(update);
                return self.outlet.update(update).await;
            }
            AgentEvent::Compacted {
                before_tokens,
                after_tokens,
                ..
            } => {
                let text = format!(
                    "The older part was summarised for the model: {before_tokens} → {after_tokens} tokens"
                );
                (NoticeLevel::Info, text)
            }
            AgentEvent::UsageUpdated {
                cost,
                context_used,
                context_length,
                ..
            } => {
                let usd = match (self.spent, cost.usd()) {
                    (None, None) => None,
                    (before, now) => Some(before.unwrap_or(0.0) + now.unwrap_or(0.0)),
                };
                let update = updates::usage(context_used, context_length, usd);
                return self.outlet.update(update).await;
            }
            AgentEvent::TitleChanged { title } => {
                return self.outlet.update(updates::title(&title)).await;
            }
            AgentEvent::Notice { level, text } => (level, text),
            // The start alone means nothing to editors without support for compaction.
            _ => return,
        };
        self.outlet.notice(level, &text).await;
    }

    async fn finished(&mut self, summary: TurnSummary) {
        self.turn = false;
        self.cancelled = false;
        // Unfinished calls are over as well.
        for (call_id, _) in std::mem::take(&mut self.running) {
            self.outlet.call(calls::cut(&call_id)).await;
        }
        if let Some(usd) = summary.cost.usd() {
            *self.spent.get_or_insert_default() += usd;
        }
        if let Some(command) = &mut self.command {
            command.turned = true;
        }
        let stopped = matches!(
            summary.exit,
            TurnExit::Interrupted | TurnExit::StoreFailed { .. }
        );
        // Messages that were too late for this turn start the next one immediately.
        let goes_on = !stopped && (summary.pending_steer.is_some() || self.queued > 0);
        let why = explain(&summary.exit, self.route.as_ref());
        let (outcome, why) = ending(&summary.exit, why);
        if let Some(why) = why
            && (outcome.is_ok() || self.waiting.is_empty() || goes_on)
        {
            self.outlet.notice(NoticeLevel::Warning, &why).await;
        }
        if goes_on {
            return;
        }
        for prompt in std::mem::take(&mut self.waiting) {
            prompt.answer(outcome.clone());
        }
    }
}

/// The response to the editor, and an additional text for the person.
fn ending(exit: &TurnExit, why: Option<String>) -> (Result<StopReason, Error>, Option<String>) {
    let reason = match exit {
        TurnExit::Answered | TurnExit::CostCapReached { .. } | TurnExit::LoopStopped { .. } => {
            StopReason::EndTurn
        }
        TurnExit::Interrupted => return (Ok(StopReason::Cancelled), None),
        TurnExit::BudgetExhausted { .. } => StopReason::MaxTurnRequests,
        TurnExit::Partial { .. } => StopReason::MaxTokens,
        TurnExit::Refused { .. } => StopReason::Refusal,
        TurnExit::NoAnswer { .. }
        | TurnExit::Failed { .. }
        | TurnExit::ContextFull { .. }
        | TurnExit::StoreFailed { .. } => {
            let text = why.clone().unwrap_or_else(|| "the turn failed".to_owned());
            return (Err(Error::new(ErrorCode::INTERNAL_ERROR, text)), why);
        }
    };
    (Ok(reason), why)
}

/// Whether a result indicates an interruption: interrupted commands have results, too.
fn was_cut(result: &str) -> bool {
    let Ok(serde_json::Value::Object(result)) = serde_json::from_str(result) else {
        return false;
    };
    let text = |key: &str| result.get(key).and_then(serde_json::Value::as_str);
    result.get("exit_code").and_then(serde_json::Value::as_i64) == Some(130)
        || matches!(text("status"), Some("interrupted" | "cancelled"))
}

/// Keeps the last part.
fn add(progress: &mut String, text: &str) {
    progress.push_str(text);
    if !text.ends_with('\n') {
        progress.push('\n');
    }
    let excess = progress.len() - hermes_core::text::last_bytes(progress, MAX_PROGRESS_BYTES).len();
    progress.drain(..excess);
}

#[cfg(test)]
mod tests {
    use hermes_core::model::ErrorClass;

    use super::*;

    #[test]
    fn every_end_has_its_reason() {
        let message = String::from("m");
        let reason = |exit: &TurnExit| ending(exit, explain(exit, None)).0;
        assert_eq!(reason(&TurnExit::Answered), Ok(StopReason::EndTurn));
        assert_eq!(reason(&TurnExit::Interrupted), Ok(StopReason::Cancelled));
        assert_eq!(
            reason(&TurnExit::BudgetExhausted { calls: 3 }),
            Ok(StopReason::MaxTurnRequests)
        );
        assert_eq!(
            reason(&TurnExit::Partial { why: "cut".into() }),
            Ok(StopReason::MaxTokens)
        );
        assert_eq!(
            reason(&TurnExit::Refused {
                message: message.clone()
            }),
            Ok(StopReason::Refusal)
        );
        let failed = TurnExit::Failed {
            class: ErrorClass::Server,
            message: "broken pipes".into(),
        };
        let error = reason(&failed).unwrap_err();
        assert!(error.message.contains("broken pipes"), "{error:?}");
        assert!(ending(&TurnExit::Answered, None).1.is_none());
    }

    #[test]
    fn a_result_says_that_its_call_was_cut() {
        for cut in [r#"{"exit_code": 130}"#, r#"{"status": "interrupted"}"#] {
            assert!(was_cut(cut), "{cut}");
        }
        for whole in ["", "interrupted", r#"{"exit_code": 0}"#, "[130]"] {
            assert!(!was_cut(whole), "{whole}");
        }
    }

    #[test]
    fn progress_keeps_its_end() {
        let mut progress = String::new();
        for _ in 0..3 {
            add(&mut progress, &"ü".repeat(MAX_PROGRESS_BYTES / 3));
        }
        add(&mut progress, "end");
        assert!(progress.len() <= MAX_PROGRESS_BYTES && progress.ends_with("end\n"));
    }
}
