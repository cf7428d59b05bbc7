//! `hermes config`.

use crate::commands::Context;
use crate::exit::{Failure, Outcome};

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {}

pub(crate) fn run(_args: ConfigArgs, _cx: &Context) -> Outcome {
    Err(Failure::failed("being built"))
}
