//! What the slash commands do.

use hermes_agent::session::ToolSource;
use hermes_core::event::{AgentCommand, AgentEvent};
use hermes_core::store::SessionStore;
use hermes_store::db::{ListFilter, MessageRecord};
use hermes_store::memory::{MemoryFiles, Target};
use hermes_store::skills::Library;

use super::repl::{Next, Repl};
use super::rollback;
use super::shorten;
use super::slash::{self, Verb};
use crate::commands::{self, counted};
use crate::exit::{Failure, Outcome};
use crate::wiring::{Chat, Mode};

pub(super) async fn run(repl: &mut Repl<'_>, verb: Verb, rest: &str) -> Result<Next, Failure> {
    let outcome = match verb {
        Verb::Quit => return Ok(Next::Leave),
        Verb::Help => repl.cx.out.line(slash::help()).map_err(Failure::from),
        Verb::Version => repl
            .cx
            .out
            .line(commands::version::line())
            .map_err(Failure::from),
        Verb::New => new_session(repl, rest).await,
        Verb::Resume => resume(repl, rest).await,
        Verb::Retry => retry(repl).await,
        Verb::Undo => undo(repl, rest).await,
        Verb::Title => title(repl, rest).await,
        Verb::Compress => compress(repl, rest).await,
        Verb::Sessions => sessions(repl).await,
        Verb::History => history(repl).await,
        Verb::Export => export(repl, rest).await,
        Verb::Status => status(repl).await,
        Verb::Usage => usage(repl).await,
        Verb::Model => model(repl, rest).await,
        Verb::Verbose => verbose(repl),
        Verb::Tools => tools(repl),
        Verb::Mcp => mcp(repl, rest),
        Verb::Skills => skills(repl),
        Verb::Memory => memory(repl),
        Verb::Config => config(repl),
        Verb::Rollback => rollback::run(repl, rest).await,
    };
    // A command that failed is no reason to leave the chat.
    if let Err(failure) = outcome {
        repl.cx.out.error(failure.message);
    }
    Ok(Next::Prompt)
}

/// Runs a command of the session until it reports back.
async fn order(repl: &mut Repl<'_>, command: AgentCommand) -> Outcome {
    repl.chat.send(command).await?;
    repl.follow(|event| {
        matches!(
            event,
            AgentEvent::Compacted { .. }
                | AgentEvent::RouteChanged { .. }
                | AgentEvent::Notice { .. }
        )
    })
    .await
}

/// `reason`: why the session that was open ends, in the original's words.
async fn open_instead(repl: &mut Repl<'_>, args: &crate::args::TurnArgs, reason: &str) -> Outcome {
    // Opened first: if that fails, the old session is still there.
    let chat = Chat::open_after(args, repl.cx, Mode::Repl, Some(&repl.chat)).await?;
    let mut old = std::mem::replace(&mut repl.chat, chat);
    // The new chat uses the same servers.
    old.mcp = None;
    old.commands = None;
    if old.id != repl.chat.id {
        old.end(reason).await?;
    }
    old.close().await;
    repl.restart_renderer();
    repl.last_question = None;
    repl.cx.out.line(repl.chat.banner())?;
    Ok(())
}

async fn new_session(repl: &mut Repl<'_>, name: &str) -> Outcome {
    let old = repl.chat.used.then(|| repl.chat.id.clone());
    let args = repl.args.clone();
    open_instead(repl, &args, "new_session").await?;
    repl.title_to_set = (!name.is_empty()).then(|| name.to_owned());
    if let Some(old) = old {
        repl.cx
            .out
            .line(format!("new session; back to the old one: /resume {old}"))?;
    }
    Ok(())
}

async fn resume(repl: &mut Repl<'_>, reference: &str) -> Outcome {
    if reference.is_empty() {
        return Err(Failure::usage(
            "/resume <id or title>; /sessions lists them",
        ));
    }
    let args = crate::args::TurnArgs {
        resume: Some(reference.to_owned()),
        ..repl.args.clone()
    };
    open_instead(repl, &args, "resumed_other").await?;
    history(repl).await
}

async fn retry(repl: &mut Repl<'_>) -> Outcome {
    let question = match repl.last_question.clone() {
        Some(question) => question,
        None => last_question(repl).await?,
    };
    order(repl, AgentCommand::Rewind { turns: 1 }).await?;
    repl.ask(question).await
}

async fn last_question(repl: &Repl<'_>) -> Result<String, Failure> {
    let rows = shown_rows(repl).await?;
    let last = rows.iter().rev().find(|row| row.role() == "user");
    last.map(MessageRecord::plain_text)
        .ok_or_else(|| Failure::usage("nothing was asked yet"))
}

