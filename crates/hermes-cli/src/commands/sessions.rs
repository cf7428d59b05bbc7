//! `hermes sessions`.

use crate::commands::Context;
use crate::exit::{Failure, Outcome};

#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArgs {}

pub(crate) fn run(_args: SessionsArgs, _cx: &Context) -> Outcome {
    Err(Failure::failed("being built"))
}
