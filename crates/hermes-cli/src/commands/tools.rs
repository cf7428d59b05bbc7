//! `hermes tools`: which toolsets a platform has, and switching them.

use std::collections::BTreeSet;
use std::sync::Arc;

use clap::{Args, Subcommand};
use hermes_app::toolsets;
use hermes_app::toolsets::{PLATFORMS, Toolset};
use hermes_config::Config;
use hermes_config::edit::{ConfigDoc, EditError, KeyPath};
use hermes_tui::port::PanelRow;
use serde_json::json;

use crate::choose;
use crate::commands::Context;
use crate::exit::{Failure, Outcome};
use crate::wiring;

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List toolsets, their tools and whether they are enabled (the default)
    List {
        #[command(flatten)]
        on: PlatformArg,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Enable toolsets; SERVER:TOOL for a tool of an MCP server
    Enable(ToolsetArgs),
    /// Disable toolsets; SERVER:TOOL for a tool of an MCP server
    Disable(ToolsetArgs),
}

#[derive(Debug, Args)]
struct PlatformArg {
    /// Platform to list or change
    #[arg(long, default_value = "cli")]
    platform: String,
}

#[derive(Debug, Args)]
struct ToolsetArgs {
    #[arg(required = true, value_name = "TOOLSET")]
    names: Vec<String>,
    #[command(flatten)]
    on: PlatformArg,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: ToolsArgs, cx: &Context) -> Outcome {
    if args.action.is_none() && choose::can_show(cx) {
        return tick(cx, "cli");
    }
    let action = args.action.unwrap_or_else(|| Action::List {
        on: PlatformArg {
            platform: "cli".to_owned(),
        },
        json: false,
    });
    match action {
        Action::List { on, json } => list(cx, &on.platform, json),
        Action::Enable(change) => switch(cx, &change, true),
        Action::Disable(change) => switch(cx, &change, false),
    }
}

fn known_platform(platform: &str) -> Outcome {
    if PLATFORMS.contains(&platform) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "no platform {platform}; there are: {}",
        PLATFORMS.join(", ")
    )))
}

/// A checklist; each switch counts at once.
fn tick(cx: &Context, platform: &str) -> Outcome {
    let rows = || -> Result<Vec<PanelRow>, Failure> {
        let config = Arc::new(cx.config()?);
        let enabled = toolsets::enabled(&config, platform);
        let offer = wiring::action_tools::offer(cx, &config)?;
        let row = |set: &Toolset| {
            choose::switched(set.name, &labelled(set, &offer), enabled.contains(set.name))
        };
        Ok(toolsets::switchable(platform)
            .filter(|set| is_built(set, &offer))
            .map(row)
            .collect())
    };
    let mut changed = false;
    choose::checklist(cx, "Tools at a terminal", rows()?, |name| {
        let config = cx.config()?;
        let on = !toolsets::enabled(&config, platform).contains(name);
        switch_set(cx, &config, platform, name, on)?;
        changed = true;
        rows()
    })?;
    let word = if changed {
        "saved to config.yaml"
    } else {
        "nothing was changed"
    };
    Ok(cx.out.line(word)?)
}

/// A tool of a set, as it stands on this machine.
enum ToolAvailability {
    Here,
    /// It exists and cannot be offered, for this reason.
    Missing(String),
    /// Hermes has no such tool yet.
    NotBuilt,
}

fn list(cx: &Context, platform: &str, as_json: bool) -> Outcome {
    known_platform(platform)?;
    let config = Arc::new(cx.config()?);
    let enabled = toolsets::enabled(&config, platform);
    let offer = wiring::action_tools::offer(cx, &config)?;
    let standing = |tool: &str| {
        if offer.names.contains(tool) {
            return ToolAvailability::Here;
        }
        let missing = offer.missing.iter().find(|(name, _)| *name == tool);
        missing.map_or(ToolAvailability::NotBuilt, |(_, why)| {
            ToolAvailability::Missing(why.clone())
        })
    };
    let mut rows = Vec::new();
    for set in toolsets::switchable(platform) {
        let on = enabled.contains(set.name);
        let tools: Vec<(&str, ToolAvailability)> = set
            .tools
            .iter()
            .map(|tool| (*tool, standing(tool)))
            .collect();
        if as_json {
            rows.push(row(set, on, &tools));
        } else {
            cx.out.line(line(set, on, &tools))?;
        }
    }
    let servers = config.mcp_servers.clone().unwrap_or_default();
    if as_json {
        let value = json!({
            "platform": platform,
            "toolsets": rows,
            "offered": offered(&config, platform, &offer),
            "mcp_servers": servers.keys().collect::<Vec<_>>(),
        });
        return Ok(cx.out.json(&value)?);
    }
    let count = offered(&config, platform, &offer).len();
    cx.out.remark(format!(
        "{} offered on {platform}; `none`: enabled, but not available here",
        crate::commands::counted(count, "tool")
    ));
    if !servers.is_empty() {
        let names: Vec<&str> = servers.keys().map(String::as_str).collect();
        cx.out.line(format!(
            "MCP servers: {} (see: hermes mcp list)",
            names.join(", ")
        ))?;
    }
    Ok(())
}

