//! Finding out whether a suspect link works: the old session is asked, a new one is made beside it,
//! and whichever proves itself is used from then on. Nothing here has a side effect on the server
//! beyond a session that is deleted again.

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

use super::connect::{AttemptPlan, Fresh, attempt};
use super::retire::{close, drained};
use super::shared::{ActorState, InFlight, LiveLink, SessionVerdict};
use super::tries::{self, Work};
use crate::actor::keepalive::{self, ProbeBy};
use crate::actor::state::LinkState;
use crate::failure::classify::METHOD_NOT_FOUND;
use crate::failure::retry::Doubt;
use crate::failure::{Certainty, FailureClass, McpFailure, length};
use crate::transport::link::TransportKind;

/// Without an answer for so long, the next way to find out begins beside the first one.
const HEDGE: Duration = Duration::from_millis(500);
/// A busy child is given this long to finish before it is asked.
const BUSY_CHILD: Duration = Duration::from_secs(10);
/// Questions to a session on which a request was refused: behind a load balancer without stickiness
/// only some of them go to an instance that does not know it.
const CROSS_CHECKS: usize = 6;

/// What is examined, and why.
pub(super) struct Examination {
    pub(super) live: Arc<LiveLink>,
    pub(super) doubt: Doubt,
    /// Perhaps only some instances of the server know the session.
    pub(super) misrouted: bool,
    /// Nothing came back at all.
    pub(super) silent: bool,
    /// For people.
    pub(super) why: String,
    pub(super) by: ProbeBy,
}

/// What an examination found.
pub(super) enum Examined {
    /// The session works; asked like this from now on. `misrouted`: how instances of the server
    /// refused it that do not know it.
    Healthy {
        by: ProbeBy,
        misrouted: Option<McpFailure>,
    },
    /// A new link works. `old_works`: the old one answers questions, but not calls.
    Replaced { fresh: Box<Fresh>, old_works: bool },
    /// Neither works. `silent`: nothing at all came back.
    Down { failure: McpFailure, silent: bool },
}

/// How the old session did.
enum Old {
    Works {
        by: ProbeBy,
        misrouted: Option<McpFailure>,
    },
    /// In these ways, none of them a result.
    Fails(Vec<McpFailure>),
}

impl Old {
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
    /// The old session failed its first question.
    failed: Notify,
    /// It answered one.
    answered: AtomicBool,
}

/// The new connection beside the old one.
struct NewConnection {
    work: Work,
    begun: bool,
    cancel: CancellationToken,
}

