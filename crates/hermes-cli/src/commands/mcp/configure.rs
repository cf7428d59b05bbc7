//! `hermes mcp configure`: on or off, and which tools.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use serde_json::{Value, json};

use super::edit::{self, ServerEdit};
use super::probe;
use crate::commands::Context;
use crate::exit::{Failure, Outcome};

#[derive(Debug, clap::Args)]
pub(super) struct ConfigureArgs {
    name: String,
    /// Enable the server
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Disable the server, but keep its settings
    #[arg(long)]
    disable: bool,
    /// Offer only these tools; `*` matches any text (comma separated, repeatable)
    #[arg(
        long,
        value_name = "TOOL",
        value_delimiter = ',',
        value_parser = NonEmptyStringValueParser::new()
    )]
    include: Vec<String>,
    /// Offer all tools except these (comma separated, repeatable)
    #[arg(
        long,
        value_name = "TOOL",
        value_delimiter = ',',
        value_parser = NonEmptyStringValueParser::new(),
        conflicts_with = "include"
    )]
    exclude: Vec<String>,
    /// Offer all tools
    #[arg(long, conflicts_with_all = ["include", "exclude"])]
    all: bool,
    /// Offer resources as tools
    #[arg(long, value_name = "BOOL")]
    resources: Option<bool>,
    /// Offer prompts as tools
    #[arg(long, value_name = "BOOL")]
    prompts: Option<bool>,
    /// Seconds to wait for a call that reports no progress
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ConfigureArgs, cx: &Context) -> Outcome {
    let name = args.name.clone();
    super::entry(cx, &name)?;
    let changes = changes(args);
    if changes.is_empty() {
        return show(args, cx);
    }
    edit::apply(cx, &name, &changes)?;
    let entry = super::entry(cx, &name)?;
    for problem in &entry.problems {
        cx.out.remark(format!("config: {problem}"));
    }
    let raw = super::raw_entry(cx, &name)?.unwrap_or_default();
    let shown = hermes_config::redact::redact(&Value::Object(raw));
    if args.json {
        return Ok(cx.out.json(&json!({"name": name, "settings": shown}))?);
    }
    Ok(cx.out.line(format!("{name}: changed"))?)
}

fn changes(args: &ConfigureArgs) -> Vec<ServerEdit<'static>> {
    let mut changes: Vec<ServerEdit<'static>> = Vec::new();
    let mut set = |path: &'static [&'static str], value: Option<Value>| changes.push((path, value));
    if args.enable || args.disable {
        set(&["enabled"], Some(json!(args.enable)));
    }
    if !args.include.is_empty() {
        set(&["tools", "include"], Some(json!(args.include)));
        set(&["tools", "exclude"], None);
    }
    if !args.exclude.is_empty() {
        set(&["tools", "exclude"], Some(json!(args.exclude)));
        set(&["tools", "include"], None);
    }
    if args.all {
        set(&["tools", "include"], None);
        set(&["tools", "exclude"], None);
    }
    if let Some(on) = args.resources {
        set(&["tools", "resources"], Some(json!(on)));
    }
    if let Some(on) = args.prompts {
        set(&["tools", "prompts"], Some(json!(on)));
    }
    if let Some(seconds) = args.timeout {
        set(&["timeout"], Some(json!(seconds)));
    }
    changes
}

/// Without a wish: what can be chosen from.
fn show(args: &ConfigureArgs, cx: &Context) -> Outcome {
    let mut entry = super::entry(cx, &args.name)?;
    let Some(config) = &mut entry.config else {
        let problem = entry.problems.iter().find(|problem| problem.fatal);
        return Err(Failure::failed(problem.map_or_else(
            || format!("{} cannot be used", args.name),
            ToString::to_string,
        )));
    };
    let filter = config.tools.clone();
    let enabled = std::mem::replace(&mut config.enabled, true);
    let all = probe::connect(cx, entry, Duration::from_secs(30), None)?;
    if !all.ok {
        return Err(Failure::failed(probe::why(&all.report)));
    }
    let names = all.raw_names;
    if args.json {
        return Ok(cx.out.json(&json!({
            "name": args.name, "enabled": enabled, "tools": names,
            "include": filter.include, "exclude": filter.exclude,
            "resources": filter.resources, "prompts": filter.prompts,
        }))?);
    }
    cx.out.line(format!(
        "{}: {}",
        args.name,
        if enabled { "on" } else { "off" }
    ))?;
    if !filter.include.is_empty() {
        cx.out
            .line(format!("  only       {}", filter.include.join(", ")))?;
    } else if !filter.exclude.is_empty() {
        cx.out
            .line(format!("  all but    {}", filter.exclude.join(", ")))?;
    }
    for name in names {
        cx.out.line(format!("    {name}"))?;
    }
    cx.out.remark("change it with --include, --exclude, --all, --enable, --disable, --resources, --prompts, --timeout");
    Ok(())
}
