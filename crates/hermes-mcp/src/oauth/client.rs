//! The token source of one server.
//!
//! At most one task per server fetches tokens (`token_task`); callers share its result. A caller
//! that gives up does not stop it, because an interrupted refresh may lose the grant.

mod token_task;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::BoxFuture;
use hermes_core::clock::Clock;
use secrecy::SecretString;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use self::token_task::{State, TokenTask};
use super::challenge::Challenge;
use super::context::OAuthContext;
use super::error::{OAuthError, OAuthErrorKind};
use super::http::OAuthHttp;
use super::login::{LoginRequest, login};
use super::prompt::AuthPrompt;
use super::scope;
use super::store::{TokenFileVersion, TokenStore};
use super::tokens::{Meta, Tokens};
use crate::config::OAuth as Settings;
use crate::failure::{Certainty, McpFailure};
use crate::transport::connect::{HttpClients, TokenAnswer, TokenSource};

/// Tokens are renewed this many seconds before they expire, and short-lived ones in the last
/// quarter of their lifetime.
const RENEW_AHEAD_SECONDS: f64 = 60.0;
/// How often the token file is checked for changes.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The parameters of an [`OAuthClient`].
pub struct OAuthParts<'a> {
    /// The server's name in the configuration.
    pub server: String,
    pub url: Url,
    pub settings: Settings,
    /// `HERMES_HOME`.
    pub home: &'a Path,
    pub clients: Arc<HttpClients>,
    pub clock: Arc<dyn Clock>,
    /// `None`: interactive login is not possible; errors name the command for it.
    pub prompt: Option<Arc<dyn AuthPrompt>>,
    /// Cancels waiting for the user. A refresh in progress is finished.
    pub cancel: CancellationToken,
}

/// The tokens of one server. Cheap to clone.
#[derive(Clone)]
pub struct OAuthClient {
    inner: Arc<Inner>,
}

struct Inner {
    cx: OAuthContext,
    prompt: Option<Arc<dyn AuthPrompt>>,
    cancel: CancellationToken,
    state: Mutex<State>,
}

/// For status displays.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct AuthStatus {
    pub logged_in: bool,
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether it is renewed without the user.
    pub renewable: bool,
    pub scope: Option<String>,
    pub issuer: Option<String>,
    /// A problem with the files.
    pub problem: Option<String>,
}

impl OAuthClient {
    pub fn new(parts: OAuthParts<'_>) -> Self {
        let http = OAuthHttp::new(parts.clients, parts.clock.clone(), &parts.url);
        let store = TokenStore::new(parts.home, &parts.server);
        Self {
            inner: Arc::new(Inner {
                cx: OAuthContext::new(
                    parts.server,
                    parts.url,
                    parts.settings,
                    store,
                    http,
                    parts.clock,
                ),
                prompt: parts.prompt,
                cancel: parts.cancel,
                state: Mutex::new(State::default()),
            }),
        }
    }

    /// Logs in regardless of stored tokens, with a new registration. Stored files are replaced only
    /// on success.
    pub async fn login(&self, cancel: &CancellationToken) -> Result<AuthStatus, OAuthError> {
        let inner = &self.inner;
        let Some(prompt) = &inner.prompt else {
            return Err(inner.cx.needs_login("there is nobody to log in"));
        };
        let request = LoginRequest {
            register_again: true,
            ..LoginRequest::default()
        };
        let done = login(&inner.cx, prompt.as_ref(), request, cancel).await?;
        for path in &done.set_aside {
            prompt.note(&format!("the damaged file was kept as {}", path.display()));
        }
        inner.state().logged_in(done.tokens, done.version);
        Ok(self.status().await)
    }

    /// Deletes the stored files. Returns whether there were any.
    pub async fn forget(&self) -> Result<bool, OAuthError> {
        let cx = &self.inner.cx;
        let _lock = cx.lock().await?;
        let removed = cx.with_store(TokenStore::remove).await?;
        *self.inner.state() = State::default();
        Ok(removed)
    }

