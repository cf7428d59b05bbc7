//! Setup: which model answers.

use std::fmt::Write as _;
use std::time::Duration;

use hermes_core::model::ModelRouter as _;
use hermes_models::Overrides;

use super::draft::SetupDraft;
use super::keys::PastedKey;
use crate::commands::model::{self, PickedModel, SetArgs};
use crate::exit::{Failure, Outcome};
use crate::{prompt, wiring};

/// Timeout for testing a model: a large one has to be loaded first.
const MODEL_TEST_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) fn standing(draft: &SetupDraft<'_>) -> Result<(bool, String), Failure> {
    let config = draft.config()?;
    let key = draft.keys.last().map(|pasted| pasted.key.clone());
    let overrides = Overrides {
        api_key: key,
        ..Overrides::default()
    };
    let router = wiring::router(draft.cx, &config, overrides);
    Ok(match router.describe() {
        Ok(route) => {
            let tried = draft
                .tried
                .as_ref()
                .map_or(String::new(), |tried| format!(": {tried}"));
            (true, format!("{} ({}){tried}", route.model, route.provider))
        }
        Err(error) => {
            let text = error.to_string();
            (false, text.lines().next().unwrap_or_default().to_owned())
        }
    })
}

pub(super) fn fill(draft: &mut SetupDraft<'_>) -> Outcome {
    let cx = draft.cx;
    loop {
        let Some(PickedModel { choice, key }) = model::pick(cx)? else {
            return Ok(());
        };
        cx.out.remark(format!("trying {} …", choice.model));
        match try_out(draft, &choice, key.as_ref()) {
            Ok(tried) => {
                cx.out.remark(format!("{}: {tried}", choice.model));
                enter(draft, &choice, key)?;
                draft.tried = Some(tried);
                return Ok(());
            }
            Err(failure) => {
                cx.out.error(failure.message);
                if prompt::confirm("use it anyway?", false)? {
                    draft.tried = None;
                    return enter(draft, &choice, key);
                }
            }
        }
    }
}

/// A real call and a real tool call.
pub(super) fn try_out(
    draft: &SetupDraft<'_>,
    choice: &SetArgs,
    key: Option<&PastedKey>,
) -> Result<String, Failure> {
    let mut config = (*draft.config()?).clone();
    // A key in a variable of its own is used for this very model.
    if choice.key_env.is_some() {
        config.model.key_env.clone_from(&choice.key_env);
    }
    let from_env = choice
        .key_env
        .as_deref()
        .and_then(|name| draft.cx.env.credential(name))
        .map(|(secret, _)| secret);
    let overrides = Overrides {
        model: Some(choice.model.clone()),
        provider: choice.provider.clone(),
        base_url: choice.base_url.clone(),
        api_key: key.map(|pasted| pasted.key.clone()).or(from_env),
    };
    let client = wiring::router(draft.cx, &std::sync::Arc::new(config), overrides).primary()?;
    let window = client.info().context_length;
    let tried = wiring::runtime()?
        .block_on(model::attempt(client, MODEL_TEST_TIMEOUT))
        .map_err(Failure::failed)?;
    let seconds = tried.elapsed.as_secs_f64();
    let mut text = match tried.tools {
        Some(true) => format!("answers and calls tools ({seconds:.1} s)"),
        _ => format!("answers ({seconds:.1} s) but does not call tools: it can chat, but not act"),
    };
    if window < 16_000 {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "; its window of {} tokens is too small for long work",
            model::tokens(window)
        );
    }
    Ok(text)
}

pub(super) fn enter(
    draft: &mut SetupDraft<'_>,
    choice: &SetArgs,
    key: Option<PastedKey>,
) -> Outcome {
    let config = draft.config()?;
    let router = wiring::router(draft.cx, &config, Overrides::default());
    let route = model::resolve(choice, &router)?;
    model::enter(&mut draft.doc, choice, &route)?;
    draft.keys.extend(key);
    Ok(())
}
