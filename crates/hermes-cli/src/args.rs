//! Command-line arguments.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use hermes_app::TurnOptions;

use crate::commands;
use crate::exit::{Exit, Failure};
use crate::output::Output;

#[derive(Debug, Parser)]
#[command(
    name = "hermes",
    version,
    about = "A personal AI agent for your terminal and your chats",
    after_help = "Without a command, hermes starts an interactive chat. `hermes -z \"…\"` answers once and exits.",
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    /// Answer PROMPT, print only the answer and exit; `-` reads the prompt from stdin
    #[arg(
        short = 'z',
        long = "oneshot",
        value_name = "PROMPT",
        allow_hyphen_values = true
    )]
    pub(crate) oneshot: Option<String>,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Use the home of this profile
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub(crate) color: ColorChoice,
    /// Never prompt
    #[arg(long, global = true)]
    pub(crate) no_input: bool,
    /// Approve every hook in config.yaml for this run
    #[arg(long, global = true)]
    pub(crate) accept_hooks: bool,
    /// Print plain lines: no colour, no cursor movement
    #[arg(long, global = true, alias = "cli")]
    pub(crate) plain: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

/// How a turn is to be run: shared by `hermes`, `hermes -z` and `hermes chat`.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct TurnArgs {
    /// Model, e.g. `anthropic/claude-sonnet-5`
    #[arg(short, long)]
    pub(crate) model: Option<String>,
    /// Provider of the model
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// Use the small model that runs on this machine (downloaded on first use)
    #[arg(long, conflicts_with = "provider")]
    pub(crate) local: bool,
    /// Use only these toolsets (comma separated); `none` for no tools
    #[arg(short, long, value_delimiter = ',')]
    pub(crate) toolsets: Option<Vec<String>>,
    /// Load these skills first (comma separated)
    #[arg(short, long, value_delimiter = ',')]
    pub(crate) skills: Vec<String>,
    /// Resume a session by id, id prefix, title or first words
    #[arg(short, long, value_name = "SESSION")]
    pub(crate) resume: Option<String>,
    /// Resume the latest session, or the latest with this title
    #[arg(short, long = "continue", value_name = "TITLE", num_args = 0..=1, default_missing_value = "", conflicts_with = "resume")]
    pub(crate) continue_: Option<String>,
    /// When resuming, stay in the current directory
    #[arg(long)]
    pub(crate) no_restore_cwd: bool,
    /// Approve dangerous actions without asking
    #[arg(long)]
    pub(crate) yolo: bool,
    /// Take a snapshot of a project before changing it (checkpoints.enabled)
    #[arg(long)]
    pub(crate) checkpoints: bool,
    /// Include the session id in the prompt
    #[arg(long)]
    pub(crate) pass_session_id: bool,
    /// Ignore config.yaml and use the defaults
    #[arg(long)]
    pub(crate) ignore_user_config: bool,
    /// Ignore project files such as AGENTS.md
    #[arg(long)]
    pub(crate) ignore_rules: bool,
    /// Apply --ignore-user-config and --ignore-rules, and omit memory and skills from the prompt
    #[arg(long)]
    pub(crate) safe_mode: bool,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) output_format: Option<OutputFormat>,
    /// Short for `--output-format json`
    #[arg(long, conflicts_with = "output_format")]
    pub(crate) json: bool,
    /// Write tokens and cost to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) usage_file: Option<PathBuf>,
    /// Maximum model calls per turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// Source recorded for the session (default: cli)
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Attach an image file
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
    /// Do not print progress to stderr
    #[arg(short = 'Q', long)]
    pub(crate) quiet: bool,
    /// Show reasoning and tool results
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Use the full interface (the default at a terminal)
    #[arg(long, hide = true)]
    pub(crate) tui: bool,
}

impl From<&TurnArgs> for TurnOptions {
    fn from(args: &TurnArgs) -> Self {
        Self {
            model: args.model.clone(),
            provider: args.provider.clone(),
            toolsets: args.toolsets.clone(),
            skills: args.skills.clone(),
            resume: args.resume.clone(),
            resume_latest: args.continue_.clone(),
            no_restore_cwd: args.no_restore_cwd,
            yolo: args.yolo,
            checkpoints: args.checkpoints,
            pass_session_id: args.pass_session_id,
            ignore_user_config: args.ignore_user_config,
            ignore_rules: args.ignore_rules,
            safe_mode: args.safe_mode,
            max_turns: args.max_turns,
            source: args.source.clone(),
            images: args.image.clone(),
            verbose: args.verbose,
            cwd: None,
        }
    }
}

impl TurnArgs {
    pub(crate) fn format(&self) -> OutputFormat {
        if self.json {
            OutputFormat::Json
        } else {
            self.output_format.unwrap_or_default()
        }
    }

