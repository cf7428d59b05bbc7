//! Exchanges a refresh token, once for all tasks and processes.
//!
//! Refresh tokens rotate: using one twice may revoke the whole grant. So the file is locked and
//! read again, and a token that another process fetched meanwhile is adopted.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use super::context::OAuthContext;
use super::error::OAuthError;
use super::grant::{GrantError, grant};
use super::store::TokenFileVersion;
use super::tokens::Tokens;

/// Limited because other processes wait for the lock.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The source of new tokens.
pub(crate) enum Renewal {
    /// Fetched by another task or process.
    Adopted(Tokens, TokenFileVersion),
    /// Fetched now. `Err`: they are valid but could not be stored.
    Refreshed(Tokens, Result<Option<TokenFileVersion>, OAuthError>),
}

/// Valid tokens that could not be written to disk.
pub(crate) struct Unsaved {
    pub(crate) tokens: Tokens,
    /// The file version they should replace.
    pub(crate) replaces: Option<TokenFileVersion>,
}

/// Gets tokens other than `failed`.
pub(crate) async fn renew(
    cx: &OAuthContext,
    failed: &SecretString,
    unsaved: Option<Unsaved>,
) -> Result<Renewal, OAuthError> {
    let _lock = cx.lock().await?;
    if let Some(unsaved) = unsaved
        && cx.store.version() == unsaved.replaces
    {
        // If these cannot be stored, the next ones cannot either.
        cx.save_tokens(&unsaved.tokens).await?;
    }
    let Some((tokens, version)) = cx.load().await? else {
        return Err(cx.needs_login(&format!("there are no tokens for {}", cx.server)));
    };
    if adoptable(cx, &tokens, failed) {
        return Ok(Renewal::Adopted(tokens, version));
    }
    let Some(refresh) = tokens.refresh.clone() else {
        return Err(cx.needs_login(&format!(
            "the access to {} has ended and cannot be renewed",
            cx.server
        )));
    };
    let (meta, identity) = match tokio::time::timeout(LOOKUP_TIMEOUT, cx.known_client()).await {
        Ok(known) => known?,
        Err(_) => {
            return Err(OAuthError::transient(format!(
                "finding the authorization server of {} took longer than {} s",
                cx.server,
                LOOKUP_TIMEOUT.as_secs()
            )));
        }
    };
    let form = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.expose_secret()),
    ];
    match grant(&cx.http, &meta, &identity, &form).await {
        Ok(answer) => {
            cx.client_accepted();
            let Some(fresh) = Tokens::granted(&answer, Some(&tokens), cx.clock.as_ref()) else {
                return Err(OAuthError::transient(format!(
                    "{} answered without an access token",
                    meta.issuer()
                )));
            };
            let saved = cx.save_tokens(&fresh).await;
            Ok(Renewal::Refreshed(fresh, saved))
        }
        Err(GrantError::Other(error)) => Err(error),
        Err(GrantError::Moved(error)) => {
            let mut meta = meta;
            meta.invalidate();
            cx.save_meta(&meta).await?;
            Err(error)
        }
        Err(GrantError::Denied { code, text }) => denied(cx, failed, &code, &text).await,
    }
}

/// The token endpoint refused the refresh token or the client.
async fn denied(
    cx: &OAuthContext,
    failed: &SecretString,
    code: &str,
    text: &str,
) -> Result<Renewal, OAuthError> {
    match code {
        "invalid_client" => Err(cx.client_rejected(text).await),
        // The original refreshes without our lock, and may have written new tokens meanwhile.
        "invalid_grant" => match cx.load().await? {
            Some((tokens, version)) if adoptable(cx, &tokens, failed) => {
                Ok(Renewal::Adopted(tokens, version))
            }
            _ => Err(cx.needs_login(text)),
        },
        "temporarily_unavailable" | "server_error" | "slow_down" => {
            Err(OAuthError::transient(text))
        }
        _ => Err(cx.needs_login(text)),
    }
}

fn adoptable(cx: &OAuthContext, tokens: &Tokens, failed: &SecretString) -> bool {
    !tokens.is(failed) && !tokens.expires_within(0.0, cx.clock.as_ref())
}
