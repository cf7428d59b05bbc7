//! `hermes memory`.

use crate::commands::Context;
use crate::exit::{Failure, Outcome};

#[derive(Debug, clap::Args)]
pub(crate) struct MemoryArgs {}

pub(crate) fn run(_args: MemoryArgs, _cx: &Context) -> Outcome {
    Err(Failure::failed("being built"))
}
