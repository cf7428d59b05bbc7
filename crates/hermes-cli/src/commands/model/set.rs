//! `hermes model set`, and choosing at a terminal.

use std::io::{BufRead as _, Write as _};

use hermes_config::edit::{ConfigDoc, KeyPath};
use hermes_core::model::{Route, RouteError};
use hermes_models::providers;
use hermes_models::router::{Overrides, Router};
use serde_json::{Value, json};

use super::router;
use crate::commands::Context;
use crate::exit::{Failure, Outcome};
use crate::wiring;

#[derive(Debug, clap::Args)]
pub(super) struct SetArgs {
    /// The model, also as provider/model
    model: String,
    /// Its provider
    #[arg(long)]
    provider: Option<String>,
    /// Address of an own server (OpenAI-compatible unless it ends in /anthropic)
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The variable that holds the key
    #[arg(long, value_name = "VAR")]
    key_env: Option<String>,
}

pub(super) fn run(args: &SetArgs, cx: &Context) -> Outcome {
    if args.model.trim().is_empty() {
        return Err(Failure::usage("the model has no name"));
    }
    let (_, router) = router(cx, Overrides::default())?;
    let route = router
        .resolve(Some(&args.model), args.provider.as_deref(), args.base_url.as_deref())
        .map_err(|error| match error {
            RouteError::NothingConfigured => Failure::usage(
                "no provider is configured yet: add --provider P (hermes model list) or --base-url URL",
            ),
            other => Failure::usage(Failure::from(other).message),
        })?;
    write(args, &route, cx)?;
    cx.out
        .line(format!("model is now {} ({})", route.model, route.provider))?;
    remark_on_key(&router, &route, args, cx);
    Ok(())
}

/// Fields that describe one model or one address, and would be wrong for another.
const BELONG_TO_MODEL: &[&str] = &["context_length", "max_tokens", "supports_vision"];
const BELONG_TO_PROVIDER: &[&str] = &["base_url", "api_key", "api_mode", "key_env"];

fn write(args: &SetArgs, route: &Route, cx: &Context) -> Outcome {
    let fail = |error: hermes_config::edit::EditError| Failure::failed(error.to_string());
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let mut doc = ConfigDoc::open(&cx.home.config_path()).map_err(fail)?;
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
    if let Some(url) = &args.base_url {
        put("base_url", url.trim().trim_end_matches('/'))?;
    }
    if let Some(name) = &args.key_env {
        put("key_env", name)?;
    }
    doc.save().map_err(fail)?;
    if !dropped.is_empty() {
        cx.out.remark(format!(
            "removed what belonged to the old model: model.{}",
            dropped.join(", model.")
        ));
    }
    Ok(())
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

/// One way to go on.
struct Choice {
    provider: String,
    model: String,
    base_url: Option<String>,
}

/// Asks the person at the terminal.
pub(super) fn choose(cx: &Context) -> Outcome {
    let (_, router) = router(cx, Overrides::default())?;
    let runtime = wiring::runtime()?;
    let choices = choices(&router, runtime.block_on(router.local_servers()));
    if let Ok(route) = router.describe() {
        cx.out
            .line(format!("in use: {} ({})", route.model, route.provider))?;
    }
    if choices.is_empty() {
        return Err(Failure::from(RouteError::NothingConfigured));
    }
    for (index, choice) in choices.iter().enumerate() {
        cx.out.line(format!(
            "{:>3}  {:<40} {}",
            index + 1,
            choice.model,
            choice.provider
        ))?;
    }
    cx.out
        .piece("number, or a model as provider/model (empty: leave it): ")?;
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let typed = line.trim();
    if typed.is_empty() {
        return Ok(());
    }
    let args = match typed.parse::<usize>() {
        Ok(number) => {
            let chosen = number.checked_sub(1).and_then(|index| choices.get(index));
            let choice =
                chosen.ok_or_else(|| Failure::usage(format!("there is no choice {number}")))?;
            SetArgs {
                model: choice.model.clone(),
                provider: Some(choice.provider.clone()),
                base_url: choice.base_url.clone(),
                key_env: None,
            }
        }
        Err(_) => SetArgs {
            model: typed.to_owned(),
            provider: None,
            base_url: None,
            key_env: None,
        },
    };
    run(&args, cx)
}

/// What is usable now: models on this machine, then providers with a key.
fn choices(router: &Router, found: Vec<hermes_models::live::LocalFound>) -> Vec<Choice> {
    let local = found.into_iter().flat_map(|server| {
        let provider = providers::PROVIDERS
            .iter()
            .find(|provider| provider.local == Some(server.server))
            .map_or("custom", |provider| provider.id);
        let usual = providers::by_id(provider).is_some_and(|p| p.base_url == server.base_url);
        let base_url = (!usual).then(|| server.base_url.clone());
        server.models.into_iter().map(move |model| Choice {
            provider: provider.to_owned(),
            model: model.id,
            base_url: base_url.clone(),
        })
    });
    let keyed = router
        .providers()
        .into_iter()
        .filter(|provider| {
            provider.key.is_some() || (provider.own && provider.id.starts_with("custom:"))
        })
        .filter_map(|provider| {
            Some(Choice {
                model: provider.default_model?,
                provider: provider.id,
                base_url: None,
            })
        });
    local.chain(keyed).collect()
}
