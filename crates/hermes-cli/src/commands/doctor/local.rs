//! The built-in model: its program, its weights, and a real start.

use std::time::Instant;

use hermes_core::figures::size;
use hermes_models::local::machine;
use hermes_models::local::program::{self, LocalProgram};
use hermes_models::local::server::{self, LocalService};
use hermes_models::local::weights::NamedWeights;
use hermes_models::local::{PROVIDER, table};

use super::DoctorReport;
use crate::commands::Context;
use crate::commands::model::local::LocalModelContext;
use crate::wiring;

/// What can be seen without starting anything. `None`: there is nothing to start.
fn looked_at(cx: &Context, report: &mut DoctorReport) -> Option<(LocalModelContext, NamedWeights)> {
    let context = LocalModelContext::load(cx).ok()?;
    let route = context.router.describe().ok();
    let used = route.filter(|route| route.provider == PROVIDER);
    let name = used.as_ref().map_or_else(
        || context.settings.default_name(),
        |route| route.model.clone(),
    );
    let weights = match context.settings.weights(&name) {
        Ok(weights) => weights,
        Err(error) => {
            report.problem(error.to_string(), "hermes model local use NAME");
            return None;
        }
    };
    let there = weights.is_there();
    if used.is_none() && !there {
        report.ok("the built-in model is not downloaded (hermes --local uses it)");
        return None;
    }
    match program::find() {
        LocalProgram::Found(path) => report.ok(format!("program {}", path.display())),
        LocalProgram::Buildable(_) => report.ok("the program is built when it is first needed"),
        LocalProgram::Missing => {
            report.problem("hermes-local is not next to hermes", program::HOW_TO_GET);
            return None;
        }
    }
    if !there {
        report.problem(
            format!("the weights of {name} are not on this machine"),
            format!("hermes model local pull {name}"),
        );
        return None;
    }
    let facts = match weights.facts() {
        Ok(facts) => facts,
        Err(error) => {
            report.problem(
                format!("{} cannot be read: {error}", weights.path.display()),
                format!("hermes model local remove {name}, then pull it again"),
            );
            return None;
        }
    };
    let tools = match context.settings.offers_tools(&weights) {
        Some(true) => "tools",
        _ => "chat only",
    };
    report.ok(format!(
        "{name}: {} million parameters, {tools}",
        facts.parameters / 1_000_000
    ));
    let needed = table::memory(
        facts.parameters,
        facts.context.min(context.settings.context),
    );
    if let Some(free) = machine::free_memory().filter(|free| *free < needed) {
        report.warning(
            format!(
                "it needs about {} of memory, but only {} is free",
                size(needed),
                size(free)
            ),
            "a smaller one: hermes model local list",
        );
    }
    Some((context, weights))
}

pub(super) fn there(cx: &Context, report: &mut DoctorReport) {
    looked_at(cx, report);
}

/// Starts it for real, unless it runs.
pub(super) fn started(cx: &Context, report: &mut DoctorReport) {
    let Some((context, weights)) = looked_at(cx, report) else {
        return;
    };
    if !matches!(program::find(), LocalProgram::Found(_)) {
        return;
    }
    let log = context.settings.logs.clone();
    let fix = format!("its log is {}", log.display());
    let Ok(runtime) = wiring::runtime() else {
        return;
    };
    let began = Instant::now();
    let tried = runtime.block_on(async {
        let service = LocalService::new(context.settings.clone(), weights.clone())?;
        let held = service.ensure(&|_| {}).await?;
        let all = server::running(&context.settings).await;
        Ok::<_, server::StartError>(all.into_iter().find(|server| server.pid == held.pid))
    });
    match tried {
        Ok(Some(server)) => report.ok(format!(
            "its server was ready after {} ms and uses {} of memory",
            began.elapsed().as_millis(),
            size(server.rss_bytes.unwrap_or_default())
        )),
        Ok(None) => report.problem("its server does not answer", fix),
        Err(error) => report.problem(error.to_string(), fix),
    }
}