    pub async fn status(&self) -> AuthStatus {
        let inner = &self.inner;
        let tokens = inner.current().await;
        let meta = inner.cx.with_store(Meta::load).await;
        let problem = tokens
            .as_ref()
            .err()
            .or(meta.as_ref().err())
            .map(|error| error.text.clone());
        let tokens = tokens.ok().flatten();
        AuthStatus {
            logged_in: tokens.is_some(),
            expires_at: tokens
                .as_ref()
                .and_then(|tokens| tokens.expires_at)
                .and_then(|at| DateTime::from_timestamp_millis((at * 1000.0) as i64)),
            renewable: tokens
                .as_ref()
                .is_some_and(|tokens| tokens.refresh.is_some()),
            scope: tokens.as_ref().and_then(Tokens::scope).map(str::to_owned),
            issuer: meta
                .ok()
                .flatten()
                .map(|meta| meta.issuer().to_owned())
                .filter(|issuer| !issuer.is_empty()),
            problem,
        }
    }

    /// Waits until another process has written the token file, i.e. the user logged in there. Each
    /// change is reported once, to one waiter.
    pub async fn changed(&self) {
        self.changed_with_interval(WATCH_INTERVAL).await;
    }

    /// The same with another interval.
    pub async fn changed_with_interval(&self, interval: Duration) {
        if !self.inner.state().has_read() {
            // The baseline for detecting changes.
            self.inner.current().await.ok();
        }
        loop {
            let version = self.inner.cx.store.version();
            if self.inner.state().is_new_version(version) {
                return;
            }
            tokio::time::sleep(interval).await;
        }
    }

    /// The token to send, renewed first if it is about to expire.
    pub async fn token(&self) -> Option<SecretString> {
        let inner = &self.inner;
        let tokens = match inner.current().await {
            Ok(tokens) => tokens?,
            Err(error) => {
                // Reported in full when the server demands a token.
                tracing::debug!(server = inner.cx.server, %error, "no token");
                return None;
            }
        };
        let renew_ahead = tokens.lifetime().map_or(RENEW_AHEAD_SECONDS, |seconds| {
            RENEW_AHEAD_SECONDS.min(seconds / 4.0)
        });
        if tokens.refresh.is_none() || !tokens.expires_within(renew_ahead, inner.cx.clock.as_ref())
        {
            return Some(tokens.access);
        }
        let task = TokenTask::Renew(tokens.access.clone());
        match inner.run_task(task).await {
            Ok(()) => match inner.current().await {
                Ok(Some(fresh)) => Some(fresh.access),
                _ => Some(tokens.access),
            },
            // The old token may still work; if not, the server's refusal has more information.
            Err(error) => {
                tracing::debug!(server = inner.cx.server, %error, "not renewed");
                Some(tokens.access)
            }
        }
    }

