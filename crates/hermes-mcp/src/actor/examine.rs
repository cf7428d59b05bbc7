//! Examines a suspect link: probes the old session, opens a new one concurrently, and keeps
//! whichever works. The only side effect on the server is a session that is deleted again.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, join_all, select};
use hermes_core::{BoxFuture, task};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connect::{AttemptPlan, NewConnection, attempt};
use super::retire::{close, wait_until_idle};
use super::shared::{ActorState, InFlight, LiveLink, SessionVerdict};
use super::tries::{self, ConnectFuture};
use crate::actor::keepalive::{self, ProbeMethod};
use crate::actor::state::LinkState;
use crate::failure::classify::METHOD_NOT_FOUND;
use crate::failure::retry::SuspectReason;
use crate::failure::{Certainty, FailureClass, McpFailure, format_duration};
use crate::transport::link::TransportKind;

/// Delay before the next check starts alongside an unanswered one.
const HEDGE_DELAY: Duration = Duration::from_millis(500);
/// How long a busy child may take to finish before it is probed.
const BUSY_CHILD_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of concurrent probes when a request was refused: behind a load balancer without sticky
/// sessions only some of them reach an instance that does not know the session.
const CROSS_CHECKS: usize = 6;

/// The subject and the reason of an examination.
pub(super) struct Examination {
    pub(super) live: Arc<LiveLink>,
    pub(super) suspect_reason: SuspectReason,
    /// Possibly only some instances of the server know the session.
    pub(super) misrouted: bool,
    /// There was no response at all.
    pub(super) silent: bool,
    /// The operation that failed succeeded before.
    pub(super) worked: bool,
    /// Shown to the user.
    pub(super) why: String,
    pub(super) method: ProbeMethod,
}

/// The result of an examination.
pub(super) enum ExaminationOutcome {
    /// The session works and is probed with `method` from now on. `misrouted`: how instances
    /// refused it that do not know it.
    Healthy {
        method: ProbeMethod,
        misrouted: Option<McpFailure>,
    },
    /// A new link works. `old_works`: the old one answers probes, but not calls.
    Replaced {
        new_connection: Box<NewConnection>,
        old_works: bool,
    },
    /// Neither works. `silent`: there was no response at all. `told_apart`: the server answers the old
    /// session differently from a new one.
    Down {
        failure: McpFailure,
        silent: bool,
        told_apart: bool,
    },
}

/// The state of the old session.
enum OldSession {
    Works {
        method: ProbeMethod,
        misrouted: Option<McpFailure>,
    },
    /// All probes failed, with these failures.
    Fails(Vec<McpFailure>),
}

impl OldSession {
    fn verdict(&self) -> SessionVerdict {
        match self {
            Self::Works { .. } => SessionVerdict::Works,
            Self::Fails(failures) => SessionVerdict::Fails(failures.clone()),
        }
    }
}

/// State shared by the two sides of an examination.
#[derive(Default)]
struct Signals {
    /// The first probe of the old session failed.
    failed: Notify,
    /// A probe of it was answered.
    answered: AtomicBool,
}

/// An attempt to connect, alongside the old session.
struct ConnectionAttempt {
    work: ConnectFuture,
    started: bool,
    cancel: CancellationToken,
}

