//! One call: waits for a healthy link and for its turn, sends the request, and repeats it once per
//! cause where that cannot repeat an effect.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::shared::{ActorState, InFlight, LiveLink, View};
use super::{CallError, CallOptions, CatalogueSnapshot};
use crate::actor::call_queue::CallPermit;
use crate::actor::op::{Op, OpOutput};
use crate::failure::retry::{SuspectReason, ToolHints};
use crate::failure::{Certainty, FailureClass, McpFailure};

mod repeat;
mod send;
mod wait;

pub(super) use wait::MIN_WAKE_INTERVAL;

use repeat::Retries;
use wait::{LinkCheck, LinkWait};

/// The deadlines of a call.
struct CallDeadlines {
    /// When the call ends without progress.
    idle: Instant,
    /// When the call ends regardless of progress.
    total: Instant,
    /// Each progress report moves `idle` to this long from now.
    idle_timeout: Duration,
    /// The caller's own deadline, which is not extended while the user is asked.
    caller_deadline: Option<Instant>,
}

impl CallDeadlines {
    fn end(&self) -> Instant {
        self.idle.min(self.without_idle())
    }

    fn without_idle(&self) -> Instant {
        self.caller_deadline
            .map_or(self.total, |deadline| deadline.min(self.total))
    }

    /// Does not count time spent waiting for the user.
    fn extend(&mut self, paused: Duration) {
        self.idle += paused;
        self.total += paused;
    }
}

pub(super) async fn call(
    shared: &Arc<ActorState>,
    op: Op,
    options: CallOptions,
) -> Result<OpOutput, CallError> {
    let started = Instant::now();
    let name = op.name();
    let result = ActiveCall::new(shared, op, options, started).run().await;
    let outcome = match &result {
        Ok(_) => "ok",
        Err(error) if error.outcome_unknown => "outcome_unknown",
        Err(error) => error.failure.class.name(),
    };
    shared.metrics.call(name, outcome);
    result
}

/// A call in progress.
struct ActiveCall<'a> {
    shared: &'a Arc<ActorState>,
    op: Arc<Op>,
    options: CallOptions,
    deadlines: CallDeadlines,
    retries: Retries,
    /// The server's lists when the call was first sent.
    offered: Option<Arc<CatalogueSnapshot>>,
    /// The queue's round when the permit was issued.
    round: u64,
    /// An earlier attempt was sent and may have run.
    may_have_run: bool,
}

impl<'a> ActiveCall<'a> {
    fn new(shared: &'a Arc<ActorState>, op: Op, options: CallOptions, started: Instant) -> Self {
        let settings = shared.settings();
        Self {
            shared,
            op: Arc::new(op),
            deadlines: CallDeadlines {
                idle: started + settings.timeout,
                total: started + settings.max_timeout,
                idle_timeout: settings.timeout,
                caller_deadline: options.deadline,
            },
            options,
            retries: Retries::default(),
            offered: None,
            round: 0,
            may_have_run: false,
        }
    }

    async fn run(mut self) -> Result<OpOutput, CallError> {
        loop {
            // A call to an unreachable server must not take a slot in the queue.
            self.wait_for_link()
                .await
                .map_err(|f| self.error_before_send(f))?;
            let permit = self
                .wait_for_turn()
                .await
                .map_err(|f| self.error_before_send(f))?;
            self.round = permit.round();
            let (live, inflight) = self
                .enter_link()
                .await
                .map_err(|f| self.error_before_send(f))?;
            self.check_tool_offered()
                .map_err(|f| self.error_before_send(f))?;
            let answer = self.send(&live, (permit, inflight)).await;
            match answer.and_then(|output| self.check_result(output)) {
                Ok(output) => {
                    self.answered(&live, &output);
                    return Ok(output);
                }
                Err(failure) => self.failed(&live, failure).await?,
            }
        }
    }

    /// A malformed result is no evidence of a healthy session.
    fn check_result(&self, output: OpOutput) -> Result<OpOutput, McpFailure> {
        const RESULT_KEYS: [&str; 5] = [
            "content",
            "structuredContent",
            "toolResult",
            "task",
            "resultType",
        ];
        let is_call = matches!(*self.op, Op::CallTool { .. });
        let known = RESULT_KEYS
            .iter()
            .any(|key| output.result.get(key).is_some());
        if !is_call || known {
            return Ok(output);
        }
        let mut failure = McpFailure::new(
            FailureClass::Ambiguous,
            Certainty::MaybeExecuted,
            "the answer to the call has no content",
        );
        failure.http_status = Some(200);
        Err(failure)
    }