    /// Gets another token after the server refused `failed`; [`Self::token`] then returns it.
    pub async fn replace(
        &self,
        failed: Option<SecretString>,
        challenge: Option<Challenge>,
    ) -> Result<(), OAuthError> {
        let inner = &self.inner;
        let current = inner.current().await;
        if let Ok(Some(tokens)) = &current
            && let Some(failed) = &failed
            && !tokens.is(failed)
            && !tokens.expires_within(0.0, inner.cx.clock.as_ref())
        {
            return Ok(());
        }
        if let (Some(challenge), Ok(Some(tokens)), Some(_)) = (&challenge, &current, &failed)
            && challenge.is_insufficient_scope()
        {
            return inner.step_up(tokens, challenge.clone()).await;
        }
        match (current, failed) {
            (Ok(Some(tokens)), Some(failed)) => inner.refused(&tokens, failed, challenge).await,
            // There is a token that was not tried yet.
            (Ok(Some(_)), None) => Ok(()),
            (Ok(None), _) => {
                let why = format!("{} wants a login", inner.cx.server);
                inner
                    .log_in_or_fail(challenge, None, &inner.cx.needs_login(&why))
                    .await
            }
            (Err(error), _) => inner.log_in_or_fail(challenge, None, &error).await,
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current tokens, read again if the file changed.
    async fn current(&self) -> Result<Option<Tokens>, OAuthError> {
        let version = self.cx.store.version();
        if let Some(known) = self.state().if_unchanged(version) {
            return known;
        }
        let loaded = self.cx.load().await;
        let (read, version): (_, Option<TokenFileVersion>) = match loaded {
            Ok(Some((tokens, version))) => (Ok(Some(tokens)), Some(version)),
            Ok(None) => (Ok(None), None),
            Err(error) => (Err(error), version),
        };
        self.state().read(read.clone(), version);
        read
    }

    /// The server refused the current tokens.
    async fn refused(
        self: &Arc<Self>,
        tokens: &Tokens,
        failed: SecretString,
        challenge: Option<Challenge>,
    ) -> Result<(), OAuthError> {
        let cx = &self.cx;
        if !self.state().may_renew(&failed, Instant::now()) {
            let why = format!(
                "{} refused every token that was renewed within the last minute",
                cx.server
            );
            let error = cx.needs_login(&why);
            return self.log_in_or_fail(challenge, None, &error).await;
        }
        if tokens.refresh.is_none() {
            let why = format!("{} no longer accepts the stored token", cx.server);
            let error = cx.needs_login(&why);
            return self.log_in_or_fail(challenge, None, &error).await;
        }
        let pause = self.state().renewal_pause(&failed);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        match self.run_task(TokenTask::Renew(failed)).await {
            Err(error) if error.kind == OAuthErrorKind::NeedsLogin => {
                self.log_in_or_fail(challenge, None, &error).await
            }
            done => done,
        }
    }

    /// The token is valid but lacks a scope.
    async fn step_up(
        self: &Arc<Self>,
        tokens: &Tokens,
        challenge: Challenge,
    ) -> Result<(), OAuthError> {
        let cx = &self.cx;
        let held = tokens.scope().unwrap_or_default().to_owned();
        let wanted = challenge.scope.clone().unwrap_or_default();
        let failed = |text: String| OAuthError::new(OAuthErrorKind::ScopeNeeded, text);
        if wanted.is_empty() {
            return Err(failed(format!(
                "{} says that the token grants too little, but not what is missing",
                cx.server
            )));
        }
        if scope::includes(&held, &wanted) {
            return Err(failed(format!(
                "{} wants the scope {wanted:?}, which the token already has: asking again would change nothing",
                cx.server
            )));
        }
        let error = failed(format!(
            "{} wants the scope {wanted:?}; grant it with: hermes mcp login {}",
            cx.server, cx.server
        ));
        if self.prompt.is_none() {
            self.remember_scope(&scope::union(&held, &wanted)).await;
        }
        self.log_in_or_fail(Some(challenge), Some(held), &error)
            .await
    }

    /// Stores the scope so that the next login requests it.
    async fn remember_scope(&self, wanted: &str) {
        let wanted = wanted.to_owned();
        let saved = async {
            let _lock = self.cx.lock().await?;
            let Some(mut meta) = self.cx.with_store(Meta::load).await? else {
                return Ok(());
            };
            if meta.wanted_scope() == Some(wanted.as_str()) {
                return Ok(());
            }
            meta.set_wanted_scope(&wanted);
            self.cx.save_meta(&meta).await
        };
        if let Err::<(), OAuthError>(error) = saved.await {
            tracing::debug!(server = self.cx.server, %error, "scope not remembered");
        }
    }

    /// Asks the user to log in if that is possible; otherwise returns `error`.
    async fn log_in_or_fail(
        self: &Arc<Self>,
        challenge: Option<Challenge>,
        more_scope: Option<String>,
        error: &OAuthError,
    ) -> Result<(), OAuthError> {
        if self.prompt.is_none() {
            self.state().mark_handled();
            return Err(error.clone());
        }
        let request = LoginRequest {
            challenge,
            more_scope,
            register_again: false,
        };
        self.run_task(TokenTask::Login(Box::new(request), error.clone()))
            .await
    }
}

impl TokenSource for OAuthClient {
    fn bearer(&self) -> BoxFuture<'_, Option<SecretString>> {
        Box::pin(self.token())
    }

    fn rejected(
        &self,
        token: Option<SecretString>,
        challenge: Option<String>,
    ) -> BoxFuture<'_, Result<TokenAnswer, McpFailure>> {
        Box::pin(async move {
            let challenge = challenge.as_deref().and_then(Challenge::parse);
            match self.replace(token, challenge).await {
                Ok(()) => Ok(TokenAnswer::Fresh),
                Err(error) => Err(error.into_failure(Certainty::Rejected)),
            }
        })
    }

    fn accepted(&self) {
        self.inner.state().accepted();
    }
}