fn row(set: &Toolset, on: bool, tools: &[(&str, ToolAvailability)]) -> serde_json::Value {
    let tools: Vec<_> = tools
        .iter()
        .map(|(name, standing)| match standing {
            ToolAvailability::Here => json!({"name": name, "available": true}),
            ToolAvailability::Missing(why) => json!({"name": name, "available": false, "why": why}),
            ToolAvailability::NotBuilt => {
                json!({"name": name, "available": false, "why": "not built yet"})
            }
        })
        .collect();
    let available = tools
        .iter()
        .filter(|tool| tool["available"] == true)
        .count();
    let usable = available > 0 && available * 2 >= tools.len();
    json!({"name": set.name, "about": set.label, "enabled": on, "usable": usable, "tools": tools})
}

fn line(set: &Toolset, on: bool, tools: &[(&str, ToolAvailability)]) -> String {
    let available: Vec<&str> = tools
        .iter()
        .filter(|(_, standing)| matches!(standing, ToolAvailability::Here))
        .map(|(name, _)| *name)
        .collect();
    let missing: Vec<String> = tools
        .iter()
        .filter_map(|(name, standing)| match standing {
            ToolAvailability::Missing(why) => Some(format!("{name}: {why}")),
            _ => None,
        })
        .collect();
    let usable = !available.is_empty() && available.len() * 2 >= tools.len();
    let mut what = if !usable && missing.is_empty() {
        format!("({}; not built yet)", set.label)
    } else {
        available.join(", ")
    };
    for why in missing {
        if !what.is_empty() {
            what.push_str("; ");
        }
        what.push_str(&why);
    }
    let state = match (on, usable) {
        (true, true) => "on",
        // Switched on, and nothing of its own can be offered here.
        (true, false) => "none",
        (false, _) => "off",
    };
    format!("{state:<4} {:<16} {what}", set.name)
}

/// Whether a set has something to offer here. Sets share tools: one that has only a tool of another
/// has nothing of its own.
pub(crate) fn is_usable(set: &Toolset, offer: &wiring::action_tools::AvailableTools) -> bool {
    let available = set.tools.iter().filter(|tool| offer.names.contains(**tool));
    let available = available.count();
    available > 0 && available * 2 >= set.tools.len()
}

/// Whether there is something to switch: tools of its own, or some that only lack something.
pub(crate) fn is_built(set: &Toolset, offer: &wiring::action_tools::AvailableTools) -> bool {
    is_usable(set, offer) || lacks(set, offer).next().is_some()
}

/// Why tools of a set cannot be offered here.
fn lacks<'a>(
    set: &'a Toolset,
    offer: &'a wiring::action_tools::AvailableTools,
) -> impl Iterator<Item = &'a str> + 'a {
    let missing = offer.missing.iter();
    missing
        .filter(|(name, _)| set.tools.contains(name))
        .map(|(_, why)| why.as_str())
}

/// What a set is, and why nothing of it can be offered where that is so.
pub(crate) fn labelled(set: &Toolset, offer: &wiring::action_tools::AvailableTools) -> String {
    match lacks(set, offer).next() {
        Some(why) if !is_usable(set, offer) => {
            format!("{} (not available: {why})", set.label)
        }
        _ => set.label.to_owned(),
    }
}

/// Whether the set that a tool is in is switched on for a platform.
pub(crate) fn is_on(config: &Config, platform: &str, tool: &str) -> bool {
    let enabled = toolsets::enabled(config, platform);
    toolsets::switchable(platform)
        .any(|set| enabled.contains(set.name) && set.tools.contains(&tool))
}

/// How many tools a platform gets here: switched on, built and with everything they need. The one
/// count that `status`, `tools` and `doctor` show.
pub(crate) fn offered(
    config: &Config,
    platform: &str,
    offer: &wiring::action_tools::AvailableTools,
) -> BTreeSet<String> {
    let enabled = toolsets::enabled(config, platform);
    toolsets::switchable(platform)
        .filter(|set| enabled.contains(set.name))
        .flat_map(|set| set.tools.iter())
        .filter(|tool| offer.names.contains(**tool))
        .map(|tool| (*tool).to_owned())
        .collect()
}

