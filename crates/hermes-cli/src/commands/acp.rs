//! `hermes acp`: serves an editor over stdin and stdout (ACP).

mod commands;
mod program;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use hermes_models::Overrides;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::program::EditorHost;
use super::{Context, setup};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::StderrHold;
use crate::wiring;

/// Timeout for threads that wait for an editor when everything else has ended.
const DETACHED_THREAD_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(crate) struct AcpArgs {
    /// Check whether an editor could connect, then exit
    #[arg(long, conflicts_with = "setup")]
    check: bool,
    /// Set up a model at this terminal, as `hermes setup` does
    #[arg(long)]
    setup: bool,
    /// Print as JSON
    #[arg(long, requires = "check")]
    json: bool,
}

pub(crate) fn run(args: &AcpArgs, cx: &Context) -> Outcome {
    if args.setup {
        return setup::run(&setup::SetupArgs::default(), cx);
    }
    if args.check {
        return check(args, cx);
    }
    if cx.out.stdin_tty {
        cx.out.remark(
            "hermes acp speaks JSON-RPC with an editor, which starts it itself (docs/acp.md); \
             Ctrl+D ends it",
        );
    }
    crate::logging::start(cx);
    // Nothing but answers goes to stdout; what would be said on stderr is told in the editor.
    let hold = StderrHold::new();
    let runtime = wiring::runtime()?;
    let served = runtime.block_on(serve(cx));
    // A thread may still be waiting for a line that never comes.
    runtime.shutdown_timeout(DETACHED_THREAD_TIMEOUT);
    drop(hold);
    served
}

async fn serve(cx: &Context) -> Outcome {
    let stop = CancellationToken::new();
    let editor = Arc::new(EditorHost::new(cx.clone()));
    let served = hermes_acp::serve(
        Arc::clone(&editor) as Arc<dyn hermes_app::ConversationHost>,
        ("hermes", env!("CARGO_PKG_VERSION")),
        (tokio::io::stdin(), tokio::io::stdout()),
        stop.clone(),
    );
    let mut terminations = signal(SignalKind::terminate())?;
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut hangups = signal(SignalKind::hangup())?;
    tokio::pin!(served);
    let (served, exit) = tokio::select! {
        served = &mut served => (served, Exit::Ok),
        _ = terminations.recv() => {
            stop.cancel();
            (served.await, Exit::Terminated)
        }
        _ = interrupts.recv() => {
            stop.cancel();
            (served.await, Exit::Interrupted)
        }
        // The editor's terminal is gone, and the editor with it.
        _ = hangups.recv() => {
            stop.cancel();
            (served.await, Exit::Terminated)
        }
    };
    editor.close().await;
    match (served, exit) {
        (Ok(()), Exit::Ok) => Ok(()),
        (Ok(()), exit) => Err(Failure::silent(exit)),
        // It went away in the middle of something: that is its right.
        (Err(error), _) => {
            tracing::warn!("the editor is gone: {error}");
            Ok(())
        }
    }
}

/// Whether a conversation could begin.
fn check(args: &AcpArgs, cx: &Context) -> Outcome {
    let config = Arc::new(cx.config()?);
    let route = wiring::router(cx, &config, Overrides::default()).describe();
    let outcome = route.map_err(Failure::from);
    if args.json {
        let (route, problem) = match &outcome {
            Ok(route) => (Some(route), None),
            Err(failure) => (None, Some(failure.message.as_str())),
        };
        cx.out.json(&json!({
            "ready": route.is_some(),
            "model": route.map(|route| &route.model),
            "provider": route.map(|route| &route.provider),
            "problem": problem,
            "next": problem.map(|_| "hermes setup"),
            "protocol": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "home": cx.home.root(),
        }))?;
        return outcome
            .map(drop)
            .map_err(|failure| Failure::silent(failure.exit));
    }
    match outcome {
        Ok(route) => {
            cx.out.line(format!(
                "ready: {} ({}) answers; the editor starts: hermes acp",
                route.model, route.provider
            ))?;
            Ok(())
        }
        Err(failure) => Err(Failure::new(
            failure.exit,
            format!("not ready: {}\nto set it up: hermes setup", failure.message),
        )),
    }
}
