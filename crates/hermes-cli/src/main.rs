//! The hermes binary: arguments, commands and the wiring of all crates.

mod args;
mod chat;
mod choose;
mod commands;
mod exit;
mod first_run;
mod footprint;
mod heap;
mod logging;
mod output;
mod prompt;

use std::process::ExitCode;

use args::{Cli, Command};
use commands::Context;
use exit::{Exit, Failure, Outcome};
use hermes_app::wiring;
use hermes_exec::{local, sandbox};
use output::Output;

fn main() -> ExitCode {
    let mut first = std::env::args_os().skip(1);
    // Between every command and its start: nothing may happen before.
    match first.next() {
        Some(arg) if arg == sandbox::CONFINE => return sandbox::confine_main(first),
        Some(arg) if arg == local::HOSTED => return local::hosted_main(first),
        _ => {}
    }
    heap::set_up();
    // The commonest question of scripts is answered before anything is set up.
    let mut plain = std::env::args_os().skip(1);
    if plain
        .next()
        .is_some_and(|arg| arg == "--version" || arg == "-V")
        && plain.next().is_none()
    {
        let out = Output::detect(args::ColorChoice::Never, false, true);
        return finish(
            out,
            out.line(hermes_app::text::version_line())
                .map_err(Failure::from),
        );
    }
    match commands::completion::answer() {
        Ok(false) => {}
        Ok(true) => return Exit::Ok.into(),
        Err(failure) => {
            return finish(
                Output::detect(args::ColorChoice::Auto, false, false),
                Err(failure),
            );
        }
    }
    let typed: Vec<_> = std::env::args_os().collect();
    match args::parse(typed.iter().cloned()) {
        Ok(cli) => {
            let quiet = turn_args(&cli).quiet;
            let out = Output::detect(cli.global.color, quiet, cli.global.plain);
            finish(out, run(cli, out))
        }
        Err(failure) => finish(
            Output::detect(args::ColorChoice::Auto, false, args::plain(&typed)),
            Err(failure),
        ),
    }
}

fn finish(out: Output, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                out.error(format!("hermes: {}", failure.message.trim_end()));
            }
            failure.exit.into()
        }
    }
}

fn turn_args(cli: &Cli) -> &args::TurnArgs {
    match &cli.command {
        Some(Command::Chat(chat)) => &chat.turn,
        _ => &cli.turn,
    }
}

fn run(cli: Cli, out: Output) -> Outcome {
    match &cli.command {
        Some(Command::Version(args)) => return commands::version::run(args, out),
        Some(Command::Completion(args)) => return commands::completion::run(args, out),
        Some(Command::Man(args)) => return commands::man::run(args, out),
        Some(Command::Help(args)) => return commands::help::run(args, out),
        _ => {}
    }
    let cx = match Context::open(&cli.global, out) {
        // A profile that is used always and is gone must not stop what mends that.
        Err(failure)
            if failure.exit == Exit::NotFound
                && cli.global.profile.is_none()
                && matches!(cli.command, Some(Command::Profile(_))) =>
        {
            let mut root = cli.global.clone();
            root.profile = Some("default".to_owned());
            Context::open(&root, out)?
        }
        opened => opened?,
    };
    match cli.command {
        None => converse(chat::ChatRequest::from_cli(cli.oneshot, cli.turn), cx),
        Some(Command::Chat(args)) => converse(chat::ChatRequest::from_chat(args), cx),
        Some(Command::Sessions(args)) => commands::sessions::run(*args, &cx),
        Some(Command::Config(args)) => commands::config::run(args, &cx),
        Some(Command::Setup(args)) => commands::setup::run(&args, &cx),
        Some(Command::Model(args)) => commands::model::run(args, &cx),
        Some(Command::Auth(args)) => commands::auth::run(args, &cx),
        Some(Command::Fallback(args)) => commands::fallback::run(args, &cx),
        Some(Command::Profile(args)) => commands::profile::run(args, &cx),
        Some(Command::Memory(args)) => commands::memory::run(args, &cx),
        Some(Command::Skills(args)) => commands::skills::run(args, &cx),
        Some(Command::Bundles(args)) => commands::bundles::run(args, &cx),
        Some(Command::Tools(args)) => commands::tools::run(args, &cx),
        Some(Command::Approvals(args)) => commands::approvals::run(args, &cx),
        Some(Command::Checkpoints(args)) => commands::checkpoints::run(args, &cx),
        Some(Command::Mcp(args)) => commands::mcp::run(args, &cx),
        Some(Command::Conformance(args)) => commands::conformance::run(&args, &cx),
        Some(Command::Insights(args)) => commands::insights::run(args, &cx),
        Some(Command::Logs(args)) => commands::logs::run(&args, &cx),
        Some(Command::Backup(args)) => commands::backup::run(&args, &cx),
        Some(Command::Import(args)) => commands::import::run(&args, &cx),
        Some(Command::Update(args)) => commands::update::run(&args, &cx),
        Some(Command::Uninstall(args)) => commands::uninstall::run(&args, &cx),
        Some(Command::Hooks(args)) => commands::hooks::run(args, &cx),
        Some(Command::Cron(args)) => commands::cron::run(args, &cx),
        Some(Command::Gateway(args)) => commands::gateway::run(args, &cx),
        Some(Command::Pairing(args)) => commands::pairing::run(args, &cx),
        Some(Command::Webhook(args)) => commands::webhook::run(args, &cx),
        Some(Command::Acp(args)) => commands::acp::run(&args, &cx),
        Some(Command::Status(args)) => commands::status::run(&args, &cx),
        Some(Command::Doctor(args)) => commands::doctor::run(&args, &cx),
        Some(Command::Version(_) | Command::Completion(_) | Command::Man(_) | Command::Help(_)) => {
            Ok(())
        }
    }
}

/// A chat at a terminal may be the first one.
fn converse(mut request: chat::ChatRequest, cx: Context) -> Outcome {
    first_run::local(request.turn_mut(), &cx)?;
    let cx = match request.at_terminal(&cx) {
        Some(turn) => first_run::before_chat(turn, cx)?,
        None => cx,
    };
    chat::run(request, &cx)
}
