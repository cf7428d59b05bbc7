//! `hermes model`.

use crate::commands::Context;
use crate::exit::{Failure, Outcome};

#[derive(Debug, clap::Args)]
pub(crate) struct ModelArgs {}

pub(crate) fn run(_args: ModelArgs, _cx: &Context) -> Outcome {
    Err(Failure::failed("being built"))
}