impl Examination {
    /// `next`: the plan for a new link.
    pub(super) async fn run(
        self,
        shared: Arc<ActorState>,
        next: AttemptPlan,
    ) -> ExaminationOutcome {
        if self.silent {
            // Pooled sockets may be dead without an error; a new socket gets an answer.
            self.live.link.resumed();
        }
        self.live.set_verdict(SessionVerdict::Open);
        let signals = Arc::new(Signals::default());
        if shared.settings().transport == TransportKind::Stdio {
            // There must never be two child processes, so only the old one is checked.
            wait_until_idle(&self.live, Instant::now() + BUSY_CHILD_TIMEOUT).await;
            return match self.ask_old(&shared, &signals).await {
                OldSession::Works { .. } if self.leaves_calls_unanswered() => down(hung(), false),
                OldSession::Works { method, misrouted } => {
                    ExaminationOutcome::Healthy { method, misrouted }
                }
                OldSession::Fails(failures) => {
                    let first = failures.into_iter().next();
                    down(first.unwrap_or_else(|| no_answer(Duration::ZERO)), false)
                }
            };
        }
        let cancel = CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        let work = attempt(Arc::clone(&shared), next, cancel.clone());
        let attempt = ConnectionAttempt {
            work: Box::pin(work),
            started: false,
            cancel,
        };
        let this = Arc::new(self);
        let asking = {
            let (this, signals) = (Arc::clone(&this), Arc::clone(&signals));
            async move {
                let old = this.ask_old(&shared, &signals).await;
                // Probes on a closed link are never sent, so they prove nothing.
                let ended = this.live.link.closed().now_or_never().is_some();
                this.live.set_verdict(match old.verdict() {
                    SessionVerdict::Fails(_) if ended => SessionVerdict::Gone,
                    verdict => verdict,
                });
                old
            }
        };
        this.compare(Box::pin(asking), &signals, attempt).await
    }

    /// Probes the old session and connects a new one concurrently.
    async fn compare(
        &self,
        mut asking: BoxFuture<'static, OldSession>,
        signals: &Signals,
        mut attempt: ConnectionAttempt,
    ) -> ExaminationOutcome {
        let at_once = self.suspect_reason.connects_at_once();
        let mut old = None;
        if !at_once {
            // Usually the old session works and nothing else is needed.
            tokio::select! {
                verdict = &mut asking => old = Some(verdict),
                () = signals.failed.notified() => {}
                // Long enough for the second probe too.
                () = sleep(HEDGE_DELAY * 2) => {}
            }
        }
        let mut new_connection = None;
        // A new session that is ready first is used soon, but the old one is still probed to the
        // end: its state decides whether the call may be repeated.
        let mut replacement_due = None;
        loop {
            match (old.take(), new_connection.take()) {
                (Some(OldSession::Works { method, misrouted }), made) => {
                    let replace =
                        self.suspect_reason == SuspectReason::Refused && misrouted.is_none();
                    match made {
                        Some(Ok(new_connection)) if replace => {
                            return replaced(new_connection, true);
                        }
                        None if replace => {
                            old = Some(OldSession::Works { method, misrouted });
                        }
                        made => {
                            discard(made, attempt);
                            return ExaminationOutcome::Healthy { method, misrouted };
                        }
                    }
                }
                (Some(OldSession::Fails(_)), Some(Ok(new_connection))) => {
                    return replaced(new_connection, false);
                }
                (Some(OldSession::Fails(old)), Some(Err(failure))) => {
                    let told_apart = old.iter().any(|old| is_told_apart(old, &failure));
                    return down(failure, told_apart);
                }
                (None, Some(Ok(made))) if self.silent || has_passed(replacement_due) => {
                    self.finish_asking_in_background(asking);
                    return replaced(made, signals.answered.load(Ordering::Relaxed));
                }
                // Examining again soon is faster than waiting for the old session.
                (None, Some(Err(failure))) if has_passed(replacement_due) => {
                    return down(failure, false);
                }
                (verdict, made) => (old, new_connection) = (verdict, made),
            }
            tokio::select! {
                biased;
                verdict = &mut asking, if old.is_none() => old = Some(verdict),
                made = attempt.make(), if new_connection.is_none() => {
                    new_connection = Some(made);
                    replacement_due = Some(Instant::now() + HEDGE_DELAY);
                }
                () = sleep_until(replacement_due.unwrap_or_else(Instant::now)),
                    if replacement_due.is_some() && old.is_none() && !has_passed(replacement_due) => {}
            }
        }
    }

