//! `hermes model`: which model is used, which could be, and whether it works.

pub(crate) mod endpoint;
mod list;
pub(crate) mod local;
mod pick;
mod set;
mod show;
mod test;

use std::sync::Arc;

use hermes_config::Config;
use hermes_models::{Overrides, Router};

use crate::commands::Context;
use crate::commands::setup::keys;
use crate::exit::{Failure, Outcome};
use crate::wiring;

pub(crate) use pick::{PickedModel, pick, provider_of};
pub(crate) use set::{SetArgs, enter, resolve, run as set, stamp_new};
pub(crate) use test::{attempt, probe, probe_with_tools};

#[derive(Debug, clap::Args)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    command: Option<ModelCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum ModelCommand {
    /// List providers, or the models of one
    List(list::ModelListArgs),
    /// Set the default model
    Set(set::SetArgs),
    /// Test a model with one call and one tool call
    Test(test::ModelTestArgs),
    /// Show the model in use
    Show(show::ModelShowArgs),
    /// Manage the small local model that needs no key
    Local(local::LocalArgs),
}

/// What to type where nobody can be asked.
const WITHOUT_TERMINAL: &str = "\
choosing a model needs a terminal. Without one, use
  hermes model list [--provider P] [--live] [--json]
  hermes model set MODEL [--provider P] [--base-url URL] [--key-env VAR]
  hermes model test [MODEL]
  hermes model show [--json]
  hermes model local list|pull|use|remove";

pub(crate) fn run(args: ModelArgs, cx: &Context) -> Outcome {
    match args.command {
        Some(ModelCommand::List(args)) => list::run(&args, cx),
        Some(ModelCommand::Set(args)) => set::run(&args, cx),
        Some(ModelCommand::Test(args)) => test::run(args, cx),
        Some(ModelCommand::Show(args)) => show::run(&args, cx),
        Some(ModelCommand::Local(args)) => local::run(args, cx),
        None if cx.out.stdin_tty && cx.out.stdout_tty && !cx.no_input => choose(cx),
        None => Err(Failure::usage(WITHOUT_TERMINAL)),
    }
}

/// Lets the person at the terminal choose.
fn choose(cx: &Context) -> Outcome {
    let Some(PickedModel { choice, key }) = pick(cx)? else {
        return Ok(());
    };
    if let Some(key) = key {
        keys::store(cx, &key)?;
    }
    set::run(&choice, &cx.reread()?)?;
    cx.out.remark("try it: hermes model test");
    Ok(())
}

/// The router for these flags; remarks about the config go to stderr.
pub(crate) fn router(
    cx: &Context,
    overrides: Overrides,
) -> Result<(Arc<Config>, Arc<Router>), Failure> {
    let config = Arc::new(cx.config()?);
    let router = wiring::router(cx, &config, overrides);
    for problem in router.problems() {
        cx.out.remark(format!("config: {problem}"));
    }
    Ok((config, router))
}

/// `1000000` → `1M`, `131072` → `131k`: as everywhere.
pub(crate) fn tokens(count: u32) -> String {
    hermes_core::figures::window(count.into())
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn windows_are_short() {
        assert_eq!(tokens(512), "512");
        assert_eq!(tokens(131_072), "131k");
        assert_eq!(tokens(1_000_000), "1M");
        assert_eq!(tokens(1_050_000), "1M");
        assert_eq!(tokens(1_250_000), "1.2M");
    }
}
