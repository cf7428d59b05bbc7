//! `hermes auth add`.

use std::io::BufRead as _;

use hermes_core::clock::{Rng as _, SystemRng};
use hermes_models::credentials::is_usable_for;
use hermes_models::credentials::manage::{AddKeyResult, NewKey};
use hermes_models::live::{LIST_TIMEOUT, ListError};
use hermes_models::providers::Auth;
use hermes_models::{LiveError, Router, providers};
use secrecy::SecretString;

use super::{AddArgs, AuthContext, CredentialKind, store_failure};
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::{prompt, wiring};

pub(super) fn run(args: &AddArgs, cx: &Context) -> Outcome {
    let desk = AuthContext::open(cx)?;
    if args.kind == CredentialKind::OAuth {
        return Err(Failure::usage(no_login(&args.provider)));
    }
    let (pool, base_url) = desk.router.pool_of(&args.provider)?;
    if providers::by_id(&pool).is_some_and(|provider| provider.auth == Auth::OptionalKey)
        && base_url.is_empty()
    {
        return Err(Failure::usage(format!(
            "{pool} has no address yet, and a key belongs to one: hermes model set MODEL --base-url URL --key-env VAR"
        )));
    }
    let key = read_key(args, &pool, cx)?;
    if !is_usable_for(&pool, &key) {
        return Err(Failure::usage(format!(
            "that does not look like a key of {pool} (a placeholder, or a login of another program)"
        )));
    }
    let secret = SecretString::from(key);
    if !args.no_test {
        match verify(&desk.router, &pool, None, secret.clone())? {
            KeyCheck::Taken(models) => cx.out.remark(format!(
                "{pool} takes the key ({})",
                crate::commands::counted(models, "model")
            )),
            KeyCheck::Unknown(why) => cx.out.remark(format!("the key was not tested: {why}")),
        }
    }
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let new = NewKey {
        id: format!("{:06x}", SystemRng.next_u64() & 0xff_ffff),
        label: args
            .label
            .as_deref()
            .map(str::trim)
            .filter(|label| !label.is_empty())
            .map(str::to_owned),
        secret,
        base_url,
    };
    match desk
        .store
        .add_key(&pool, &new, desk.now)
        .map_err(|error| store_failure(&error))?
    {
        AddKeyResult::As(label) => Ok(cx
            .out
            .line(format!("stored {label} for {pool} in auth.json"))?),
        AddKeyResult::Known(label) => Err(Failure::failed(format!(
            "this key of {pool} is stored already, as {label}"
        ))),
    }
}

fn no_login(provider: &str) -> String {
    match providers::unsupported(provider) {
        Some(absent) => format!("{provider}: {}", absent.reason),
        None => {
            format!("logins in the browser are not offered; use a key: hermes auth add {provider}")
        }
    }
}

/// The key: from the flag, from the person, or from a pipe. It is not shown anywhere.
fn read_key(args: &AddArgs, pool: &str, cx: &Context) -> Result<String, Failure> {
    let key = match &args.api_key {
        Some(key) => key.clone(),
        None if cx.out.stdin_tty && cx.no_input => {
            return Err(Failure::usage("give the key: --api-key KEY, or on stdin"));
        }
        None if cx.out.stdin_tty => {
            prompt::secret(&format!("key of {pool} (not shown): "))?.or_empty()
        }
        None => {
            let mut line = String::new();
            std::io::stdin()
                .lock()
                .read_line(&mut line)
                .map_err(|error| Failure::failed(format!("cannot read stdin: {error}")))?;
            line
        }
    };
    let key = key.trim().to_owned();
    if key.is_empty() {
        return Err(Failure::usage("no key was given"));
    }
    Ok(key)
}

/// What a provider says of a key.
pub(crate) enum KeyCheck {
    /// It lists that many models to it.
    Taken(usize),
    /// The provider could not be asked, for this reason.
    Unknown(String),
}

/// Tries a key at its provider. A key that is refused is an error.
pub(crate) fn verify(
    router: &Router,
    provider: &str,
    base_url: Option<&str>,
    key: SecretString,
) -> Result<KeyCheck, Failure> {
    let asked =
        wiring::runtime()?.block_on(router.models_with_key(provider, base_url, key, LIST_TIMEOUT));
    match asked {
        Ok(models) => Ok(KeyCheck::Taken(models.len())),
        Err(LiveError::List(ListError::Refused {
            status: status @ (401 | 403),
            message,
            ..
        })) => Err(Failure::new(
            Exit::Failed,
            format!(
                "{provider} refuses this key ({status}{}); it was not stored (--no-test stores it anyway)",
                if message.is_empty() {
                    String::new()
                } else {
                    format!(": {message}")
                }
            ),
        )),
        Err(error @ (LiveError::List(_) | LiveError::NotListed { .. })) => {
            Ok(KeyCheck::Unknown(error.to_string()))
        }
        Err(LiveError::Route(error)) => Err(Failure::from(error)),
    }
}