    /// A call got no answer in time, no other one runs, and a new child was not tried in vain. One that never
    /// gave an answer may be at work on something long, which would end with the child.
    fn leaves_calls_unanswered(&self) -> bool {
        let hangs = self.silent && self.worked && self.suspect_reason == SuspectReason::Refused;
        hangs && self.live.inflight() == 0
    }

    /// Finishes probing after the new session was adopted: calls wait for the verdict on the old
    /// one.
    fn finish_asking_in_background(&self, asking: BoxFuture<'static, OldSession>) {
        if self.silent {
            // An unanswered call is not repeated, whatever the probes find.
            self.live.set_verdict(SessionVerdict::Fails(Vec::new()));
            return;
        }
        // Keeps the link open until the probes have finished.
        let held = InFlight::new(&self.live);
        drop(task::spawn("mcp-old-session", async move {
            asking.await;
            drop(held);
        }));
    }

    /// Probes the old session by ping, and by the tool list where ping fails.
    async fn ask_old(&self, shared: &ActorState, signals: &Signals) -> OldSession {
        let settings = shared.settings();
        let limit = keepalive::probe_timeout(
            settings.transport,
            settings.keepalive_interval,
            settings.timeout,
        );
        let link = &*self.live.link;
        let mut first = pin!(self.ping(signals, limit));
        // Some servers never answer ping, so the second method starts before the first has timed
        // out.
        let answer = timeout(HEDGE_DELAY.min(limit), &mut first).await.ok();
        let failures = match answer {
            Some(Ok(works)) => return works,
            Some(Err(failures)) => failures,
            None => Vec::new(),
        };
        let failure = failures.first();
        self.mark_suspect(shared, failure);
        if failure.is_some_and(|failure| !is_unknown_method(failure)) {
            signals.failed.notify_one();
        }
        let second = async {
            if self.method == ProbeMethod::List {
                return Err(no_answer(limit));
            }
            keepalive::probe(link, ProbeMethod::List, limit).await
        };
        let fails = |mut failures: Vec<McpFailure>, last: McpFailure| {
            failures.push(last);
            OldSession::Fails(failures)
        };
        // The list succeeded; these are the failures of the pings.
        let failures = if failures.is_empty() {
            match select(first, pin!(second)).await {
                Either::Left((Ok(works), _)) => return works,
                Either::Right((Ok(()), _)) => Vec::new(),
                Either::Left((Err(failures), second)) => match second.await {
                    Ok(()) => failures,
                    Err(failure) => return fails(failures, failure),
                },
                Either::Right((Err(failure), first)) => match first.await {
                    Ok(works) => return works,
                    Err(failures) => return fails(failures, failure),
                },
            }
        } else {
            match second.await {
                Ok(()) => failures,
                Err(failure) => return fails(failures, failure),
            }
        };
        self.works_by_list(signals, limit, failures).await
    }

    /// The list succeeded after pings failed. If only some instances know the session, all pings
    /// may have reached the others by chance, so they are sent once more.
    async fn works_by_list(
        &self,
        signals: &Signals,
        limit: Duration,
        failures: Vec<McpFailure>,
    ) -> OldSession {
        let refused = failures.into_iter().find(McpFailure::refuses_session);
        if self.misrouted
            && refused.is_some()
            && let Ok(OldSession::Works { method, misrouted }) = self.ping(signals, limit).await
        {
            let misrouted = misrouted.or(refused);
            return OldSession::Works { method, misrouted };
        }
        OldSession::Works {
            method: ProbeMethod::List,
            misrouted: None,
        }
    }

