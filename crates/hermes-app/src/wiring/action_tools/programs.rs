//! Programs that call tools, and jobs.

use std::sync::Arc;

use hermes_config::Config;
use hermes_core::clock::Clock;
use hermes_core::model::ModelRouter;
use hermes_core::tool::Tool;
use hermes_tools::code::{self, CodeDeps};
use hermes_tools::schedule::{self, ScheduleDeps};

use crate::context::AppContext;
use crate::wiring::commands::CommandEnvironment;

/// `execute_code`, or why it cannot be offered. Programs run where commands do.
pub(super) fn programs(
    commands: Option<&CommandEnvironment>,
    config: &Config,
) -> Result<Vec<Arc<dyn Tool>>, String> {
    let commands = commands.ok_or("no environment to run commands is available")?;
    let deps = CodeDeps::from_config(
        config,
        Arc::clone(&commands.environment),
        commands.workspaces.clone(),
        commands.gate.clone(),
        commands.sandbox.clone(),
    );
    code::tools(deps, &search_path())
}

/// Whether programs could run on this machine.
pub(super) fn python_missing() -> Option<String> {
    match code::find_python(&search_path()) {
        Some(_) => None,
        None => Some("there is no python3 on the search path".to_owned()),
    }
}

fn search_path() -> String {
    std::env::var("PATH").unwrap_or_default()
}

/// `cronjob`
pub(super) fn jobs(
    cx: &AppContext,
    config: &Config,
    router: &dyn ModelRouter,
    clock: Arc<dyn Clock>,
    origin: Option<serde_json::Value>,
) -> Vec<Arc<dyn Tool>> {
    let mut deps = ScheduleDeps::from_config(&cx.home, config, clock);
    deps.origin = origin;
    // A job without a model records the one in use when it was created.
    deps.route = router.primary().ok().map(|client| {
        let route = client.route();
        (route.provider.clone(), route.model.clone())
    });
    schedule::tools(deps)
}
