//! Skills that are used by name: `--skills`, `/<skill>`, bundles. Runs their inline commands
//! (`skills.inline_shell`).

use std::sync::Arc;
use std::time::Duration;

use crate::home::store_tools::{InlineLine, RunInline, expand_inline};
use hermes_config::Config;
use hermes_exec::{Confinement, Exec};
use hermes_policy::CommandRequest;
use hermes_store::skills::{SkillError, SkillLibrary, SkillOrFile, SkillUseKind, SkillView};

use super::commands::CommandEnvironment;
use super::unattended::UnattendedCommand;
use crate::context::AppContext;
use crate::failure::Failure;
use crate::failure::skill_failure;

/// Runs inline commands of skills. `None`: disabled, the text stays as written.
pub(crate) fn inline_shell(
    cx: &AppContext,
    config: &Arc<Config>,
    commands: Option<&Arc<CommandEnvironment>>,
) -> Option<RunInline> {
    if !config.skills.inline_shell {
        return None;
    }
    let (cx, config, commands) = (cx.clone(), Arc::clone(config), commands.cloned());
    Some(Arc::new(move |line| {
        let (cx, config, commands) = (cx.clone(), Arc::clone(&config), commands.clone());
        Box::pin(async move {
            let Some(commands) = commands else {
                return Err("no environment to run commands is available".to_owned());
            };
            run_inline(&cx, &config, &commands, line)
                .await
                .map_err(|failure| failure.message)
        })
    }))
}

/// Skills are untrusted: their commands may read, but not write or use the network.
async fn run_inline(
    cx: &AppContext,
    config: &Config,
    commands: &CommandEnvironment,
    line: InlineLine,
) -> Result<String, Failure> {
    let ground = commands.local_machine(cx, config).await?;
    let cwd = line.dir.unwrap_or_else(|| cx.home.skills_dir());
    let confinement = match ground.sandbox.confinement(&cwd) {
        Confinement::Off => Confinement::Off,
        Confinement::Workspace { unreadable, .. } => Confinement::Workspace {
            writable: Vec::new(),
            unreadable,
            network: false,
        },
    };
    let run = UnattendedCommand {
        gate: &commands.gate,
        ground: &*ground.environment,
        confinement,
        cwd: cwd.clone(),
        name: "command in a skill",
    };
    let seconds = config.skills.inline_shell_timeout.max(1);
    let request = CommandRequest::terminal(&line.command, &cwd);
    let exec = Exec {
        timeout: Duration::from_secs(seconds),
        ..Exec::new(line.command, cwd)
    };
    let ran = run.run(request, exec).await?;
    if ran.status.is_none() {
        return Err(Failure::failed(ran.errors));
    }
    let output = ran.output.trim_end();
    Ok(if output.is_empty() {
        ran.errors
    } else {
        output.to_owned()
    })
}

/// Loads skills: declares their variables and runs their inline commands.
pub(crate) struct SkillLoader<'a> {
    pub library: &'a SkillLibrary,
    pub commands: Option<&'a CommandEnvironment>,
    pub inline: Option<&'a RunInline>,
    pub session: Option<&'a str>,
}

impl SkillLoader<'_> {
    pub(crate) async fn load(&self, name: &str) -> Result<SkillView, SkillError> {
        let mut skill = match self.library.view(name, None, self.session)? {
            SkillOrFile::Skill(skill) => *skill,
            // Only a requested file counts.
            SkillOrFile::File(file) => return Err(SkillError::Invalid(format!("{:?}", file.file))),
        };
        if let Some(declare) = self.commands.map(CommandEnvironment::declare) {
            skill.env_names().for_each(|name| _ = declare(name));
        }
        if let Err(error) = self.library.usage().bump(&skill.name, SkillUseKind::Used) {
            tracing::warn!(%error, "the use of a skill was not counted");
        }
        let content = std::mem::take(&mut skill.content);
        skill.content = expand_inline(content, skill.dir.as_deref(), self.inline).await;
        Ok(skill)
    }
}

/// The text of the skills named by `--skills`, by a job or by a route.
pub(super) async fn named(
    names: &[String],
    library: &SkillLibrary,
    (commands, inline): (Option<&CommandEnvironment>, Option<&RunInline>),
) -> Result<Option<String>, Failure> {
    if names.is_empty() {
        return Ok(None);
    }
    let loader = SkillLoader {
        library,
        commands,
        inline,
        session: None,
    };
    let mut texts = Vec::new();
    for name in names {
        let skill = loader.load(name).await;
        texts.push(skill.map_err(|error| skill_failure(&error))?.content);
    }
    Ok(Some(texts.join("\n\n")))
}
