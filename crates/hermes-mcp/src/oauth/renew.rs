//! Exchanging a refresh token, once for everybody who needs it.
//!
//! Refresh tokens rotate: using one twice may revoke the whole grant. So the file lock is taken
//! first, the file is read again, and a token that somebody else fetched meanwhile is adopted.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use super::context::OAuthContext;
use super::error::OAuthError;
use super::grant::{GrantError, grant};
use super::store::Stamp;
use super::tokens::Tokens;

/// Others wait for the lock meanwhile.
const LOOKUP_TIME: Duration = Duration::from_secs(30);

/// Where tokens came from.
pub(crate) enum Renewal {
    /// Another task or process had fetched them.
    Adopted(Tokens, Stamp),
    /// Fetched now. `Err`: they are good but could not be stored.
    Refreshed(Tokens, Result<Option<Stamp>, OAuthError>),
}

/// Tokens that are good but not on disk, because writing failed.
pub(crate) struct Unsaved {
    pub(crate) tokens: Tokens,
    /// The version of the file they were to replace.
    pub(crate) over: Option<Stamp>,
}

/// Gets tokens other than `failed`.
pub(crate) async fn renew(
    cx: &OAuthContext,
    failed: &SecretString,
    unsaved: Option<Unsaved>,
) -> Result<Renewal, OAuthError> {
    let _lock = cx.lock().await?;
    if let Some(unsaved) = unsaved
        && cx.store.stamp() == unsaved.over
    {
        // Without room for these there is none for the next ones.
        cx.save_tokens(&unsaved.tokens).await?;
    }
    let Some((tokens, stamp)) = cx.load().await? else {
        return Err(cx.needs_login(&format!("there are no tokens for {}", cx.server)));
    };
    if adoptable(cx, &tokens, failed) {
        return Ok(Renewal::Adopted(tokens, stamp));
    }
    let Some(refresh) = tokens.refresh.clone() else {
        return Err(cx.needs_login(&format!(
            "the access to {} has ended and cannot be renewed",
            cx.server
        )));
    };
    let (meta, identity) = match tokio::time::timeout(LOOKUP_TIME, cx.known_client()).await {
        Ok(known) => known?,
        Err(_) => {
            return Err(OAuthError::transient(format!(
                "finding the authorization server of {} took longer than {} s",
                cx.server,
                LOOKUP_TIME.as_secs()
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
            meta.doubt();
            cx.save_meta(&meta).await?;
            Err(error)
        }
        Err(GrantError::Denied { code, text }) => match code.as_str() {
            "invalid_client" => Err(cx.client_rejected(&text).await),
            // Whoever refreshed without our lock (the original) has written meanwhile.
            "invalid_grant" => match cx.load().await? {
                Some((tokens, stamp)) if adoptable(cx, &tokens, failed) => {
                    Ok(Renewal::Adopted(tokens, stamp))
                }
                _ => Err(cx.needs_login(&text)),
            },
            "temporarily_unavailable" | "server_error" | "slow_down" => {
                Err(OAuthError::transient(text))
            }
            _ => Err(cx.needs_login(&text)),
        },
    }
}

fn adoptable(cx: &OAuthContext, tokens: &Tokens, failed: &SecretString) -> bool {
    !tokens.is(failed) && !tokens.expires_within(0.0, cx.clock.as_ref())
}
