//! Follows a turn on behalf of a run.

use std::time::Duration;

use hermes_core::approval::{ApprovalRequest, Verdict as Given};
use hermes_core::event::{AgentCommand, TurnExit};
use hermes_core::redact;
use hermes_gateway::approval_wait;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::log::{ApiRun, RunStatus};
use crate::ApiState;
use crate::admit::TurnPermit;
use crate::label;
use crate::outcome::{self, OutcomeReport};
use crate::turn::{ApiTurn, ApprovalEvent, TurnResult, TurnStep};
use crate::turn_request::TurnRequest;

/// Answers of clients that may wait.
const ANSWER_QUEUE_CAPACITY: usize = 64;
const ANSWER_TIMED_OUT: &str = "no one answered in time";

pub(super) async fn drive(
    state: &ApiState,
    run: &ApiRun,
    ticket: TurnPermit,
    to_start: TurnRequest,
) {
    let now = || state.deps.clock.epoch_seconds();
    let started = tokio::select! {
        () = run.stop.cancelled() => None,
        started = ApiTurn::begin(state, ticket, to_start.opening, to_start.input) => Some(started),
    };
    let mut turn = match started {
        Some(Ok(turn)) => turn,
        Some(Err(error)) => {
            let message = error.to_json()["error"]["message"].clone();
            return run.end(RunStatus::Failed, json!({"error": message}), now());
        }
        None => return run.end(RunStatus::Cancelled, json!({}), now()),
    };
    let (answers, mut answered) = mpsc::channel(ANSWER_QUEUE_CAPACITY);
    run.mark_started(answers, turn.session(), now());
    let patience = approval_wait(&state.deps.config);
    let mut stopping = false;
    let mut thought = String::new();
    loop {
        let step = tokio::select! {
            step = turn.next() => step,
            () = run.stop.cancelled(), if !stopping => {
                stopping = true;
                turn.command(AgentCommand::Interrupt);
                continue;
            }
            Some(answer) = answered.recv() => {
                turn.command(answer);
                continue;
            }
            () = sleep_until(run.due()) => {
                deny_late(run, &mut turn, now());
                continue;
            }
        };
        if !matches!(step, Some(TurnStep::Reasoning(_))) && !thought.is_empty() {
            let text = std::mem::take(&mut thought);
            run.add_event("reasoning.available", json!({"text": text}), now());
        }
        match step {
            Some(TurnStep::Reasoning(text)) => thought.push_str(&text),
            Some(TurnStep::Done(outcome)) => return end(run, &outcome, now()),
            Some(step) => record_step(run, step, patience, now()),
            None => return run.end(RunStatus::Failed, json!({"error": "it broke off"}), now()),
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// No answer means no; otherwise the run would occupy its permit and session forever.
fn deny_late(run: &ApiRun, turn: &mut ApiTurn, now: f64) {
    for request in run.take_late(Instant::now(), now) {
        let event_data = json!({
            "choice": "deny",
            "resolved": 1,
            "request_id": request.id,
            "reason": ANSWER_TIMED_OUT,
        });
        run.add_event("approval.responded", event_data, now);
        let why = Some(ANSWER_TIMED_OUT.to_owned());
        turn.command(AgentCommand::Answer {
            request: request.id,
            verdict: Given::Deny { why },
        });
    }
}

fn record_step(run: &ApiRun, step: TurnStep, patience: Duration, now: f64) {
    match step {
        TurnStep::Text(text) => run.add_event("message.delta", json!({"delta": text}), now),
        TurnStep::ToolStarted {
            call_id,
            name,
            arguments,
        } => {
            let preview = label::label(&name, &arguments);
            let data = json!({"tool": name, "tool_call_id": call_id, "preview": preview});
            run.add_event("tool.started", data, now);
        }
        TurnStep::ToolFinished {
            call_id,
            name,
            failed,
            millis,
            ..
        } => {
            let duration = millis as f64 / 1000.0;
            let data = json!({
                "tool": name,
                "tool_call_id": call_id,
                "duration": duration,
                "error": failed,
            });
            run.add_event("tool.completed", data, now);
        }
        TurnStep::Approval(ApprovalEvent::Needed(request)) => ask(run, request, patience, now),
        TurnStep::Approval(ApprovalEvent::Closed(id)) => run.not_needed(&id, now),
        TurnStep::Reasoning(_) | TurnStep::Done(_) => {}
    }
}

fn ask(run: &ApiRun, request: ApprovalRequest, patience: Duration, now: f64) {
    let choices: &[&str] = if request.rule.is_some() {
        &["once", "session", "always", "deny"]
    } else {
        &["once", "session", "deny"]
    };
    let data = json!({
        "request_id": request.id,
        "tool": request.tool,
        "command": redact::secrets(&request.action),
        "description": request.reasons.join("; "),
        "posture": request.posture,
        "allow_permanent": request.rule.is_some(),
        "choices": choices,
    });
    run.ask(request, Instant::now() + patience, data, now);
}

fn end(run: &ApiRun, outcome: &TurnResult, now: f64) {
    let verdict = OutcomeReport::new(outcome);
    let usage = outcome::response_usage(&outcome.usage);
    let mut data = json!({"session_id": outcome.session, "usage": usage});
    let status = if outcome.exit == TurnExit::Interrupted {
        RunStatus::Cancelled
    } else if verdict.is_failed() && outcome.text.trim().is_empty() {
        RunStatus::Failed
    } else {
        RunStatus::Completed
    };
    if status == RunStatus::Completed || !outcome.text.is_empty() {
        data["output"] = Value::String(outcome.text.clone());
    }
    if let Some(error) = &verdict.error
        && status != RunStatus::Cancelled
    {
        data["error"] = Value::String(error.clone());
        data["hermes"] = verdict.block();
    }
    run.end(status, data, now);
}
