//! `hermes model set`.

use hermes_config::edit::{ConfigDoc, KeyPath};
use hermes_core::model::{Route, RouteError};
use hermes_models::local::PROVIDER;
use hermes_models::{Overrides, Router};
use serde_json::{Value, json};

use super::router;
use crate::commands::Context;
use crate::exit::{Failure, Outcome};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// Model, or provider/model
    pub(crate) model: String,
    /// Provider of the model
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// URL of your own server (OpenAI-compatible unless it ends in /anthropic)
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Environment variable that holds the key
    #[arg(long, value_name = "VAR")]
    pub(crate) key_env: Option<String>,
}

pub(crate) fn run(args: &SetArgs, cx: &Context) -> Outcome {
    let (_, router) = router(cx, Overrides::default())?;
    let route = resolve(args, &router)?;
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let mut doc = ConfigDoc::open(&cx.home.config_path())
        .map_err(|error| Failure::failed(error.to_string()))?;
    let dropped = enter(&mut doc, args, &route)?;
    stamp_new(&mut doc)?;
    doc.save()
        .map_err(|error| Failure::failed(error.to_string()))?;
    if !dropped.is_empty() {
        cx.out.remark(format!(
            "removed what belonged to the old model: model.{}",
            dropped.join(", model.")
        ));
    }
    cx.out
        .line(format!("model is now {} ({})", route.model, route.provider))?;
    remark_on_key(&router, &route, args, cx);
    Ok(())
}

/// A file that begins with us begins in today's form: nothing in it needs to be migrated.
pub(crate) fn stamp_new(doc: &mut ConfigDoc) -> Outcome {
    if doc.was_empty() {
        doc.set(
            &KeyPath::new(["_config_version"]),
            &json!(hermes_config::schema::CONFIG_VERSION),
        )
        .map_err(|error| Failure::failed(error.to_string()))?;
    }
    Ok(())
}

/// The route that a choice means.
pub(crate) fn resolve(args: &SetArgs, router: &Router) -> Result<Route, Failure> {
    if args.model.trim().is_empty() {
        return Err(Failure::usage("the model has no name"));
    }
    router
        .resolve(Some(&args.model), args.provider.as_deref(), args.base_url.as_deref())
        .map_err(|error| match error {
            RouteError::NothingConfigured => Failure::usage(
                "no provider is configured yet: add --provider P (hermes model list) or --base-url URL",
            ),
            other => Failure::usage(Failure::from(other).message),
        })
}

/// Fields that describe one model or one address, and would be wrong for another.
const BELONG_TO_MODEL: &[&str] = &["context_length", "max_tokens", "supports_vision"];
const BELONG_TO_PROVIDER: &[&str] = &["base_url", "api_key", "api_mode", "key_env"];

/// Writes the choice into the document. Returns the fields that belonged to the old model.
pub(crate) fn enter(
    doc: &mut ConfigDoc,
    args: &SetArgs,
    route: &Route,
) -> Result<Vec<&'static str>, Failure> {
    let fail = |error: hermes_config::edit::EditError| Failure::failed(error.to_string());
    let old = doc.tree().get("model").cloned().unwrap_or(Value::Null);
    if !matches!(old, Value::Object(_)) {
        // A bare name becomes a section.
        doc.unset(&KeyPath::new(["model"])).map_err(fail)?;
    }
    let text = |key: &str| old.get(key).and_then(Value::as_str).unwrap_or_default();
    let same_provider =
        text("provider").eq_ignore_ascii_case(&route.provider) && args.base_url.is_none();
    let same_model = text("default") == route.model && same_provider;
    let mut dropped = Vec::new();
    let stale = BELONG_TO_MODEL
        .iter()
        .filter(|_| !same_model)
        .chain(BELONG_TO_PROVIDER.iter().filter(|_| !same_provider));
    for key in stale {
        if doc.unset(&KeyPath::new(["model", key])).map_err(fail)? {
            dropped.push(*key);
        }
    }
    // What gets a new value was replaced, not removed.
    dropped.retain(|key| match *key {
        "base_url" => args.base_url.is_none(),
        "key_env" => args.key_env.is_none(),
        _ => true,
    });
    let mut put = |key: &str, value: &str| {
        doc.set(&KeyPath::new(["model", key]), &json!(value))
            .map(drop)
            .map_err(fail)
    };
    put("default", &route.model)?;
    put("provider", &route.provider)?;
    if route.provider == PROVIDER {
        // The same is meant where only the built-in model is spoken of (`hermes --local`).
        doc.set(&KeyPath::new(["local", "model"]), &json!(route.model))
            .map_err(fail)?;
        return Ok(dropped);
    }
    if let Some(url) = &args.base_url {
        put("base_url", url.trim().trim_end_matches('/'))?;
    }
    if let Some(name) = &args.key_env {
        put("key_env", name)?;
    }
    Ok(dropped)
}

fn remark_on_key(router: &Router, route: &Route, args: &SetArgs, cx: &Context) {
    let status = router
        .providers()
        .into_iter()
        .find(|provider| provider.id == route.provider);
    let Some(status) = status.filter(|provider| provider.key.is_none()) else {
        return;
    };
    let needed = args.key_env.as_deref().or(status.key_env);
    if let Some(name) = needed.filter(|name| cx.env.credential(name).is_none()) {
        cx.out.remark(format!(
            "a key is still missing: hermes config set {name} <key>"
        ));
    }
}
