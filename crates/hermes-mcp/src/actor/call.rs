//! One call: wait for a link, wait for the turn, send, and at most one more time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::inbox::Report;
use super::shared::{InFlight, LiveLink, Shared, View};
use super::{CallError, CallOptions, CatalogueSnapshot};
use crate::breaker::Admission;
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::op::{Op, OpOutput};
use crate::retry::{self, Count, Recovery, Retry, ToolHints};
use crate::state::LinkState;

mod send;
mod wait;

pub(super) use wait::WAKE_GAP;
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
    shared: &Arc<Shared>,
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
    shared: &'a Arc<Shared>,
    op: Arc<Op>,
    options: CallOptions,
    frame: Frame,
    retried: bool,
    /// A token was refused before.
    token_refused: bool,
    /// What the server offered when the call was first sent.
    offered: Option<Arc<CatalogueSnapshot>>,
}

impl<'a> Attempt<'a> {
    fn new(shared: &'a Arc<Shared>, op: Op, options: CallOptions, started: Instant) -> Self {
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
            retried: false,
            token_refused: false,
            offered: None,
        }
    }

    async fn run(mut self) -> Result<OpOutput, CallError> {
        let mut after = None;
        loop {
            // Who has no chance does not queue.
            self.link(after).await.map_err(|f| self.refused(f))?;
            let permit = self.turn().await.map_err(|f| self.refused(f))?;
            let (live, inflight) = self.enter(after).await.map_err(|f| self.refused(f))?;
            self.still_there().map_err(|f| self.refused(f))?;
            let admission = self.admit().map_err(|f| self.refused(f))?;
            match self.send(&live, (permit, inflight)).await {
                Ok(output) => {
                    admission.answered();
                    self.answered(&live);
                    return Ok(output);
                }
                Err(failure) => match self.failed(&live, failure, admission).await? {
                    Next::SameLink => {}
                    Next::After(epoch) => after = Some(epoch),
                },
            }
        }
    }

    /// The live link, and a place on it: it is not closed while the place is held.
    async fn enter(&self, after: Option<u64>) -> Result<(Arc<LiveLink>, InFlight), McpFailure> {
        loop {
            let live = self.link(after).await?;
            let inflight = InFlight::new(&live);
            // Whoever retires a link first takes it out of the view and then looks who is on it.
            let current = self.shared.view.borrow().live.clone();
            if current.is_some_and(|current| Arc::ptr_eq(&current, &live)) {
                return Ok((live, inflight));
            }
        }
    }

    /// The live link, of a later epoch than `after`.
    async fn link(&self, after: Option<u64>) -> Result<Arc<LiveLink>, McpFailure> {
        let mut view = self.shared.view.subscribe();
        let mut wait = Wait::new(after, self.frame.end());
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
                () = sleep_until(wait.until) => return Err(self.gave_up(&view.borrow())),
            }
        }
    }

    /// The place in the queue; the wait is part of the deadline.
    async fn turn(&self) -> Result<OwnedSemaphorePermit, McpFailure> {
        let queue = self.shared.queue();
        if let Ok(permit) = Arc::clone(&queue).try_acquire_owned() {
            return Ok(permit);
        }
        let _queued = Counted::new(&self.shared.queued);
        tokio::select! {
            biased;
            () = self.options.cancel.cancelled() => Err(cancelled(Certainty::NotSent)),
            permit = timeout_at(self.frame.end(), queue.acquire_owned()) => match permit {
                Ok(Ok(permit)) => Ok(permit),
                _ => Err(unavailable("all slots of this server stayed busy until the deadline")),
            },
        }
    }

    fn admit(&self) -> Result<Admitted<'a>, McpFailure> {
        match self.shared.breaker().admit(Instant::now()) {
            Admission::Pass => Ok(Admitted {
                shared: self.shared,
                open: false,
            }),
            Admission::Probe => Ok(Admitted {
                shared: self.shared,
                open: true,
            }),
            Admission::Refused { retry_after } => {
                let mut failure = unavailable(&format!(
                    "not asked because it failed repeatedly; next try in {} s",
                    retry_after.as_secs().max(1)
                ));
                failure.retry_after = Some(retry_after);
                Err(failure)
            }
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
            return Err(unavailable(&format!(
                "it came back without the tool {name:?}; the call was not repeated"
            )));
        }
        Ok(())
    }

    fn answered(&self, live: &LiveLink) {
        self.shared.went_well();
        let first = live.prove();
        let degraded = !matches!(self.shared.view.borrow().standing.state, LinkState::Ready);
        if first || degraded {
            self.shared.inbox.answered(live.epoch);
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

    /// Reports a failure and decides whether there is another try.
    async fn failed(
        &mut self,
        live: &LiveLink,
        failure: McpFailure,
        admission: Admitted<'_>,
    ) -> Result<Next, CallError> {
        let safe = self.is_safe();
        let mut verdict = retry::decide(&failure, &self.op, &self.shared.settings().retry, safe);
        if failure.class == FailureClass::AuthExpired
            && std::mem::replace(&mut self.token_refused, true)
        {
            // Another token did not help either.
            verdict.recovery = Recovery::Login;
        }
        self.report(live, &failure, verdict.recovery, verdict.count, admission);
        let give_up = |this: &Self, failure: McpFailure| CallError {
            server: this.shared.name.to_string(),
            outcome_unknown: retry::outcome_unknown(&failure, &this.op, safe),
            failure,
            retried: this.retried,
        };
        if self.options.cancel.is_cancelled() {
            // Whoever left is told so, whatever came in the same moment.
            let certainty = failure.certainty;
            return Err(give_up(self, cancelled(certainty)));
        }
        if self.retried {
            return Err(give_up(self, failure));
        }
        let next = match verdict.retry {
            Retry::No => return Err(give_up(self, failure)),
            Retry::NextEpoch => Next::After(live.epoch),
            Retry::SameLink(pause) => {
                let at = Instant::now() + pause;
                if at >= self.frame.end() {
                    return Err(give_up(self, failure));
                }
                tokio::select! {
                    biased;
                    () = self.options.cancel.cancelled() => {
                        let certainty = failure.certainty;
                        return Err(give_up(self, cancelled(certainty)));
                    }
                    () = sleep_until(at) => {}
                }
                Next::SameLink
            }
        };
        self.retried = true;
        self.shared.metrics.retry(failure.class.name());
        Ok(next)
    }

    fn report(
        &self,
        live: &LiveLink,
        failure: &McpFailure,
        recovery: Recovery,
        count: Count,
        admission: Admitted<'_>,
    ) {
        if !matches!(failure.class, FailureClass::Cancelled) {
            self.shared.went_wrong(failure);
        }
        let gives_up = matches!(recovery, Recovery::Reconnect | Recovery::Login);
        let mut first = true;
        if recovery != Recovery::None {
            first = self.shared.inbox.report(Report {
                epoch: live.epoch,
                failure: failure.clone(),
                recovery,
            });
            if gives_up && !first {
                self.shared.metrics.joined();
            }
        }
        match count {
            // Calls that fall with one link are one failure.
            Count::Failure if !gives_up || first => admission.failed(),
            Count::Reset => admission.answered(),
            _ => drop(admission),
        }
        if count == Count::Reset {
            self.answered(live);
        }
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

    /// A failure before anything was sent.
    fn refused(&self, failure: McpFailure) -> CallError {
        CallError {
            server: self.shared.name.to_string(),
            failure,
            outcome_unknown: false,
            retried: self.retried,
        }
    }
}

enum Next {
    SameLink,
    After(u64),
}

/// What the breaker let through.
struct Admitted<'a> {
    shared: &'a Shared,
    /// It is the one call that finds out.
    open: bool,
}

impl Admitted<'_> {
    fn answered(mut self) {
        self.open = false;
        self.shared.breaker().reset();
    }

    fn failed(mut self) {
        self.open = false;
        self.shared.breaker().failed(Instant::now());
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if self.open {
            self.shared.breaker().released();
        }
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