    /// What `hermes -m x chat -q y` means: flags may stand before or after the command.
    fn or(self, outer: Self) -> Self {
        Self {
            model: self.model.or(outer.model),
            provider: self.provider.or(outer.provider),
            local: self.local || outer.local,
            toolsets: self.toolsets.or(outer.toolsets),
            skills: if self.skills.is_empty() {
                outer.skills
            } else {
                self.skills
            },
            resume: self.resume.or(outer.resume),
            continue_: self.continue_.or(outer.continue_),
            no_restore_cwd: self.no_restore_cwd || outer.no_restore_cwd,
            yolo: self.yolo || outer.yolo,
            checkpoints: self.checkpoints || outer.checkpoints,
            pass_session_id: self.pass_session_id || outer.pass_session_id,
            ignore_user_config: self.ignore_user_config || outer.ignore_user_config,
            ignore_rules: self.ignore_rules || outer.ignore_rules,
            safe_mode: self.safe_mode || outer.safe_mode,
            output_format: self.output_format.or(outer.output_format),
            json: self.json || outer.json,
            usage_file: self.usage_file.or(outer.usage_file),
            max_turns: self.max_turns.or(outer.max_turns),
            source: self.source.or(outer.source),
            image: if self.image.is_empty() {
                outer.image
            } else {
                self.image
            },
            quiet: self.quiet || outer.quiet,
            verbose: self.verbose || outer.verbose,
            tui: self.tui || outer.tui,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    #[default]
    Text,
    /// A single JSON object at the end
    Json,
    /// One JSON object per event, each on its own line
    StreamJson,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Chat, or answer one question with -q
    Chat(ChatArgs),
    /// Browse and manage stored conversations
    Sessions(Box<commands::sessions::SessionsArgs>),
    /// Read and change the configuration
    Config(commands::config::ConfigArgs),
    /// Set up the model, the terminal, tools and the agent
    Setup(Box<commands::setup::SetupArgs>),
    /// Choose, list and test models
    Model(commands::model::ModelArgs),
    /// Manage provider API keys
    Auth(commands::auth::AuthArgs),
    /// Manage fallback models
    Fallback(commands::fallback::FallbackArgs),
    /// Manage separate profiles
    Profile(commands::profile::ProfileArgs),
    /// Show and edit what the agent remembers
    Memory(commands::memory::MemoryArgs),
    /// List and view installed skills
    Skills(commands::skills::SkillsArgs),
    /// Group several skills under one name
    Bundles(commands::bundles::BundlesArgs),
    /// Choose which tools are enabled on each platform
    Tools(commands::tools::ToolsArgs),
    /// Choose which commands run without asking
    Approvals(commands::approvals::ApprovalsArgs),
    /// Run your own programs on events
    Hooks(commands::hooks::HooksArgs),
    /// Restore a project to a snapshot taken before the agent changed it
    Checkpoints(commands::checkpoints::CheckpointsArgs),
    /// Manage MCP servers
    Mcp(commands::mcp::McpArgs),
    /// Show tokens, cost, models and tools over time
    Insights(commands::insights::InsightsArgs),
    /// Read the logs
    Logs(commands::logs::LogsArgs),
    /// Schedule jobs
    Cron(commands::cron::CronArgs),
    /// Run the messaging gateway
    Gateway(commands::gateway::GatewayArgs),
    /// Manage who may message the agent
    Pairing(commands::pairing::PairingArgs),
    /// Manage webhook routes
    Webhook(commands::webhook::WebhookArgs),
    /// Run as an ACP agent for an editor (Zed, JetBrains, Neovim, …)
    Acp(commands::acp::AcpArgs),
    /// Show what is configured
    Status(commands::status::StatusArgs),
    /// Check this installation
    Doctor(commands::doctor::DoctorArgs),
    /// Back up everything to a zip file
    Backup(commands::backup::BackupArgs),
    /// Restore from a backup
    Import(commands::import::HomeImportArgs),
    /// Update hermes, or roll back
    Update(commands::update::UpdateArgs),
    /// Uninstall hermes
    Uninstall(commands::uninstall::UninstallArgs),
    /// Print the version and build
    Version(commands::version::VersionArgs),
    /// Print or install a shell completion script
    Completion(commands::completion::CompletionArgs),
    /// Print or write manual pages
    Man(commands::man::ManArgs),
    /// Show how to get started; --all lists every command
    Help(commands::help::HelpArgs),
    /// The client that the MCP conformance suite starts
    #[command(name = "__conformance", hide = true)]
    Conformance(commands::conformance::ConformanceArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ChatArgs {
    /// Answer PROMPT and exit; `-` reads the prompt from stdin
    #[arg(short, long, value_name = "PROMPT", allow_hyphen_values = true)]
    pub(crate) query: Option<String>,
    #[command(flatten)]
    pub(crate) turn: TurnArgs,
}

/// Parses the command line. `Err` carries what to print and the code to leave with.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Failure> {
    let args: Vec<OsString> = args.into_iter().collect();
    let mut cli = Cli::try_parse_from(&args).map_err(|error| {
        let shows = !error.use_stderr();
        let foreign = (!shows)
            .then(|| commands::original::advice(&args, &error))
            .flatten();
        foreign.unwrap_or_else(|| usage_failure(&error, &named_command(&args), plain(&args)))
    })?;
    let outer = std::mem::take(&mut cli.turn);
    match &mut cli.command {
        None => cli.turn = outer,
        Some(Command::Chat(chat)) => {
            chat.turn = std::mem::take(&mut chat.turn).or(outer);
        }
        Some(_) => {
            if outer != TurnArgs::default() || cli.oneshot.is_some() {
                return Err(Failure::usage(
                    "chat flags cannot be used with this command; see: hermes chat --help",
                ));
            }
        }
    }
    let tui = match &cli.command {
        Some(Command::Chat(chat)) => chat.turn.tui,
        _ => cli.turn.tui,
    };
    if tui && cli.global.plain {
        return Err(Failure::usage("--plain cannot be used with --tui"));
    }
    Ok(cli)
}

/// Whether the command line asks for plain lines, also where it cannot be parsed.
pub(crate) fn plain(args: &[OsString]) -> bool {
    args.iter()
        .take_while(|arg| *arg != "--")
        .any(|arg| arg == "--plain" || arg == "--cli")
}

/// The command that was meant, as far as it is one: `hermes sessions list`.
fn named_command(args: &[OsString]) -> String {
    let mut command = Cli::command();
    let mut path = command.get_name().to_owned();
    for word in args.iter().skip(1).filter_map(|arg| arg.to_str()) {
        if let Some(sub) = command.find_subcommand(word).cloned() {
            path = format!("{path} {word}");
            command = sub;
        }
    }
    path
}

/// clap's report in our manner: one line of cause, one line of help, code 64.
fn usage_failure(error: &clap::Error, command: &str, plain: bool) -> Failure {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Help is a result; a reader that went away is fine.
            if plain {
                let page = error.render().to_string();
                let _ = Output::detect(ColorChoice::Never, false, true).piece(&page);
            } else {
                let _ = error.print();
            }
            return Failure::silent(Exit::Ok);
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Failure::usage(error.render().to_string());
        }
        _ => {}
    }
    let rendered = error.render().to_string();
    let cause = rendered
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .trim_end_matches(':');
    let cause = plain_cause(cause);
    let close = match error.get(ContextKind::SuggestedSubcommand) {
        // The best match comes last.
        Some(ContextValue::Strings(names)) => names.last().cloned(),
        Some(ContextValue::String(name)) => Some(name.clone()),
        _ => None,
    };
    let detail = rendered
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("tip:"))
        .collect::<Vec<_>>()
        .join("; ");
    let detail = if detail.is_empty() {
        detail
    } else {
        format!(": {detail}")
    };
    let hint = match (close, error.kind(), command) {
        (Some(name), ..) => format!("did you mean {name:?}? See: {command} --help"),
        // Many a person begins with a question.
        (None, ErrorKind::InvalidSubcommand, "hermes") => {
            "to ask something: hermes -z \"…\"; all commands: hermes help".to_owned()
        }
        (None, ErrorKind::UnknownArgument, "hermes chat") => {
            "to ask something: hermes chat -q \"…\"; all flags: hermes chat --help".to_owned()
        }
        _ => format!("see: {command} --help"),
    };
    Failure::usage(format!("{cause}{detail}\n{hint}"))
}

/// What was wrong with a number, in words: the parser names types and digits.
fn plain_cause(cause: &str) -> String {
    let Some((head, why)) = cause.rsplit_once(": ") else {
        return cause.to_owned();
    };
    let expected = match why {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "expected a whole number".to_owned()
        }
        "number too large to fit in target type" => "the number is too large".to_owned(),
        "number too small to fit in target type" => "the number is too small".to_owned(),
        "invalid float literal" => "expected a number".to_owned(),
        _ => {
            let Some((_, range)) = why.split_once(" is not in ") else {
                return cause.to_owned();
            };
            let (low, high) = range.split_once("..").unwrap_or((range, ""));
            let high = high.trim_start_matches('=');
            let unlimited = [u64::from(u32::MAX), i64::MAX as u64, u64::MAX];
            match high.parse::<u64>() {
                Ok(max) if !unlimited.contains(&max) => format!("expected {low} to {high}"),
                _ => format!("expected {low} or more"),
            }
        }
    };
    format!("{head}: {expected}")
}

/// The command tree, for completion scripts.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests;
