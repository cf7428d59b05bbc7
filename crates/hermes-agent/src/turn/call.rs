//! Runs one tool call: in a task of its own, under a deadline, and it always yields a result.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::event::{AgentEvent, NoticeLevel, ProgressSink};
use hermes_core::task;
use hermes_core::tool::{Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{TurnScope, messages, millis, outside};

/// What a call came to.
pub(super) struct CallOutcome {
    pub outcome: ToolOutcome,
    pub elapsed: Duration,
}

/// A call that is about to run.
pub(super) struct CallStart<'a> {
    pub scope: &'a TurnScope,
    pub context: ToolContext,
    pub name: String,
    pub arguments: String,
    pub tool: Arc<dyn Tool>,
    pub args: ToolArgs,
    pub deadline: Option<Instant>,
}

impl CallStart<'_> {
    /// Runs the call, unless its time was up before there was a worker for it.
    pub(super) async fn run_in_time(self) -> CallOutcome {
        let outcome = if self.scope.cancel.is_cancelled() {
            ToolOutcome::error(ToolErrorKind::Cancelled, messages::SKIPPED_STOP)
        } else if self.deadline.is_some_and(|at| at <= Instant::now()) {
            ToolOutcome::error(ToolErrorKind::TimedOut, messages::SKIPPED_LATE)
        } else {
            return self.run().await;
        };
        CallOutcome {
            outcome,
            elapsed: Duration::ZERO,
        }
    }

    async fn run(self) -> CallOutcome {
        let events = &self.scope.events;
        let began = Instant::now();
        events
            .emit(AgentEvent::ToolStarted {
                call_id: self.context.call_id.clone(),
                name: self.name.clone(),
                arguments: self.arguments.clone(),
            })
            .await;
        let cancel = self.context.cancel.clone();
        let grace = self.scope.deps.settings.tools.cancel_grace;
        let changes = !matches!(
            self.tool.spec().effects,
            Effects::ReadOnly | Effects::ReadsPaths(_)
        );
        let (tool, args, context) = (self.tool, self.args, self.context);
        let work = task::spawn(&self.name, async move { tool.call(args, &context).await });
        let mut work = AbortOnDropHandle::new(work);
        let stop = tokio::select! {
            biased;
            done = &mut work => return CallOutcome { outcome: settle(done), elapsed: began.elapsed() },
            why = stopped(&self.scope.cancel, self.deadline) => why,
        };
        cancel.cancel();
        let outcome = match tokio::time::timeout(grace, &mut work).await {
            Ok(done) => settle(done),
            Err(_) => given_up(stop, changes, began.elapsed()),
        };
        CallOutcome {
            outcome,
            elapsed: began.elapsed(),
        }
    }
}

/// Where a tool reports progress.
pub(super) fn progress(scope: &TurnScope, call_id: &str) -> ProgressSink {
    let events = scope.events.clone();
    let notices = scope.events.clone();
    let spending = scope.spending.clone();
    let patterns = scope.deps.settings.tools.redact;
    let call_id = call_id.to_owned();
    ProgressSink::new(move |text| {
        let call_id = call_id.clone();
        let text = outside::hidden(text, patterns);
        events.emit_or_drop(AgentEvent::ToolProgress { call_id, text });
    })
    .noticing(move |text| {
        let text = outside::hidden(text, patterns);
        let level = NoticeLevel::Warning;
        notices.emit_or_drop(AgentEvent::Notice { level, text });
    })
    .counting(move |spent| spending.add(spent))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallStop {
    Interrupted,
    Late,
}

async fn stopped(cancel: &CancellationToken, deadline: Option<Instant>) -> CallStop {
    let late = async {
        match deadline {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => CallStop::Interrupted,
        () = late => CallStop::Late,
    }
}

type JoinedCall = Result<Result<ToolOutcome, task::Panicked>, tokio::task::JoinError>;

fn settle(done: JoinedCall) -> ToolOutcome {
    let broken = |message: String| {
        ToolOutcome::error(
            ToolErrorKind::Panicked,
            format!(
                "the tool broke ({message}); this is a bug in it. What it had done by then is not known"
            ),
        )
    };
    match done {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panicked)) => broken(panicked.message),
        Err(error) => broken(error.to_string()),
    }
}

fn given_up(stop: CallStop, changes: bool, after: Duration) -> ToolOutcome {
    let effect = if changes {
        " Whether it took effect is not known: check before doing it again."
    } else {
        ""
    };
    match stop {
        CallStop::Interrupted => ToolOutcome::error(
            ToolErrorKind::Cancelled,
            format!("the user stopped the turn while this ran.{effect}"),
        ),
        CallStop::Late => ToolOutcome::error(
            ToolErrorKind::TimedOut,
            format!(
                "it did not finish within {} seconds and was given up.{effect}",
                millis(after) / 1_000
            ),
        ),
    }
}
