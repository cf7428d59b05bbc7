//! Implementations of the slash commands. Each takes the conversation and returns what to show.

mod busy;
mod info;
mod personality;
mod prompts;
mod quick;
mod session;
mod settings;
mod skills;
mod subprocess;
mod tools;

use hermes_core::slash::{self, CommandDef, Parsed, Verb};

use crate::conversation::{CommandResult, Conversation};
use crate::failure::Failure;
use crate::text::version_line;

pub use info::days;
pub use personality::names as personalities;
pub use session::{opened, resume};

/// Runs a line that begins with a slash. `None`: it is not a command but a message.
pub async fn line(
    conversation: &mut Conversation,
    line: &str,
) -> Option<Result<CommandResult, Failure>> {
    match resolve(conversation, line).await {
        ResolvedLine::Text => None,
        ResolvedLine::Command(command, rest) => Some(run(conversation, command, &rest).await),
        ResolvedLine::Done(done) => Some(done),
    }
}

/// Runs a line that begins with a name of this home: a quick command, a skill, a bundle, a prompt of
/// an MCP server. `None`: it is a message; built-in commands are for conversations that go on.
pub async fn home_line(
    conversation: &mut Conversation,
    line: &str,
) -> Option<Result<CommandResult, Failure>> {
    let Parsed::Unknown { typed, rest, .. } = slash::parse(line) else {
        return None;
    };
    match unknown_name(conversation, typed, rest, None).await.ok()? {
        ResolvedLine::Done(done) => Some(done),
        ResolvedLine::Command(command, rest) => Some(run(conversation, command, &rest).await),
        ResolvedLine::Text => None,
    }
}

