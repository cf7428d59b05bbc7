//! One call: wait for a healthy link, wait for the turn, send; and again, once per cause, where that
//! cannot repeat an effect.

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
use crate::failure::retry::{Doubt, ToolHints};
use crate::failure::{Certainty, FailureClass, McpFailure};

mod repeat;
mod send;
mod wait;

pub(super) use wait::WAKE_GAP;

use repeat::Retries;
use wait::{Look, Wait};

/// The budgets of a call.
struct Frame {
    /// Ends without progress.
    idle: Instant,
    /// Ends in any case.
    cap: Instant,
    /// Added to now at each sign of progress.
    budget: Duration,
    /// What the caller allows, whoever is asked meanwhile.
    hard: Option<Instant>,
}

impl Frame {
    fn end(&self) -> Instant {
        let end = self.idle.min(self.cap);
        self.hard.map_or(end, |hard| end.min(hard))
    }

    /// A person thought for so long: that time is not the server's.
    fn pause(&mut self, thought: Duration) {
        self.idle += thought;
        self.cap += thought;
    }
}

pub(super) async fn call(
    shared: &Arc<ActorState>,
    op: Op,
    options: CallOptions,
) -> Result<OpOutput, CallError> {
    let started = Instant::now();
    let name = op.name();
    let result = Attempt::new(shared, op, options, started).run().await;
    let outcome = match &result {
        Ok(_) => "ok",
        Err(error) if error.outcome_unknown => "outcome_unknown",
        Err(error) => error.failure.class.name(),
    };
    shared.metrics.call(name, outcome);
    result
}

/// A call under way.
struct Attempt<'a> {
    shared: &'a Arc<ActorState>,
    op: Arc<Op>,
    options: CallOptions,
    frame: Frame,
    retries: Retries,
    /// What the server offered when the call was first sent.
    offered: Option<Arc<CatalogueSnapshot>>,
    /// Of its place in the queue.
    round: u64,
    /// It was sent and may have run, in whatever way that ended.
    may_have_run: bool,
}

impl<'a> Attempt<'a> {
    fn new(shared: &'a Arc<ActorState>, op: Op, options: CallOptions, started: Instant) -> Self {
        let settings = shared.settings();
        Self {
            shared,
            op: Arc::new(op),
            frame: Frame {
                idle: started + settings.timeout,
                cap: started + settings.max_timeout,
                budget: settings.timeout,
                hard: options.deadline,
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
            // Who has no chance does not queue.
            self.link().await.map_err(|f| self.refused(f))?;
            let permit = self.turn().await.map_err(|f| self.refused(f))?;
            self.round = permit.round();
            let (live, inflight) = self.enter().await.map_err(|f| self.refused(f))?;
            self.still_there().map_err(|f| self.refused(f))?;
            let answer = self.send(&live, (permit, inflight)).await;
            match answer.and_then(|output| self.check(output)) {
                Ok(output) => {
                    self.answered(&live, &output);
                    return Ok(output);
                }
                Err(failure) => self.failed(&live, failure).await?,
            }
        }
    }

    /// A result that is none is no sign of a healthy session.
    fn check(&self, output: OpOutput) -> Result<OpOutput, McpFailure> {
        const KNOWN: [&str; 5] = [
            "content",
            "structuredContent",
            "toolResult",
            "task",
            "resultType",
        ];
        let is_call = matches!(*self.op, Op::CallTool { .. });
        let known = KNOWN.iter().any(|key| output.result.get(key).is_some());
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

    /// The live link, and a place on it: it is not closed while the place is held.
    async fn enter(&self) -> Result<(Arc<LiveLink>, InFlight), McpFailure> {
        loop {
            let live = self.link().await?;
            let inflight = InFlight::new(&live);
            // Whoever retires a link first takes it out of the view and then looks who is on it.
            let current = self.shared.view.borrow().live.clone();
            if current.is_some_and(|current| Arc::ptr_eq(&current, &live)) {
                return Ok((live, inflight));
            }
        }
    }

    /// The live link, once it is not suspect.
    async fn link(&self) -> Result<Arc<LiveLink>, McpFailure> {
        let mut view = self.shared.view.subscribe();
        let mut wait = Wait::new(self.frame.end(), self.shared);
        loop {
            let look = wait.look(&view.borrow_and_update(), self.shared);
            match look {
                Look::Live(live) => return Ok(live),
                Look::Hopeless(failure) => return Err(failure),
                Look::Wait => {}
            }
            tokio::select! {
                biased;
                () = self.options.cancel.cancelled() => return Err(cancelled(Certainty::NotSent)),
                _ = view.changed() => {}
                () = wait.patience() => {}
                () = sleep_until(wait.until) => return Err(self.gave_up(&view.borrow())),
            }
        }
    }

    /// The place in the queue; the wait is part of the deadline.
    async fn turn(&self) -> Result<CallPermit, McpFailure> {
        let queue = self.shared.queue();
        let behalf = self.options.behalf.as_ref();
        let conversation = behalf.map_or("", |behalf| behalf.session.as_str());
        let mut turn = pin!(queue.acquire(conversation));
        if let Some(permit) = turn.as_mut().now_or_never() {
            return Ok(permit);
        }
        let _queued = Counted::new(&self.shared.queued);
        tokio::select! {
            biased;
            () = self.options.cancel.cancelled() => Err(cancelled(Certainty::NotSent)),
            permit = timeout_at(self.frame.end(), turn) => permit.map_err(|_| {
                unavailable("all slots of this server stayed busy until the deadline")
            }),
        }
    }

    /// Whether a tool that was offered when the call was first sent still is.
    fn still_there(&mut self) -> Result<(), McpFailure> {
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
            // Most probably the tool's own error; the session is asked all the same.
            let failure = McpFailure::new(
                FailureClass::Rpc,
                Certainty::MaybeExecuted,
                "a tool reported an error",
            );
            self.report(live, &failure, Doubt::Answered);
            return;
        }
        self.shared.call_went_well();
        self.shared.queue().went_well();
        live.worked(self.operation());
        if live.succeeded() {
            self.shared.inbox.answered(live.epoch);
        }
    }

    /// The tool, or the operation.
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

    fn gave_up(&self, view: &View) -> McpFailure {
        let state = &view.standing.state;
        let why = state.why().map_or(String::new(), |why| format!(": {why}"));
        let text = format!("not connected in time ({}{why})", state.name());
        if Instant::now() >= self.frame.end() {
            return McpFailure::new(FailureClass::TimedOut, Certainty::NotSent, text);
        }
        unavailable(&text)
    }

    /// A failure before it was sent, or sent again.
    fn refused(&self, failure: McpFailure) -> CallError {
        self.give_up(failure, self.is_safe())
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
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
