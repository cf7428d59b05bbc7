//! User programs that run on events.
//!
//! Two kinds, as in the original: commands under `hooks:` in config.yaml, each of which needs a
//! person's consent once ([`consent`]), and directories under `hooks/` of the home with a
//! `HOOK.yaml` and a handler. Each gets the event as JSON on standard input. A hook that fails or
//! times out is logged and stops nothing; only `pre_tool_call` can block.

pub(crate) mod consent;
mod read;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::programs::own_program;
use hermes_core::task;
use regex::Regex;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::child;

pub use consent::Consent;
pub use read::load;

/// Limit of unawaited hooks.
const MAX_UNAWAITED_HOOKS: usize = 32;

/// One hook.
#[derive(Clone, Debug)]
pub struct Hook {
    /// `agent:end`, `pre_tool_call`, `command:*`, …
    pub event: String,
    pub action: HookAction,
    pub timeout: Duration,
    /// For tools: which ones, by their whole name.
    pub matcher: Option<Regex>,
    /// Whether it may run: agreed to, or in need of no agreement.
    pub agreed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAction {
    /// A command of config.yaml.
    Command(String),
    /// The directory of a handler.
    Handler { dir: PathBuf, file: HookHandler },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookHandler {
    /// `handler.py` with `handle(event, context)`.
    Python,
    /// `handler` or `handler.sh`, executable.
    Program(&'static str),
}

/// An event for hooks.
#[derive(Clone, Debug, Default)]
pub struct HookEvent {
    pub session: String,
    /// The tool and its arguments, for events of tools.
    pub tool: Option<(String, Value)>,
    /// Everything else, by name.
    pub extra: Value,
}

/// All hooks of the home. Cheap to clone.
#[derive(Clone)]
pub struct Hooks {
    list: Arc<[Hook]>,
    beside: Arc<Semaphore>,
}

impl Hooks {
    pub fn new(list: Vec<Hook>) -> Self {
        Self {
            list: list.into(),
            beside: Arc::new(Semaphore::new(MAX_UNAWAITED_HOOKS)),
        }
    }

    pub fn list(&self) -> &[Hook] {
        &self.list
    }

    /// Whether any hook listens to this event.
    pub fn has_hooks_for(&self, event: &str) -> bool {
        self.list
            .iter()
            .any(|hook| hook.agreed && hook.listens_to(event))
    }

    /// Those that run when this happens, in the order in which they run.
    pub fn for_event<'a>(
        &'a self,
        event: &'a str,
        happening: &'a HookEvent,
    ) -> impl Iterator<Item = &'a Hook> {
        let list = self.list.iter();
        list.filter(move |hook| hook.agreed && hook.listens_to(event) && hook.matches(happening))
    }

    /// Runs the hooks of an event without waiting for them.
    pub fn notify(&self, event: &str, happening: HookEvent) {
        if !self.has_hooks_for(event) {
            return;
        }
        let Ok(permit) = Arc::clone(&self.beside).try_acquire_owned() else {
            tracing::warn!(event, "hooks are left out: too many run already");
            return;
        };
        let (hooks, event) = (self.clone(), event.to_owned());
        task::spawn("hooks", async move {
            hooks.ask(&event, &happening).await;
            drop(permit);
        });
    }

    /// Runs the hooks of an event one after the other and returns their answers.
    pub async fn ask(&self, event: &str, happening: &HookEvent) -> Vec<Value> {
        let mut answers = Vec::new();
        for hook in self.for_event(event, happening) {
            match hook.run(event, happening).await {
                Ok(answer) => answers.extend(answer),
                Err(why) => tracing::warn!(event, hook = hook.name(), "hook: {why}"),
            }
        }
        answers
    }

    /// The reason if a hook blocks a tool call.
    pub async fn objection(&self, happening: &HookEvent) -> Option<String> {
        let answers = self.ask("pre_tool_call", happening).await;
        answers.iter().find_map(block_reason)
    }
}

/// Either of the two forms that scripts use.
fn block_reason(answer: &Value) -> Option<String> {
    let is = |key: &str| answer.get(key).and_then(Value::as_str) == Some("block");
    if !is("action") && !is("decision") {
        return None;
    }
    let text = |key: &str| answer.get(key)?.as_str().map(str::to_owned);
    let why = text("message").or_else(|| text("reason"));
    Some(
        why.filter(|why| !why.is_empty())
            .unwrap_or_else(|| "a hook of the person refuses this call".to_owned()),
    )
}

impl Hook {
    /// Its name in lists and logs.
    pub fn name(&self) -> String {
        match &self.action {
            HookAction::Command(command) => command.clone(),
            HookAction::Handler { dir, .. } => {
                let name = dir.file_name().unwrap_or_default();
                format!("hooks/{}", name.to_string_lossy())
            }
        }
    }

