//! What people type.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::commands;
use crate::exit::{Exit, Failure};

#[derive(Debug, Parser)]
#[command(
    name = "hermes",
    version,
    about = "A personal AI agent that never goes stale",
    after_help = "Without a command: an interactive chat. `hermes -z \"…\"` answers once and exits.",
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    /// Answer this once and print only the answer; `-` reads the prompt from stdin
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
    /// Never ask anything
    #[arg(long, global = true)]
    pub(crate) no_input: bool,
    /// Agree to every hook of config.yaml for this run
    #[arg(long, global = true)]
    pub(crate) accept_hooks: bool,
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
    /// Model, e.g. `anthropic/claude-sonnet-4.5`
    #[arg(short, long)]
    pub(crate) model: Option<String>,
    /// Provider of the model
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// Use the small model that runs on this machine; it is fetched the first time
    #[arg(long, conflicts_with = "provider")]
    pub(crate) local: bool,
    /// Only these toolsets (comma separated); `none` for no tools
    #[arg(short, long, value_delimiter = ',')]
    pub(crate) toolsets: Option<Vec<String>>,
    /// Put these skills in front of the prompt (comma separated)
    #[arg(short, long, value_delimiter = ',')]
    pub(crate) skills: Vec<String>,
    /// Go on with a session: id, unique start of an id, or title
    #[arg(short, long, value_name = "SESSION")]
    pub(crate) resume: Option<String>,
    /// Go on with the latest session, or the latest one of that title
    #[arg(short, long = "continue", value_name = "TITLE", num_args = 0..=1, default_missing_value = "", conflicts_with = "resume")]
    pub(crate) continue_: Option<String>,
    /// Stay in this directory when resuming
    #[arg(long)]
    pub(crate) no_restore_cwd: bool,
    /// Approve dangerous actions without asking
    #[arg(long)]
    pub(crate) yolo: bool,
    /// Keep snapshots of projects before they are changed (checkpoints.enabled)
    #[arg(long)]
    pub(crate) checkpoints: bool,
    /// Tell the model the session id
    #[arg(long)]
    pub(crate) pass_session_id: bool,
    /// Ignore config.yaml, use defaults
    #[arg(long)]
    pub(crate) ignore_user_config: bool,
    /// Ignore project files such as AGENTS.md
    #[arg(long)]
    pub(crate) ignore_rules: bool,
    /// Both of the above, and no memory or skills in the prompt
    #[arg(long)]
    pub(crate) safe_mode: bool,
    /// What to print
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) output_format: Option<OutputFormat>,
    /// Short for `--output-format json`
    #[arg(long, conflicts_with = "output_format")]
    pub(crate) json: bool,
    /// Write tokens and cost to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) usage_file: Option<PathBuf>,
    /// Model calls per turn, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// What the session is recorded as (`cli`)
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Attach an image file
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
    /// No progress on stderr
    #[arg(short = 'Q', long)]
    pub(crate) quiet: bool,
    /// Show reasoning and tool results
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Plain lines: no colour, no cursor movement
    #[arg(long, alias = "cli", conflicts_with = "tui")]
    pub(crate) plain: bool,
    /// The full interface (which a terminal gets anyway)
    #[arg(long, hide = true)]
    pub(crate) tui: bool,
    /// Where tools run, for front ends that name it; else where the process is.
    #[arg(skip)]
    pub(crate) cwd: Option<PathBuf>,
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
            plain: self.plain || outer.plain,
            tui: self.tui || outer.tui,
            cwd: self.cwd.or(outer.cwd),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    #[default]
    Text,
    /// One JSON object at the end
    Json,
    /// One JSON object per event, one per line
    StreamJson,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Chat, or answer one question with -q
    Chat(ChatArgs),
    /// Look at and manage stored conversations
    Sessions(Box<commands::sessions::SessionsArgs>),
    /// Read and change the configuration
    Config(commands::config::ConfigArgs),
    /// Set up the model, the terminal, tools and the agent
    Setup(Box<commands::setup::SetupArgs>),
    /// Choose, list and test models
    Model(commands::model::ModelArgs),
    /// Keys of providers
    Auth(commands::auth::AuthArgs),
    /// Who answers when the model in use cannot
    Fallback(commands::fallback::FallbackArgs),
    /// Several homes side by side
    Profile(commands::profile::ProfileArgs),
    /// What the agent remembers
    Memory(commands::memory::MemoryArgs),
    /// Skills of this home
    Skills(commands::skills::SkillsArgs),
    /// Several skills under one name
    Bundles(commands::bundles::BundlesArgs),
    /// Which tools each platform has
    Tools(commands::tools::ToolsArgs),
    /// Which commands may run without asking
    Approvals(commands::approvals::ApprovalsArgs),
    /// Your own programs on events: list, agree to them, try them
    Hooks(commands::hooks::HooksArgs),
    /// Snapshots of a project before the agent changed it
    Checkpoints(commands::checkpoints::CheckpointsArgs),
    /// MCP servers: add, test, log in, look at
    Mcp(commands::mcp::McpArgs),
    /// Tokens, cost, models and tools over time
    Insights(commands::insights::InsightsArgs),
    /// Read the logs
    Logs(commands::logs::LogsArgs),
    /// Jobs that run later, or again and again
    Cron(commands::cron::CronArgs),
    /// The agent in your chats: run it, install it, look after it
    Gateway(commands::gateway::GatewayArgs),
    /// Who may talk to the agent: approve strangers, or take it back
    Pairing(commands::pairing::PairingArgs),
    /// Other services call: routes, and trying them
    Webhook(commands::webhook::WebhookArgs),
    /// Serve an editor (Zed, JetBrains, Neovim, …) over stdin and stdout
    Acp(commands::acp::AcpArgs),
    /// What is configured
    Status(commands::status::StatusArgs),
    /// Check this installation
    Doctor(commands::doctor::DoctorArgs),
    /// The whole home in one file
    Backup(commands::backup::BackupArgs),
    /// A home out of a backup
    Import(commands::import::ImportArgs),
    /// Replace this program, or go back to the one before
    Update(commands::update::UpdateArgs),
    /// Take this program away
    Uninstall(commands::uninstall::UninstallArgs),
    /// Version and build
    Version(commands::version::VersionArgs),
    /// Shell completion script
    Completion(commands::completion::CompletionArgs),
    /// Manual pages
    Man(commands::man::ManArgs),
    /// Where to begin; --all for every command
    Help(commands::help::HelpArgs),
    /// The client that the MCP conformance suite starts
    #[command(name = "__conformance", hide = true)]
    Conformance(commands::conformance::ConformanceArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ChatArgs {
    /// Ask this and exit; `-` reads it from stdin
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
            .then(|| commands::original::advice(&args))
            .flatten();
        foreign.unwrap_or_else(|| usage_failure(&error, &named_command(&args)))
    })?;
    let outer = std::mem::take(&mut cli.turn);
    match &mut cli.command {
        None => cli.turn = outer,
        Some(Command::Chat(chat)) => {
            chat.turn = std::mem::take(&mut chat.turn).or(outer);
        }
        Some(_) => {
            // How things are shown is the same wish for every command.
            let plain = TurnArgs {
                plain: outer.plain,
                ..TurnArgs::default()
            };
            if outer != plain || cli.oneshot.is_some() {
                return Err(Failure::usage(
                    "flags of a chat turn do not go with this command",
                ));
            }
            cli.turn = plain;
        }
    }
    Ok(cli)
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
fn usage_failure(error: &clap::Error, command: &str) -> Failure {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Help is a result; a reader that went away is fine.
            let _ = error.print();
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

/// The command tree, for completion scripts.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}
