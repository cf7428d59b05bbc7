//! `hermes version`.

use hermes_app::text::version_line;
use serde_json::json;

use crate::exit::Outcome;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct VersionArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &VersionArgs, out: Output) -> Outcome {
    if args.json {
        out.json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "state_schema": hermes_store::SCHEMA_VERSION,
        }))?;
    } else {
        out.line(version_line())?;
        out.line(format!(
            "{}-{}, state.db schema {}",
            std::env::consts::OS,
            std::env::consts::ARCH,
            hermes_store::SCHEMA_VERSION
        ))?;
    }
    Ok(())
}