    fn listens_to(&self, event: &str) -> bool {
        match self.event.strip_suffix('*') {
            Some(beginning) => event.starts_with(beginning),
            None => self.event == event,
        }
    }

    fn matches(&self, happening: &HookEvent) -> bool {
        match (&self.matcher, &happening.tool) {
            (Some(matcher), Some((tool, _))) => matcher.is_match(tool),
            _ => true,
        }
    }

    /// Runs it once and returns its answer, if that is a JSON object.
    pub async fn run(&self, event: &str, happening: &HookEvent) -> Result<Option<Value>, String> {
        let input = match &self.action {
            HookAction::Command(_) => payload(event, happening),
            HookAction::Handler { .. } => handler_payload(event, happening),
        };
        let program = self.program(event);
        let ended = child::run(program, &input.to_string(), None, self.timeout).await?;
        // A script may block and fail at the same time: its answer counts.
        let answer = serde_json::from_str::<Value>(ended.out.trim()).ok();
        match answer.filter(Value::is_object) {
            Some(answer) => Ok(Some(answer)),
            None => ended.printed().map(|_| None),
        }
    }

    fn program(&self, event: &str) -> Command {
        let mut program = match &self.action {
            HookAction::Command(command) => child::shell(command),
            HookAction::Handler {
                dir,
                file: HookHandler::Program(name),
            } => {
                let mut program = Command::from(own_program(dir.join(name)));
                program.current_dir(dir);
                program
            }
            HookAction::Handler {
                dir,
                file: HookHandler::Python,
            } => {
                let mut program = Command::from(own_program("python3"));
                program
                    .args(["-c", CALLS_HANDLE])
                    .arg(dir.join("handler.py"));
                program.current_dir(dir);
                program
            }
        };
        program.env("HERMES_HOOK_EVENT", event);
        program
    }
}

/// Loads a handler written for the original and calls it.
const CALLS_HANDLE: &str = "import asyncio, importlib.util, inspect, json, sys
spec = importlib.util.spec_from_file_location('handler', sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
given = json.load(sys.stdin)
result = module.handle(given['event'], given['context'])
if inspect.isawaitable(result):
    async def wait(): return await result
    result = asyncio.run(wait())
if isinstance(result, dict):
    print(json.dumps(result))
";

fn payload(event: &str, happening: &HookEvent) -> Value {
    let (tool, input) = match &happening.tool {
        Some((tool, input)) => (Some(tool), Some(input)),
        None => (None, None),
    };
    let cwd = std::env::current_dir().unwrap_or_default();
    json!({
        "hook_event_name": event,
        "tool_name": tool,
        "tool_input": input,
        "session_id": happening.session,
        "cwd": cwd,
        "extra": happening.extra,
    })
}

fn handler_payload(event: &str, happening: &HookEvent) -> Value {
    let mut context = happening.extra.as_object().cloned().unwrap_or_default();
    context.insert("session_id".to_owned(), happening.session.clone().into());
    if let Some((tool, input)) = &happening.tool {
        context.insert("tool_name".to_owned(), tool.clone().into());
        context.insert("tool_input".to_owned(), input.clone());
    }
    json!({"event": event, "context": context})
}
