//! One errand at a time, joined by everybody who needs its outcome.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use hermes_core::BoxFuture;
use hermes_core::task;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use super::Inner;
use crate::oauth::error::{OAuthError, OAuthErrorKind};
use crate::oauth::login::{Wish, login};
use crate::oauth::renew::{Renewal, Unsaved, renew};
use crate::oauth::store::Stamp;
use crate::oauth::tokens::Tokens;

/// So many tokens may be refused and renewed within the time below without a tool call that is accepted
/// in between. A server may forget a token soon after it was issued; one that refuses every token wants
/// a person.
const MAX_REFUSED: usize = 5;
const REFUSED_WINDOW: Duration = Duration::from_mins(1);
/// Waits after transient failures: doubling, up to a minute.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// How long a refusal by the authorization server counts without asking it again.
const VERDICT_TIME: Duration = Duration::from_mins(10);
/// So often a person is asked within the time below, so that a server cannot ask for ever.
const MAX_LOGINS: usize = 3;
const LOGIN_WINDOW: Duration = Duration::from_mins(10);

/// What a flight is for.
#[derive(Clone)]
pub(super) enum Errand {
    /// Replace this token without a person.
    Renew(SecretString),
    /// Ask the person. The error is what they would hear otherwise.
    Login(Box<Wish>, OAuthError),
}

type Flight = Shared<BoxFuture<'static, Result<(), OAuthError>>>;

#[derive(Default)]
pub(super) struct State {
    known: Option<Known>,
    /// The version of the file whose content has had its consequences; another one is news.
    judged: Option<Judged>,
    /// Set while the known tokens could not be written.
    unsaved: bool,
    renewal: Option<Flight>,
    /// Beside a renewal: a person takes minutes, and tokens end meanwhile.
    login: Option<Flight>,
    /// The tokens that were refused lately, each once, oldest first.
    refused: VecDeque<(SecretString, Instant)>,
    backoff: Option<Backoff>,
    /// The refusal of what is in the file.
    verdict: Option<Verdict>,
    logins: VecDeque<Instant>,
}

/// What was read, and from which version of the file.
#[derive(Clone)]
struct Known {
    read: Result<Option<Tokens>, OAuthError>,
    stamp: Option<Stamp>,
}

/// A version of the file; `None` inside: there was no file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Judged(Option<Stamp>);

struct Backoff {
    until: Instant,
    wait: Duration,
    error: OAuthError,
}

struct Verdict {
    stamp: Option<Stamp>,
    until: Instant,
    error: OAuthError,
}

impl State {
    pub(super) fn if_unchanged(
        &self,
        stamp: Option<Stamp>,
    ) -> Option<Result<Option<Tokens>, OAuthError>> {
        let known = self.known.as_ref()?;
        (known.stamp == stamp).then(|| known.read.clone())
    }

    pub(super) fn read(&mut self, read: Result<Option<Tokens>, OAuthError>, stamp: Option<Stamp>) {
        self.known = Some(Known { read, stamp });
        self.unsaved = false;
        // The first look is what later ones compare with. After that, that a call has read the
        // file does not mean that whoever waits for it has heard.
        self.judged.get_or_insert(Judged(stamp));
    }

    /// What we know has had its consequences: it works, or somebody was told to log in.
    pub(super) fn judge(&mut self) {
        self.judged = self.known.as_ref().map(|known| Judged(known.stamp));
    }

    pub(super) fn has_read(&self) -> bool {
        self.known.is_some()
    }

    /// Whether this version of the file is news. It is so once.
    pub(super) fn is_news(&mut self, stamp: Option<Stamp>) -> bool {
        let now = Judged(stamp);
        self.judged.replace(now).is_some_and(|before| before != now)
    }

    pub(super) fn logged_in(&mut self, tokens: Tokens, stamp: Option<Stamp>) {
        self.read(Ok(Some(tokens)), stamp);
        self.refused.clear();
        self.all_is_well();
    }

    fn all_is_well(&mut self) {
        self.backoff = None;
        self.verdict = None;
        self.judge();
    }

    /// The server refused this token: whether it may be renewed, or too many were refused lately.
    pub(super) fn may_renew(&mut self, token: &SecretString, now: Instant) -> bool {
        let is_old = |(_, at): &(SecretString, Instant)| now - *at >= REFUSED_WINDOW;
        while self.refused.front().is_some_and(is_old) {
            self.refused.pop_front();
        }
        // Many requests may be refused with the same token: it counts once.
        let same =
            |(other, _): &(SecretString, Instant)| other.expose_secret() == token.expose_secret();
        if self.refused.iter().any(same) {
            return true;
        }
        if self.refused.len() >= MAX_REFUSED {
            return false;
        }
        self.refused.push_back((token.clone(), now));
        true
    }

    /// Tokens work here: what was refused before was not refused for good.
    pub(super) fn accepted(&mut self) {
        self.refused.clear();
    }

    fn unsaved(&self) -> Option<Unsaved> {
        let known = self.known.as_ref().filter(|_| self.unsaved)?;
        let tokens = known.read.as_ref().ok()?.clone()?;
        Some(Unsaved {
            tokens,
            over: known.stamp,
        })
    }

    /// Why a refresh would be pointless now.
    fn forbids(&self, stamp: Option<Stamp>, now: Instant) -> Option<OAuthError> {
        if let Some(verdict) = &self.verdict
            && verdict.stamp == stamp
            && now < verdict.until
        {
            return Some(verdict.error.clone());
        }
        let backoff = self.backoff.as_ref()?;
        (now < backoff.until).then(|| backoff.error.clone().after(backoff.until - now))
    }

