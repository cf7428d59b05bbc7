//! `hermes mcp`: which servers there are, whether they work, and how they are set up.

mod add;
mod configure;
mod edit;
mod login;
mod probe;
mod remove;
mod serve;
mod show;

use hermes_app::AppContext;
use hermes_mcp::config::ServerEntry;
use serde_json::{Map, Value};

use crate::commands::Context;
use crate::exit::{Failure, Outcome};
use crate::wiring::mcp as servers;

pub(crate) use edit::apply as change;
pub(crate) use login::{client as login_client, open as open_browser};
pub(crate) use probe::why;
pub(crate) use show::{StatusWait, reports};

#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    command: McpCommand,
}

#[derive(Debug, clap::Subcommand)]
enum McpCommand {
    /// Connect to all servers and list them
    #[command(visible_alias = "ls")]
    List(show::McpListArgs),
    /// Connect and show details of one server, or all
    Status(show::McpStatusArgs),
    /// Test a server and add it
    Add(add::AddArgs),
    /// Remove a server, its key and its login
    #[command(visible_alias = "rm")]
    Remove(remove::RemoveArgs),
    /// Connect to a server and list its tools; exits 1 if that fails
    Test(probe::McpTestArgs),
    /// Enable or disable a server, or choose its tools
    #[command(visible_alias = "config")]
    Configure(configure::ConfigureArgs),
    /// Log in to a server that uses OAuth
    Login(login::LoginArgs),
    /// Delete the login of a server and log in again
    Reauth(login::ReauthArgs),
    /// Serve your conversations to other programs over stdio
    Serve(serve::ServeArgs),
}

pub(crate) fn run(args: McpArgs, cx: &Context) -> Outcome {
    match args.command {
        McpCommand::List(args) => show::list(&args, cx),
        McpCommand::Status(args) => show::status(&args, cx),
        McpCommand::Add(args) => add::run(&args, cx),
        McpCommand::Remove(args) => remove::run(&args, cx),
        McpCommand::Test(args) => probe::run(&args, cx),
        McpCommand::Configure(args) => configure::run(&args, cx),
        McpCommand::Login(args) => login::login(&args, cx),
        McpCommand::Reauth(args) => login::reauth(&args, cx),
        McpCommand::Serve(args) => serve::run(&args, cx),
    }
}

/// All servers of the config.
fn entries(cx: &AppContext) -> Result<Vec<ServerEntry>, Failure> {
    let config = cx.load_config()?.config;
    Ok(servers::entries(&config, &cx.env, &cx.home))
}

/// One server of the config; 4 when there is none of this name.
pub(crate) fn entry(cx: &AppContext, name: &str) -> Result<ServerEntry, Failure> {
    let entries = entries(cx)?;
    let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    let found = entries.into_iter().find(|entry| entry.name == name);
    found.ok_or_else(|| unknown(name, &names))
}

fn unknown(name: &str, names: &[String]) -> Failure {
    let hint = if names.is_empty() {
        "none is configured; hermes mcp add adds one".to_owned()
    } else {
        format!("there are: {}", names.join(", "))
    };
    Failure::not_found(format!("no MCP server {name:?}; {hint}"))
}

/// What the file itself says about a server, `${VAR}` and all.
fn raw_entry(cx: &Context, name: &str) -> Result<Option<Map<String, Value>>, Failure> {
    let tree = cx.load_config()?.file_tree;
    let raw = tree
        .get("mcp_servers")
        .and_then(|section| section.get(name));
    Ok(raw.and_then(Value::as_object).cloned())
}
