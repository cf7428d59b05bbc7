//! `hermes model local`: the small model that comes with this program.

mod choose;
mod fetch;
mod list;

use hermes_models::local::weights::NamedWeights;

use crate::commands::Context;
use crate::exit::{Failure, Outcome};

pub(crate) use choose::select;
pub(crate) use fetch::{is_installed, ready};
pub(crate) use list::{LocalModelRow, rows};

#[derive(Debug, clap::Args)]
pub(super) struct LocalArgs {
    #[command(subcommand)]
    command: LocalCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LocalCommand {
    /// List available models with their size and memory use
    List(list::LocalModelListArgs),
    /// Download a model
    Pull(PullArgs),
    /// Make a model the default, downloading it if needed
    Use(UseArgs),
    /// Delete a downloaded model
    Remove(RemoveArgs),
}

#[derive(Debug, clap::Args)]
struct PullArgs {
    /// Model (default: the smallest)
    model: Option<String>,
    /// Continue even if memory is low
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct UseArgs {
    /// A model from `list`, or a path to a GGUF file
    model: String,
    /// Continue even if memory is low
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// A model from `list`
    model: String,
}

pub(super) fn run(args: LocalArgs, cx: &Context) -> Outcome {
    match args.command {
        LocalCommand::List(args) => list::run(&args, cx),
        LocalCommand::Pull(args) => pull(&args, cx),
        LocalCommand::Use(args) => choose::run(&args.model, args.force, cx),
        LocalCommand::Remove(args) => choose::remove(&args.model, cx),
    }
}

fn pull(args: &PullArgs, cx: &Context) -> Outcome {
    let context = LocalModelContext::load(cx)?;
    let name = args.model.clone();
    let weights = context.weights(&name.unwrap_or_else(|| context.settings.default_name()))?;
    if weights.is_there() {
        return Ok(cx.out.line(format!(
            "{} is downloaded: {}",
            weights.name,
            weights.path.display()
        ))?);
    }
    fetch::pull(&context, &weights, args.force, cx)?;
    cx.out.line(format!(
        "{} is now at {}",
        weights.name,
        weights.path.display()
    ))?;
    cx.out
        .remark(format!("use it: hermes model local use {}", weights.name));
    Ok(())
}

/// What the home says of the built-in model.
pub(crate) struct LocalModelContext {
    pub(crate) settings: hermes_models::local::LocalModelSettings,
    pub(crate) router: std::sync::Arc<hermes_models::Router>,
}

impl LocalModelContext {
    pub(crate) fn load(cx: &Context) -> Result<Self, Failure> {
        let (_, router) = super::router(cx, hermes_models::Overrides::default())?;
        Ok(Self {
            settings: router.local_settings(),
            router,
        })
    }

    pub(crate) fn weights(&self, name: &str) -> Result<NamedWeights, Failure> {
        self.settings
            .weights(name)
            .map_err(|error| Failure::usage(error.to_string()))
    }
}
