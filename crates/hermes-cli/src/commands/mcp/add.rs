//! `hermes mcp add`.

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use hermes_config::env;
use hermes_mcp::{config as settings, naming};
use serde_json::{Map, Value, json};

use super::{edit, probe};
use crate::commands::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("server").args(["url", "command"]).required(true))]
pub(super) struct AddArgs {
    name: String,
    /// URL of a remote server
    #[arg(long)]
    url: Option<String>,
    /// Command of a local server
    #[arg(long)]
    command: Option<String>,
    /// Arguments of the command (takes everything that follows)
    #[arg(long, num_args = 0.., allow_hyphen_values = true, conflicts_with = "url")]
    args: Vec<String>,
    /// Environment variables of a local server
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "url", value_parser = pair)]
    env: Vec<(String, String)>,
    /// Header to send with every request to a remote server
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "command", value_parser = pair)]
    header: Vec<(String, String)>,
    /// `oauth` logs in with a browser; `header` sends a key
    #[arg(long, value_enum, conflicts_with = "command")]
    auth: Option<AuthKind>,
    /// Key for `--auth header`, or `-` to read it from stdin; stored in .env
    #[arg(long, allow_hyphen_values = true)]
    key: Option<String>,
    /// Transport; older servers use `sse`
    #[arg(long, value_enum, conflicts_with = "command")]
    transport: Option<TransportArg>,
    /// Connection timeout in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    connect_timeout: Option<u64>,
    /// Save it without testing it
    #[arg(long)]
    no_test: bool,
    /// Replace an existing server
    #[arg(long)]
    force: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AuthKind {
    Oauth,
    Header,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TransportArg {
    Http,
    Sse,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.to_owned()))
        }
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

pub(super) fn run(args: &AddArgs, cx: &Context) -> Outcome {
    check_name(&args.name)?;
    if super::raw_entry(cx, &args.name)?.is_some() && !args.force {
        return Err(Failure::usage(format!(
            "there is an MCP server {:?} already; --force replaces it, hermes mcp configure changes it",
            args.name
        )));
    }
    let key = key(args, cx)?;
    let entry = entry(args);
    let read = read(args, cx, &entry, key.as_deref())?;
    let probe = if args.no_test {
        None
    } else {
        let longest = Duration::from_secs(args.connect_timeout.unwrap_or(30));
        Some(probe::connect(cx, read, longest, None)?)
    };
    let needs_login = probe.as_ref().is_some_and(|probe| {
        let link = probe.report.link.as_ref();
        link.is_some_and(|link| link.needs_auth)
    });
    if let Some(probe) = &probe
        && !probe.ok
        && !needs_login
    {
        return Err(Failure::failed(format!(
            "{}\nnothing was saved; --no-test saves it anyway",
            probe::why(&probe.report)
        )));
    }
    if let Some(key) = &key {
        let variable = naming::key_variable(&args.name);
        env::writer::set(&cx.home.env_path(), &variable, key)
            .map_err(|error| Failure::failed(error.to_string()))?;
    }
    edit::apply(cx, &args.name, &[(&[], Some(Value::Object(entry)))])?;
    let tools = probe.as_ref().map(|probe| probe.tools.len());
    if args.json {
        return Ok(cx.out.json(&json!({
            "added": args.name, "tested": probe.is_some(), "tools": tools, "needs_login": needs_login,
        }))?);
    }
    let tested = match (tools, needs_login) {
        (_, true) => format!("; log in with: hermes mcp login {}", args.name),
        (Some(tools), false) => format!("; it works and offers {}", counted(tools, "tool")),
        (None, false) => String::new(),
    };
    Ok(cx.out.line(format!("added {}{tested}", args.name))?)
}

fn check_name(name: &str) -> Outcome {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(Failure::usage(format!(
            "{name:?} cannot be the name of a server: letters, digits, _ - and . only"
        )));
    }
    Ok(())
}

/// The key to be kept in .env.
fn key(args: &AddArgs, cx: &Context) -> Result<Option<String>, Failure> {
    if args.auth != Some(AuthKind::Header) {
        return match args.key {
            Some(_) => Err(Failure::usage("--key goes with --auth header")),
            None => Ok(None),
        };
    }
    let key = match args.key.as_deref() {
        Some("-") => read_line()?,
        Some(key) => key.to_owned(),
        None if cx.out.stdin_tty && !cx.no_input => {
            cx.out.error(format!("key for {}:", args.name));
            read_line()?
        }
        None if !std::io::stdin().is_terminal() && !cx.no_input => read_line()?,
        None => String::new(),
    };
    let key = key.trim().to_owned();
    if key.is_empty() {
        return Err(Failure::usage(
            "--auth header needs a key: --key KEY, or --key - to read it from stdin",
        ));
    }
    Ok(Some(key))
}

fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line)
}

/// What goes to config.yaml.
fn entry(args: &AddArgs) -> Map<String, Value> {
    let mut entry = Map::new();
    let mut set = |key: &str, value: Value| entry.insert(key.to_owned(), value);
    if let Some(url) = &args.url {
        set("url", json!(url));
    }
    if let Some(command) = &args.command {
        set("command", json!(command));
        if !args.args.is_empty() {
            set("args", json!(args.args));
        }
    }
    if !args.env.is_empty() {
        set("env", table(&args.env));
    }
    let mut headers = args.header.clone();
    if args.auth == Some(AuthKind::Header) {
        let variable = naming::key_variable(&args.name);
        headers.push((
            "Authorization".to_owned(),
            format!("Bearer ${{{variable}}}"),
        ));
    }
    if !headers.is_empty() {
        set("headers", table(&headers));
    }
    if args.auth == Some(AuthKind::Oauth) {
        set("auth", json!("oauth"));
    }
    if args.transport == Some(TransportArg::Sse) {
        set("transport", json!("sse"));
    }
    if let Some(seconds) = args.connect_timeout {
        set("connect_timeout", json!(seconds));
    }
    set("enabled", json!(true));
    entry
}

fn table(pairs: &[(String, String)]) -> Value {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)));
    Value::Object(pairs.collect())
}

/// As it will be read, with the key that is not in .env yet.
fn read(
    args: &AddArgs,
    cx: &Context,
    entry: &Map<String, Value>,
    key: Option<&str>,
) -> Result<settings::ServerEntry, Failure> {
    let mut value = Value::Object(entry.clone());
    if let Some(key) = key {
        value["headers"]["Authorization"] = json!(format!("Bearer {key}"));
    }
    let read = settings::server(&args.name, &value, &cx.env, &cx.home);
    for problem in &read.problems {
        if problem.fatal {
            let refused = problem.text.starts_with("not started");
            let exit = if refused { Exit::Refused } else { Exit::Usage };
            return Err(Failure::new(exit, problem.to_string()));
        }
        cx.out.remark(format!("config: {problem}"));
    }
    Ok(read)
}
