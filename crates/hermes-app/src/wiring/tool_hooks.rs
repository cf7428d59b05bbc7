//! Hooks around tools: one may block a call, others receive its result.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::home::HomeTools;
use hermes_agent::ToolSource;
use hermes_config::Config;
use hermes_core::BoxFuture;
use hermes_core::model::ModelInfo;
use hermes_core::tool::{
    Registry, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use serde_json::{Value, json};

use crate::hooks::{self, Hook, HookEvent, Hooks};

use crate::context::AppContext;

/// The hooks of the home, and the problems with invalid ones.
pub fn read_hooks(cx: &AppContext, config: &Config) -> (Vec<Hook>, Vec<String>) {
    let variable = cx.env.get("HERMES_ACCEPT_HOOKS").unwrap_or_default();
    let accepted = cx.accept_hooks
        || matches!(
            variable.trim().to_ascii_lowercase().as_str(),
            "1" | "true" | "yes" | "on"
        );
    let block = Value::Object(config.hooks.clone());
    hooks::load(&cx.home, Some(&block), accepted || config.hooks_auto_accept)
}

/// The same without the problems. `reports`: they were reported when the process started.
pub fn load_hooks(cx: &AppContext, config: &Config, reports: bool) -> Hooks {
    let (list, problems) = read_hooks(cx, config);
    if reports {
        return Hooks::new(list);
    }
    for problem in problems {
        tracing::warn!("{problem}");
    }
    for hook in list.iter().filter(|hook| !hook.agreed) {
        tracing::warn!(
            "the hook {} on {} does not run until you approve it: hermes hooks allow",
            hook.name(),
            hook.event
        );
    }
    Hooks::new(list)
}

/// The tools wrapped with hooks; unchanged if there are no hooks.
pub(super) fn with_hooks(tools: &Arc<HomeTools>, hooks: Hooks) -> Arc<dyn ToolSource> {
    let tools = Arc::clone(tools);
    if hooks.has_hooks_for("pre_tool_call") || hooks.has_hooks_for("post_tool_call") {
        return Arc::new(HookedTools {
            tools,
            hooks,
            last: Mutex::default(),
        });
    }
    tools
}

struct HookedTools {
    tools: Arc<HomeTools>,
    hooks: Hooks,
    /// The last tools, without and with hooks.
    last: Mutex<Option<(Registry, Registry)>>,
}

impl ToolSource for HookedTools {
    fn prepare(&self) -> BoxFuture<'_, Vec<String>> {
        ToolSource::prepare(self.tools.as_ref())
    }

    fn registry(&self) -> Registry {
        let registry = self.tools.registry();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((bare, hooked)) = &*last
            && is_same(bare, &registry)
        {
            return hooked.clone();
        }
        let hooked = Registry::new(registry.iter().map(|tool| {
            let (tool, hooks) = (Arc::clone(tool), self.hooks.clone());
            Arc::new(HookedTool { tool, hooks }) as Arc<dyn Tool>
        }));
        *last = Some((registry, hooked.clone()));
        hooked
    }

    fn specs(&self, registry: &Registry, model: &ModelInfo) -> Arc<[ToolSpec]> {
        self.tools.specs(registry, model)
    }

    fn carried_over(&self) -> Option<String> {
        self.tools.carried_over()
    }

    fn compacted(&self) {
        self.tools.compacted();
    }
}

fn is_same(one: &Registry, other: &Registry) -> bool {
    one.iter().count() == other.iter().count()
        && one.iter().zip(other.iter()).all(|(a, b)| Arc::ptr_eq(a, b))
}

struct HookedTool {
    tool: Arc<dyn Tool>,
    hooks: Hooks,
}

impl Tool for HookedTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn offered(&self, beside: &Registry) -> ToolSpec {
        self.tool.offered(beside)
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let input = Value::Object(args.clone());
            let mut happening = HookEvent {
                session: cx.session.to_string(),
                tool: Some((self.spec().name.clone(), input)),
                extra: json!({"tool_call_id": cx.call_id, "turn_id": cx.turn.0}),
            };
            let objection = tokio::select! {
                () = cx.cancel.cancelled() => {
                    return ToolOutcome::error(ToolErrorKind::Cancelled, "stopped before it ran");
                }
                objection = self.hooks.objection(&happening) => objection,
            };
            if let Some(why) = objection {
                return ToolOutcome::error(ToolErrorKind::Denied, why);
            }
            let started_at = Instant::now();
            let outcome = self.tool.call(args, cx).await;
            let (status, result) = match &outcome {
                ToolOutcome::Done(content) => ("ok", content.text().into_owned()),
                ToolOutcome::Error { text, .. } => ("error", text.clone()),
            };
            let millis = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
            if let Some(extra) = happening.extra.as_object_mut() {
                extra.insert("status".to_owned(), status.into());
                extra.insert("result".to_owned(), result.into());
                extra.insert("duration_ms".to_owned(), millis.into());
            }
            self.hooks.notify("post_tool_call", happening);
            outcome
        })
    }
}
