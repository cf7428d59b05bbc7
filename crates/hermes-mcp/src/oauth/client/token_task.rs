//! Runs at most one token request at a time; concurrent callers share its result.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use hermes_core::BoxFuture;
use hermes_core::task::spawn;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use super::Inner;
use crate::oauth::error::{OAuthError, OAuthErrorKind};
use crate::oauth::login::{LoginRequest, login};
use crate::oauth::renew::{Renewal, Unsaved, renew};
use crate::oauth::store::TokenFileVersion;
use crate::oauth::tokens::Tokens;

/// Number of tokens that may be refused and renewed within `REFUSED_WINDOW` without an accepted
/// tool call. A server may forget a token soon after issuing it, but one that refuses every token
/// needs a login.
const MAX_REFUSED: usize = 5;
const REFUSED_WINDOW: Duration = Duration::from_mins(1);
/// Wait before the second one is renewed, then twice as long each time: a server may learn of a new token a
/// little later than we do.
const REFUSED_WAIT: Duration = Duration::from_millis(250);
/// Backoff after transient failures: doubling, up to a minute.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_mins(1);
/// How long a rejection by the authorization server is reused without asking it again.
const REJECTION_RETENTION: Duration = Duration::from_mins(10);
/// How often the user is asked within `LOGIN_WINDOW`, so that a server cannot ask forever.
const MAX_LOGINS: usize = 3;
const LOGIN_WINDOW: Duration = Duration::from_mins(10);

/// The kinds of token requests.
#[derive(Clone)]
pub(super) enum TokenTask {
    /// Replace this token without the user.
    Renew(SecretString),
    /// Ask the user to log in. The error is returned if that is not possible.
    Login(Box<LoginRequest>, OAuthError),
}

type SharedTask = Shared<BoxFuture<'static, Result<(), OAuthError>>>;

#[derive(Default)]
pub(super) struct State {
    loaded: Option<LoadedTokens>,
    /// The last file version that was acted on; any other one is new.
    handled: Option<HandledVersion>,
    /// The current tokens could not be written.
    unsaved: bool,
    renewal: Option<SharedTask>,
    /// Separate from renewals: a login takes minutes, and tokens expire in the meantime.
    login: Option<SharedTask>,
    /// Recently refused tokens, each once, oldest first.
    refused: VecDeque<(SecretString, Instant)>,
    backoff: Option<Backoff>,
    /// The rejection of the stored tokens.
    rejection: Option<LoginRejection>,
    logins: VecDeque<Instant>,
}

/// The tokens and the file version they were read from.
#[derive(Clone)]
struct LoadedTokens {
    read: Result<Option<Tokens>, OAuthError>,
    version: Option<TokenFileVersion>,
}

/// A file version; `None`: there was no file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HandledVersion(Option<TokenFileVersion>);

struct Backoff {
    until: Instant,
    wait: Duration,
    error: OAuthError,
}

struct LoginRejection {
    version: Option<TokenFileVersion>,
    until: Instant,
    error: OAuthError,
}

impl State {
    pub(super) fn if_unchanged(
        &self,
        version: Option<TokenFileVersion>,
    ) -> Option<Result<Option<Tokens>, OAuthError>> {
        let loaded = self.loaded.as_ref()?;
        (loaded.version == version).then(|| loaded.read.clone())
    }

    pub(super) fn read(
        &mut self,
        read: Result<Option<Tokens>, OAuthError>,
        version: Option<TokenFileVersion>,
    ) {
        self.loaded = Some(LoadedTokens { read, version });
        self.unsaved = false;
        // The first read is the baseline for later ones. Afterwards, a read by a call must not hide
        // the change from the waiter.
        self.handled.get_or_insert(HandledVersion(version));
    }

    /// The current version was acted on: it works, or the user was asked to log in.
    pub(super) fn mark_handled(&mut self) {
        self.handled = self
            .loaded
            .as_ref()
            .map(|loaded| HandledVersion(loaded.version));
    }