async fn shown_rows(repl: &Repl<'_>) -> Result<Vec<MessageRecord>, Failure> {
    if !repl.chat.used {
        return Ok(Vec::new());
    }
    let rows = repl.chat.store.messages(&repl.chat.id, false).await?;
    Ok(rows.into_iter().filter(MessageRecord::is_shown).collect())
}

/// Tells what is gone on with.
pub(super) async fn say_where_we_are(repl: &Repl<'_>) -> Outcome {
    let record = repl.chat.store.get(repl.chat.id.as_str()).await?;
    let name = match record.text("title") {
        Some(title) => format!("{title:?}"),
        None => repl.chat.id.to_string(),
    };
    let said = counted(shown_rows(repl).await?.len(), "message");
    let line = format!("going on with {name}: {said}, /history shows them");
    Ok(repl.cx.out.line(repl.cx.out.dim(&line))?)
}

async fn undo(repl: &mut Repl<'_>, count: &str) -> Outcome {
    let turns = if count.is_empty() {
        Ok(1)
    } else {
        count.parse()
    };
    match turns {
        Ok(turns) if turns >= 1 => {
            repl.last_question = None;
            order(repl, AgentCommand::Rewind { turns }).await
        }
        _ => Err(Failure::usage("/undo takes a number of questions: /undo 2")),
    }
}

async fn title(repl: &mut Repl<'_>, text: &str) -> Outcome {
    if text.is_empty() {
        let record = repl.chat.store.get(repl.chat.id.as_str()).await;
        let title = record
            .ok()
            .and_then(|record| record.text("title").map(str::to_owned));
        repl.cx
            .out
            .line(title.unwrap_or_else(|| "no title yet".to_owned()))?;
    } else if repl.chat.used {
        let title = repl
            .chat
            .store
            .set_title(&repl.chat.id, text, false)
            .await?;
        repl.cx.out.line(format!("title: {title}"))?;
    } else {
        // The session is stored with its first question; it gets the title then.
        repl.title_to_set = Some(text.to_owned());
        repl.cx.out.line(format!("title: {text}"))?;
    }
    Ok(())
}

async fn compress(repl: &mut Repl<'_>, focus: &str) -> Outcome {
    let focus = (!focus.is_empty()).then(|| focus.to_owned());
    order(repl, AgentCommand::Compact { focus }).await
}

async fn sessions(repl: &Repl<'_>) -> Outcome {
    let filter = ListFilter {
        limit: 10,
        ..ListFilter::default()
    };
    for row in repl.chat.store.list(filter).await? {
        let title = row
            .title
            .clone()
            .unwrap_or_else(|| shorten(&row.preview, 60));
        repl.cx.out.line(format!("  {}  {title}", row.id))?;
    }
    Ok(())
}

async fn history(repl: &Repl<'_>) -> Outcome {
    for row in shown_rows(repl).await? {
        let text = row.plain_text();
        let line = match row.role() {
            "user" => format!("> {text}"),
            "tool" => format!("  {}", shorten(&text, 100)),
            _ if text.is_empty() => continue,
            _ => text,
        };
        repl.cx.out.foreign_line(&line)?;
    }
    Ok(())
}

async fn export(repl: &Repl<'_>, path: &str) -> Outcome {
    if !repl.chat.used {
        return Err(Failure::usage("nothing was said yet"));
    }
    let session = repl.chat.store.export(&repl.chat.id).await?;
    let path = if path.is_empty() {
        format!("{}.jsonl", repl.chat.id)
    } else {
        path.to_owned()
    };
    std::fs::write(&path, format!("{session}\n"))
        .map_err(|error| Failure::failed(format!("{path}: {error}")))?;
    repl.cx.out.line(format!("written to {path}"))?;
    Ok(())
}

async fn status(repl: &Repl<'_>) -> Outcome {
    let route = repl.renderer.route().unwrap_or(&repl.chat.route);
    repl.cx.out.line(format!("session  {}", repl.chat.id))?;
    repl.cx.out.line(format!(
        "model    {} ({}) at {}",
        route.model,
        route.provider,
        hermes_config::redact::url(&route.base_url)
    ))?;
    if let Some((used, length)) = repl.renderer.context() {
        repl.cx
            .out
            .line(format!("context  {used} of {length} tokens"))?;
    }
    repl.cx
        .out
        .line(format!("home     {}", repl.cx.home.root().display()))?;
    usage(repl).await
}

