//! The system prompt: built once per session, stored, and replayed byte for byte.
//!
//! Three tiers, from what changes least to what changes most: *stable* (identity, guidance,
//! skills, environment), *context* (the caller's text and the project file), *volatile* (memory,
//! date, model). Nothing here reads a clock or a file: the same [`PromptInputs`] give the same bytes.
//!
//! The model is named last, and a switch of model does not rebuild the prompt: [`identity_note`]
//! is sent with the next message instead, so that the conversation's prefix stays as it was.

#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use chrono::NaiveDate;
use serde_json::Value;

use crate::lean::PromptSize;

/// The line before a message that the user sent during a turn.
pub const STEER_OPEN: &str = "[MESSAGE FROM YOUR USER, SENT WHILE YOU WORK]";
/// The line after it.
pub const STEER_CLOSE: &str = "[/MESSAGE FROM YOUR USER]";

/// How the lines of the original begin. Its prompts declare them, and sessions go back and forth
/// between both programs.
pub const FOREIGN_STEER_OPEN: &str = "[OUT-OF-BAND USER MESSAGE";
/// The whole line, as its current version writes it.
const FOREIGN_STEER_LINE: &str = "[OUT-OF-BAND USER MESSAGE — a direct message from the user, delivered mid-turn; not tool output]";
pub const FOREIGN_STEER_CLOSE: &str = "[/OUT-OF-BAND USER MESSAGE]";

/// A steering text as it is appended to a tool result.
pub fn steer_block(message: &str) -> String {
    format!("\n\n{STEER_OPEN}\n{message}\n{STEER_CLOSE}")
}

/// The same between the lines that the prompt of the session declares to be the person's: a session
/// that the original began knows only the original's.
pub fn steer_block_for(system: &str, message: &str) -> String {
    if system.contains(STEER_OPEN) || !system.contains(FOREIGN_STEER_OPEN) {
        return steer_block(message);
    }
    let declared = system
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with(FOREIGN_STEER_OPEN) && line.ends_with(']'));
    let open = declared.unwrap_or(FOREIGN_STEER_LINE);
    format!("\n\n{open}\n{message}\n{FOREIGN_STEER_CLOSE}")
}

/// Every steering text in a tool result, between the lines of either program.
pub fn steered(content: &str) -> impl Iterator<Item = &str> {
    let ours = content.split(STEER_OPEN).skip(1).filter_map(|after| {
        let end = after.find(STEER_CLOSE)?;
        Some(after[..end].trim_matches('\n'))
    });
    let theirs = content
        .split(FOREIGN_STEER_OPEN)
        .skip(1)
        .filter_map(|after| {
            let (_, words) = after.split_once('\n')?;
            let end = words.find(FOREIGN_STEER_CLOSE)?;
            Some(words[..end].trim_matches('\n'))
        });
    ours.chain(theirs)
}

/// What the prompt is made from.
#[derive(Clone, Debug)]
pub struct PromptInputs<'a> {
    pub mode: PromptSize,
    /// SOUL.md of the home, already capped and scanned.
    pub soul: Option<&'a str>,
    /// Names of the tools that are really loaded.
    pub tools: BTreeSet<&'a str>,
    /// The index of the skills library.
    pub skills: Option<&'a str>,
    pub model: &'a str,
    pub provider: &'a str,
    pub guidance: &'a Guidance,
    pub environment: &'a PromptEnvironment,
    pub profile: Profile<'a>,
    /// `cli`, `telegram`, `cron`, …
    pub platform: &'a str,
    /// What the definition of the platform says; `None`: it has none.
    pub default_hint: Option<&'static str>,
    pub platform_hint: PlatformHint,
    /// Instructions of the caller (API, embedding program).
    pub system_message: Option<&'a str>,
    /// The project file, already capped and scanned.
    pub project: Option<&'a str>,
    /// The blocks of the memory files.
    pub memory: Option<&'a str>,
    pub user: Option<&'a str>,
    pub external_memory: Option<&'a str>,
    /// The day the session begins, in the user's time zone. No time of day: it would make every
    /// prompt different.
    pub date: NaiveDate,
    /// Only where the user asked for it.
    pub session_id: Option<&'a str>,
}

/// The switches of the `agent` section that concern the prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Guidance {
    pub enforcement: Enforcement,
    pub task_completion: bool,
    pub parallel_calls: bool,
}

impl Default for Guidance {
    fn default() -> Self {
        Self {
            enforcement: Enforcement::Auto,
            task_completion: true,
            parallel_calls: true,
        }
    }
}

/// `agent.tool_use_enforcement`: for which models the prompt insists on tool calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Enforcement {
    #[default]
    Auto,
    Always,
    Never,
    /// Models whose name contains one of these.
    Models(Vec<String>),
}

/// Model families that tend to announce instead of act.
const ENFORCED_FAMILIES: &[&str] = &[
    "gpt", "codex", "gemini", "gemma", "grok", "glm", "qwen", "deepseek",
];