/// The meaning of a line that begins with a slash.
pub enum ResolvedLine {
    /// A message.
    Text,
    /// A command and its arguments, for [`run`].
    Command(&'static CommandDef, String),
    /// A quick command, a skill or a prompt, which was run.
    Done(Result<CommandResult, Failure>),
}

/// Resolves aliases of the config and finds the command. Anything but a built-in command is run
/// immediately.
pub async fn resolve(conversation: &mut Conversation, line: &str) -> ResolvedLine {
    match slash::parse(line) {
        Parsed::Text => ResolvedLine::Text,
        Parsed::Command(command, rest) => ResolvedLine::Command(command, rest.to_owned()),
        Parsed::Unknown { typed, rest, close } => {
            match unknown_name(conversation, typed, rest, close).await {
                Ok(resolved) => resolved,
                Err(failure) => ResolvedLine::Done(Err(failure)),
            }
        }
    }
}

/// Maximum length of a chain of aliases.
const MAX_ALIAS_CHAIN: usize = 8;

/// A quick command of the config, else a skill, else a prompt of an MCP server.
async fn unknown_name(
    conversation: &mut Conversation,
    typed: &str,
    rest: &str,
    close: Option<&str>,
) -> Result<ResolvedLine, Failure> {
    let (mut name, mut args) = (typed.to_owned(), rest.to_owned());
    for _ in 0..MAX_ALIAS_CHAIN {
        let line = match quick::run(conversation, &name, &args).await {
            Some(quick::QuickOutcome::Done(done)) => return Ok(ResolvedLine::Done(done)),
            Some(quick::QuickOutcome::Line(line)) => line,
            None => {
                if let Some(done) = skills::use_skill(conversation, &name, &args).await {
                    return Ok(ResolvedLine::Done(done));
                }
                return match prompts::use_prompt(conversation, &name, &args).await {
                    Some(done) => Ok(ResolvedLine::Done(done)),
                    None => Err(unknown(&name, close.filter(|_| name == typed))),
                };
            }
        };
        if let Parsed::Command(command, rest) = slash::parse(&line) {
            return Ok(ResolvedLine::Command(command, rest.to_owned()));
        }
        let bare = line.trim_start_matches('/');
        let (next, rest) = bare.split_once(' ').unwrap_or((bare, ""));
        (name, args) = (next.to_owned(), rest.to_owned());
    }
    Err(Failure::usage(format!(
        "/{typed} is an alias of an alias, and so on; see quick_commands in config.yaml"
    )))
}

fn unknown(typed: &str, close: Option<&str>) -> Failure {
    if let Some(instead) = slash::instead_of(typed) {
        return Failure::usage(format!(
            "/{typed} of Hermes Agent is not available here; {instead}"
        ));
    }
    let hint = close
        .map(|name| format!("; did you mean /{name}?"))
        .unwrap_or_default();
    Failure::usage(format!("no command /{typed}{hint} (/help lists all)"))
}

/// Runs a command of [`hermes_core::slash`].
pub async fn run(
    conversation: &mut Conversation,
    command: &'static CommandDef,
    rest: &str,
) -> Result<CommandResult, Failure> {
    if !conversation.surface.has(command.surfaces) {
        return Err(Failure::usage(format!(
            "/{} needs the full interface: hermes without --plain, at a terminal",
            command.name
        )));
    }
    match command.verb {
        Verb::New => session::new(conversation, rest).await,
        Verb::Clear => session::clear(conversation).await,
        Verb::Retry => session::retry(conversation).await,
        Verb::Undo => session::undo(conversation, rest).await,
        Verb::Redo => session::redo(conversation).await,
        Verb::Title => session::title(conversation, rest).await,
        Verb::Branch => session::branch(conversation, rest).await,
        Verb::Compress => session::compress(conversation, rest).await,
        Verb::Resume => session::resume(conversation, rest).await,
        Verb::Sessions => session::sessions(conversation, rest).await,
        Verb::History => session::history(conversation, rest).await,
        Verb::Export => session::export(conversation, rest).await,
        Verb::Rollback => session::rollback(conversation, rest).await,
        Verb::Quit => session::quit(conversation, rest),
        Verb::Compose => session::compose(conversation, rest),
        Verb::Redraw => Ok(session::redraw()),
        Verb::Queue => busy::queue(conversation, rest).await,
        Verb::Steer => busy::steer(conversation, rest).await,
        Verb::Background => busy::background(conversation, rest).await,
        Verb::Stop => busy::stop(conversation, rest).await,
        Verb::Agents => Ok(busy::agents(conversation)),
        Verb::Busy => busy::mode(conversation, rest),
        Verb::Moa => busy::moa(conversation, rest).await,
        Verb::Model => settings::model(conversation, rest).await,
        Verb::Personality => personality::run(conversation, rest),
        Verb::Reasoning => settings::reasoning(conversation, rest).await,
        Verb::Yolo => settings::yolo(conversation, rest).await,
        Verb::Verbose => settings::verbose(conversation, rest),
        Verb::StatusBar => settings::status_bar(conversation, rest),
        Verb::Timestamps => settings::timestamps(conversation, rest),
        Verb::Config => settings::config(conversation, rest).await,
        Verb::Tools => tools::tools(conversation, rest).await,
        Verb::Toolsets => tools::toolsets(conversation).await,
        Verb::Mcp => tools::mcp(conversation, rest),
        Verb::ReloadMcp => tools::mcp(conversation, "reconnect"),
        Verb::Skills => skills::skills(conversation, rest),
        Verb::Bundles => Ok(skills::bundles(conversation)),
        Verb::Platforms => subprocess::run(conversation, &["gateway", "status"]).await,
        Verb::ReloadSkills => skills::reload_skills(conversation),
        Verb::Memory => tools::memory(conversation, rest).await,
        Verb::Learn => tools::learn(conversation, rest).await,
        Verb::Cron => tools::cron(conversation, rest),
        Verb::Reload => tools::reload(conversation).await,
        Verb::Help => info::help(conversation, rest),
        Verb::Status => info::status(conversation).await,
        Verb::Usage => info::usage(conversation).await,
        Verb::Insights => info::insights(conversation, rest).await,
        Verb::Profile => Ok(info::profile(conversation)),
        Verb::Whoami => Ok(info::whoami(conversation)),
        Verb::Copy => info::copy(conversation, rest).await,
        Verb::Paste => info::paste(conversation).await,
        Verb::Image => info::image(conversation, rest),
        Verb::Diff => info::diff(conversation, rest).await,
        Verb::Keys => Ok(info::keys()),
        // The front end that has themes runs it.
        Verb::Theme => Err(unknown(command.name, None)),
        Verb::Doctor => subprocess::run(conversation, &["doctor"]).await,
        Verb::Debug => info::debug(conversation).await,
        Verb::Version => Ok(CommandResult::plain(version_line())),
        // Not parsed here: the gateway obeys them.
        Verb::Approve | Verb::Deny | Verb::SetHome | Verb::Restart | Verb::Voice | Verb::Start => {
            Err(unknown(command.name, None))
        }
    }
}

/// `on`, `off`, or the other way round.
fn switched(now: bool, word: &str, command: &str) -> Result<bool, Failure> {
    match word {
        "" | "toggle" => Ok(!now),
        "on" | "show" | "yes" => Ok(true),
        "off" | "hide" | "no" => Ok(false),
        other => Err(Failure::usage(format!(
            "/{command} takes on or off, not {other:?}"
        ))),
    }
}
