//! Pasting a key: whose it is, whether it works, and where it is kept.

use std::os::unix::fs::PermissionsExt as _;

use hermes_config::env::writer;
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_models::credentials::is_usable_for;
use hermes_models::credentials::store::AuthStore;
use hermes_models::providers::{Auth, Provider};
use hermes_models::{Overrides, providers};
use secrecy::{ExposeSecret as _, SecretString};

use crate::commands::auth::{KeyCheck, verify};
use crate::commands::{Context, counted, model};
use crate::exit::{Failure, Outcome};
use crate::prompt::{self, PromptAnswer};

/// How keys of a provider begin. Longer beginnings come before those they contain.
const BEGINNINGS: [(&str, &str); 12] = [
    ("sk-or-", "openrouter"),
    ("sk-ant-", "anthropic"),
    ("sk-proj-", "openai-api"),
    ("sk-svcacct-", "openai-api"),
    ("gsk_", "groq"),
    ("AIza", "gemini"),
    ("hf_", "huggingface"),
    ("xai-", "xai"),
    ("nvapi-", "nvidia"),
    ("csk-", "cerebras"),
    ("fw_", "fireworks"),
    ("tgp_", "together"),
];

/// Whose key it is, as far as its beginning tells. Plain `sk-` is used by too many: asking each of
/// them would show the key to all.
pub(crate) fn provider_of(key: &str) -> Option<&'static Provider> {
    BEGINNINGS
        .iter()
        .find(|(beginning, _)| key.starts_with(beginning))
        .and_then(|(_, id)| providers::by_id(id))
}

/// A key that its provider takes, kept nowhere yet.
pub(crate) struct PastedKey {
    pub(crate) provider: &'static Provider,
    pub(crate) key: SecretString,
    /// Where it is kept, if that is not where the provider's keys are.
    pub(crate) variable: Option<String>,
}

impl PastedKey {
    /// The variable that keeps it.
    pub(crate) fn name(&self) -> Option<&str> {
        self.variable
            .as_deref()
            .or_else(|| self.provider.key_envs.first().copied())
    }
}

/// Asks for a key and tries it. `None`: the person went back.
pub(crate) fn ask(cx: &Context, provider: Option<&str>) -> Result<Option<PastedKey>, Failure> {
    let whose = provider.map_or(String::new(), |name| format!(" of {name}"));
    loop {
        let key = match prompt::secret(&format!("key{whose} (not shown, Esc: back): "))? {
            PromptAnswer::Back => return Ok(None),
            PromptAnswer::Line(key) if key.is_empty() => return Ok(None),
            PromptAnswer::Line(key) => key,
        };
        let found = match provider {
            Some(name) => providers::find(name),
            None => provider_of(&key),
        };
        let Some(provider) = found.map_or_else(|| ask_whose(cx), |found| Ok(Some(found)))? else {
            continue;
        };
        match check(cx, provider, None, &key) {
            Ok(remark) => {
                cx.out.remark(remark);
                return Ok(Some(PastedKey {
                    provider,
                    key: SecretString::from(key),
                    variable: None,
                }));
            }
            Err(failure) => cx.out.error(failure.message),
        }
    }
}

/// A key whose beginning says nothing.
fn ask_whose(cx: &Context) -> Result<Option<&'static Provider>, Failure> {
    loop {
        let name = match prompt::line(
            "Which provider is this key for? (openai, deepseek, mistral, …; Esc: back): ",
        )? {
            PromptAnswer::Back => return Ok(None),
            PromptAnswer::Line(name) if name.is_empty() => return Ok(None),
            PromptAnswer::Line(name) => name,
        };
        match providers::find(&name) {
            Some(provider) if provider.auth != Auth::OptionalKey => return Ok(Some(provider)),
            _ => cx.out.error(format!(
                "unknown provider {name:?} (see: hermes model list)"
            )),
        }
    }
}

/// Whether a provider takes a key. Says what was found out.
pub(crate) fn check(
    cx: &Context,
    provider: &Provider,
    base_url: Option<&str>,
    key: &str,
) -> Result<String, Failure> {
    if !is_usable_for(provider.id, key) {
        return Err(Failure::usage(format!(
            "that is not a key for {} (it is a placeholder, or another program's login)",
            provider.name
        )));
    }
    let (_, router) = model::router(cx, Overrides::default())?;
    let secret = SecretString::from(key.to_owned());
    Ok(match verify(&router, provider.id, base_url, secret)? {
        KeyCheck::Taken(models) => format!(
            "{} accepts the key ({})",
            provider.name,
            counted(models, "model")
        ),
        KeyCheck::Unknown(why) => format!("the key was not tested: {why}"),
    })
}

/// Keeps a key in .env, which only the owner can read.
pub(crate) fn store(cx: &hermes_app::AppContext, pasted: &PastedKey) -> Outcome {
    let provider = pasted.provider;
    let Some(name) = pasted.name() else {
        return Err(Failure::usage(format!(
            "there is no key variable for {}",
            provider.id
        )));
    };
    let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    cx.home.ensure().map_err(|error| failed(&error))?;
    let path = cx.home.env_path();
    writer::set(&path, name, pasted.key.expose_secret()).map_err(|error| failed(&error))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
        .map_err(|error| failed(&error))?;
    // A variable that was taken away would not be used.
    AuthStore::new(&cx.home)
        .unsuppress(provider.id, &format!("env:{name}"), SystemClock.now())
        .map_err(|error| failed(&error))?;
    let text = format!("stored as {name} in {}", path.display());
    cx.process.remark(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_their_beginning() {
        for (key, id) in [
            ("sk-or-v1-abc", "openrouter"),
            ("sk-ant-api03-abc", "anthropic"),
            ("sk-proj-abc", "openai-api"),
            ("gsk_abc", "groq"),
            ("AIzaSyabc", "gemini"),
            ("hf_abc", "huggingface"),
        ] {
            assert_eq!(provider_of(key).map(|p| p.id), Some(id), "{key}");
        }
        assert!(provider_of("sk-abc").is_none());
        for (_, id) in BEGINNINGS {
            assert!(
                providers::by_id(id).is_some_and(|p| !p.key_envs.is_empty()),
                "{id}"
            );
        }
    }
}