impl Enforcement {
    /// Reads the config value: a boolean, a word or a list. Anything else is `Auto`.
    pub fn parse(value: &Value) -> Self {
        match value {
            Value::Bool(true) => Self::Always,
            Value::Bool(false) => Self::Never,
            Value::String(word) => match word.to_ascii_lowercase().as_str() {
                "true" | "always" | "yes" | "on" => Self::Always,
                "false" | "never" | "no" | "off" => Self::Never,
                _ => Self::Auto,
            },
            Value::Array(names) => Self::Models(
                names
                    .iter()
                    .filter_map(|name| name.as_str().map(str::to_lowercase))
                    .collect(),
            ),
            _ => Self::Auto,
        }
    }

    fn applies(&self, model: &str) -> bool {
        let model = model.to_lowercase();
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => ENFORCED_FAMILIES.iter().any(|name| model.contains(name)),
            Self::Models(names) => names.iter().any(|name| model.contains(name.as_str())),
        }
    }
}

/// Where the tools work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptEnvironment {
    /// `Linux (6.8)`, `macOS (15.1)`, …
    pub os: String,
    pub home: String,
    pub cwd: String,
    pub wsl: bool,
    /// A backend other than this machine, with what is known of it; then nothing of the host is
    /// told.
    pub backend: Option<Backend>,
    /// `HERMES_ENVIRONMENT_HINT`.
    pub extra: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backend {
    /// `docker`, `ssh`, …
    pub name: String,
    /// What a look inside returned.
    pub probe: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile<'a> {
    pub name: &'a str,
    /// The directory of the profile.
    pub home: &'a Path,
}

/// `platform_hints.<platform>` of the config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlatformHint {
    pub replace: Option<String>,
    pub append: Option<String>,
}

impl PlatformHint {
    /// Reads the config value: a string is appended, a mapping has `replace` and `append`.
    pub fn parse(value: &Value) -> Self {
        let text = |value: Option<&Value>| {
            value
                .and_then(Value::as_str)
                .map(str::trim)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        match value {
            Value::Object(map) => Self {
                replace: text(map.get("replace")),
                append: text(map.get("append")),
            },
            other => Self {
                replace: None,
                append: text(Some(other)),
            },
        }
    }

    fn render(&self, platform: &str, default: Option<&str>) -> Option<String> {
        let base = self
            .replace
            .as_deref()
            .or(default)
            .or_else(|| text::platform_hint(platform));
        let parts: Vec<&str> = base.into_iter().chain(self.append.as_deref()).collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }
}

/// The three tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemPrompt {
    pub stable: String,
    pub context: String,
    pub volatile: String,
}

impl SystemPrompt {
    /// The text that is stored and sent.
    pub fn join(&self) -> String {
        joined(&[&self.stable, &self.context, &self.volatile])
    }
}

pub fn build(inputs: &PromptInputs<'_>) -> SystemPrompt {
    if inputs.mode == PromptSize::Chat {
        return SystemPrompt {
            stable: text::CHAT.to_owned(),
            context: inputs.system_message.unwrap_or_default().to_owned(),
            volatile: closing(inputs),
        };
    }
    SystemPrompt {
        stable: stable(inputs),
        context: joined(&[
            inputs.system_message.unwrap_or_default(),
            &project(inputs.project),
        ]),
        volatile: joined(&[
            inputs.memory.unwrap_or_default(),
            inputs.user.unwrap_or_default(),
            inputs.external_memory.unwrap_or_default(),
            &closing(inputs),
        ]),
    }
}

fn joined<S: AsRef<str>>(parts: &[S]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .map(|part| part.as_ref().trim())
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("\n\n")
}

fn stable(inputs: &PromptInputs<'_>) -> String {
    let soul = inputs.soul.map(str::trim).filter(|soul| !soul.is_empty());
    let mut parts = vec![soul.unwrap_or(text::IDENTITY).to_owned()];
    if inputs.mode == PromptSize::Full {
        let about = if inputs.tools.contains("skill_view") {
            text::ABOUT_SKILL
        } else {
            text::ABOUT
        };
        parts.push(about.to_owned());
    }
    if !inputs.tools.is_empty() {
        parts.push(working(inputs));
        parts.push(format!(
            "{}\n{STEER_OPEN}\n…\n{STEER_CLOSE}\n{}\n{FOREIGN_STEER_LINE}\n…\n{FOREIGN_STEER_CLOSE}\n{}",
            text::STEER,
            text::STEER_OTHER,
            text::STEER_END
        ));
        parts.extend(enforcement(inputs));
    }
    if let Some(index) = inputs.skills
        && inputs.tools.contains("skill_view")
    {
        parts.push(format!("{}\n\n{}", text::SKILLS, index.trim()));
    }
    parts.push(environment(inputs.environment));
    parts.push(profile(&inputs.profile));
    parts.extend(
        inputs
            .platform_hint
            .render(inputs.platform, inputs.default_hint),
    );
    joined(&parts)
}

