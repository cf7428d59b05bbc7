//! Capabilities of the agent: tools, servers, skills, memory, jobs.

use hermes_agent::ToolSource as _;
use hermes_config::Env;
use hermes_config::env::ProcessEnv;
use hermes_core::clock::{Clock as _, SystemClock};
use hermes_core::figures;
use hermes_core::front_end::TextKind;
use hermes_mcp::report;
use hermes_store::{MemoryFiles, MemoryTarget};

use crate::options::TurnOptions;

use super::subprocess;
use crate::conversation::{CommandResult, Conversation, show_text};
use crate::failure::Failure;
use crate::text::shorten;
use crate::wiring::mcp::server_details;

pub(super) async fn tools(
    conversation: &Conversation,
    rest: &str,
) -> Result<CommandResult, Failure> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    match words.as_slice() {
        [] => {}
        ["list"] => return subprocess::run(conversation, &["tools", "list"]).await,
        [action @ ("enable" | "disable"), names @ ..] if !names.is_empty() => {
            let mut args = vec!["tools", *action];
            args.extend(names);
            let result = subprocess::run(conversation, &args).await?;
            return Ok(result.and(show_text(TextKind::Info, "/reload applies it")));
        }
        _ => {
            return Err(Failure::usage(
                "/tools, /tools list, /tools enable|disable <toolset>",
            ));
        }
    }
    let registry = conversation.chat.tools.registry();
    let lines = registry.iter().map(|tool| {
        let spec = tool.spec();
        let first = shorten(&spec.description, 43);
        format!("  {:<16} {:<15} {first}", spec.name, spec.toolset)
    });
    Ok(CommandResult::plain(lines.collect::<Vec<_>>().join("\n")))
}

pub(super) async fn toolsets(conversation: &Conversation) -> Result<CommandResult, Failure> {
    subprocess::run(conversation, &["tools", "list"]).await
}

/// The servers of this process: all, one, `reconnect [name]`, `name reconnect|login|on|off`.
pub(super) fn mcp(conversation: &Conversation, rest: &str) -> Result<CommandResult, Failure> {
    let toolbox = conversation.chat.mcp.as_ref().and_then(|mcp| mcp.toolbox());
    let Some(toolbox) = toolbox else {
        return Ok(CommandResult::plain(
            "no MCP servers are configured; hermes mcp add adds one",
        ));
    };
    let unknown =
        |name: &str| Failure::not_found(format!("no MCP server {name:?}; /mcp lists them"));
    let words: Vec<&str> = rest.split_whitespace().collect();
    match words.as_slice() {
        [] => {
            let mut text = report::table(&toolbox.report(), chrono::Utc::now());
            let prompts = super::prompts::known(&toolbox);
            if !prompts.is_empty() {
                text = format!("{text}\n\nprompts:\n{}", prompts.join("\n"));
            }
            Ok(CommandResult::plain(text))
        }
        ["reconnect"] => {
            for name in toolbox.names() {
                toolbox.reconnect(&name);
            }
            Ok(CommandResult::plain(
                "reconnecting all servers; /mcp shows their status",
            ))
        }
        ["reconnect", name] | [name, "reconnect"] => {
            if !toolbox.reconnect(name) {
                return Err(unknown(name));
            }
            Ok(CommandResult::plain(format!(
                "reconnecting {name}; /mcp shows its status"
            )))
        }
        [name, "login"] | ["login", name] => Ok(CommandResult::plain(format!(
            "in another terminal: hermes mcp login {name}   (it takes effect here at once)"
        ))),
        [name, state @ ("on" | "off")] => {
            let key = format!("mcp_servers.{name}.enabled");
            if toolbox.server(name).is_none() {
                return Err(unknown(name));
            }
            let value = if *state == "on" { "true" } else { "false" };
            super::settings::save_setting(conversation, &key, value)?;
            Ok(CommandResult::plain(format!(
                "{name} is {state} from the next turn"
            )))
        }
        [name] => match server_details(&toolbox, name) {
            Some(details) => Ok(CommandResult::plain(details)),
            None => Err(unknown(name)),
        },
        _ => Err(Failure::usage("/mcp [name] [reconnect|login|on|off]")),
    }
}

