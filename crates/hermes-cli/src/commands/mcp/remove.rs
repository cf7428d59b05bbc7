//! `hermes mcp remove`.

use hermes_config::env;
use hermes_mcp::naming;
use serde_json::json;

use super::edit;
use crate::commands::Context;
use crate::exit::{Failure, Outcome};
use crate::wiring;

#[derive(Debug, clap::Args)]
pub(super) struct RemoveArgs {
    name: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &RemoveArgs, cx: &Context) -> Outcome {
    let name = args.name.as_str();
    let entry = super::entry(cx, name)?;
    if super::raw_entry(cx, name)?.is_none() && entry.config.is_some() {
        return Err(Failure::failed(format!(
            "{name} is not in {}; the administrator's settings name it",
            cx.home.config_path().display()
        )));
    }
    edit::apply(cx, name, &[(&[], None)])?;
    let variable = naming::key_variable(name);
    let key = env::writer::unset(&cx.home.env_path(), &variable)
        .map_err(|error| Failure::failed(error.to_string()))?;
    let login = wiring::runtime()?.block_on(super::login::forget(cx, &entry))?;
    if args.json {
        return Ok(cx
            .out
            .json(&json!({"removed": name, "key_removed": key, "login_removed": login}))?);
    }
    let mut also = Vec::new();
    if key {
        also.push(format!("its key {variable}"));
    }
    if login {
        also.push("its login".to_owned());
    }
    let also = if also.is_empty() {
        String::new()
    } else {
        format!(" and {}", also.join(" and "))
    };
    Ok(cx.out.line(format!("removed {name}{also}"))?)
}