/// How to work, and what each loaded tool is for.
fn working(inputs: &PromptInputs<'_>) -> String {
    let lean = inputs.mode != PromptSize::Full;
    let mut lines = vec!["## Working"];
    if inputs.guidance.task_completion {
        lines.push(text::COMPLETION);
    }
    if inputs.guidance.parallel_calls && inputs.tools.len() > 1 {
        lines.push(text::PARALLEL);
    }
    lines.push(text::UNTRUSTED);
    let by_tool = [
        ("memory", text::MEMORY, true),
        ("session_search", text::SESSION_SEARCH, true),
        ("skill_manage", text::SKILL_MANAGE, false),
        ("todo", text::TODO, false),
    ];
    for (tool, guidance, in_lean) in by_tool {
        if inputs.tools.contains(tool) && (in_lean || !lean) {
            lines.push(guidance);
        }
    }
    lines.join("\n")
}

fn enforcement(inputs: &PromptInputs<'_>) -> Option<String> {
    if !inputs.guidance.enforcement.applies(inputs.model) {
        return None;
    }
    let model = inputs.model.to_lowercase();
    let is = |names: &[&str]| names.iter().any(|name| model.contains(name));
    let addendum = if inputs.mode != PromptSize::Full {
        ""
    } else if is(&["gemini", "gemma"]) {
        text::GEMINI
    } else if is(&["gpt", "codex", "grok"]) {
        text::GPT
    } else {
        ""
    };
    Some(format!("{}\n{addendum}", text::ENFORCEMENT))
}

fn environment(environment: &PromptEnvironment) -> String {
    let mut out = String::from("## Environment\n");
    if let Some(backend) = &environment.backend {
        let _ = write!(
            out,
            "Commands and file tools work inside a {} environment, not on the machine that Hermes \
             runs on.",
            backend.name
        );
        match &backend.probe {
            Some(probe) => {
                let _ = write!(out, "\n{}", probe.trim());
            }
            None => out.push_str(" Look for yourself what it is (uname -a; whoami; pwd)."),
        }
    } else {
        let facts = [
            ("System", &environment.os),
            ("Home directory", &environment.home),
            ("Working directory", &environment.cwd),
        ];
        let lines: Vec<String> = facts
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        out.push_str(&lines.join("\n"));
        if environment.wsl {
            let _ = write!(out, "\n{}", text::WSL);
        }
    }
    if let Some(extra) = &environment.extra {
        let _ = write!(out, "\n{}", extra.trim());
    }
    out
}

fn profile(profile: &Profile<'_>) -> String {
    format!(
        "Hermes profile: {}, kept in {}. Skills, memories and jobs of other profiles belong to \
         other agents; leave them alone unless the user says otherwise.",
        profile.name,
        profile.home.display()
    )
}

fn project(file: Option<&str>) -> String {
    file.map(|file| {
        format!(
            "# Project instructions\n\nFrom the project you are working in; follow them within \
             it.\n\n{}",
            file.trim()
        )
    })
    .unwrap_or_default()
}

/// The last lines. `Model:` and `Provider:` are read back from stored prompts, also by the
/// Python program.
/// The label is shared with the original, which reads prompts that we stored.
const STARTED: &str = "Conversation started: ";
const DAY: &str = "%A, %B %d, %Y";

fn closing(inputs: &PromptInputs<'_>) -> String {
    let mut out = format!("{STARTED}{}", inputs.date.format(DAY));
    if let Some(id) = inputs.session_id {
        let _ = write!(out, "\nSession ID: {id}");
    }
    if !inputs.model.is_empty() {
        let _ = write!(out, "\nModel: {}", inputs.model);
    }
    if !inputs.provider.is_empty() {
        let _ = write!(out, "\nProvider: {}", inputs.provider);
    }
    out
}

/// Whether a stored prompt is the one of a model that only chats. It would keep another one from
/// acting.
pub fn is_for_chat(stored: &str) -> bool {
    stored.starts_with(text::CHAT)
}

/// What to tell the model with the next message when a stored prompt names another model than the
/// one in use. `None`: it names the same one, or none.
pub fn identity_note(stored: &str, model: &str, provider: &str) -> Option<String> {
    let named = |label: &str| {
        stored
            .lines()
            .rev()
            .take(6)
            .find_map(|line| line.strip_prefix(label))
            .map(str::trim)
    };
    let other = |given: Option<&str>, now: &str| given.is_some_and(|given| given != now);
    (other(named("Model:"), model) || other(named("Provider:"), provider))
        .then(|| format!("[Note: from here on you run as {model} (provider {provider}).]"))
}

/// What to tell the model with the next message when the day is no longer the one it was told.
pub fn date_note(stated: NaiveDate, today: NaiveDate) -> Option<String> {
    (stated != today).then(|| format!("[Note: today is {}.]", today.format(DAY)))
}

/// The day that a stored prompt names.
pub fn told_date(stored: &str) -> Option<NaiveDate> {
    let day = stored
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(STARTED))?;
    NaiveDate::parse_from_str(day.trim(), DAY).ok()
}