    pub(super) fn has_read(&self) -> bool {
        self.loaded.is_some()
    }

    /// Whether this version is new; true only once for each version.
    pub(super) fn is_new_version(&mut self, version: Option<TokenFileVersion>) -> bool {
        let now = HandledVersion(version);
        self.handled
            .replace(now)
            .is_some_and(|before| before != now)
    }

    pub(super) fn logged_in(&mut self, tokens: Tokens, version: Option<TokenFileVersion>) {
        self.read(Ok(Some(tokens)), version);
        self.refused.clear();
        self.clear_failures();
    }

    fn clear_failures(&mut self) {
        self.backoff = None;
        self.rejection = None;
        self.mark_handled();
    }

    /// Whether a refused token may be renewed, or too many were refused recently.
    pub(super) fn may_renew(&mut self, token: &SecretString, now: Instant) -> bool {
        let is_old = |(_, at): &(SecretString, Instant)| now - *at >= REFUSED_WINDOW;
        while self.refused.front().is_some_and(is_old) {
            self.refused.pop_front();
        }
        // Concurrent requests may be refused with the same token, which counts once.
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

    /// How long to wait before this refused token is renewed. The first one has just ended; further ones may
    /// be too new.
    pub(super) fn renewal_pause(&self, token: &SecretString) -> Duration {
        let same =
            |(other, _): &(SecretString, Instant)| other.expose_secret() == token.expose_secret();
        let before = self.refused.iter().position(same).unwrap_or_default();
        match u32::try_from(before) {
            Ok(before) if before > 0 => REFUSED_WAIT.saturating_mul(1 << (before - 1).min(8)),
            _ => Duration::ZERO,
        }
    }

    /// Tokens work, so earlier refusals were not permanent.
    pub(super) fn accepted(&mut self) {
        self.refused.clear();
    }

    fn unsaved(&self) -> Option<Unsaved> {
        let loaded = self.loaded.as_ref().filter(|_| self.unsaved)?;
        let tokens = loaded.read.as_ref().ok()?.clone()?;
        Some(Unsaved {
            tokens,
            replaces: loaded.version,
        })
    }

    /// The error that makes a refresh pointless now, if any.
    fn refresh_blocked(
        &self,
        version: Option<TokenFileVersion>,
        now: Instant,
    ) -> Option<OAuthError> {
        if let Some(rejection) = &self.rejection
            && rejection.version == version
            && now < rejection.until
        {
            return Some(rejection.error.clone());
        }
        let backoff = self.backoff.as_ref()?;
        (now < backoff.until).then(|| backoff.error.clone().after(backoff.until - now))
    }

    fn renewed(&mut self, tokens: Tokens, version: Option<TokenFileVersion>) {
        self.read(Ok(Some(tokens)), version);
        self.clear_failures();
    }

    fn failed(
        &mut self,
        error: &OAuthError,
        version: Option<TokenFileVersion>,
        now: Instant,
    ) -> OAuthError {
        match error.kind {
            OAuthErrorKind::Transient => {
                let wait = self
                    .backoff
                    .as_ref()
                    .map_or(INITIAL_BACKOFF, |last| (last.wait * 2).min(MAX_BACKOFF));
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
                self.rejection = Some(LoginRejection {
                    version,
                    until: now + REJECTION_RETENTION,
                    error: error.clone(),
                });
                error.clone()
            }
            _ => error.clone(),
        }
    }

    fn task_slot(&mut self, login: bool) -> &mut Option<SharedTask> {
        if login {
            &mut self.login
        } else {
            &mut self.renewal
        }
    }

    /// Whether the user may be asked (again).
    fn may_ask_user(&mut self, now: Instant) -> bool {
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

/// Clears the task's slot when it ends, even by a panic.
struct ClearOnDrop {
    inner: Arc<Inner>,
    login: bool,
}

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        *self.inner.state().task_slot(self.login) = None;
    }
}

impl Inner {
    /// Starts the task, or joins a running one of the same kind.
    pub(super) async fn run_task(self: &Arc<Self>, task: TokenTask) -> Result<(), OAuthError> {
        let shared_task = self.join_or_start(task)?;
        shared_task.await
    }

