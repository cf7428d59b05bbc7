//! `hermes model local use` and `remove`.

use hermes_config::edit::{ConfigDoc, KeyPath};
use hermes_core::figures::size;
use hermes_models::local::weights::NamedWeights;
use hermes_models::local::{PROVIDER, pull, server};

use super::{LocalModelContext, fetch};
use crate::commands::Context;
use crate::commands::model::{SetArgs, enter, resolve, stamp_new};
use crate::exit::{Failure, Outcome};
use crate::wiring;

pub(super) fn run(name: &str, force: bool, cx: &Context) -> Outcome {
    let context = LocalModelContext::load(cx)?;
    let weights = context.weights(name)?;
    if !weights.is_there() {
        fetch::pull(&context, &weights, force, cx)?;
    }
    let weights = fetch::ready(cx, Some(name))?;
    select(&weights, cx)
}

/// Writes down that this model is used from now on.
pub(crate) fn select(weights: &NamedWeights, cx: &Context) -> Outcome {
    let context = LocalModelContext::load(cx)?;
    let choice = SetArgs {
        model: weights.name.clone(),
        provider: Some(PROVIDER.to_owned()),
        base_url: None,
        key_env: None,
    };
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let fail = |error: hermes_config::edit::EditError| Failure::failed(error.to_string());
    let mut doc = ConfigDoc::open(&cx.home.config_path()).map_err(fail)?;
    // A leftover `base_url` would turn the name into a custom endpoint.
    doc.unset(&KeyPath::new(["model", "base_url"]))
        .map_err(fail)?;
    let mut route = resolve(&choice, &context.router)?;
    PROVIDER.clone_into(&mut route.provider);
    route.model.clone_from(&weights.name);
    enter(&mut doc, &choice, &route)?;
    stamp_new(&mut doc)?;
    doc.save().map_err(fail)?;
    cx.out
        .line(format!("model is now {} ({PROVIDER})", weights.name))?;
    if context.settings.offers_tools(weights) != Some(true) {
        cx.out
            .remark("it can chat and answer simple questions; it has no tools");
    }
    Ok(())
}

pub(super) fn remove(name: &str, cx: &Context) -> Outcome {
    let context = LocalModelContext::load(cx)?;
    let weights = context.weights(name)?;
    let Some(model) = weights.model else {
        return Err(Failure::usage(format!(
            "{} is your own file; downloaded models: hermes model local list",
            weights.path.display()
        )));
    };
    if !weights.is_there() {
        return Err(Failure::not_found(format!(
            "{} is not downloaded",
            model.id
        )));
    }
    let running = wiring::runtime()?.block_on(server::running(&context.settings));
    for server in running.iter().filter(|server| server.file == weights.path) {
        cx.out
            .remark(format!("its server (pid {}) ends", server.pid));
        server::stop(server);
    }
    let bytes = pull::remove(&context.settings, model)
        .map_err(|error| Failure::failed(format!("{} stays: {error}", weights.path.display())))?;
    cx.out
        .line(format!("{} was deleted ({})", model.id, size(bytes)))?;
    if context.router.describe().is_ok_and(|route| {
        route.provider == PROVIDER && context.settings.weights(&route.model) == Ok(weights)
    }) {
        cx.out
            .remark("it is still the configured model: hermes model chooses another");
    }
    Ok(())
}