fn switch(cx: &Context, change: &ToolsetArgs, on: bool) -> Outcome {
    let platform = change.on.platform.as_str();
    known_platform(platform)?;
    let config = cx.config()?;
    let (of_servers, sets): (Vec<&String>, Vec<&String>) =
        change.names.iter().partition(|name| name.contains(':'));
    let known: Vec<&str> = toolsets::switchable(platform).map(|set| set.name).collect();
    if let Some(unknown) = sets.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::usage(format!(
            "no toolset {unknown} on {platform}; there are: {}",
            known.join(", ")
        )));
    }
    let failed = |error: EditError| Failure::failed(error.to_string());
    let mut doc = ConfigDoc::open(&cx.home.config_path()).map_err(failed)?;
    if !sets.is_empty() {
        switch_sets(&mut doc, &config, platform, &sets, on).map_err(failed)?;
    }
    for target in of_servers {
        switch_server_tool(&mut doc, &config, target, on)?;
    }
    doc.save().map_err(failed)?;
    let word = if on { "on" } else { "off" };
    if change.json {
        return Ok(cx
            .out
            .json(&json!({"platform": platform, word: change.names}))?);
    }
    Ok(cx.out.line(format!(
        "{} {}d for {platform}; takes effect in the next conversation",
        change.names.join(", "),
        if on { "enable" } else { "disable" },
    ))?)
}

/// Switches one set for a platform; it takes effect in the next conversation.
pub(crate) fn switch_set(
    cx: &hermes_app::AppContext,
    config: &Config,
    platform: &str,
    name: &str,
    on: bool,
) -> Outcome {
    let failed = |error: EditError| Failure::failed(error.to_string());
    cx.home
        .ensure()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let mut doc = ConfigDoc::open(&cx.home.config_path()).map_err(failed)?;
    switch_sets(&mut doc, config, platform, &[&name.to_owned()], on).map_err(failed)?;
    doc.save().map_err(failed)?;
    Ok(())
}

fn switch_sets(
    doc: &mut ConfigDoc,
    config: &Config,
    platform: &str,
    sets: &[&String],
    on: bool,
) -> Result<(), EditError> {
    let mut enabled: BTreeSet<String> = toolsets::enabled(config, platform);
    for name in sets {
        if on {
            enabled.insert((*name).clone());
        } else {
            enabled.remove(*name);
        }
    }
    let path = KeyPath::new(["platform_toolsets", platform]);
    if enabled == without_list(config, platform) {
        // As it is without a list: none is needed.
        doc.unset(&path)?;
        let all = KeyPath::new(["platform_toolsets"]);
        let empty =
            |value: &serde_json::Value| value.as_object().is_some_and(serde_json::Map::is_empty);
        if all
            .get(doc.tree())
            .is_some_and(|it| empty(it) || it.is_null())
        {
            doc.unset(&all)?;
        }
    } else {
        doc.set(&path, &json!(enabled))?;
    }
    // A set that is off everywhere would stay off: switching it on here must count.
    let off = &config.agent.disabled_toolsets;
    if on && off.iter().any(|name| sets.contains(&name)) {
        let left: Vec<&String> = off.iter().filter(|name| !sets.contains(name)).collect();
        doc.set(&KeyPath::new(["agent", "disabled_toolsets"]), &json!(left))?;
    }
    Ok(())
}

/// What a platform has when nothing is listed for it.
fn without_list(config: &Config, platform: &str) -> BTreeSet<String> {
    let mut bare = config.clone();
    if let Some(lists) = bare.platform_toolsets.take() {
        bare.platform_toolsets = Some(
            lists
                .iter()
                .filter(|(name, _)| *name != platform)
                .map(|(name, list)| (name.to_owned(), list.clone()))
                .collect(),
        );
    }
    toolsets::enabled(&bare, platform)
}

/// Tools of a server are on unless its list of exclusions names them.
fn switch_server_tool(doc: &mut ConfigDoc, config: &Config, target: &str, on: bool) -> Outcome {
    let (server, tool) = target.split_once(':').unwrap_or((target, ""));
    let Some(entry) = config.mcp_servers.as_ref().and_then(|all| all.get(server)) else {
        return Err(Failure::not_found(format!(
            "no MCP server {server}; see: hermes mcp list"
        )));
    };
    let mut excluded: Vec<String> = entry
        .pointer("/tools/exclude")
        .and_then(|list| list.as_array())
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .filter(|name| name != tool)
        .collect();
    if !on {
        excluded.push(tool.to_owned());
    }
    doc.set(
        &KeyPath::new(["mcp_servers", server, "tools", "exclude"]),
        &json!(excluded),
    )
    .map_err(|error| Failure::failed(error.to_string()))?;
    Ok(())
}
