//! Checks that contact the model, MCP servers and the terminal backend.

use std::sync::Arc;
use std::time::Duration;

use hermes_config::Config;
use hermes_core::model::{ModelClient, ModelRouter as _};
use hermes_exec::backend;
use hermes_exec::local::Declared;
use hermes_exec::sandbox::{Sandbox, SandboxSettings, SandboxTier};
use hermes_models::Overrides;

use super::DoctorReport;
use crate::commands::{Context, counted, mcp, model, setup};
use crate::exit::Failure;
use crate::wiring;

/// Timeout for an answer: a local model may have to be loaded.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

fn loaded(cx: &Context) -> Option<Arc<Config>> {
    // What is wrong with the config is said by the check of the config.
    cx.load_config().ok().map(|loaded| Arc::new(loaded.config))
}

/// Who would answer.
pub(super) fn route(cx: &Context, report: &mut DoctorReport) {
    resolved(cx, report);
}

fn resolved(cx: &Context, report: &mut DoctorReport) -> Option<Arc<dyn ModelClient>> {
    let config = loaded(cx)?;
    let router = wiring::router(cx, &config, Overrides::default());
    for problem in router.problems() {
        report.warning(problem.clone(), "hermes config edit");
    }
    match router.primary() {
        Ok(client) => {
            let (route, info) = (client.route(), client.info());
            report.ok(format!(
                "{} ({}), context {} ({})",
                route.model,
                route.provider,
                crate::commands::model::tokens(info.context_length),
                info.context_source
            ));
            if !info.tools {
                report.warning(
                    format!(
                        "{} is known to have no tools: it can chat, but not act",
                        route.model
                    ),
                    "hermes model chooses another",
                );
            }
            Some(client)
        }
        Err(error) => {
            report.problem(Failure::from(error).message, "or: hermes setup model");
            None
        }
    }
}

/// The model in use, asked for real at its own address.
pub(super) fn model(cx: &Context, report: &mut DoctorReport) {
    let Some(client) = resolved(cx, report) else {
        return;
    };
    let name = client.route().model.clone();
    let asked = wiring::runtime().and_then(|runtime| {
        runtime.block_on(async {
            tokio::time::timeout(ANSWER_TIMEOUT, model::probe_with_tools(client))
                .await
                .unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())))
                .map_err(Failure::failed)
        })
    });
    match asked {
        Ok((text, tools)) => {
            report.ok(format!("answers: {text}"));
            match tools {
                Ok(true) => report.ok("calls tools"),
                Ok(false) => report.warning(
                    format!("{name} answers and does not call tools: it can chat, but not act"),
                    "hermes model chooses another; hermes model test shows more",
                ),
                Err(why) => report.problem(
                    format!("{name} answers, but not when it is given tools: {why}"),
                    "hermes model chooses another; hermes model test shows more",
                ),
            }
        }
        Err(failure) => report.problem(
            failure.message,
            format!("hermes model test {name} shows more; hermes model chooses another"),
        ),
    }
}

/// Every MCP server that is on, started or called for a moment.
pub(super) fn mcp(cx: &Context, report: &mut DoctorReport) {
    match mcp::reports(cx, Some(mcp::StatusWait::Thorough)) {
        Ok(servers) => servers_of(&servers, true, report),
        Err(failure) => report.problem(failure.message, ""),
    }
}

/// What can be said of the servers from their settings.
pub(super) fn mcp_settings(cx: &Context, report: &mut DoctorReport) {
    if let Ok(servers) = mcp::reports(cx, None) {
        servers_of(&servers, false, report);
    }
}

fn servers_of(
    servers: &[hermes_mcp::report::ServerReport],
    called: bool,
    report: &mut DoctorReport,
) {
    if servers.is_empty() {
        report.ok("no servers");
    }
    for server in servers {
        let name = &server.name;
        if !server.enabled {
            report.ok(format!("{name} is off"));
        } else if server.problems.iter().any(|problem| problem.fatal) || (called && !server.is_up())
        {
            let fix = if server.link.as_ref().is_some_and(|link| link.needs_auth) {
                format!("hermes mcp login {name}")
            } else {
                format!("hermes mcp test {name}; hermes mcp configure {name} --disable disables it")
            };
            report.problem(mcp::why(server), fix);
        } else if called {
            report.ok(format!("{name} answers: {}", counted(server.tools, "tool")));
        } else {
            report.ok(format!("{name} is on"));
        }
    }
}

/// Where commands run and what confines them.
pub(super) fn confinement(cx: &Context, report: &mut DoctorReport) {
    let Some(config) = loaded(cx) else {
        return;
    };
    let cwd = std::env::current_dir().unwrap_or_default();
    match backend::select(&cx.home, &config, &cx.env, &cwd, &Declared::default()) {
        Err(error) => report.problem(error.to_string(), "hermes setup terminal"),
        Ok(Some(environment)) => report.ok(environment.info().posture),
        Ok(None) => {
            let sandbox = Sandbox::detect(SandboxSettings::from_config(&cx.home, &config));
            let sandbox = sandbox.describe();
            let text = format!("sandbox: commands are {sandbox}");
            if sandbox.refuses {
                report.problem(text, "hermes config set terminal.sandbox auto");
            } else if sandbox.active == SandboxTier::None && sandbox.requested != "off" {
                report.warning(text, "a kernel with Landlock, or bubblewrap, confines them");
            } else {
                report.ok(text);
            }
        }
    }
}

/// A real command, where commands run elsewhere.
pub(super) fn command(cx: &Context, report: &mut DoctorReport) {
    let Some(config) = loaded(cx) else {
        return;
    };
    if matches!(config.terminal.backend.as_str(), "" | "local") {
        return;
    }
    match setup::try_terminal(cx, &config) {
        Ok(_) => report.ok("a command ran there"),
        Err(why) => report.problem(why, "hermes setup terminal"),
    }
}
