//! `hermes model list`.

use hermes_config::redact;
use hermes_core::figures::size;
use hermes_core::usage::Prices;
use hermes_models::live::{LIST_TIMEOUT, ListedModel, LocalServerInfo};
use hermes_models::{LiveError, Overrides, ProviderStatus, Router, catalogue, providers};
use serde_json::{Value, json};

use super::{router, tokens};
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

#[derive(Debug, clap::Args)]
pub(super) struct ModelListArgs {
    /// Show only this provider, with its models
    #[arg(long)]
    provider: Option<String>,
    /// Ask the provider for its models; without --provider, also look for local servers
    #[arg(long)]
    live: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A row about a model, from whichever source.
struct ModelRow {
    id: String,
    context_length: Option<u32>,
    images: Option<bool>,
    tools: Option<bool>,
    prices: Option<Prices>,
    as_of: Option<&'static str>,
    size_bytes: Option<u64>,
}

pub(super) fn run(args: &ModelListArgs, cx: &Context) -> Outcome {
    let (_, router) = router(cx, Overrides::default())?;
    match (&args.provider, args.live) {
        (None, false) => providers_known(&router, args, cx),
        (None, true) => machine(&router, args, cx),
        (Some(name), false) => models(args, cx, &bundled(&router, name)?),
        (Some(name), true) => {
            let runtime = wiring::runtime()?;
            let list = runtime.block_on(router.live_models(Some(name), LIST_TIMEOUT));
            let provider = providers::find(name).map_or(name.as_str(), |provider| provider.id);
            let rows: Vec<ModelRow> = list
                .map_err(failure)?
                .into_iter()
                .map(|row| served(provider, row))
                .collect();
            models(args, cx, &rows)
        }
    }
}

fn failure(error: LiveError) -> Failure {
    match error {
        LiveError::Route(error) => Failure::from(error),
        LiveError::List(error) => Failure::new(Exit::Unreachable, error.to_string()),
        error @ LiveError::NotListed { .. } => Failure::failed(error.to_string()),
    }
}

fn providers_known(router: &Router, args: &ModelListArgs, cx: &Context) -> Outcome {
    let all = router.providers();
    if args.json {
        cx.out
            .json(&all.iter().map(provider_json).collect::<Vec<_>>())?;
        return Ok(());
    }
    for provider in &all {
        let mark = if provider.current { "*" } else { " " };
        let state = match (&provider.key, provider.key_env) {
            (Some(label), _) => format!("key: {label}"),
            (None, Some(env)) => format!("needs {env}"),
            (None, None) if provider.base_url.is_empty() => "needs --base-url".to_owned(),
            (None, None) => redact::url(&provider.base_url),
        };
        let model = provider.default_model.as_deref().unwrap_or("-");
        cx.out
            .line(format!("{mark} {:<20} {state:<36} {model}", provider.id).trim_end())?;
    }
    cx.out
        .remark("models of one: hermes model list --provider P [--live]");
    Ok(())
}

fn provider_json(provider: &ProviderStatus) -> Value {
    json!({
        "id": provider.id,
        "name": provider.name,
        "base_url": redact::url(&provider.base_url),
        "key": provider.key,
        "key_env": provider.key_env,
        "default_model": provider.default_model,
        "own": provider.own,
        "current": provider.current,
    })
}

/// The current provider's own list, and servers on this machine.
fn machine(router: &Router, args: &ModelListArgs, cx: &Context) -> Outcome {
    let runtime = wiring::runtime()?;
    let (current, found) = runtime.block_on(async {
        tokio::join!(
            router.live_models(None, LIST_TIMEOUT),
            router.local_servers()
        )
    });
    let provider = router
        .describe()
        .map(|route| route.provider)
        .unwrap_or_default();
    let rows = match current {
        Ok(list) => list.into_iter().map(|row| served(&provider, row)).collect(),
        Err(error) if found.is_empty() => {
            cx.out
                .remark("no model server answers on this machine (11434, 1234, 8080, 8000)");
            return Err(failure(error));
        }
        Err(LiveError::Route(_)) => Vec::new(),
        Err(error) => {
            cx.out.remark(error.to_string());
            Vec::new()
        }
    };
    if args.json {
        let servers: Vec<Value> = found.iter().map(server_json).collect();
        let models: Vec<Value> = rows.iter().map(row_json).collect();
        cx.out
            .json(&json!({"provider": provider, "models": models, "local": servers}))?;
        return Ok(());
    }
    for row in &rows {
        cx.out.line(line(row))?;
    }
    for server in found {
        cx.out.line(format!(
            "{:?} at {}",
            server.server,
            redact::url(&server.base_url)
        ))?;
        for model in server.models {
            cx.out.line(format!("  {}", line(&served("", model))))?;
        }
    }
    Ok(())
}

fn server_json(found: &LocalServerInfo) -> Value {
    let models: Vec<Value> = found
        .models
        .iter()
        .map(|row| row_json(&served("", row.clone())))
        .collect();
    json!({"server": format!("{:?}", found.server).to_lowercase(), "base_url": redact::url(&found.base_url), "models": models})
}

fn bundled(router: &Router, name: &str) -> Result<Vec<ModelRow>, Failure> {
    // Unknown names fail with the same words as everywhere else.
    let route = router
        .resolve(Some("-"), Some(name), None)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let rows: Vec<ModelRow> = catalogue::models_by_provider(&route.provider)
        .into_iter()
        .map(|entry| ModelRow {
            id: entry.id.to_owned(),
            context_length: Some(entry.context_length),
            images: Some(entry.images),
            tools: Some(entry.tools),
            prices: entry.prices.map(|price| price.prices),
            as_of: entry.prices.map(|price| price.as_of),
            size_bytes: None,
        })
        .collect();
    if route.provider == hermes_models::local::PROVIDER {
        return Err(Failure::usage(
            "these are listed by: hermes model local list",
        ));
    }
    if rows.is_empty() {
        return Err(Failure::not_found(format!(
            "no models of {name} are known offline; use --live"
        )));
    }
    Ok(rows)
}

/// What the server says, completed from the catalogue.
fn served(provider: &str, row: ListedModel) -> ModelRow {
    let known = catalogue::lookup(&row.id);
    let price = catalogue::price(provider, &row.id);
    ModelRow {
        context_length: row
            .context_length
            .or_else(|| known.as_ref().map(|entry| entry.context_length)),
        images: row
            .images
            .or_else(|| known.as_ref().map(|entry| entry.images)),
        tools: row
            .tools
            .or_else(|| known.as_ref().map(|entry| entry.tools)),
        prices: row.prices.or_else(|| price.map(|price| price.prices)),
        as_of: if row.prices.is_none() {
            price.map(|price| price.as_of)
        } else {
            None
        },
        size_bytes: row.size_bytes,
        id: row.id,
    }
}

fn models(args: &ModelListArgs, cx: &Context, rows: &[ModelRow]) -> Outcome {
    if args.json {
        cx.out
            .json(&rows.iter().map(row_json).collect::<Vec<_>>())?;
        return Ok(());
    }
    for row in rows {
        cx.out.line(line(row))?;
    }
    Ok(())
}

fn line(row: &ModelRow) -> String {
    let mut parts = vec![format!("{:<40}", row.id)];
    if let Some(count) = row.context_length {
        parts.push(format!("{:>6} ctx", tokens(count)));
    }
    if let Some(bytes) = row.size_bytes {
        parts.push(size(bytes));
    }
    if row.images == Some(true) {
        parts.push("images".to_owned());
    }
    if row.tools == Some(false) {
        parts.push("no tools".to_owned());
    }
    if let Some(prices) = row.prices {
        let month = row.as_of.map(|month| format!(" ({month})"));
        parts.push(format!(
            "${}/${} per M{}",
            prices.input,
            prices.output,
            month.unwrap_or_default()
        ));
    }
    parts.join("  ").trim_end().to_owned()
}

fn row_json(row: &ModelRow) -> Value {
    json!({
        "id": row.id,
        "context_length": row.context_length,
        "images": row.images,
        "tools": row.tools,
        "prices": row.prices,
        "prices_as_of": row.as_of,
        "size_bytes": row.size_bytes,
    })
}
