//! `hermes model local list`.

use hermes_core::figures::size;
use hermes_models::local::machine;
use hermes_models::local::table::{self, MODELS};
use hermes_models::local::weights::NamedWeights;
use hermes_models::local::{LocalModelSettings, PROVIDER};
use serde_json::json;

use super::LocalModelContext;
use crate::commands::Context;
use crate::commands::model::tokens;
use crate::exit::Outcome;

#[derive(Debug, clap::Args)]
pub(super) struct LocalModelListArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A model and how it stands on this machine.
pub(crate) struct LocalModelRow {
    pub(crate) weights: NamedWeights,
    pub(crate) bytes: u64,
    pub(crate) memory: u64,
    pub(crate) parameters: u64,
    pub(crate) context: u32,
    pub(crate) licence: &'static str,
    pub(crate) is_downloaded: bool,
    pub(crate) fits: bool,
    /// `None`: nobody has tried.
    pub(crate) tools: Option<bool>,
}

/// The models of the table, and the own file if the config names one.
pub(crate) fn rows(settings: &LocalModelSettings) -> Vec<LocalModelRow> {
    let free = machine::free_memory();
    let own = settings
        .model
        .iter()
        .filter(|name| table::find(name).is_none());
    MODELS
        .iter()
        .map(|model| model.id.to_owned())
        .chain(own.cloned())
        .filter_map(|name| settings.weights(&name).ok())
        .map(|weights| {
            let is_downloaded = weights.is_there();
            let facts = is_downloaded.then(|| weights.facts().ok()).flatten();
            let model = weights.model;
            let parameters = model.map_or_else(
                || facts.as_ref().map_or(0, |facts| facts.parameters),
                |model| model.parameters,
            );
            let context = model.map_or_else(
                || facts.as_ref().map_or(0, |facts| facts.context),
                |model| model.context,
            );
            let memory = table::memory(parameters, context.min(settings.context));
            let on_disk = std::fs::metadata(&weights.path).map(|found| found.len());
            LocalModelRow {
                bytes: on_disk.unwrap_or_else(|_| model.map_or(0, |model| model.bytes)),
                memory,
                parameters,
                context,
                licence: model.map_or("own file", |model| model.licence),
                is_downloaded,
                fits: free.is_none_or(|free| is_downloaded || free >= memory),
                tools: settings.offers_tools(&weights),
                weights,
            }
        })
        .collect()
}

pub(super) fn run(args: &LocalModelListArgs, cx: &Context) -> Outcome {
    let context = LocalModelContext::load(cx)?;
    let used = used(&context);
    let rows = rows(&context.settings);
    if args.json {
        let all: Vec<_> = rows
            .iter()
            .map(|row| as_json(row, used.as_deref()))
            .collect();
        return Ok(cx.out.json(&all)?);
    }
    for row in &rows {
        cx.out.foreign_line(&line(row, used.as_deref()))?;
    }
    cx.out.remark(format!(
        "kept in {}; use one: hermes model local use NAME (or the path of a GGUF file)",
        context.settings.cache.display()
    ));
    Ok(())
}

/// The name of the one that is used.
fn used(context: &LocalModelContext) -> Option<String> {
    let route = context.router.describe().ok()?;
    (route.provider == PROVIDER)
        .then(|| context.settings.weights(&route.model).ok())
        .flatten()
        .map(|weights| weights.name)
}

fn line(row: &LocalModelRow, used: Option<&str>) -> String {
    let mark = if used == Some(&row.weights.name) {
        "*"
    } else {
        " "
    };
    let state = match (row.is_downloaded, row.fits) {
        (true, _) => "here",
        (false, true) => "",
        (false, false) => "too large for the memory that is free",
    };
    let tools = match row.tools {
        Some(true) => "tools",
        Some(false) => "chat only",
        None => "tools not tried",
    };
    format!(
        "{mark} {:<14} {:>7} file  {:>7} memory  {:>5} ctx  {tools:<15} {:<27} {state}",
        row.weights.name,
        size(row.bytes),
        size(row.memory),
        tokens(row.context),
        row.licence,
    )
    .trim_end()
    .to_owned()
}

fn as_json(row: &LocalModelRow, used: Option<&str>) -> serde_json::Value {
    json!({
        "id": row.weights.name,
        "path": row.weights.path,
        "repository": row.weights.model.map(|model| model.repo),
        "file": row.weights.model.map(|model| model.file),
        "size_bytes": row.bytes,
        "memory_bytes": row.memory,
        "parameters": row.parameters,
        "context_length": row.context,
        "licence": row.licence,
        "present": row.is_downloaded,
        "fits": row.fits,
        "tools": row.tools,
        "in_use": used == Some(&row.weights.name),
    })
}