    /// The live link with a guard that keeps it from being closed.
    async fn enter_link(&self) -> Result<(Arc<LiveLink>, InFlight), McpFailure> {
        loop {
            let live = self.wait_for_link().await?;
            let inflight = InFlight::new(&live);
            // To retire a link, the actor first removes it from the view and then checks its
            // in-flight count, so this order is safe.
            let current = self.shared.view.borrow().live.clone();
            if current.is_some_and(|current| Arc::ptr_eq(&current, &live)) {
                return Ok((live, inflight));
            }
        }
    }

    /// Waits for a live link that is not suspect.
    async fn wait_for_link(&self) -> Result<Arc<LiveLink>, McpFailure> {
        let mut view = self.shared.view.subscribe();
        let mut wait = LinkWait::new(self.deadlines.end(), self.shared);
        loop {
            let check = wait.check(&view.borrow_and_update(), self.shared);
            match check {
                LinkCheck::Live(live) => return Ok(live),
                LinkCheck::Failed(failure) => return Err(failure),
                LinkCheck::LinkWait => {}
            }
            tokio::select! {
                biased;
                () = self.options.cancel.cancelled() => return Err(cancelled(Certainty::NotSent)),
                _ = view.changed() => {}
                () = wait.recheck() => {}
                () = sleep_until(wait.until) => return Err(self.connect_timed_out(&view.borrow())),
            }
        }
    }

    /// Waits for a permit; the wait counts towards the deadline.
    async fn wait_for_turn(&self) -> Result<CallPermit, McpFailure> {
        let queue = self.shared.queue();
        let behalf = self.options.origin.as_ref();
        let conversation = behalf.map_or("", |behalf| behalf.session.as_str());
        let mut turn = pin!(queue.acquire(conversation));
        if let Some(permit) = turn.as_mut().now_or_never() {
            return Ok(permit);
        }
        let _queued = CountGuard::new(&self.shared.queued);
        tokio::select! {
            biased;
            () = self.options.cancel.cancelled() => Err(cancelled(Certainty::NotSent)),
            permit = timeout_at(self.deadlines.end(), turn) => permit.map_err(|_| {
                unavailable("all slots of this server stayed busy until the deadline")
            }),
        }
    }

    /// Fails if the server no longer offers a tool that it offered when the call was first sent.
    fn check_tool_offered(&mut self) -> Result<(), McpFailure> {
        let now = self.shared.catalogue.borrow().clone();
        let Some(before) = &self.offered else {
            self.offered = now;
            return Ok(());
        };
        let Op::CallTool { name, .. } = &*self.op else {
            return Ok(());
        };
        if before.has_tool(name) && now.is_some_and(|now| !now.has_tool(name)) {
            return Err(McpFailure::new(
                FailureClass::ToolGone,
                Certainty::Rejected,
                format!("the server was reconnected and no longer offers the tool {name:?}"),
            ));
        }
        Ok(())
    }

    fn answered(&self, live: &LiveLink, output: &OpOutput) {
        if output.result.get("isError") == Some(&Value::Bool(true)) {
            // Probably the tool's own error, but the session is probed anyway.
            let failure = McpFailure::new(
                FailureClass::Rpc,
                Certainty::MaybeExecuted,
                "a tool reported an error",
            );
            self.report(live, &failure, SuspectReason::Answered);
            return;
        }
        self.shared.record_call_success();
        self.shared.queue().record_success();
        live.record_operation_success(self.operation());
        if live.record_success() {
            self.shared.inbox.answered(live.epoch);
        }
    }

    /// The name of the tool or of the operation.
    fn operation(&self) -> String {
        match &*self.op {
            Op::CallTool { name, .. } => format!("tool {name}"),
            op => op.name().to_owned(),
        }
    }

    fn is_safe(&self) -> bool {
        let hints = match &*self.op {
            Op::CallTool { name, .. } => self
                .offered
                .as_ref()
                .map_or_else(ToolHints::default, |offered| offered.hints(name)),
            _ => ToolHints::default(),
        };
        self.shared.settings().retry.is_safe(&self.op, hints)
    }

    fn connect_timed_out(&self, view: &View) -> McpFailure {
        let state = &view.status.state;
        let why = state.why().map_or(String::new(), |why| format!(": {why}"));
        let text = format!("not connected in time ({}{why})", state.name());
        if Instant::now() >= self.deadlines.end() {
            return McpFailure::new(FailureClass::TimedOut, Certainty::NotSent, text);
        }
        unavailable(&text)
    }

    /// The error of a call that failed before it was sent, or sent again.
    fn error_before_send(&self, failure: McpFailure) -> CallError {
        self.give_up(failure, self.is_safe())
    }
}

struct CountGuard<'a>(&'a AtomicUsize);

impl<'a> CountGuard<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn unavailable(text: &str) -> McpFailure {
    McpFailure::new(FailureClass::Unavailable, Certainty::NotSent, text)
}

fn cancelled(certainty: Certainty) -> McpFailure {
    McpFailure::new(FailureClass::Cancelled, certainty, "cancelled")
}
