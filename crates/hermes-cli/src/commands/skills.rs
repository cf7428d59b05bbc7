//! `hermes skills`.

use crate::commands::Context;
use crate::exit::{Failure, Outcome};

#[derive(Debug, clap::Args)]
pub(crate) struct SkillsArgs {}

pub(crate) fn run(_args: SkillsArgs, _cx: &Context) -> Outcome {
    Err(Failure::failed("being built"))
}
