//! `hermes fallback`: models that are tried when the current one fails.

use std::sync::Arc;

use clap::{Args, Subcommand};
use hermes_config::edit::{ConfigDoc, EditError, KeyPath};
use hermes_config::redact;
use hermes_models::Overrides;
use serde_json::{Map, Value, json};

use crate::commands::Context;
use crate::commands::model::PickedModel;
use crate::commands::setup::keys;
use crate::exit::{Exit, Failure, Outcome};
use crate::{prompt, wiring};

#[derive(Debug, Args)]
pub(crate) struct FallbackArgs {
    #[command(subcommand)]
    command: Option<FallbackCommand>,
}

#[derive(Debug, Subcommand)]
enum FallbackCommand {
    /// List the models in the order they are tried (the default)
    #[command(alias = "ls")]
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a model to the end of the list
    Add(AddArgs),
    /// Remove a model from the list
    #[command(alias = "rm")]
    Remove {
        /// Its number in the list, or its name
        target: Option<String>,
    },
    /// Remove all models from the list
    Clear {
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    /// Model, or provider/model; if omitted, choose from a list
    model: Option<String>,
    /// Provider of the model
    #[arg(long)]
    provider: Option<String>,
    /// URL of your own server
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Environment variable that holds the key
    #[arg(long, value_name = "VAR")]
    key_env: Option<String>,
}

const CHAIN: &str = "fallback_providers";
/// What older versions of the original called it.
const LEGACY_KEY: &str = "fallback_model";

pub(crate) fn run(args: FallbackArgs, cx: &Context) -> Outcome {
    match args
        .command
        .unwrap_or(FallbackCommand::List { json: false })
    {
        FallbackCommand::List { json } => list(json, cx),
        FallbackCommand::Add(args) => add(args, cx),
        FallbackCommand::Remove { target } => remove(target.as_deref(), cx),
        FallbackCommand::Clear { yes } => clear(yes, cx),
    }
}

fn list(as_json: bool, cx: &Context) -> Outcome {
    let config = Arc::new(cx.config()?);
    let steps = config.fallbacks();
    let primary = wiring::router(cx, &config, Overrides::default()).describe();
    if as_json {
        let chain: Vec<Value> = steps
            .iter()
            .map(|step| {
                let url = Some(&step.base_url).filter(|url| !url.is_empty());
                json!({
                    "provider": step.provider,
                    "model": step.model,
                    "base_url": url.map(|url| redact::url(url)),
                })
            })
            .collect();
        let primary = primary
            .ok()
            .map(|route| json!({"provider": route.provider, "model": route.model}));
        return Ok(cx.out.json(&json!({"primary": primary, "chain": chain}))?);
    }
    if let Ok(route) = primary {
        cx.out
            .line(format!("first  {} ({})", route.model, route.provider))?;
    }
    for (index, step) in steps.iter().enumerate() {
        let url = if step.base_url.is_empty() {
            String::new()
        } else {
            format!(" at {}", redact::url(&step.base_url))
        };
        cx.out.line(format!(
            "{:>5}  {} ({}){url}",
            index + 1,
            step.model,
            step.provider
        ))?;
    }
    if steps.is_empty() {
        cx.out.line("no fallbacks")?;
        cx.out
            .remark("add one: hermes fallback add MODEL --provider P");
    }
    Ok(())
}

fn add(args: AddArgs, cx: &Context) -> Outcome {
    let args = match args.model {
        Some(_) => args,
        None => chosen(cx)?,
    };
    let config = Arc::new(cx.config()?);
    let router = wiring::router(cx, &config, Overrides::default());
    let route = router
        .resolve(
            args.model.as_deref(),
            args.provider.as_deref(),
            args.base_url.as_deref(),
        )
        .map_err(|error| Failure::usage(Failure::from(error).message))?;
    let url = args.base_url.as_deref().map_or("", |url| {
        let url = url.trim();
        url.trim_end_matches('/')
    });
    let same = |provider: &str, model: &str| {
        provider.eq_ignore_ascii_case(&route.provider) && model.eq_ignore_ascii_case(&route.model)
    };
    if router.describe().is_ok_and(|primary| {
        same(&primary.provider, &primary.model) && (url.is_empty() || primary.base_url == url)
    }) {
        return Err(Failure::usage(format!(
            "{} is the model in use: it cannot be its own fallback",
            route.model
        )));
    }
    if config
        .fallbacks()
        .iter()
        .any(|step| same(&step.provider, &step.model) && step.base_url.eq_ignore_ascii_case(url))
    {
        return Ok(cx
            .out
            .line(format!("{} is in the chain already", route.model))?);
    }
    let mut step = Map::new();
    step.insert("provider".to_owned(), json!(route.provider));
    step.insert("model".to_owned(), json!(route.model));
    if !url.is_empty() {
        step.insert("base_url".to_owned(), json!(url));
    }
    if let Some(name) = &args.key_env {
        step.insert("key_env".to_owned(), json!(name));
    }
    let mut doc = open(cx)?;
    take_over_old(&mut doc)?;
    doc.push(&KeyPath::new([CHAIN]), &Value::Object(step))
        .map_err(|error| edit_failure(&error))?;
    doc.save().map_err(|error| edit_failure(&error))?;
    cx.out.line(format!(
        "added {} ({}) as fallback {}",
        route.model,
        route.provider,
        config.fallbacks().len() + 1
    ))?;
    let keyless = router.providers().into_iter().find(|provider| {
        provider.id == route.provider && provider.key.is_none() && args.key_env.is_none()
    });
    if let Some(name) = keyless.and_then(|provider| provider.key_env) {
        cx.out.remark(format!(
            "a key is still missing: hermes auth add {}, or {name} in .env",
            route.provider
        ));
    }
    Ok(())
}

/// Lets the person choose, as `hermes model` does.
fn chosen(cx: &Context) -> Result<AddArgs, Failure> {
    if !(cx.out.stdin_tty && cx.out.stdout_tty) || cx.no_input {
        return Err(Failure::usage(
            "which one? hermes fallback add MODEL [--provider P] [--base-url URL] [--key-env VAR]",
        ));
    }
    let Some(PickedModel { choice, key }) = super::model::pick(cx)? else {
        return Err(Failure::silent(Exit::Ok));
    };
    if let Some(key) = key {
        keys::store(cx, &key)?;
    }
    Ok(AddArgs {
        model: Some(choice.model),
        provider: choice.provider,
        base_url: choice.base_url,
        key_env: None,
    })
}

fn remove(target: Option<&str>, cx: &Context) -> Outcome {
    let config = cx.config()?;
    let steps = config.fallbacks();
    let Some(target) = target else {
        list(false, cx)?;
        return Err(Failure::usage(
            "which one? hermes fallback remove NUMBER (or its model)",
        ));
    };
    let index = match target.parse::<usize>() {
        Ok(number) => number.checked_sub(1).filter(|index| *index < steps.len()),
        Err(_) => steps
            .iter()
            .position(|step| step.model.eq_ignore_ascii_case(target)),
    };
    let step = index.and_then(|index| steps.get(index)).ok_or_else(|| {
        Failure::not_found(format!(
            "the chain has no {target:?} (hermes fallback list)"
        ))
    })?;
    let mut doc = open(cx)?;
    take_over_old(&mut doc)?;
    let row_index =
        position(&doc, &step.provider, &step.model, &step.base_url).ok_or_else(|| {
            Failure::failed(format!(
                "{} comes from the administrator's config, which is not changed here",
                step.model
            ))
        })?;
    doc.unset(&KeyPath::new([CHAIN, &row_index.to_string()]))
        .map_err(|error| edit_failure(&error))?;
    doc.save().map_err(|error| edit_failure(&error))?;
    Ok(cx.out.line(format!(
        "removed {} ({}) from the chain",
        step.model, step.provider
    ))?)
}

fn clear(yes: bool, cx: &Context) -> Outcome {
    let count = cx.config()?.fallbacks().len();
    if count == 0 {
        return Ok(cx.out.line("no fallbacks")?);
    }
    if !yes {
        if !(cx.out.stdin_tty && cx.out.stdout_tty) || cx.no_input {
            return Err(Failure::usage("add --yes to empty the chain"));
        }
        list(false, cx)?;
        if !prompt::confirm("empty the chain?", false)? {
            return Err(Failure::silent(Exit::Refused));
        }
    }
    let mut doc = open(cx)?;
    for key in [CHAIN, LEGACY_KEY] {
        doc.unset_keeping_comments(&KeyPath::new([key]))
            .map_err(|error| edit_failure(&error))?;
    }
    doc.save().map_err(|error| edit_failure(&error))?;
    Ok(cx
        .out
        .line(format!("removed {}", super::counted(count, "fallback")))?)
}

fn open(cx: &Context) -> Result<ConfigDoc, Failure> {
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    ConfigDoc::open(&cx.home.config_path()).map_err(|error| edit_failure(&error))
}

fn edit_failure(error: &EditError) -> Failure {
    let exit = match error {
        EditError::Changed(_) => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

/// Moves what the old setting says into the chain, as the original does on a change.
fn take_over_old(doc: &mut ConfigDoc) -> Outcome {
    let old = match doc.tree().get(LEGACY_KEY) {
        Some(Value::Array(steps)) => steps.clone(),
        Some(Value::Object(step)) => vec![Value::Object(step.clone())],
        _ => return Ok(()),
    };
    for step in old {
        let text = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or_default();
        let named = !text("provider").is_empty() && !text("model").is_empty();
        if named && position(doc, text("provider"), text("model"), text("base_url")).is_none() {
            doc.push(&KeyPath::new([CHAIN]), &step)
                .map_err(|error| edit_failure(&error))?;
        }
    }
    doc.unset_keeping_comments(&KeyPath::new([LEGACY_KEY]))
        .map_err(|error| edit_failure(&error))?;
    Ok(())
}

/// Where a step stands in the file.
fn position(doc: &ConfigDoc, provider: &str, model: &str, base_url: &str) -> Option<usize> {
    let steps = doc.tree().get(CHAIN)?.as_array()?;
    steps.iter().position(|step| {
        let is = |key: &str, wanted: &str| {
            let value = step.get(key).and_then(Value::as_str).unwrap_or_default();
            value
                .trim()
                .trim_end_matches('/')
                .eq_ignore_ascii_case(wanted.trim().trim_end_matches('/'))
        };
        is("provider", provider) && is("model", model) && is("base_url", base_url)
    })
}
