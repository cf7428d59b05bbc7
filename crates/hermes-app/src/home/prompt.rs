//! The system prompt of a session on this home.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use chrono::NaiveDate;
use hermes_config::home::Home;
use hermes_config::{Config, Zone};
use hermes_core::BoxFuture;
use hermes_core::clock::Clock;
use hermes_store::skills::{Offer, SkillLibrary};
use hermes_store::{MemoryFiles, MemoryTarget};

use hermes_agent::context_files::ContextFile;
use hermes_agent::lean::PromptSize;
use hermes_agent::prompt::{
    Enforcement, Guidance, PlatformHint, Profile, PromptEnvironment, PromptInputs,
};
use hermes_agent::{PromptContext, PromptSource, PromptText, context_files, prompt};

/// What the caller decides about the prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptOptions {
    /// Leave out project files (`--ignore-rules`).
    pub ignore_rules: bool,
    /// Leave out memory, skills and the soul too (`--safe-mode`).
    pub bare: bool,
    /// Tell the model its session id.
    pub session_id: bool,
    /// What the platform says about how answers are shown.
    pub platform_hint: Option<&'static str>,
    /// Further instructions of the caller.
    pub system_message: Option<String>,
}

/// Builds prompts from the files of a home.
pub(crate) struct HomePrompt {
    pub home: Home,
    pub config: Arc<Config>,
    pub memory: MemoryFiles,
    pub skills: SkillLibrary,
    pub clock: Arc<dyn Clock>,
    pub options: PromptOptions,
}

impl PromptSource for HomePrompt {
    fn build<'a>(&'a self, cx: PromptContext<'a>) -> BoxFuture<'a, PromptText> {
        // Small files of this machine: reading them here is faster than asking another thread.
        Box::pin(std::future::ready(self.text(cx)))
    }

    fn today(&self) -> Option<NaiveDate> {
        Some(self.day())
    }
}

impl HomePrompt {
    fn text(&self, cx: PromptContext<'_>) -> PromptText {
        let mut notices = Vec::new();
        let mode = PromptSize::for_model(cx.model);
        if mode == PromptSize::Chat {
            return self.for_chat(&cx);
        }
        let limit =
            context_files::limit(self.config.context_file_max_chars, cx.model.context_length);
        let soul = self.soul(limit, &mut notices);
        let project = self.project(&cx, limit, &mut notices);
        let memory = self.memory(MemoryTarget::Memory, &mut notices);
        let user = self.memory(MemoryTarget::User, &mut notices);
        let skills = self.skills(mode, &cx);
        let guidance = self.guidance();
        let environment = self.environment(&cx);
        let inputs = PromptInputs {
            mode,
            soul: soul.as_deref(),
            // What is not offered is not spoken of.
            tools: offered(&cx).collect(),
            skills: skills.as_deref(),
            model: &cx.route.model,
            provider: &cx.route.provider,
            guidance: &guidance,
            environment: &environment,
            profile: Profile {
                name: self.home.profile().unwrap_or("default"),
                home: self.home.root(),
            },
            platform: cx.source,
            default_hint: self.options.platform_hint,
            platform_hint: self
                .config
                .platform_hints
                .get(cx.source)
                .map(PlatformHint::parse)
                .unwrap_or_default(),
            system_message: self.options.system_message.as_deref(),
            project: project.as_deref(),
            memory: memory.as_deref(),
            user: user.as_deref(),
            external_memory: None,
            date: self.day(),
            session_id: self.options.session_id.then_some(cx.session.as_str()),
        };
        PromptText {
            text: prompt::build(&inputs).join(),
            notices,
        }
    }

    /// A few sentences of our own: nothing of the home or the project.
    fn for_chat(&self, cx: &PromptContext<'_>) -> PromptText {
        let inputs = PromptInputs {
            mode: PromptSize::Chat,
            soul: None,
            tools: BTreeSet::new(),
            skills: None,
            model: &cx.route.model,
            provider: &cx.route.provider,
            guidance: &Guidance::default(),
            environment: &PromptEnvironment::default(),
            profile: Profile {
                name: "",
                home: self.home.root(),
            },
            platform: cx.source,
            default_hint: None,
            platform_hint: PlatformHint::default(),
            system_message: self.options.system_message.as_deref(),
            project: None,
            memory: None,
            user: None,
            external_memory: None,
            date: self.day(),
            session_id: None,
        };
        PromptText {
            text: prompt::build(&inputs).join(),
            notices: Vec::new(),
        }
    }

    /// The day in the time zone of the config, else of this machine.
    fn day(&self) -> NaiveDate {
        let zone = Zone::named(&self.config.timezone);
        self.clock.now().with_timezone(&zone).date_naive()
    }

    fn soul(&self, limit: usize, notices: &mut Vec<String>) -> Option<String> {
        if self.options.bare {
            return None;
        }
        accept(context_files::soul(&self.home.soul_path(), limit), notices)
    }

    fn project(
        &self,
        cx: &PromptContext<'_>,
        limit: usize,
        notices: &mut Vec<String>,
    ) -> Option<String> {
        if self.options.bare || self.options.ignore_rules {
            return None;
        }
        accept(context_files::project(cx.cwd, limit), notices)
    }

    /// A memory file that cannot be read is reported, and the conversation continues without it.
    fn memory(&self, target: MemoryTarget, notices: &mut Vec<String>) -> Option<String> {
        let enabled = match target {
            MemoryTarget::Memory => self.config.memory.memory_enabled,
            MemoryTarget::User => self.config.memory.user_profile_enabled,
        };
        if self.options.bare || !enabled {
            return None;
        }
        self.memory.prompt_block(target).unwrap_or_else(|error| {
            notices.push(error.to_string());
            None
        })
    }

    fn skills(&self, mode: PromptSize, cx: &PromptContext<'_>) -> Option<String> {
        let registry = cx.registry;
        if self.options.bare || !offered(cx).any(|tool| tool == "skill_view") {
            return None;
        }
        let offer = Offer {
            tools: registry.names().collect(),
            toolsets: registry.iter().map(|tool| tool.spec().toolset).collect(),
        };
        let index = self.skills.index(&offer);
        if mode == PromptSize::Full {
            index.render()
        } else {
            index.render_names_only()
        }
    }

    fn guidance(&self) -> Guidance {
        let agent = &self.config.agent;
        Guidance {
            enforcement: Enforcement::parse(&agent.tool_use_enforcement),
            task_completion: agent.task_completion_guidance,
            parallel_calls: agent.parallel_tool_call_guidance,
        }
    }

    fn environment(&self, cx: &PromptContext<'_>) -> PromptEnvironment {
        let extra = self.config.agent.environment_hint.trim();
        PromptEnvironment {
            os: std::env::consts::OS.to_owned(),
            home: self.home.expand_user("~").display().to_string(),
            cwd: PathBuf::from(cx.cwd).display().to_string(),
            extra: (!extra.is_empty()).then(|| extra.to_owned()),
            ..PromptEnvironment::default()
        }
    }
}

/// The tools that the model can call.
fn offered<'a>(cx: &PromptContext<'a>) -> impl Iterator<Item = &'a str> {
    cx.registry.names().filter(|_| cx.model.tools)
}

/// The text of a file; the person learns what was left out of it.
fn accept(file: Option<ContextFile>, notices: &mut Vec<String>) -> Option<String> {
    let file = file?;
    notices.extend(file.notices);
    Some(file.text)
}