async fn usage(repl: &Repl<'_>) -> Outcome {
    if !repl.chat.used {
        return Ok(repl.cx.out.line("nothing was used yet")?);
    }
    let record = repl.chat.store.get(repl.chat.id.as_str()).await?;
    let count = |column| record.number(column).unwrap_or(0.0);
    repl.cx.out.line(format!(
        "tokens   {} in · {} cached · {} out ({} reasoning)",
        count("input_tokens"),
        count("cache_read_tokens"),
        count("output_tokens"),
        count("reasoning_tokens")
    ))?;
    let cost = match record.text("cost_status") {
        Some("actual") => format!("${:.4}", count("actual_cost_usd")),
        Some("estimated") => format!("${:.4} (estimate)", count("estimated_cost_usd")),
        Some("included") => "nothing: it runs on this machine".to_owned(),
        _ => "unknown".to_owned(),
    };
    repl.cx.out.line(format!("cost     {cost}"))?;
    Ok(())
}

async fn model(repl: &mut Repl<'_>, rest: &str) -> Outcome {
    let mut words = rest.split_whitespace();
    let Some(model) = words.next() else {
        let route = repl.renderer.route().unwrap_or(&repl.chat.route);
        repl.cx
            .out
            .line(format!("{} ({})", route.model, route.provider))?;
        return Ok(());
    };
    let provider = match (words.next(), words.next()) {
        (None, _) => None,
        (Some("--provider"), Some(provider)) => Some(provider.to_owned()),
        _ => return Err(Failure::usage("/model <model> [--provider <provider>]")),
    };
    order(
        repl,
        AgentCommand::SwitchRoute {
            model: model.to_owned(),
            provider,
        },
    )
    .await
}

fn verbose(repl: &mut Repl<'_>) -> Outcome {
    repl.args.verbose = !repl.args.verbose;
    repl.restart_renderer();
    let state = if repl.args.verbose { "shown" } else { "hidden" };
    Ok(repl
        .cx
        .out
        .line(format!("reasoning and tool results are {state}"))?)
}

fn tools(repl: &Repl<'_>) -> Outcome {
    for tool in repl.chat.tools.registry().iter() {
        let spec = tool.spec();
        let first = shorten(&spec.description, 43);
        repl.cx
            .out
            .line(format!("  {:<16} {:<15} {first}", spec.name, spec.toolset))?;
    }
    Ok(())
}

fn config(repl: &Repl<'_>) -> Outcome {
    repl.cx
        .out
        .line(format!("config  {}", repl.cx.home.config_path().display()))?;
    repl.cx
        .out
        .line(format!("keys    {}", repl.cx.home.env_path().display()))?;
    Ok(())
}

/// The servers of this process; `reconnect` asks for new connections.
fn mcp(repl: &Repl<'_>, rest: &str) -> Outcome {
    let toolbox = repl.chat.mcp.as_ref().and_then(|mcp| mcp.toolbox());
    let Some(toolbox) = toolbox else {
        return Ok(repl
            .cx
            .out
            .line("no MCP servers are in use here; hermes mcp add adds one")?);
    };
    let mut words = rest.split_whitespace();
    match (words.next(), words.next()) {
        (None, _) => repl.cx.out.line(commands::mcp::table(&toolbox))?,
        (Some("reconnect"), None) => {
            for name in toolbox.names() {
                toolbox.reconnect(&name);
            }
            repl.cx
                .out
                .line("reconnecting all servers; /mcp shows how they fare")?;
        }
        (Some("reconnect"), Some(name)) if toolbox.reconnect(name) => {
            repl.cx
                .out
                .line(format!("reconnecting {name}; /mcp shows how it fares"))?;
        }
        (Some("reconnect"), Some(name)) => {
            return Err(Failure::not_found(format!(
                "no MCP server {name:?}; /mcp lists them"
            )));
        }
        (Some(name), _) => match commands::mcp::page(&toolbox, name) {
            Some(page) => repl.cx.out.line(page)?,
            None => {
                return Err(Failure::not_found(format!(
                    "no MCP server {name:?}; /mcp lists them"
                )));
            }
        },
    }
    Ok(())
}

fn skills(repl: &Repl<'_>) -> Outcome {
    let config = repl.cx.load_config()?.config;
    for skill in Library::of_home(&repl.cx.home, &config, Some("cli")).scan() {
        let off = if skill.enabled { "" } else { " (off)" };
        repl.cx.out.line(format!(
            "  {}{off}: {}",
            skill.name,
            shorten(&skill.description, 70)
        ))?;
    }
    Ok(())
}

fn memory(repl: &Repl<'_>) -> Outcome {
    let config = repl.cx.load_config()?.config;
    let files = MemoryFiles::of_home(&repl.cx.home, &config);
    for target in [Target::Memory, Target::User] {
        let entries = files
            .entries(target)
            .map_err(|error| Failure::failed(error.to_string()))?;
        repl.cx.out.line(format!(
            "{} ({} entries)",
            target.file_name(),
            entries.len()
        ))?;
        for entry in entries {
            repl.cx.out.foreign_line(&format!("  - {entry}"))?;
        }
    }
    Ok(())
}
