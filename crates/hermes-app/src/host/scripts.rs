//! Scripts of the home for jobs and webhooks, under the same gate and sandbox as the agent's
//! commands, without approvals.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_exec::{Exec, Stdin};
use hermes_policy::{CommandRequest, RequestKind};

use super::HomeScript;
use super::gateway::default_working_dir;
use crate::context::AppContext;
use crate::failure::{Exit, Failure};
use crate::wiring::commands::CommandEnvironment;
use crate::wiring::parts_cache::HomeParts;
use crate::wiring::unattended::{CommandLine, CommandOutput, UnattendedCommand, run_line_in};

pub(super) struct HomeScripts {
    cx: AppContext,
    commands: Option<Arc<CommandEnvironment>>,
}

impl HomeScripts {
    pub(super) fn new(cx: &AppContext, commands: Option<Arc<CommandEnvironment>>) -> Self {
        Self {
            cx: cx.clone(),
            commands,
        }
    }

    pub(super) async fn run(
        &self,
        script: HomeScript,
        parts: &HomeParts,
    ) -> Result<CommandOutput, Failure> {
        let Some(commands) = &self.commands else {
            return Err(Failure::failed(
                "no environment to run scripts is available",
            ));
        };
        let path = self.find(&script.path)?;
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        let (program, kind) = match path.extension().and_then(|end| end.to_str()) {
            Some("sh" | "bash") => ("bash", RequestKind::Cron),
            _ => ("python3", RequestKind::Code),
        };
        let ground = commands.local_machine(&parts.cx, &parts.config).await?;
        let beside = || path.parent().map(Path::to_owned).unwrap_or_default();
        let cwd = script.cwd.clone().unwrap_or_else(beside);
        // Where it may write: not where the scripts are.
        let workspace = script.cwd.unwrap_or_else(|| default_working_dir(parts));
        let confinement = ground.sandbox.confinement(&workspace);
        let run = UnattendedCommand {
            gate: &commands.gate,
            ground: &*ground.environment,
            confinement,
            cwd: cwd.clone(),
            name: &path.display().to_string(),
        };
        let request = CommandRequest::terminal(&text, &cwd)
            .roots(vec![workspace])
            .kind(kind);
        let exec = Exec {
            timeout: script.timeout,
            stdin: Stdin::Bytes(script.input.into_bytes().into()),
            ..Exec::new(format!("exec {program} {}", quoted(&path)), cwd.clone())
        };
        run.run(request, exec).await
    }

    /// A line that the configuration has a name for, where the tools work.
    pub(super) async fn run_line(
        &self,
        line: CommandLine,
        parts: &HomeParts,
    ) -> Result<CommandOutput, Failure> {
        let Some(commands) = &self.commands else {
            return Err(Failure::failed(
                "no environment to run commands is available",
            ));
        };
        run_line_in(commands, default_working_dir(parts), line).await
    }

    /// A script lies in `scripts/` of the home, wherever its links lead.
    fn find(&self, named: &Path) -> Result<PathBuf, Failure> {
        let dir = self.cx.home.join("scripts");
        let missing = |path: &Path| Failure::not_found(format!("no script {}", path.display()));
        let root = dir.canonicalize().map_err(|_| missing(&dir.join(named)))?;
        let named = self.cx.home.expand_user(&named.to_string_lossy());
        let path = root.join(named);
        let real = path.canonicalize().map_err(|_| missing(&path))?;
        if !real.starts_with(&root) {
            return Err(Failure::new(
                Exit::Refused,
                format!("{} is not below {}", path.display(), root.display()),
            ));
        }
        if real.is_file() {
            Ok(real)
        } else {
            Err(missing(&path))
        }
    }
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
