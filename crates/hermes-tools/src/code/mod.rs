//! `execute_code`: a Python program that calls tools.
//!
//! The program runs where commands run, in the sandbox, with an interpreter that ignores our variables. It
//! imports a generated module ([`module`]) whose functions are the helpers of this session: each call is sent
//! to this process ([`rpc`]) and executed by the same tool, under the same policy, as if the model had called
//! it. On this machine calls use a socket that only this user can access, elsewhere files ([`remote`]).

mod module;
mod remote;
mod rpc;
mod run;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_config::Config;
use hermes_core::tool::Tool;
use hermes_exec::sandbox::Sandbox;
use hermes_exec::{Environment, Workspaces};
use hermes_policy::Gate;

/// The name of the tool.
pub const NAME: &str = "execute_code";

/// Tools that a program may call, if the session has them.
pub const HELPERS: [&str; 7] = [
    "patch",
    "read_file",
    "search_files",
    "terminal",
    "web_extract",
    "web_search",
    "write_file",
];

/// Where a program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CodeMode {
    /// In the directory of the session, with the project's interpreter.
    #[default]
    Project,
    /// In its own directory, with the system's interpreter.
    Strict,
}

/// Dependencies of programs.
#[derive(Clone)]
pub struct CodeDeps {
    pub environment: Arc<dyn Environment>,
    pub workspaces: Workspaces,
    pub gate: Gate,
    /// Confines programs on this machine; `None` for other environments.
    pub sandbox: Option<Arc<Sandbox>>,
    pub mode: CodeMode,
    pub timeout: Duration,
    pub max_calls: u32,
    /// Names of variables that the configuration passes to commands.
    pub passthrough: Vec<String>,
}

impl CodeDeps {
    pub fn from_config(
        config: &Config,
        environment: Arc<dyn Environment>,
        workspaces: Workspaces,
        gate: Gate,
        sandbox: Option<Arc<Sandbox>>,
    ) -> Self {
        let section = &config.code_execution;
        Self {
            environment,
            workspaces,
            gate,
            sandbox,
            mode: match section.mode.as_str() {
                "strict" => CodeMode::Strict,
                _ => CodeMode::Project,
            },
            timeout: Duration::from_secs(section.timeout.max(1)),
            max_calls: section.max_tool_calls,
            passthrough: config.terminal.env_passthrough.clone(),
        }
    }

    fn is_local(&self) -> bool {
        self.environment.info().kind == "local"
    }
}

/// The tool, or why it is not available. `path` is the search path of commands on this machine.
pub fn tools(deps: CodeDeps, path: &str) -> Result<Vec<Arc<dyn Tool>>, String> {
    if deps.is_local() && find_python(path).is_none() {
        return Err("there is no python3 on the search path".to_owned());
    }
    Ok(vec![Arc::new(run::ExecuteCode::new(deps))])
}

/// The interpreter for programs if the project has none.
pub fn find_python(path: &str) -> Option<PathBuf> {
    let is_program = |file: &Path| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(file)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    ["python3", "python"].iter().find_map(|name| {
        std::env::split_paths(path)
            .map(|dir| dir.join(name))
            .find(|file| is_program(file))
    })
}
