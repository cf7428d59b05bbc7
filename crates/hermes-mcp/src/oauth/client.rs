//! The token source of one server.
//!
//! Whatever fetches tokens runs as one task per server (a *flight*): callers join it, and a caller
//! that gives up does not stop it, because a refresh that is cut off may lose the grant.

mod flight;

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

use self::flight::{Errand, State};
use super::challenge::Challenge;
use super::context::OAuthContext;
use super::error::{OAuthError, OAuthErrorKind};
use super::http::OAuthHttp;
use super::login::{Wish, login};
use super::prompt::AuthPrompt;
use super::scope;
use super::store::{Stamp, TokenStore};
use super::tokens::{Meta, Tokens};
use crate::config::OAuth as Settings;
use crate::failure::{Certainty, McpFailure};
use crate::transport::connect::{HttpClients, TokenAnswer, TokenSource};

/// Tokens are renewed this many seconds before they end, and short-lived ones in the last quarter
/// of their life.
const AHEAD: f64 = 60.0;
/// How often the token file is looked at while somebody waits for it.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// What an [`OAuthClient`] is made from.
pub struct OAuthParts<'a> {
    /// The name in the configuration.
    pub server: String,
    pub url: Url,
    pub settings: Settings,
    /// `HERMES_HOME`.
    pub home: &'a Path,
    pub clients: Arc<HttpClients>,
    pub clock: Arc<dyn Clock>,
    /// `None`: nobody can log in here; failures name the command that can.
    pub prompt: Option<Arc<dyn AuthPrompt>>,
    /// Ends waiting for people. A refresh that has begun is finished.
    pub cancel: CancellationToken,
}

/// The tokens of one server: read, renewed, replaced. Cheap to clone.
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

/// For status pages.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct AuthStatus {
    pub logged_in: bool,
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether it is renewed without a person.
    pub renewable: bool,
    pub scope: Option<String>,
    pub issuer: Option<String>,
    /// What is wrong with the files.
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

    /// Logs in whatever is stored, registering anew. What is stored stays until it succeeds.
    pub async fn login(&self, cancel: &CancellationToken) -> Result<AuthStatus, OAuthError> {
        let inner = &self.inner;
        let Some(prompt) = &inner.prompt else {
            return Err(inner.cx.needs_login("there is nobody to log in"));
        };
        let wish = Wish {
            register_again: true,
            ..Wish::default()
        };
        let done = login(&inner.cx, prompt.as_ref(), wish, cancel).await?;
        for path in &done.set_aside {
            prompt.note(&format!("the damaged file was kept as {}", path.display()));
        }
        inner.state().logged_in(done.tokens, done.stamp);
        Ok(self.status().await)
    }

    /// Deletes what is stored. True if there was anything.
    pub async fn forget(&self) -> Result<bool, OAuthError> {
        let cx = &self.inner.cx;
        let _lock = cx.lock().await?;
        let removed = cx.files(TokenStore::remove).await?;
        *self.inner.state() = State::default();
        Ok(removed)
    }

    pub async fn status(&self) -> AuthStatus {
        let inner = &self.inner;
        let tokens = inner.current().await;
        let meta = inner.cx.files(Meta::load).await;
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

    /// Waits until another process has written the token file: somebody logged in. Each change is
    /// told once, to one waiter.
    pub async fn changed(&self) {
        self.changed_within(WATCH_INTERVAL).await;
    }

    /// The same, looking this often.
    pub async fn changed_within(&self, interval: Duration) {
        if !self.inner.state().has_read() {
            // Something to compare with.
            self.inner.current().await.ok();
        }
        loop {
            let stamp = self.inner.cx.store.stamp();
            if self.inner.state().is_news(stamp) {
                return;
            }
            tokio::time::sleep(interval).await;
        }
    }

    /// The token to send, renewed beforehand if it is about to end. `None`: there is none.
    pub async fn token(&self) -> Option<SecretString> {
        let inner = &self.inner;
        let tokens = match inner.current().await {
            Ok(tokens) => tokens?,
            Err(error) => {
                // Told in full when the server asks for a token.
                tracing::debug!(server = inner.cx.server, %error, "no token");
                return None;
            }
        };
        let ahead = tokens
            .lifetime()
            .map_or(AHEAD, |seconds| AHEAD.min(seconds / 4.0));
        if tokens.refresh.is_none() || !tokens.expires_within(ahead, inner.cx.clock.as_ref()) {
            return Some(tokens.access);
        }
        let errand = Errand::Renew(tokens.access.clone());
        match inner.fly(errand).await {
            Ok(()) => match inner.current().await {
                Ok(Some(fresh)) => Some(fresh.access),
                _ => Some(tokens.access),
            },
            // The old one may still do, and if not the refusal tells more.
            Err(error) => {
                tracing::debug!(server = inner.cx.server, %error, "not renewed");
                Some(tokens.access)
            }
        }
    }

    /// Gets another token after the server refused `failed`. Ok: [`Self::token`] gives it.
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
            // It was there all along, or has just come.
            (Ok(Some(_)), None) => Ok(()),
            (Ok(None), _) => {
                let why = format!("{} wants a login", inner.cx.server);
                inner
                    .ask(challenge, None, &inner.cx.needs_login(&why))
                    .await
            }
            (Err(error), _) => inner.ask(challenge, None, &error).await,
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tokens as they are now, whoever wrote them.
    async fn current(&self) -> Result<Option<Tokens>, OAuthError> {
        let stamp = self.cx.store.stamp();
        if let Some(known) = self.state().if_unchanged(stamp) {
            return known;
        }
        let loaded = self.cx.load().await;
        let (read, stamp): (_, Option<Stamp>) = match loaded {
            Ok(Some((tokens, stamp))) => (Ok(Some(tokens)), Some(stamp)),
            Ok(None) => (Ok(None), None),
            Err(error) => (Err(error), stamp),
        };
        self.state().read(read.clone(), stamp);
        read
    }

    /// The server refused the tokens we have.
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
            return self.ask(challenge, None, &error).await;
        }
        if tokens.refresh.is_none() {
            let why = format!("{} no longer accepts the stored token", cx.server);
            let error = cx.needs_login(&why);
            return self.ask(challenge, None, &error).await;
        }
        match self.fly(Errand::Renew(failed)).await {
            Err(error) if error.kind == OAuthErrorKind::NeedsLogin => {
                self.ask(challenge, None, &error).await
            }
            done => done,
        }
    }

    /// The token is good but grants too little.
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
        self.ask(Some(challenge), Some(held), &error).await
    }

    /// So that the next login asks for it.
    async fn remember_scope(&self, wanted: &str) {
        let wanted = wanted.to_owned();
        let saved = async {
            let _lock = self.cx.lock().await?;
            let Some(mut meta) = self.cx.files(Meta::load).await? else {
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

    /// Has a person log in, if there is one; otherwise `error`.
    async fn ask(
        self: &Arc<Self>,
        challenge: Option<Challenge>,
        more_scope: Option<String>,
        error: &OAuthError,
    ) -> Result<(), OAuthError> {
        if self.prompt.is_none() {
            self.state().judge();
            return Err(error.clone());
        }
        let wish = Wish {
            challenge,
            more_scope,
            register_again: false,
        };
        self.fly(Errand::Login(Box::new(wish), error.clone())).await
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
