//! `hermes gateway`: runs, controls and installs the messaging gateway.

mod control;
mod facts;
mod lifecycle;
mod run;
mod service;
mod setup;
mod status;
mod tasks;

use clap::{Args, Subcommand};

use super::{Context, IN_GATEWAY};
use crate::exit::{Exit, Failure, Outcome};

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
    /// Start in the background (the service if it is installed)
    Start(WhichArgs),
    /// Stop the gateway after running turns finish
    Stop(WhichArgs),
    /// Restart the gateway
    Restart(WhichArgs),
    /// Show the status of each platform
    Status(StatusArgs),
    /// Install the gateway as a service
    Install(InstallArgs),
    /// Remove the service
    Uninstall(UninstallArgs),
    /// List the gateways of all profiles
    List(ListArgs),
    /// Set up a platform: token and who may message the agent
    Setup(Box<setup::GatewaySetupArgs>),
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// Log to stderr (-vv for debug messages)
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Print nothing to stderr
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Replace a running gateway
    #[arg(long)]
    replace: bool,
    /// Start even after many restarts in a short time
    #[arg(long)]
    force: bool,
    /// Declare that another supervisor restarts the gateway
    #[arg(long, hide = true)]
    external_supervisor: bool,
    /// Accepted for compatibility; has no effect
    #[arg(long, hide = true)]
    no_supervise: bool,
}

#[derive(Clone, Copy, Debug, Default, Args)]
struct WhichArgs {
    /// Use the system service instead of the user service
    #[arg(long, conflicts_with = "all")]
    system: bool,
    /// Apply to the gateways of all profiles
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Copy, Debug, Args)]
struct StatusArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Also show the service manager's status and the last log lines
    #[arg(long)]
    deep: bool,
    /// Do not shorten errors
    #[arg(short = 'l', long)]
    full: bool,
    /// Use the system service instead of the user service
    #[arg(long)]
    system: bool,
}

#[derive(Clone, Debug, Args)]
struct InstallArgs {
    /// Replace an installed service
    #[arg(long)]
    force: bool,
    /// Install a system service instead of a user service (needs root)
    #[arg(long)]
    system: bool,
    /// User the system service runs as
    #[arg(long, value_name = "USER", requires = "system")]
    run_as_user: Option<String>,
    /// Do not start it now
    #[arg(long)]
    no_start_now: bool,
    /// Accepted for compatibility; this is the default
    #[arg(long, hide = true, conflicts_with = "no_start_now")]
    start_now: bool,
    /// Accepted for compatibility; this is the default
    #[arg(long, hide = true, conflicts_with = "no_start_on_login")]
    start_on_login: bool,
    /// Do not start it at boot or login
    #[arg(long)]
    no_start_on_login: bool,
}

#[derive(Clone, Copy, Debug, Args)]
struct UninstallArgs {
    /// Use the system service instead of the user service
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

/// Said when a gateway starts that nobody can write to.
const NO_PLATFORM: &str = "no platform is set up, so nobody can message the agent here; scheduled jobs still run. \
     To add one: hermes gateway setup";

/// A command of the agent that stops the gateway would be killed before it completes.
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
