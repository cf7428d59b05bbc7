//! `hermes gateway`: the agent where people are. Run it, look after it, install it as a service.

mod control;
mod facts;
mod life;
mod program;
mod run;
pub(crate) mod scripts;
mod service;
mod setup;
mod status;
mod tasks;

use clap::{Args, Subcommand};

use super::{Context, IN_GATEWAY};
use crate::exit::{Exit, Failure, Outcome};

pub(crate) use program::Conversations;
pub(crate) use status::{platforms_in_short, summary};

#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    command: Option<GatewayCommand>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum GatewayCommand {
    /// Run in the foreground
    Run(RunArgs),
    /// Start in the background: the installed service, else a process of its own
    Start(WhichArgs),
    /// Stop it; turns that run may end first
    Stop(WhichArgs),
    /// Stop it and start it again
    Restart(WhichArgs),
    /// How it is, platform by platform
    Status(StatusArgs),
    /// Install it as a service of the system
    Install(InstallArgs),
    /// Remove the service
    Uninstall(UninstallArgs),
    /// The gateways of all profiles
    List(ListArgs),
    /// Connect it to chats: tokens, who may talk
    Setup(Box<setup::SetupArgs>),
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// Say on stderr what happens; twice: everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Say nothing on stderr
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Take the place of a gateway that runs on this home
    #[arg(long)]
    replace: bool,
    /// Start at once, also after many starts in a short time
    #[arg(long)]
    force: bool,
    /// Somebody else starts it again when it ends
    #[arg(long, hide = true)]
    external_supervisor: bool,
    /// Of Hermes Agent in a container; there is nothing to leave out here
    #[arg(long, hide = true)]
    no_supervise: bool,
}

#[derive(Clone, Copy, Debug, Default, Args)]
struct WhichArgs {
    /// The service of the machine, not of this person
    #[arg(long, conflicts_with = "all")]
    system: bool,
    /// The gateways of all profiles
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Copy, Debug, Args)]
struct StatusArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Also what the service manager says, and the last lines of the log
    #[arg(long)]
    deep: bool,
    /// Do not shorten errors
    #[arg(short = 'l', long)]
    full: bool,
    /// The service of the machine, not of this person
    #[arg(long)]
    system: bool,
}

#[derive(Clone, Debug, Args)]
struct InstallArgs {
    /// Replace a service that is installed
    #[arg(long)]
    force: bool,
    /// For the machine, not for this person: needs root
    #[arg(long)]
    system: bool,
    /// Who a service of the machine runs as
    #[arg(long, value_name = "USER", requires = "system")]
    run_as_user: Option<String>,
    /// Only install it
    #[arg(long)]
    no_start_now: bool,
    /// What is done anyway
    #[arg(long, hide = true, conflicts_with = "no_start_now")]
    start_now: bool,
    /// What is done anyway
    #[arg(long, hide = true, conflicts_with = "no_start_on_login")]
    start_on_login: bool,
    /// Do not start it when the machine or the person's session starts
    #[arg(long)]
    no_start_on_login: bool,
}

#[derive(Clone, Copy, Debug, Args)]
struct UninstallArgs {
    /// The service of the machine, not of this person
    #[arg(long)]
    system: bool,
}

#[derive(Clone, Copy, Debug, Args)]
struct ListArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: GatewayArgs, cx: &Context) -> Outcome {
    match args.command {
        None => run::run(&args.run, cx),
        Some(GatewayCommand::Run(args)) => run::run(&args, cx),
        Some(GatewayCommand::Start(args)) => control::start(args, cx),
        Some(GatewayCommand::Stop(args)) => {
            refuse_inside("stop")?;
            control::stop(args, cx)
        }
        Some(GatewayCommand::Restart(args)) => {
            refuse_inside("restart")?;
            control::restart(args, cx)
        }
        Some(GatewayCommand::Status(args)) => status::run(args, cx),
        Some(GatewayCommand::Install(args)) => service::install(&args, cx),
        Some(GatewayCommand::Uninstall(args)) => {
            refuse_inside("uninstall")?;
            service::uninstall(args, cx)
        }
        Some(GatewayCommand::List(args)) => status::list(args, cx),
        Some(GatewayCommand::Setup(args)) => setup::run(&args, cx),
    }
}

/// A command of the agent that ended the gateway would end itself before it was done.
fn refuse_inside(what: &str) -> Outcome {
    if std::env::var(IN_GATEWAY).is_ok_and(|value| value == "1") {
        return Err(Failure::new(
            Exit::Refused,
            format!(
                "the gateway started this command, so it cannot {what} the gateway: \
                 /restart in a chat, or hermes gateway {what} in another terminal"
            ),
        ));
    }
    Ok(())
}