    /// Pings once, or several times if possibly only some instances know the session.
    async fn ping(
        &self,
        signals: &Signals,
        limit: Duration,
    ) -> Result<OldSession, Vec<McpFailure>> {
        // A call that every instance refused needs a new session, whatever was found before.
        let known = self.suspect_reason != SuspectReason::Refused && self.live.is_misrouted();
        let several = self.misrouted || known;
        let count = if several { CROSS_CHECKS } else { 1 };
        let link = &*self.live.link;
        let mut failures = Vec::new();
        let mut answered = false;
        // All pings may reach the same instance by chance, so they are repeated before concluding
        // that all instances know the session.
        for _ in 0..if several { 2 } else { 1 } {
            let questions = (0..count).map(|_| keepalive::probe(link, self.method, limit));
            answered = false;
            for answer in join_all(questions).await {
                match answer {
                    Ok(()) => answered = true,
                    Err(why) => failures.push(why),
                }
            }
            signals.answered.store(answered, Ordering::Relaxed);
            if !failures.is_empty() {
                break;
            }
        }
        if !answered {
            return Err(failures);
        }
        // Rate limits also refuse some pings, which proves nothing about the session.
        let misrouted = failures.into_iter().find(McpFailure::refuses_session);
        Ok(OldSession::Works {
            method: self.method,
            misrouted,
        })
    }

    /// Makes calls wait for the verdict and updates the status.
    fn mark_suspect(&self, shared: &ActorState, failure: Option<&McpFailure>) {
        shared.inbox.suspect(self.live.epoch);
        if let Some(failure) = failure {
            shared.record_failure(failure);
        }
        let published = shared.view.borrow().live.clone();
        if published.is_some_and(|published| Arc::ptr_eq(&published, &self.live)) {
            let why = self.why.clone();
            shared.publish(LinkState::Degraded { why }, Some(Arc::clone(&self.live)));
        }
    }
}

/// Ping is optional, so this proves nothing about the session.
fn is_unknown_method(failure: &McpFailure) -> bool {
    failure.rpc_code == Some(METHOD_NOT_FOUND)
}

fn has_passed(until: Option<Instant>) -> bool {
    until.is_some_and(|until| until <= Instant::now())
}

fn replaced(new_connection: NewConnection, old_works: bool) -> ExaminationOutcome {
    ExaminationOutcome::Replaced {
        new_connection: Box::new(new_connection),
        old_works,
    }
}

fn down(failure: McpFailure, told_apart: bool) -> ExaminationOutcome {
    let silent = failure.class == FailureClass::TimedOut;
    ExaminationOutcome::Down {
        failure,
        silent,
        told_apart,
    }
}

/// Whether the server answers both and not in the same way, so that it looks at the session. In an outage
/// everybody gets the same answer. A rate limit says nothing about the session.
fn is_told_apart(old: &McpFailure, new: &McpFailure) -> bool {
    let is_answer =
        |failure: &McpFailure| failure.http_status.is_some() || failure.rpc_code.is_some();
    is_answer(old) && is_answer(new) && old.http_status != Some(429) && !old.has_same_text(new)
}

/// A child that is there, and does not answer what it is asked to do.
fn hung() -> McpFailure {
    McpFailure::new(
        FailureClass::Ambiguous,
        Certainty::MaybeExecuted,
        "it answers probes, but the last call got no answer",
    )
}

fn no_answer(limit: Duration) -> McpFailure {
    McpFailure::new(
        FailureClass::TimedOut,
        Certainty::MaybeExecuted,
        format!("no answer within {}", format_duration(limit)),
    )
}

impl ConnectionAttempt {
    async fn make(&mut self) -> Result<NewConnection, McpFailure> {
        self.started = true;
        self.work.as_mut().await
    }
}

/// Discards a connection that is not needed, in the background.
fn discard(made: Option<Result<NewConnection, McpFailure>>, attempt: ConnectionAttempt) {
    attempt.cancel.cancel();
    match made {
        Some(Ok(new_connection)) => drop(task::spawn("mcp-discard", async move {
            close(&*new_connection.link).await;
        })),
        // It was cancelled, and closes what it has opened.
        None if attempt.started => tries::discard(attempt.work),
        _ => {}
    }
}
