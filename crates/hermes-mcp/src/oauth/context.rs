//! What every step of the OAuth client shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hermes_config::fs::FileLock;
use hermes_core::clock::Clock;
use url::Url;

use super::discover::{Discovery, discover};
use super::error::{OAuthError, OAuthErrorKind};
use super::http::OAuthHttp;
use super::identity::{Identity, configured};
use super::store::{Stamp, TokenFile, TokenStore};
use super::tokens::{Meta, Registration, Tokens, same_issuer};
use crate::config::OAuth as Settings;

/// Longest wait for another process that renews. Its requests end before that.
const LOCK_WAIT: Duration = Duration::from_secs(90);
/// How often in a row a server must say that it does not know us before we believe it.
const STRIKES: u32 = 2;

pub(crate) struct OAuthContext {
    pub(crate) server: String,
    pub(crate) url: Url,
    pub(crate) settings: Settings,
    pub(crate) store: TokenStore,
    pub(crate) http: OAuthHttp,
    pub(crate) clock: Arc<dyn Clock>,
    /// `invalid_client` answers in a row.
    strikes: AtomicU32,
}

impl OAuthContext {
    pub(crate) fn new(
        server: String,
        url: Url,
        settings: Settings,
        store: TokenStore,
        http: OAuthHttp,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            server,
            url,
            settings,
            store,
            http,
            clock,
            strikes: AtomicU32::new(0),
        }
    }

    /// Runs file work where blocking is allowed.
    pub(crate) async fn files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&TokenStore) -> Result<T, OAuthError> + Send + 'static,
    ) -> Result<T, OAuthError> {
        let store = self.store.clone();
        match tokio::task::spawn_blocking(move || work(&store)).await {
            Ok(done) => done,
            Err(error) => Err(OAuthError::store(format!("file access failed: {error}"))),
        }
    }

    /// Waits for other processes and tasks to finish with the files.
    pub(crate) async fn lock(&self) -> Result<FileLock, OAuthError> {
        let waited = tokio::time::timeout(LOCK_WAIT, async {
            let mut pause = Duration::from_millis(1);
            loop {
                if let Some(lock) = self.files(TokenStore::try_lock).await? {
                    return Ok(lock);
                }
                // flock tells nobody when it becomes free.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
            }
        });
        match waited.await {
            Ok(done) => done,
            Err(_) => Err(OAuthError::transient(format!(
                "another process has held {} for {} s",
                self.store.lock_path().display(),
                LOCK_WAIT.as_secs()
            ))),
        }
    }

    pub(crate) async fn load(&self) -> Result<Option<(Tokens, Stamp)>, OAuthError> {
        self.files(Tokens::load).await
    }

    pub(crate) async fn save_tokens(&self, tokens: &Tokens) -> Result<Option<Stamp>, OAuthError> {
        let object = tokens.object().clone();
        self.files(move |store| store.write(TokenFile::Tokens, &object))
            .await
    }

    pub(crate) fn needs_login(&self, why: &str) -> OAuthError {
        OAuthError::needs_login(&self.server, why)
    }

    /// The metadata and client that a refresh needs. Hold the lock.
    pub(crate) async fn known_client(&self) -> Result<(Meta, Identity), OAuthError> {
        let (stored, registration) = self
            .files(|store| Ok((Meta::load(store)?, Registration::load(store)?)))
            .await?;
        let meta = self.refresh_meta(stored).await?;
        let redirect = registration
            .as_ref()
            .and_then(|registration| {
                registration
                    .redirect_uris()
                    .first()
                    .map(|uri| (*uri).to_owned())
            })
            .unwrap_or_default();
        if let Some(issuer) = registration.as_ref().and_then(Registration::issuer)
            && !same_issuer(issuer, meta.issuer())
        {
            return Err(self.needs_login(&format!(
                "{} now trusts {} instead of {issuer}",
                self.server,
                meta.issuer()
            )));
        }
        let registration = configured(&self.settings, &meta, &redirect).or(registration);
        let Some(registration) = registration else {
            return Err(self.needs_login(&format!(
                "{} is missing",
                self.store.path(TokenFile::Client).display()
            )));
        };
        let identity = Identity::from_registration(registration, &meta)?;
        Ok((meta, identity))
    }

    /// Stored metadata, completed by what the original does not store.
    async fn refresh_meta(&self, stored: Option<Meta>) -> Result<Meta, OAuthError> {
        if let Some(meta) = &stored
            && meta.is_complete()
        {
            return Ok(meta.clone());
        }
        match (discover(&self.http, &self.url, None).await, stored) {
            (Ok(Discovery { meta, .. }), None) => {
                self.save_meta(&meta).await?;
                Ok(meta)
            }
            (Ok(Discovery { meta, .. }), Some(old)) => {
                // A refresh token goes to the server that issued it or nowhere.
                if !same_issuer(old.issuer(), meta.issuer()) {
                    return Err(self.needs_login(&format!(
                        "{} now trusts {} instead of {}",
                        self.server,
                        meta.issuer(),
                        old.issuer()
                    )));
                }
                self.save_meta(&meta).await?;
                Ok(meta)
            }
            (Err(error), Some(old)) if error.kind != OAuthErrorKind::Store => {
                tracing::debug!(server = self.server, %error, "using stored metadata");
                Ok(old)
            }
            (Err(error), _) => Err(error),
        }
    }

    pub(crate) async fn save_meta(&self, meta: &Meta) -> Result<(), OAuthError> {
        let object = meta.object().clone();
        self.files(move |store| store.write(TokenFile::Meta, &object))
            .await?;
        Ok(())
    }

    pub(crate) fn client_accepted(&self) {
        self.strikes.store(0, Ordering::Relaxed);
    }

    /// The token endpoint does not know us. Servers say so by mistake now and then, so only a
    /// repetition drops the registration, and a copy stays.
    pub(crate) async fn client_rejected(&self, text: &str) -> OAuthError {
        if self.settings.client_id.is_some() {
            return OAuthError::new(
                OAuthErrorKind::NeedsLogin,
                format!(
                    "{text}; check oauth.client_id and oauth.client_secret of mcp_servers.{} in config.yaml",
                    self.server
                ),
            );
        }
        if self.strikes.fetch_add(1, Ordering::Relaxed) + 1 < STRIKES {
            return OAuthError::transient(text);
        }
        let dropped = self
            .files(|store| {
                let aside = store.set_aside(TokenFile::Client, "bak")?;
                store.delete(TokenFile::Meta)?;
                Ok(aside)
            })
            .await;
        match dropped {
            Ok(aside) => {
                let kept = aside
                    .map(|path| format!(" (kept as {})", path.display()))
                    .unwrap_or_default();
                tracing::warn!(server = self.server, "registration dropped{kept}: {text}");
                self.needs_login(text)
            }
            Err(error) => error,
        }
    }
}
