//! State shared by all steps of the OAuth client.

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
use super::store::{TokenFile, TokenFileVersion, TokenStore};
use super::tokens::{Meta, Registration, Tokens, same_issuer};
use crate::config::OAuth as Settings;

/// Maximum wait for a renewal by another process; its requests time out earlier.
const LOCK_TIMEOUT: Duration = Duration::from_secs(90);
/// Consecutive `invalid_client` responses before the registration is dropped.
const MAX_CLIENT_REJECTIONS: u32 = 2;

pub(crate) struct OAuthContext {
    pub(crate) server: String,
    pub(crate) url: Url,
    pub(crate) settings: Settings,
    pub(crate) store: TokenStore,
    pub(crate) http: OAuthHttp,
    pub(crate) clock: Arc<dyn Clock>,
    /// Consecutive `invalid_client` responses.
    client_rejections: AtomicU32,
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
            client_rejections: AtomicU32::new(0),
        }
    }

    /// Runs blocking file operations.
    pub(crate) async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&TokenStore) -> Result<T, OAuthError> + Send + 'static,
    ) -> Result<T, OAuthError> {
        let store = self.store.clone();
        match tokio::task::spawn_blocking(move || work(&store)).await {
            Ok(done) => done,
            Err(error) => Err(OAuthError::store(format!("file access failed: {error}"))),
        }
    }

    /// Locks the files against other processes and tasks.
    pub(crate) async fn lock(&self) -> Result<FileLock, OAuthError> {
        let waited = tokio::time::timeout(LOCK_TIMEOUT, async {
            let mut pause = Duration::from_millis(1);
            loop {
                if let Some(lock) = self.with_store(TokenStore::try_lock).await? {
                    return Ok(lock);
                }
                // flock has no notification when a lock is released, so poll.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
            }
        });
        match waited.await {
            Ok(done) => done,
            Err(_) => Err(OAuthError::transient(format!(
                "another process has held {} for {} s",
                self.store.lock_path().display(),
                LOCK_TIMEOUT.as_secs()
            ))),
        }
    }

    pub(crate) async fn load(&self) -> Result<Option<(Tokens, TokenFileVersion)>, OAuthError> {
        self.with_store(Tokens::load).await
    }

    pub(crate) async fn save_tokens(
        &self,
        tokens: &Tokens,
    ) -> Result<Option<TokenFileVersion>, OAuthError> {
        let object = tokens.object().clone();
        self.with_store(move |store| store.write(TokenFile::Tokens, &object))
            .await
    }

    pub(crate) fn needs_login(&self, why: &str) -> OAuthError {
        OAuthError::needs_login(&self.server, why)
    }

    /// The metadata and client for a refresh. The caller must hold the lock.
    pub(crate) async fn known_client(&self) -> Result<(Meta, Identity), OAuthError> {
        let (stored, registration) = self
            .with_store(|store| Ok((Meta::load(store)?, Registration::load(store)?)))
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
                // A refresh token is only ever sent to its issuer.
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
        self.with_store(move |store| store.write(TokenFile::Meta, &object))
            .await?;
        Ok(())
    }

    pub(crate) fn client_accepted(&self) {
        self.client_rejections.store(0, Ordering::Relaxed);
    }

    /// Handles `invalid_client`. Servers sometimes respond so by mistake, so only a repetition
    /// drops the registration, and a backup is kept.
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
        if self.client_rejections.fetch_add(1, Ordering::Relaxed) + 1 < MAX_CLIENT_REJECTIONS {
            return OAuthError::transient(text);
        }
        let dropped = self
            .with_store(|store| {
                let backup = store.set_aside(TokenFile::Client, "bak")?;
                store.delete(TokenFile::Meta)?;
                Ok(backup)
            })
            .await;
        match dropped {
            Ok(backup) => {
                let saved_copy = backup
                    .map(|path| format!(" (kept as {})", path.display()))
                    .unwrap_or_default();
                tracing::warn!(
                    server = self.server,
                    "registration dropped{saved_copy}: {text}"
                );
                self.needs_login(text)
            }
            Err(error) => error,
        }
    }
}