pub(super) async fn memory(
    conversation: &Conversation,
    rest: &str,
) -> Result<CommandResult, Failure> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    match words.as_slice() {
        [] => {}
        ["pending"] => return subprocess::run(conversation, &["memory", "pending"]).await,
        [action @ ("approve" | "reject"), id] => {
            return subprocess::run(conversation, &["memory", action, id]).await;
        }
        _ => {
            return Err(Failure::usage(
                "/memory [pending | approve <id> | reject <id>]",
            ));
        }
    }
    let config = conversation.cx.load_config()?.config;
    let files = MemoryFiles::for_home(&conversation.cx.home, &config);
    let mut lines = Vec::new();
    for target in [MemoryTarget::Memory, MemoryTarget::User] {
        let entries = files
            .entries(target)
            .map_err(|error| Failure::failed(error.to_string()))?;
        lines.push(format!(
            "{} ({})",
            target.file_name(),
            figures::count(entries.len(), "entry")
        ));
        lines.extend(entries.iter().map(|entry| format!("  - {entry}")));
    }
    Ok(CommandResult::plain(lines.join("\n")))
}

/// Lets the agent record what it has just done.
pub(super) async fn learn(
    conversation: &mut Conversation,
    what: &str,
) -> Result<CommandResult, Failure> {
    if what.is_empty() {
        return Err(Failure::usage("/learn <what>: what should become a skill?"));
    }
    let question = format!(
        "Make a skill of this, so that you can do it again without me: {what}. Look at what we did \
         in this conversation, keep what worked, and write it with skill_manage: when to use it, \
         the steps, what to look out for."
    );
    conversation.ask(question).await
}

/// The jobs of this home: list, pause, resume, remove.
pub(super) fn cron(conversation: &Conversation, rest: &str) -> Result<CommandResult, Failure> {
    let schedule = conversation.schedule();
    let table = &schedule.jobs;
    let failed = |error: hermes_store::jobs::JobError| Failure::failed(error.to_string());
    let words: Vec<&str> = rest.split_whitespace().collect();
    match words.as_slice() {
        [] | ["list"] => {
            let jobs = table.list().map_err(failed)?;
            if jobs.is_empty() {
                return Ok(CommandResult::info(
                    "no jobs; ask for one: \"every morning at 8 …\"",
                ));
            }
            let lines = jobs.iter().map(|job| {
                format!(
                    "  {}  {:<9}  {:<16}  {}  next {}",
                    job.id(),
                    job.state(),
                    job.schedule_display(),
                    shorten(&job.name(), 40),
                    job.text("next_run_at")
                )
            });
            Ok(CommandResult::plain(lines.collect::<Vec<_>>().join("\n")))
        }
        [action @ ("pause" | "resume"), job] => {
            let now = SystemClock.now();
            let changed = if *action == "resume" {
                schedule.resume(job, now)
            } else {
                schedule.pause(job, now)
            };
            let changed = changed.map_err(Failure::failed)?;
            Ok(CommandResult::info(format!(
                "{} is {}",
                changed.id(),
                changed.state()
            )))
        }
        ["remove", job] => {
            let gone = schedule.remove(job);
            let gone = gone.map_err(|error| Failure::failed(error.to_string()))?;
            Ok(CommandResult::info(format!("removed {}", gone.id())))
        }
        _ => Err(Failure::usage(
            "/cron [list | pause <job> | resume <job> | remove <job>]",
        )),
    }
}

/// Reloads keys and configuration and continues the same session.
pub(super) async fn reload(conversation: &mut Conversation) -> Result<CommandResult, Failure> {
    if conversation.busy {
        return Err(Failure::usage("a turn is running: stop it first"));
    }
    let process = ProcessEnv::current();
    let env = Env::load(&conversation.cx.home, &process)
        .map_err(|error| Failure::failed(error.to_string()))?;
    hermes_config::secrets::remember(&conversation.cx.home, &env);
    conversation.cx.env = env;
    let options = TurnOptions {
        resume: conversation
            .chat
            .used
            .then(|| conversation.chat.id.to_string()),
        ..conversation.options.clone()
    };
    conversation.open_instead(&options, "new_session").await?;
    Ok(CommandResult::info("keys and configuration were reloaded"))
}