    fn join_or_start(self: &Arc<Self>, task: TokenTask) -> Result<SharedTask, OAuthError> {
        let now = Instant::now();
        let version = self.cx.store.version();
        let login = matches!(task, TokenTask::Login(..));
        let mut state = self.state();
        if let Some(shared_task) = state.task_slot(login) {
            return Ok(shared_task.clone());
        }
        match &task {
            TokenTask::Renew(failed) => {
                // Another task has replaced the token in the meantime.
                if let Some(Ok(Some(tokens))) = state.if_unchanged(version)
                    && !tokens.is(failed)
                {
                    return Ok(futures_util::future::ready(Ok(())).boxed().shared());
                }
                if let Some(error) = state.refresh_blocked(version, now) {
                    return Err(error);
                }
            }
            TokenTask::Login(_, error) => {
                if !state.may_ask_user(now) {
                    return Err(error.clone());
                }
            }
        }
        let inner = self.clone();
        let running = spawn("mcp-oauth", async move {
            let running_task = ClearOnDrop { inner, login };
            running_task.inner.run(task).await
        });
        let shared_task = async move {
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
        *state.task_slot(login) = Some(shared_task.clone());
        Ok(shared_task)
    }

    async fn run(&self, task: TokenTask) -> Result<(), OAuthError> {
        match task {
            TokenTask::Renew(failed) => self.renew(&failed).await,
            TokenTask::Login(request, error) => self.log_in(*request, &error).await,
        }
    }

    async fn renew(&self, failed: &SecretString) -> Result<(), OAuthError> {
        let unsaved = self.state().unsaved();
        let version = self.cx.store.version();
        match renew(&self.cx, failed, unsaved).await {
            Ok(Renewal::Adopted(tokens, version)) => {
                tracing::debug!(server = self.cx.server, "adopted a token");
                self.state().renewed(tokens, Some(version));
                Ok(())
            }
            Ok(Renewal::Refreshed(tokens, saved)) => {
                tracing::info!(server = self.cx.server, "token renewed");
                let mut state = self.state();
                match saved {
                    Ok(version) => state.renewed(tokens, version),
                    Err(error) => {
                        tracing::error!(
                            server = self.cx.server,
                            %error,
                            "the new token is used but could not be stored"
                        );
                        state.renewed(tokens, version);
                        state.unsaved = true;
                    }
                }
                Ok(())
            }
            Err(error) => {
                // With the version from before the refresh, so that the rejection does not cover a
                // login in the meantime.
                let error = self.state().failed(&error, version, Instant::now());
                tracing::warn!(server = self.cx.server, %error, "token not renewed");
                Err(error)
            }
        }
    }

    async fn log_in(&self, request: LoginRequest, error: &OAuthError) -> Result<(), OAuthError> {
        let Some(prompt) = &self.prompt else {
            return Err(error.clone());
        };
        let done = login(&self.cx, prompt.as_ref(), request, &self.cancel).await?;
        for path in &done.set_aside {
            prompt.note(&format!("the damaged file was kept as {}", path.display()));
        }
        self.state().logged_in(done.tokens, done.version);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn refused_tokens_are_renewed_ever_more_slowly_and_many_callers_count_once() {
        let mut state = State::default();
        let mut waits = Vec::new();
        for number in 0..MAX_REFUSED {
            let token = SecretString::from(format!("token {number}"));
            for _ in 0..3 {
                assert!(state.may_renew(&token, Instant::now()));
            }
            waits.push(state.renewal_pause(&token).as_millis());
        }
        assert_eq!(waits, [0, 250, 500, 1000, 2000]);
        state.accepted();
        let token = SecretString::from("another".to_owned());
        assert!(state.may_renew(&token, Instant::now()));
        assert_eq!(state.renewal_pause(&token), Duration::ZERO);
    }
}