impl Examination {
    /// `next`: how a new link is made.
    pub(super) async fn run(self, shared: Arc<ActorState>, next: AttemptPlan) -> Examined {
        if self.silent {
            // Pooled sockets may be dead without a sign; a question on a new one is answered.
            self.live.link.resumed();
        }
        self.live.set_verdict(SessionVerdict::Open);
        let signals = Arc::new(Signals::default());
        if shared.settings().transport == TransportKind::Stdio {
            // There are never two children, so the old one decides alone.
            drained(&self.live, Instant::now() + BUSY_CHILD).await;
            return match self.ask_old(&shared, &signals).await {
                Old::Works { by, misrouted } => Examined::Healthy { by, misrouted },
                Old::Fails(failures) => {
                    let first = failures.into_iter().next();
                    down(first.unwrap_or_else(|| no_answer(Duration::ZERO)))
                }
            };
        }
        let cancel = CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        let work = attempt(Arc::clone(&shared), next, cancel.clone());
        let attempt = NewConnection {
            work: Box::pin(work),
            begun: false,
            cancel,
        };
        let this = Arc::new(self);
        let asking = {
            let (this, signals) = (Arc::clone(&this), Arc::clone(&signals));
            async move {
                let old = this.ask_old(&shared, &signals).await;
                // Questions on a link that has ended are not sent at all.
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

    /// Asks the old session and makes a new connection at the same time.
    async fn compare(
        &self,
        mut asking: BoxFuture<'static, Old>,
        signals: &Signals,
        mut attempt: NewConnection,
    ) -> Examined {
        let at_once = self.doubt.connects_at_once();
        let mut old = None;
        if !at_once {
            // Most of the time the old session just works, and nothing else is needed.
            tokio::select! {
                verdict = &mut asking => old = Some(verdict),
                () = signals.failed.notified() => {}
                // Time for the second question as well.
                () = sleep(HEDGE * 2) => {}
            }
        }
        let mut fresh = None;
        // Where the new session is there first, it is used soon; whether the old one works decides whether
        // the call may be sent again, so it is asked to the end.
        let mut patience = None;
        loop {
            match (old.take(), fresh.take()) {
                (Some(Old::Works { by, misrouted }), made) => {
                    let replace = self.doubt == Doubt::Refused && misrouted.is_none();
                    match made {
                        Some(Ok(fresh)) if replace => return replaced(fresh, true),
                        None if replace => {
                            old = Some(Old::Works { by, misrouted });
                        }
                        made => {
                            discard(made, attempt);
                            return Examined::Healthy { by, misrouted };
                        }
                    }
                }
                (Some(Old::Fails(_)), Some(Ok(fresh))) => return replaced(fresh, false),
                (Some(Old::Fails(_)), Some(Err(failure))) => return down(failure),
                (None, Some(Ok(made))) if self.silent || is_over(patience) => {
                    self.go_on_asking(asking);
                    return replaced(made, signals.answered.load(Ordering::Relaxed));
                }
                // Asked again soon, it is found sooner than by waiting.
                (None, Some(Err(failure))) if is_over(patience) => return down(failure),
                (verdict, made) => (old, fresh) = (verdict, made),
            }
            tokio::select! {
                biased;
                verdict = &mut asking, if old.is_none() => old = Some(verdict),
                made = attempt.make(), if fresh.is_none() => {
                    fresh = Some(made);
                    patience = Some(Instant::now() + HEDGE);
                }
                () = sleep_until(patience.unwrap_or_else(Instant::now)),
                    if patience.is_some() && old.is_none() && !is_over(patience) => {}
            }
        }
    }

    /// The new session is in use, and calls wait to learn whether the old one refuses them.
    fn go_on_asking(&self, asking: BoxFuture<'static, Old>) {
        if self.silent {
            // What nobody answered is not sent again, whatever is found.
            self.live.set_verdict(SessionVerdict::Fails(Vec::new()));
            return;
        }
        // It is not closed meanwhile.
        let held = InFlight::new(&self.live);
        drop(task::spawn("mcp-old-session", async move {
            asking.await;
            drop(held);
        }));
    }

    /// The old session: ping, and the list of tools where ping is not answered well.
    async fn ask_old(&self, shared: &ActorState, signals: &Signals) -> Old {
        let settings = shared.settings();
        let longest = keepalive::probe_timeout(
            settings.transport,
            settings.keepalive_interval,
            settings.timeout,
        );
        let link = &*self.live.link;
        let mut first = pin!(self.ping(signals, longest));
        // Some servers never answer ping: they are asked in the other way meanwhile.
        let answer = timeout(HEDGE.min(longest), &mut first).await.ok();
        let failures = match answer {
            Some(Ok(works)) => return works,
            Some(Err(failures)) => failures,
            None => Vec::new(),
        };
        let failure = failures.first();
        self.announce(shared, failure);
        if failure.is_some_and(|failure| !is_unknown_method(failure)) {
            signals.failed.notify_one();
        }
        let second = async {
            if self.by == ProbeBy::List {
                return Err(no_answer(longest));
            }
            keepalive::ask(link, ProbeBy::List, longest).await
        };
        let fails = |mut failures: Vec<McpFailure>, last: McpFailure| {
            failures.push(last);
            Old::Fails(failures)
        };
        // It gave the list; pings failed like this.
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
        self.works_by_list(signals, longest, failures).await
    }

    /// The session gave the list after pings failed. Where only some instances of the server may know it,
    /// chance may have led all of them to the others, so they are sent once more.
    async fn works_by_list(
        &self,
        signals: &Signals,
        longest: Duration,
        failures: Vec<McpFailure>,
    ) -> Old {
        let refused = failures.into_iter().find(McpFailure::refuses_session);
        if self.misrouted
            && refused.is_some()
            && let Ok(Old::Works { by, misrouted }) = self.ping(signals, longest).await
        {
            let misrouted = misrouted.or(refused);
            return Old::Works { by, misrouted };
        }
        Old::Works {
            by: ProbeBy::List,
            misrouted: None,
        }
    }

    /// Asks once; or several times where only some instances of the server may know the session.
    async fn ping(&self, signals: &Signals, longest: Duration) -> Result<Old, Vec<McpFailure>> {
        // A call that was refused by every instance asks for a new session, whatever was found before.
        let known = self.doubt != Doubt::Refused && self.live.is_misrouted();
        let several = self.misrouted || known;
        let count = if several { CROSS_CHECKS } else { 1 };
        let link = &*self.live.link;
        let mut failures = Vec::new();
        let mut answered = false;
        // Chance may lead all of them to the same instance: before the session counts as known
        // everywhere, they are asked once more.
        for _ in 0..if several { 2 } else { 1 } {
            let questions = (0..count).map(|_| keepalive::ask(link, self.by, longest));
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
        // A rate limit refuses some questions as well, and says nothing about the session.
        let misrouted = failures.into_iter().find(McpFailure::refuses_session);
        Ok(Old::Works {
            by: self.by,
            misrouted,
        })
    }

    /// From now on calls wait for the verdict, and the status says so.
    fn announce(&self, shared: &ActorState, failure: Option<&McpFailure>) {
        shared.inbox.suspect(self.live.epoch);
        if let Some(failure) = failure {
            shared.went_wrong(failure);
        }
        let published = shared.view.borrow().live.clone();
        if published.is_some_and(|published| Arc::ptr_eq(&published, &self.live)) {
            let why = self.why.clone();
            shared.publish(LinkState::Degraded { why }, Some(Arc::clone(&self.live)));
        }
    }
}

/// Not every server knows ping, which says nothing about the session.
fn is_unknown_method(failure: &McpFailure) -> bool {
    failure.rpc_code == Some(METHOD_NOT_FOUND)
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| until <= Instant::now())
}

fn replaced(fresh: Fresh, old_works: bool) -> Examined {
    Examined::Replaced {
        fresh: Box::new(fresh),
        old_works,
    }
}

fn down(failure: McpFailure) -> Examined {
    let silent = failure.class == FailureClass::TimedOut;
    Examined::Down { failure, silent }
}

fn no_answer(longest: Duration) -> McpFailure {
    McpFailure::new(
        FailureClass::TimedOut,
        Certainty::MaybeExecuted,
        format!("no answer within {}", length(longest)),
    )
}

impl NewConnection {
    async fn make(&mut self) -> Result<Fresh, McpFailure> {
        self.begun = true;
        self.work.as_mut().await
    }
}

/// Ends a connection that is not needed, without making anybody wait for it.
fn discard(made: Option<Result<Fresh, McpFailure>>, attempt: NewConnection) {
    attempt.cancel.cancel();
    match made {
        Some(Ok(fresh)) => drop(task::spawn("mcp-discard", async move {
            close(&*fresh.link).await;
        })),
        // It was told to stop, and closes what it has made.
        None if attempt.begun => tries::discard(attempt.work),
        _ => {}
    }
}