    fn renewed(&mut self, tokens: Tokens, stamp: Option<Stamp>) {
        self.read(Ok(Some(tokens)), stamp);
        self.all_is_well();
    }

    fn failed(&mut self, error: &OAuthError, stamp: Option<Stamp>, now: Instant) -> OAuthError {
        match error.kind {
            OAuthErrorKind::Transient => {
                let wait = self
                    .backoff
                    .as_ref()
                    .map_or(FIRST_WAIT, |last| (last.wait * 2).min(LONGEST_WAIT));
                let until = now + error.retry_after.unwrap_or(wait).max(wait);
                let error = error.clone().after(until - now);
                self.backoff = Some(Backoff {
                    until,
                    wait,
                    error: error.clone(),
                });
                error
            }
            OAuthErrorKind::NeedsLogin => {
                self.verdict = Some(Verdict {
                    stamp,
                    until: now + VERDICT_TIME,
                    error: error.clone(),
                });
                error.clone()
            }
            _ => error.clone(),
        }
    }

    fn slot(&mut self, login: bool) -> &mut Option<Flight> {
        if login {
            &mut self.login
        } else {
            &mut self.renewal
        }
    }

    /// Whether a person may be asked (again).
    fn may_ask(&mut self, now: Instant) -> bool {
        while self
            .logins
            .front()
            .is_some_and(|at| now - *at >= LOGIN_WINDOW)
        {
            self.logins.pop_front();
        }
        if self.logins.len() >= MAX_LOGINS {
            return false;
        }
        self.logins.push_back(now);
        true
    }
}

/// Takes the flight off the board when it ends, however it ends.
struct Landed {
    inner: Arc<Inner>,
    login: bool,
}

impl Drop for Landed {
    fn drop(&mut self) {
        *self.inner.state().slot(self.login) = None;
    }
}

impl Inner {
    /// Runs the errand, or joins one of its kind that is under way.
    pub(super) async fn fly(self: &Arc<Self>, errand: Errand) -> Result<(), OAuthError> {
        let flight = self.board(errand)?;
        flight.await
    }

    fn board(self: &Arc<Self>, errand: Errand) -> Result<Flight, OAuthError> {
        let now = Instant::now();
        let stamp = self.cx.store.stamp();
        let login = matches!(errand, Errand::Login(..));
        let mut state = self.state();
        if let Some(flight) = state.slot(login) {
            return Ok(flight.clone());
        }
        match &errand {
            Errand::Renew(failed) => {
                // Whoever landed between our look and now has done our errand.
                if let Some(Ok(Some(tokens))) = state.if_unchanged(stamp)
                    && !tokens.is(failed)
                {
                    return Ok(futures_util::future::ready(Ok(())).boxed().shared());
                }
                if let Some(error) = state.forbids(stamp, now) {
                    return Err(error);
                }
            }
            Errand::Login(_, error) => {
                if !state.may_ask(now) {
                    return Err(error.clone());
                }
            }
        }
        let inner = self.clone();
        let running = task::spawn("mcp-oauth", async move {
            let landed = Landed { inner, login };
            landed.inner.run(errand).await
        });
        let flight = async move {
            match running.await {
                Ok(Ok(done)) => done,
                Ok(Err(panicked)) => Err(OAuthError::transient(panicked.to_string())),
                Err(error) => Err(OAuthError::transient(format!(
                    "the token task was stopped: {error}"
                ))),
            }
        }
        .boxed()
        .shared();
        *state.slot(login) = Some(flight.clone());
        Ok(flight)
    }

    async fn run(&self, errand: Errand) -> Result<(), OAuthError> {
        match errand {
            Errand::Renew(failed) => self.renew(&failed).await,
            Errand::Login(wish, error) => self.log_in(*wish, &error).await,
        }
    }

    async fn renew(&self, failed: &SecretString) -> Result<(), OAuthError> {
        let unsaved = self.state().unsaved();
        let stamp = self.cx.store.stamp();
        match renew(&self.cx, failed, unsaved).await {
            Ok(Renewal::Adopted(tokens, stamp)) => {
                tracing::debug!(server = self.cx.server, "adopted a token");
                self.state().renewed(tokens, Some(stamp));
                Ok(())
            }
            Ok(Renewal::Refreshed(tokens, saved)) => {
                tracing::info!(server = self.cx.server, "token renewed");
                let mut state = self.state();
                match saved {
                    Ok(stamp) => state.renewed(tokens, stamp),
                    Err(error) => {
                        tracing::error!(
                            server = self.cx.server,
                            %error,
                            "the new token is used but could not be stored"
                        );
                        state.renewed(tokens, stamp);
                        state.unsaved = true;
                    }
                }
                Ok(())
            }
            Err(error) => {
                // The file as it was judged: a login meanwhile is not covered by the verdict.
                let error = self.state().failed(&error, stamp, Instant::now());
                tracing::warn!(server = self.cx.server, %error, "token not renewed");
                Err(error)
            }
        }
    }

    async fn log_in(&self, wish: Wish, error: &OAuthError) -> Result<(), OAuthError> {
        let Some(prompt) = &self.prompt else {
            return Err(error.clone());
        };
        let done = login(&self.cx, prompt.as_ref(), wish, &self.cancel).await?;
        for path in &done.set_aside {
            prompt.note(&format!("the damaged file was kept as {}", path.display()));
        }
        self.state().logged_in(done.tokens, done.stamp);
        Ok(())
    }
}
